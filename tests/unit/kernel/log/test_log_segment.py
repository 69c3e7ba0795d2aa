"""The log files that make up a version."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delvec_errors import MissingLogFile, VersionNotFound
from delvec_kernel.log.log_segment import LogListing, commit_name

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


@dataclass(frozen=True)
class Listed:
    name: str
    size: int = 1
    last_modified_ms: int = 1000


def listing(*names):
    return LogListing(Listed(name) for name in names)


def checkpoint(version, rest="checkpoint.parquet"):
    return f"{version:020d}.{rest}"


def versions(segment):
    base = None if segment.checkpoint is None else segment.checkpoint.version
    return base, [version for version, _ in segment.commits]


def test_commits_from_zero():
    found = listing(*map(commit_name, range(3)))
    assert versions(found.segment("t")) == (None, [0, 1, 2])
    assert versions(found.segment("t", 1)) == (None, [0, 1])


@pytest.mark.parametrize(
    "names",
    [
        [checkpoint(2)],
        [checkpoint(2, f"checkpoint.{UUID}.json")],
        [checkpoint(2, f"checkpoint.{UUID}.parquet")],
        [checkpoint(2, f"checkpoint.000000000{part}.0000000002.parquet") for part in (1, 2)],
    ],
)
def test_every_kind_of_checkpoint_is_a_start(names):
    found = listing(*names, *map(commit_name, range(2, 5)))
    assert versions(found.segment("t")) == (2, [3, 4])
    assert len(found.segment("t").checkpoint.files) == len(names)
    assert versions(found.segment("t", 2)) == (2, [])


def test_the_newest_checkpoint_that_is_not_too_new_is_used():
    found = listing(*map(commit_name, range(10)), checkpoint(2), checkpoint(5), checkpoint(8))
    assert versions(found.segment("t", 7)) == (5, [6, 7])
    assert versions(found.segment("t", 1)) == (None, [0, 1])


def test_incomplete_multi_part_checkpoints_are_ignored():
    part = checkpoint(2, "checkpoint.0000000001.0000000002.parquet")
    assert versions(listing(*map(commit_name, range(4)), part).segment("t")) == (None, [0, 1, 2, 3])


def test_other_files_are_ignored():
    found = listing(
        *map(commit_name, range(3)),
        "00000000000000000003.00000000000000000005.compacted.json",
        "00000000000000000000.0000000000000000001.compacted.json",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٩.json",
        "00000000000000000009.crc",
        "00000000000000000009.json.tmp",
        "00000000000000000009.00000000-0000-0000-0000-000000000000.json",
        "00000000000000000009.checkpoint.00000000-0000.parquet",
        "00000000000000000009.checkpoint.0000000000.0000000000.parquet",
        "99999999999999999999.json",
        "9.json",
        ".00000000000000000009.json.crc",
        "00000000000000000009.json.",
        "_last_checkpoint",
        "random",
    )
    assert found.latest == 2
    assert versions(found.segment("t")) == (None, [0, 1, 2])


def test_a_gap_is_named():
    with pytest.raises(
        MissingLogFile, match=r"has no 00000000000000000002\.json, without which version 3"
    ) as caught:
        listing(*map(commit_name, (0, 1, 3))).segment("t")
    assert caught.value.details == {"table": "t", "version": 2, "file": commit_name(2)}
    with pytest.raises(MissingLogFile, match=r"00000000000000000011\.json"):
        listing(checkpoint(10), *map(commit_name, (10, 12))).segment("t")


def test_a_log_without_its_first_commit_has_a_gap():
    with pytest.raises(MissingLogFile, match=r"00000000000000000000\.json"):
        listing(*map(commit_name, (1, 2))).segment("t")


def test_versions_out_of_range_are_refused():
    found = listing(checkpoint(10), *map(commit_name, range(8, 13)))
    with pytest.raises(VersionNotFound, match="newest is 12") as caught:
        found.segment("t", 13)
    assert caught.value.details["latest"] == 12
    for old in (0, 8, 9):
        with pytest.raises(VersionNotFound, match="the oldest version that can be read is 10"):
            found.segment("t", old)
    assert found.retained() == [10, 11, 12]


def compaction(first, last):
    return f"{first:020d}.{last:020d}.compacted.json"


def ways(segment):
    """Return what is read: (first, last) of each compaction, and the versions of single commits."""
    return [(one.first, one.last) for one in segment.compactions], segment.uncompacted


@pytest.mark.parametrize(
    ("compactions", "checkpoints", "wanted", "expected"),
    [
        ([(2, 5)], [], 9, ([(2, 5)], [0, 1, 6, 7, 8, 9])),
        ([(2, 5), (2, 7), (6, 9)], [], 9, ([(2, 7)], [0, 1, 8, 9])),
        ([(0, 4), (5, 9)], [], 9, ([(0, 4), (5, 9)], [])),
        ([(0, 4), (5, 9)], [], 8, ([(0, 4)], [5, 6, 7, 8])),
        ([(0, 4), (3, 9)], [], 9, ([(0, 4)], [5, 6, 7, 8, 9])),
        ([(0, 4), (4, 9)], [3], 9, ([(4, 9)], [])),
        ([(2, 6)], [3], 9, ([], [4, 5, 6, 7, 8, 9])),
        ([(5, 5), (7, 6)], [], 9, ([], list(range(10)))),
        ([(5, 10)], [], 9, ([], list(range(10)))),
    ],
)
def test_compactions_replace_the_commits_they_cover(compactions, checkpoints, wanted, expected):
    names = [*map(commit_name, range(10)), *(compaction(*one) for one in compactions)]
    segment = listing(*names, *map(checkpoint, checkpoints)).segment("t", wanted)
    assert ways(segment) == expected
    # The commits stay listed, since a compaction may turn out to be corrupt.
    base = checkpoints[0] + 1 if checkpoints else 0
    assert [version for version, _ in segment.commits] == list(range(base, wanted + 1))


def test_a_compaction_does_not_close_a_gap():
    names = [commit_name(version) for version in (0, 1, 4)]
    with pytest.raises(MissingLogFile, match=r"00000000000000000002\.json"):
        listing(*names, compaction(2, 3)).segment("t")


def test_corrupt_files_can_be_left_out():
    parts = [checkpoint(8, f"checkpoint.000000000{part}.0000000002.parquet") for part in (1, 2)]
    other = checkpoint(8, f"checkpoint.{UUID}.parquet")
    found = listing(
        *map(commit_name, range(10)), compaction(0, 4), checkpoint(5), other, checkpoint(8), *parts
    )
    without = []
    for expected in (other, checkpoint(8), parts[0], checkpoint(5)):
        segment = found.segment("t", without=without)
        assert segment.checkpoint.name == expected
        without.append(expected)
    assert ways(found.segment("t", without=without)) == ([(0, 4)], [5, 6, 7, 8, 9])
    assert ways(found.segment("t", without=[*without, compaction(0, 4)])) == ([], list(range(10)))


@pytest.mark.parametrize(
    ("commits", "checkpoints", "gap"),
    [
        ([0, 1, 2], [], False),
        ([0, 2], [], True),
        ([5, 6], [], False),
        ([0, 2, 3], [2], False),
        ([0, 1, 2, 4], [2], True),
        ([], [7], False),
        ([], [], False),
    ],
)
def test_a_listing_knows_whether_it_has_a_gap(commits, checkpoints, gap):
    assert listing(*map(commit_name, commits), *map(checkpoint, checkpoints)).gap == gap


def test_versions_that_can_be_read_end_at_a_gap_until_the_next_checkpoint():
    found = listing(*map(commit_name, (0, 1, 3, 4, 5, 6)), checkpoint(5))
    assert found.retained() == [0, 1, 5, 6]


def test_timestamps_ascend_even_if_the_clock_does_not():
    files = [Listed(commit_name(version), 1, time) for version, time in enumerate([50, 40, 40, 90])]
    found = LogListing(files)
    assert found.times == {0: 50, 1: 51, 2: 52, 3: 90}
    assert found.segment("t").file_time == 90


@given(st.sets(st.integers(0, 12), min_size=1), st.sets(st.integers(0, 12), max_size=3), st.integers(0, 12))
def test_a_segment_is_complete_or_refused(commits, checkpoints, wanted):
    found = listing(*map(commit_name, commits), *map(checkpoint, checkpoints))
    base = max((version for version in checkpoints if version <= wanted), default=None)
    needed = range(0 if base is None else base + 1, wanted + 1)
    if wanted <= max(commits | checkpoints) and commits.issuperset(needed):
        assert versions(found.segment("t", wanted)) == (base, list(needed))
    else:
        with pytest.raises((MissingLogFile, VersionNotFound)) as caught:
            found.segment("t", wanted)
        assert (
            caught.value.details["version"] not in commits.intersection(needed)
            or caught.type is VersionNotFound
        )
