"""Live files in segments: how commits are applied to them, and how files are found by path."""

import itertools

import numpy as np
import pytest
from tests.support.segments_in_memory import LOCATION, live_file

from delvec_kernel.file_index import packed_files
from delvec_kernel.file_index.file_rows import batch_from_adds
from delvec_kernel.file_index.live_files import LiveFiles, dead_rows
from delvec_kernel.file_index.packed_files import FileChange
from delvec_kernel.file_index.segment import SEGMENT_ROWS, Segment


def test_batches_become_full_segments_whatever_their_size():
    adds = [live_file(f"p=0/{number}") for number in range(2 * SEGMENT_ROWS + 5)]
    whole = batch_from_adds(adds)
    cuts = [0, 1, 1, 5000, 9000, 9001, SEGMENT_ROWS * 2, len(adds)]
    parts = [whole.slice(start, end - start) for start, end in itertools.pairwise(cuts)]
    live = LiveFiles.from_batches(iter(parts), LOCATION)
    assert [member.num_rows for member in live.members] == [SEGMENT_ROWS, SEGMENT_ROWS, 5]
    assert live.table["path"].to_pylist() == [add.path for add in adds]


def test_many_small_commits_leave_few_segments_and_copy_few_rows(monkeypatch):
    made = []
    of = Segment.of
    monkeypatch.setattr(Segment, "of", lambda batch, *where: made.append(batch.num_rows) or of(batch, *where))
    live, count = LiveFiles(LOCATION), 300
    for number in range(count):
        add = live_file(f"p=0/{number}")
        live = live.apply({add.path: FileChange(add)})
        assert len(live.members) <= 13
    assert sum(made) <= 13 * count


def test_a_commit_does_not_touch_the_segments_that_it_does_not_change():
    live = LiveFiles.from_batches(
        [batch_from_adds([live_file(f"p=0/{n}") for n in range(4 * SEGMENT_ROWS)])], LOCATION
    )
    after = live.apply({"p=0/9000": FileChange(removed={None}), "p=0/new": FileChange(live_file("p=0/new"))})
    assert [member.segment for member in after.members[:4]] == [member.segment for member in live.members]
    assert [member.dead.tolist() for member in after.members[:4]] == [[], [9000 - SEGMENT_ROWS], [], []]
    assert after.members[4].num_rows == 1


def test_segments_with_many_dead_rows_are_rewritten():
    adds = [live_file(f"p=0/{n}") for n in range(3 * SEGMENT_ROWS)]
    live = LiveFiles.from_batches([batch_from_adds(adds)], LOCATION)
    gone = {add.path: FileChange(removed={None}) for add in adds if int(add.path[4:]) % 3}
    live = live.apply(gone)
    assert [member.num_rows for member in live.members] == [SEGMENT_ROWS]
    assert not len(live.members[0].dead)


def test_dead_rows_survive_a_store():
    dead = np.array([3, 500, 8191], np.uint16)
    assert dead_rows(dead.tobytes()).tolist() == [3, 500, 8191]


def test_files_of_many_segments_are_found_by_one_index(monkeypatch):
    monkeypatch.setattr(packed_files, "SEGMENT_ROWS", 8)
    adds = [live_file(f"p=0/{number}") for number in range(40 * 8)]
    live = LiveFiles.from_batches([batch_from_adds(adds)], LOCATION)
    make, made = packed_files.PathIndex.__init__, []

    def noted(self, segments):
        made.append(len(segments))
        make(self, segments)

    monkeypatch.setattr(packed_files.PathIndex, "__init__", noted)
    paths = [adds[number].path for number in (0, 77, 319)]
    assert live.find_all([*paths, "p=0/none"]) == {add.path: add for add in adds if add.path in paths}
    for number in range(5):
        live = live.apply({adds[number].path: FileChange.to(None)})
        _ = live.members
        assert live.find(adds[number].path) is None
        assert live.find(adds[100 + number].path) == adds[100 + number]
    assert made == [40]


def test_who_looks_for_paths_once_makes_no_index(monkeypatch):
    """As a plan does that finds a new commit; of a large table an index takes seconds."""
    monkeypatch.setattr(packed_files, "SEGMENT_ROWS", 8)
    adds = [live_file(f"p=0/{number}") for number in range(40 * 8)]
    live = LiveFiles.from_batches([batch_from_adds(adds)], LOCATION)
    monkeypatch.setattr(packed_files.PathIndex, "__init__", lambda *_: pytest.fail("an index is made"))
    after = live.apply({adds[7].path: FileChange.to(None), "p=0/new": FileChange.to(live_file("p=0/new"))})
    assert sorted(after.table["path"].to_pylist()) == sorted(
        [*(a.path for a in adds if a is not adds[7]), "p=0/new"]
    )
