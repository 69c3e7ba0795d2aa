"""``delvec changes``: the change data feed in the shell."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import delvec
from delvec.cli import run


@pytest.fixture
def people(tmp_path, monkeypatch):
    """A table with two rows in version 1, one of which version 2 deletes."""
    monkeypatch.setenv("DELVEC_DATABASE_URL", f"sqlite:///{tmp_path}/delvec.db")
    monkeypatch.delenv("DELVEC_URL", raising=False)
    properties = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
    with delvec.connect() as lake:
        table = lake.create_table(
            str(tmp_path / "people"), pa.schema([("id", pa.int64())]), properties=properties
        )
        table.append(pa.table({"id": [1, 2]}))
        table.delete("id = 1")
    return str(tmp_path / "people")


def test_changes_are_printed_for_people_and_for_programs(people, capsys):
    assert run(["changes", people, "--start-version", "2"]) == 0
    printed = capsys.readouterr().out
    assert "_change_type" in printed
    assert "delete" in printed
    assert (
        run(["changes", people, "--start-version", "1", "--where", "_change_type = 'delete'", "--json"]) == 0
    )
    (row,) = json.loads(capsys.readouterr().out)
    assert run(["changes", people, "--start-version", "1", "--limit", "2", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2
    assert (row["id"], row["_change_type"], row["_commit_version"]) == (1, "delete", 2)


def test_changes_are_written_to_a_file(people, tmp_path, capsys):
    out = tmp_path / "changes.parquet"
    columns = "_commit_version,id"
    assert run(["changes", people, "--start-version", "0", "--columns", columns, "--out", str(out)]) == 0
    assert pq.read_table(out).sort_by(
        [("_commit_version", "ascending"), ("id", "ascending")]
    ).to_pydict() == {
        "_commit_version": [1, 1, 2],
        "id": [1, 2, 1],
    }
    assert "wrote 3 rows" in capsys.readouterr().err


def test_a_range_that_is_none_is_one_line(people, capsys):
    assert run(["changes", people, "--start-version", "9"]) == 1
    assert "newest version is 2" in capsys.readouterr().err
    assert run(["changes", people]) == 1
    assert "start-version" in capsys.readouterr().err
