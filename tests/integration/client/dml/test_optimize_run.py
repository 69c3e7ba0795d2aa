"""One run of OPTIMIZE: what it plans is what it does, in commits of the size that was asked for."""

import json

import pyarrow as pa
import pytest

from delvec_commands.dml.optimize_options import OptimizeOptions
from delvec_commands.dml.optimize_run import OptimizeRun, check_partitions_only
from delvec_errors import BadRequest, InvalidPredicate
from delvec_kernel.expressions.predicate import parse

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])
PARTS = ("a", "b", "c")


@pytest.fixture
def small_files(lake, tmp_path):
    """Three partitions with three files of ten rows each, at version 3; version 4 deletes a third of the rows."""
    table = lake.create_table(tmp_path / "t", SCHEMA, partition_by=["part"], engine="duckdb")
    for start in (0, 30, 60):
        table.append(
            pa.table({"id": range(start, start + 30), "part": [PARTS[i % 3] for i in range(30)]}, SCHEMA)
        )
    table.delete("id % 9 < 3")
    return table


def rows(table):
    return table.to_arrow().sort_by("id").to_pylist()


def run(table, **wanted):
    return OptimizeRun(table._service, table, OptimizeOptions(**wanted))


def commits(folder, first):
    """Return the actions of each version from ``first`` on."""
    log = folder / "_delta_log"
    versions = sorted(path for path in log.glob("*.json") if int(path.stem) >= first)
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in versions]


def test_a_run_does_what_it_planned_and_keeps_the_rows(small_files, tmp_path):
    before = rows(small_files)

    planned = run(small_files).planned()
    assert small_files.version() == 4  # nothing is committed
    made = run(small_files).execute()

    assert planned.read_version == 4
    assert sorted(len(each) for each in planned.bins) == [3, 3, 3]
    same = ("numRemovedFiles", "numRemovedBytes", "numBins", "totalConsideredFiles", "totalFilesSkipped")
    assert {name: made[name] for name in same} == {name: planned[name] for name in same}
    assert (made["numRemovedFiles"], made["numAddedFiles"], made["partitionsOptimized"]) == (9, 3, 3)
    assert rows(small_files) == before
    (actions,) = commits(tmp_path / "t", 5)
    changed = [each[kind] for each in actions for kind in ("add", "remove") if kind in each]
    assert len(changed) == 12
    assert not any(each["dataChange"] for each in changed)
    removed = {each["remove"]["path"] for each in actions if "remove" in each}
    assert removed == {path for paths in planned.bins for path in paths}


def test_each_commit_holds_about_the_bytes_asked_for(small_files, tmp_path):
    before = rows(small_files)

    made = run(small_files, commit_bytes=1).execute()

    assert (made["numBatches"], made["numBins"]) == (3, 3)
    versions = commits(tmp_path / "t", 5)
    assert [sum("remove" in each for each in actions) for actions in versions] == [3, 3, 3]
    assert rows(small_files) == before


def test_batches_that_are_committed_stay_when_a_later_one_fails(small_files, monkeypatch):
    before = rows(small_files)
    commit, done = OptimizeRun._commit, []

    def fails_at_the_second(self, *arguments):
        if done:
            raise OSError("no space left")
        done.append(commit(self, *arguments))

    monkeypatch.setattr(OptimizeRun, "_commit", fails_at_the_second)
    with pytest.raises(OSError, match="no space left"):
        run(small_files, commit_bytes=1).execute()
    monkeypatch.undo()

    assert small_files.version() == 5
    assert rows(small_files) == before
    assert run(small_files).execute()["numRemovedFiles"] == 6  # the rest, and nothing twice
    assert rows(small_files) == before


def test_only_the_partitions_of_the_condition_are_rewritten(small_files, tmp_path):
    made = run(small_files, where="part IN ('a', 'c')").execute()

    assert (made["numRemovedFiles"], made["totalFilesSkipped"]) == (6, 0)
    (actions,) = commits(tmp_path / "t", 5)
    assert {each["remove"]["partitionValues"]["part"] for each in actions if "remove" in each} == {"a", "c"}


def test_a_condition_on_other_columns_is_refused(small_files):
    scan, _ = small_files.plan()

    check_partitions_only(scan, parse("PART = 'a'", scan.schema))
    with pytest.raises(InvalidPredicate, match=r"reads id; .*partitioned by part"):
        run(small_files, where="part = 'a' AND id > 3").execute()
    with pytest.raises(InvalidPredicate, match=r"^REORG takes a condition on partition columns only"):
        small_files.optimize.run(OptimizeOptions("id > 3", purge=True))
    assert small_files.version() == 4


@pytest.mark.parametrize(
    "wrong", [{"target_size": 0}, {"commit_bytes": True}, {"max_bytes": "1"}, {"max_deleted_ratio": 1.5}]
)
def test_numbers_out_of_range_are_refused(wrong):
    with pytest.raises(BadRequest, match=next(iter(wrong))):
        OptimizeOptions(**wrong).check()
