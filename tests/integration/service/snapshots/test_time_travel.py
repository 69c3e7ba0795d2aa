"""Time travel by version and by time: in-commit timestamps, file times, and cleaned-up logs."""

import pytest
from tests.support.log_by_hand import HOUR, START, LogByHand, add

from delvec_errors import BadRequest, CorruptLog, VersionNotFound
from delvec_service.scans.describe import history
from delvec_service.snapshots.time_travel import milliseconds

ENABLED = {"delta.enableInCommitTimestamps": "true"}


def at(log, time):
    return log.load(timestamp=str(time)).version


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1700000000123", 1_700_000_000_123),
        ("-1", -1),
        (" 2026-01-31 ", 1_769_817_600_000),
        ("2026-01-31T00:00:00", 1_769_817_600_000),
        ("2026-01-31T00:00:00Z", 1_769_817_600_000),
        ("2026-01-31 02:00:00+02:00", 1_769_817_600_000),
        ("2026-01-31 01:00:00 Europe/Paris", 1_769_817_600_000),
        ("2026-01-31 00:00 UTC", 1_769_817_600_000),
        ("2026-07-31 02:00:00 Europe/Paris", 1_785_456_000_000),
        ("2026-01-31T00:00:00.123999", 1_769_817_600_123),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("0001-01-01", -62_135_596_800_000),
    ],
)
def test_times_as_text(text, expected):
    assert milliseconds(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-13-01",
        "2026-01-31T25:00",
        "2026-01-31 08:00 Mars/Olympus",
        "2026-01-31 08:00 ../../etc/passwd",
        "2026-01-31 08:00+01:00 UTC",
        "٢٠٢٦",
        "1" * 19,
        "x" * 5000,
    ],
)
def test_text_that_is_no_time_is_refused(text):
    with pytest.raises(BadRequest, match="ISO 8601") as caught:
        milliseconds(text)
    assert len(caught.value.message) < 300


def test_the_boundaries_are_those_of_delta(tmp_path):
    """The newest version at or before a time; before the oldest and after the newest there is none."""
    log = LogByHand(tmp_path / "t", 3)
    for version in range(4):
        time = START + version * HOUR
        assert at(log, time) == version
        if version < 3:
            assert at(log, time + 1) == at(log, time + HOUR - 1) == version
    with pytest.raises(
        VersionNotFound, match="its oldest readable version, 0, was committed at 2023"
    ) as caught:
        at(log, START - 1)
    assert caught.value.details["earliest"] == 0
    assert caught.value.details["earliest_timestamp"] == "2023-11-14T22:13:20.000Z"
    with pytest.raises(VersionNotFound, match="its newest version, 3, was committed at 2023") as caught:
        at(log, START + 3 * HOUR + 1)
    assert caught.value.details["latest_timestamp"] == "2023-11-15T01:13:20.000Z"


def test_what_history_says_can_be_travelled_to(tmp_path):
    log = LogByHand(tmp_path / "t", 2)
    for version, time in ((3, START), (4, START - HOUR), (5, START + 9 * HOUR)):
        log.commit(version, add(f"f{version}"), time=time)
    entries = history(log.store(), "people")
    assert [entry.version for entry in entries] == [5, 4, 3, 2, 1, 0]
    assert [at(log, entry.timestamp) for entry in entries] == [5, 4, 3, 2, 1, 0]


def test_commits_before_a_checkpoint_still_push_later_times_forward(tmp_path):
    log = LogByHand(tmp_path / "t", 2)
    log.commit(3, add("f3"), time=START)
    log.checkpoint(2, add("f1"), add("f2"))
    log.write("_last_checkpoint", '{"version":2,"size":4}')
    assert at(log, START + 2 * HOUR) == 2
    assert at(log, START + 2 * HOUR + 1) == 3


def test_the_range_after_a_clean_up(tmp_path):
    log = LogByHand(tmp_path / "t", 5)
    log.checkpoint(3, *map(add, ("f1", "f2", "f3")))
    log.forget(0, 1, 2)
    assert [at(log, START + version * HOUR) for version in (3, 4, 5)] == [3, 4, 5]
    assert sorted(log.files(version=3)) == ["f1", "f2", "f3"]
    with pytest.raises(VersionNotFound, match="its oldest readable version, 3"):
        at(log, START + 2 * HOUR)
    with pytest.raises(VersionNotFound, match="oldest version that can be read is 3") as caught:
        log.load(version=2)
    assert caught.value.details == {"table": "people", "version": 2, "earliest": 3}


def test_commits_that_a_clean_up_left_before_the_checkpoint_cannot_be_read(tmp_path):
    log = LogByHand(tmp_path / "t", 5)
    log.checkpoint(4, *map(add, ("f1", "f2", "f3", "f4")))
    log.forget(0, 1)
    for version in (2, 3):
        with pytest.raises(VersionNotFound, match="oldest version that can be read is 4"):
            log.load(version=version)
        with pytest.raises(VersionNotFound, match="its oldest readable version, 4"):
            at(log, START + version * HOUR)


def test_a_checkpoint_whose_commit_is_gone(tmp_path):
    log = LogByHand(tmp_path / "t", 5)
    log.checkpoint(3, *map(add, ("f1", "f2", "f3")))
    log.forget(0, 1, 2, 3)
    assert log.load(version=3).num_files == 3
    assert log.load().num_files == 5
    assert at(log, START + 4 * HOUR) == 4
    # The commit time of version 3 is no longer recorded.
    with pytest.raises(VersionNotFound, match="its oldest readable version, 4"):
        at(log, START + 3 * HOUR)


