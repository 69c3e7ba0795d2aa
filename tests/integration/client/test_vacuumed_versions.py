"""Old versions after VACUUM: errors name the VACUUM, its time and user, and the oldest version that can be read."""

import json
import os
import time

import pytest

import delvec
from delvec_errors import DelvecError


def age(table):
    moment = time.time() - 3600
    for path in table.folder.rglob("*"):
        if path.is_file() and "_delta_log" not in path.parts:
            os.utime(path, (moment, moment))


def vacuum(table):
    age(table)
    return table.vacuum(retention_hours=0, enforce_retention_duration=False)


@pytest.fixture
def make(lake, tmp_path):
    def make(name="t"):
        table = lake.create_table(tmp_path / name, "id long, part string", partition_by=["part"])
        table.folder = tmp_path / name
        table.append([{"id": number, "part": "ab"[number % 2]} for number in range(20)])
        return table

    return make


@pytest.fixture
def table(make):
    """Version 1 appends, 2 and 3 replace its files, 4 is VACUUM START, 5 is VACUUM END, 6 appends."""
    table = make()
    table.overwrite([{"id": 1, "part": "a"}])
    table.overwrite([{"id": 2, "part": "a"}])
    vacuum(table)
    table.append([{"id": 3, "part": "b"}])
    return table


def test_the_vacuum_and_the_oldest_readable_version_are_named(table, lake):
    reads = [
        lambda: table.to_arrow(version=1),
        lambda: table.to_arrow(version=2, predicate="id = 1"),
        lambda: table.to_duckdb(version=1),
        lambda: table.count("id > 3", version=1),
        lambda: lake.sql(f"SELECT * FROM '{table.location}' VERSION AS OF 1"),
        lambda: table.restore(1),
        lambda: table.clone(table.folder.parent / "copy", version=1),
    ]
    started = table.history()[2]
    assert started["operation"] == "VACUUM START"
    for read in reads:
        with pytest.raises(DelvecError) as caught:
            read()
        message = caught.value.message
        assert "the VACUUM of version 4 (20" in message
        assert f", by {started['engineInfo']}) has deleted files that it needs, such as 'part=" in message
        assert "The oldest version that can be read is 3." in message
        assert "backup" not in message
        assert caught.value.details["oldest_readable_version"] == 3
    assert table.to_arrow(version=3)["id"].to_pylist() == [2]


def test_what_can_be_read_of_an_old_version_is_read(make):
    table = make()
    table.overwrite([{"id": 1, "part": "a"}], replace_where="part = 'a'")
    vacuum(table)

    assert table.count("part = 'b'", version=1) == 10
    assert sorted(table.to_arrow(version=1, predicate="part = 'b'")["id"].to_pylist()) == list(
        range(1, 20, 2)
    )
    with pytest.raises(delvec.MissingDataFile, match="oldest version that can be read is 2"):
        table.to_arrow(version=1)


def test_deletion_vectors_that_a_vacuum_has_deleted(make):
    table = make()
    table.delete("id = 4")
    table.delete("id = 6")
    vacuum(table)

    with pytest.raises(
        delvec.MissingDataFile, match=r"VACUUM of version 4 .*oldest version that can be read is 3\."
    ):
        table.to_arrow(version=2)
    assert table.count(version=3) == 18


def test_of_several_vacuums_the_one_that_deleted_the_file(make):
    table = make()
    table.overwrite([{"id": 1, "part": "a"}])
    vacuum(table)
    table.overwrite([{"id": 2, "part": "a"}])
    vacuum(table)

    with pytest.raises(
        delvec.MissingDataFile, match=r"VACUUM of version 3 .*oldest version that can be read is 5\."
    ):
        table.to_arrow(version=1)
    with pytest.raises(
        delvec.MissingDataFile, match=r"VACUUM of version 6 .*oldest version that can be read is 5\."
    ):
        table.to_arrow(version=2)


def test_changes_that_a_vacuum_has_deleted(make):
    table = make()
    table.alter.set_properties({"delta.enableChangeDataFeed": "true"})
    table.delete("id = 4")
    table.update({"part": "'b'"}, "id = 6")
    table.overwrite([{"id": 1, "part": "a"}])
    vacuum(table)
    table.append([{"id": 3, "part": "b"}])
    started = table.history()[2]

    reads = [
        lambda: table.changes(3),
        lambda: table.changes(4, 4),  # a change data file
        lambda: table.changes(3, predicate="id > 2"),
    ]
    for read in reads:
        with pytest.raises(delvec.MissingDataFile) as caught:
            read()
        message, details = caught.value.message, caught.value.details
        assert "the VACUUM of version 6 (20" in message
        assert f", by {started['engineInfo']}) has deleted files that they need, such as '" in message
        assert message.endswith("The oldest version whose changes can be read is 6.")
        assert (details["oldest_readable_version"], details["vacuum_version"]) == (6, 6)
        assert details["version"] in (3, 4)
    assert [row["id"] for row in table.changes(6).to_pylist()] == [3]


def test_changes_whose_live_file_is_gone_are_damaged(make):
    table = make()
    table.alter.set_properties({"delta.enableChangeDataFeed": "true"})
    table.append([{"id": 50, "part": "c"}])
    vacuum(table)
    next(table.folder.rglob("part=c/*.parquet")).unlink()

    with pytest.raises(delvec.MissingDataFile) as caught:
        table.changes(3)
    assert "VACUUM of" not in caught.value.message


def test_the_user_that_another_engine_names(table):
    path = next((table.folder / "_delta_log").glob("*04.json"))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0]["commitInfo"]["userName"] = "ops\n" + "x" * 500
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    with pytest.raises(
        delvec.MissingDataFile, match=r"\), by ops x{96}\) has deleted|, by ops x{96}\) has deleted"
    ):
        table.to_arrow(version=1)


def test_a_live_file_that_is_gone_is_damage(table):
    gone = next(table.folder.rglob("part=b/*.parquet"))
    gone.unlink()

    with pytest.raises(delvec.MissingDataFile, match="backup"):
        table.to_arrow()
    with pytest.raises(delvec.MissingDataFile) as caught:
        table.to_arrow(version=6)
    assert "VACUUM of version" not in caught.value.message
