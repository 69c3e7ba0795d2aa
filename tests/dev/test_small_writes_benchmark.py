"""The benchmark of small writes: its batches, what is left after an erasure, and which goals are met."""

from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.erasure import Erasure, marks_left
from benchmarks.small_batches import Batches, Readings, applied, read, write_changes
from benchmarks.small_writers import make
from benchmarks.small_writes_report import TITLE, Results, SmallEffort, goals, write_page
from benchmarks.tables import people_batches

import delvec

OURS, PEER = "Delvec on DuckDB", "delta-spark with DVs"


def test_batches_delete_each_row_once_and_change_only_rows_that_are_there(tmp_path):
    rows, live, deleted = 10_000, set(range(10_000)), Counter()
    for path in write_changes(tmp_path, rows, 8):
        changes = pq.read_table(path, columns=["id", "op"]).to_pydict()
        by = {kind: [] for kind in "UDI"}
        for key, kind in zip(changes["id"], changes["op"], strict=True):
            by[kind].append(key)
        assert {*by["U"], *by["D"]} <= live
        assert not live & set(by["I"])
        assert len({*changes["id"]}) == len(changes["id"])
        assert 97 <= len(changes["id"]) <= 100
        assert max(by["U"]) >= rows * 0.98
        deleted.update(by["D"])
        live = (live - set(by["D"])) | set(by["I"])
    assert set(deleted.values()) == {1}
    assert not [key for key in deleted if key % 100 != 3]


@pytest.mark.parametrize("name", [OURS, "deltalake"])
def test_a_contender_applies_batches_and_reads_the_rows(tmp_path, monkeypatch, name):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    rows, table = 2000, tmp_path / "table"
    batches = write_changes(tmp_path / "changes", rows, 2)
    with delvec.connect() as lake:
        vectors = {"delta.enableDeletionVectors": str(name == OURS).lower()}
        (people,) = people_batches(rows)
        lake.create_table(table, people.schema, properties=vectors).append(people)
    contender = make(name, tmp_path)
    seconds, versions, (objects, written) = applied(contender, tmp_path, table, batches, 60.0)
    readings = read(contender, tmp_path, table, rows, 0)
    contender.close()

    assert len(seconds) == 2
    assert versions == [2, 3]
    assert objects >= 4
    assert written > 1000
    assert readings.scan > 0
    with delvec.connect() as lake:
        assert lake.table(str(table)).count() == rows


def test_what_no_version_names_is_found_too(tmp_path):
    (tmp_path / "p=1").mkdir()
    pq.write_table(pa.table({"mark": ["a", "b"]}), tmp_path / "live.parquet")
    pq.write_table(pa.table({"mark": ["c", "d"]}), tmp_path / "p=1" / "old.parquet")

    assert marks_left(tmp_path, pa.array(["b", "c", "e"])) == 2


@pytest.fixture
def results(tmp_path):
    kept = Results(tmp_path / "small-writes.json")
    steady = [0.1] * 250
    kept.put_batches(
        Batches(OURS, steady, list(range(250)), 500, 1000, {"before": Readings(1.0, 0.1)}, 2.0, run="r")
    )
    kept.put_batches(Batches(PEER, [3.0, 2.0, 1.0], [1, 2, 3], 9, 90, run="r"))
    kept.put_erasure(Erasure(OURS, {"erase": 1.0, "purge": 1.0, "vacuum": 1.0}, {"erase": 5}, 10, 0, run="r"))
    kept.put_erasure(Erasure(PEER, {"erase": 2.0, "purge": 2.0, "vacuum": 2.0}, {"erase": 5}, 10, 0, run="r"))
    return Results(tmp_path / "small-writes.json")


def verdicts(results):
    return {goal.text: (goal.verdict, goal.found) for goal in goals(results)}


def test_goals_are_met_or_not(results):
    met = verdicts(results)
    assert met[f"{OURS}: p50 of a batch below all peers"] == ("met", f"0.10 s; {PEER}: 2.00 s")
    assert met[f"{OURS}: last hundred batches at most 1.1 times the first"] == ("met", "0.10 s, 0.10 s")
    assert met[f"{OURS}: erasure faster than all peers"] == ("met", f"3.00 s; {PEER}: 6.00 s")
    assert met["Delvec on Spark: p50 of a batch below all peers"][0] == "not measured"
    results.batches[OURS].seconds[-100:] = [4.0] * 100
    results.erasures[PEER].seconds = {"erase": 1.0}
    missed = verdicts(results)
    assert missed[f"{OURS}: p99 of a batch below all peers"] == ("**not met**", f"4.00 s; {PEER}: 3.00 s")
    assert missed[f"{OURS}: last hundred batches at most 1.1 times the first"][0] == "**not met**"
    assert missed[f"{OURS}: erasure faster than all peers"][0] == "**not met**"


def test_an_erasure_that_leaves_bytes_is_none(results):
    results.erasures[PEER].left = 1
    assert verdicts(results)[f"{OURS}: erasure faster than all peers"][0] == "not measured"


def test_the_page_has_what_was_measured_and_what_failed(results, tmp_path):
    results.put_batches(Batches("deltalake", failure="no space | left\nmore"))
    page = tmp_path / "page.md"
    write_page(page, results, SmallEffort())
    text = page.read_text()
    assert TITLE in text
    assert f"| {OURS} | 250 | 0.10 | 0.10 | 0.10 | 0.10 | 10.00 | 4 | 2.0 |" in text
    assert f"| {OURS} | 250 | 1.00 |  |  | 0.100 |  |  | 2.0 |" in text
    assert "| deltalake | failed: no space / left |" in text
    assert f"| {PEER} | 2.00 | 2.00 | 2.00 | 6.00 | 10 | 5 | 0 |" in text
    assert (tmp_path / "images" / "small-writes.svg").exists()