def test_a_checkpoint_alone(tmp_path):
    log = LogByHand(tmp_path / "t", 1)
    path = log.checkpoint(1, add("f1"))
    log.forget(0, 1)
    snapshot = log.load()
    assert (snapshot.version, snapshot.timestamp) == (1, path.stat().st_mtime_ns // 1_000_000)
    assert at(log, snapshot.timestamp) == 1


def test_a_damaged_commit_behind_its_checkpoint_is_of_no_interest(tmp_path):
    log = LogByHand(tmp_path / "t", 2)
    log.checkpoint(2, add("f1"), add("f2"))
    log.write(f"{2:020d}.json", "{")
    assert log.load().num_files == 2
    with pytest.raises(CorruptLog, match="line 1"):
        history(log.store(), "people")


# --- in-commit timestamps -------------------------------------------------------------------------------


def test_in_commit_timestamps_from_the_start(tmp_path):
    log = LogByHand(tmp_path / "t", **ENABLED)
    times = [START, START + 5, START + 6, START + HOUR]
    for version, time in enumerate(times):
        actions = (log.protocol, log.metadata) if version == 0 else (add(f"f{version}"),)
        log.commit(version, *actions, time=START - version * HOUR, info={"inCommitTimestamp": time})
    assert [at(log, time) for time in times] == [0, 1, 2, 3]
    assert at(log, START + HOUR - 1) == 2
    with pytest.raises(VersionNotFound, match="its oldest readable version, 0"):
        at(log, START - 1)
    with pytest.raises(VersionNotFound, match="its newest version, 3"):
        at(log, START + HOUR + 1)
    log.checkpoint(2, add("f1"), add("f2"))
    log.forget(0, 1)
    assert log.load(version=2).timestamp == START + 6
    assert at(log, START + 6) == 2
    with pytest.raises(VersionNotFound, match="its oldest readable version, 2"):
        at(log, START + 5)


@pytest.fixture
def enabled_later(tmp_path):
    """File times up to version 2, in-commit timestamps from 3 on; the files of those say nothing of use."""
    log = LogByHand(tmp_path / "t", 2)
    configuration = {
        **ENABLED,
        "delta.inCommitTimestampEnablementVersion": "3",
        "delta.inCommitTimestampEnablementTimestamp": str(START + 3 * HOUR),
    }
    log.metadata["metaData"]["configuration"] = configuration
    log.commit(3, log.metadata, time=START + 99 * HOUR, info={"inCommitTimestamp": START + 3 * HOUR})
    log.commit(4, add("f4"), time=1, info={"inCommitTimestamp": START + 4 * HOUR})
    return log


def test_in_commit_timestamps_enabled_later(enabled_later):
    assert [at(enabled_later, START + version * HOUR) for version in range(5)] == [0, 1, 2, 3, 4]
    assert [at(enabled_later, START + version * HOUR - 1) for version in range(1, 5)] == [0, 1, 2, 3]
    assert [enabled_later.load(version=version).timestamp for version in range(5)] == [
        START + version * HOUR for version in range(5)
    ]


def test_in_commit_timestamps_enabled_later_after_a_clean_up(enabled_later):
    enabled_later.checkpoint(4, *map(add, ("f1", "f2", "f4")))
    enabled_later.commit(5, add("f5"), info={"inCommitTimestamp": START + 5 * HOUR})
    enabled_later.forget(0, 1, 2, 3)
    assert [at(enabled_later, START + version * HOUR) for version in (4, 5)] == [4, 5]
    with pytest.raises(VersionNotFound, match="its oldest readable version, 4"):
        at(enabled_later, START + 3 * HOUR)


def test_history_says_when_a_version_was_committed_as_time_travel_does(enabled_later):
    entries = history(enabled_later.store(), "people")
    assert [entry.timestamp for entry in entries] == [START + version * HOUR for version in (4, 3, 2, 1, 0)]
    enabled_later.metadata["metaData"]["configuration"] = {}
    enabled_later.commit(5, enabled_later.metadata, time=START + 200 * HOUR)
    entries = history(enabled_later.store(), "people")
    assert [at(enabled_later, entry.timestamp) for entry in entries] == [5, 4, 3, 2, 1, 0]


def test_in_commit_timestamps_turned_off_again_do_not_count(enabled_later):
    enabled_later.metadata["metaData"]["configuration"] = {"delta.enableInCommitTimestamps": "false"}
    enabled_later.commit(5, enabled_later.metadata, time=START + 200 * HOUR)
    assert at(enabled_later, START + 98 * HOUR) == 2
    assert at(enabled_later, START + 99 * HOUR) == 3
    assert at(enabled_later, START + 200 * HOUR) == 5


def test_a_commit_without_the_timestamp_that_it_owes_is_named(enabled_later):
    enabled_later.commit(5, add("f5"))
    enabled_later.commit(6, add("f6"), info={"inCommitTimestamp": START + 6 * HOUR})
    with pytest.raises(CorruptLog, match="Version 5 of table 'people' has no in-commit timestamp"):
        at(enabled_later, START + 5 * HOUR)
