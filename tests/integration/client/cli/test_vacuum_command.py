"""``delvec vacuum``, ``DeltaTable.vacuum()`` and ``VACUUM``."""

import json
import os

import pyarrow as pa
import pytest

import delvec


@pytest.fixture
def left_over(people, tmp_path):
    path = tmp_path / "people" / "old.parquet"
    path.write_bytes(b"left over")
    os.utime(path, (0, 0))
    return path


def test_from_python(people, left_over):
    assert people.vacuum(dry_run=True)["files"] == ["old.parquet"]
    assert left_over.exists()
    done = people.vacuum()
    assert (done["result"], done["num-files"], done["size-in-bytes"]) == ("deleted", 1, 9)
    assert not left_over.exists()
    with pytest.raises(
        delvec.RetentionTooShort, match="enforce_retention_duration=False, in the shell --no-retention-check"
    ):
        people.vacuum(24)
    with pytest.raises(delvec.BadRequest):
        people.vacuum(-1)
    assert people.vacuum(0, enforce_retention_duration=False)["result"] == "nothing-to-delete"
    assert people.to_arrow().num_rows == 10


def test_in_sql(lake, people, left_over, tmp_path):
    dry = lake.sql("VACUUM people RETAIN 200 HOURS DRY RUN")
    assert dry.to_pydict() == {"path": [left_over.as_uri()]}
    assert left_over.exists()
    done = lake.sql(f"VACUUM '{tmp_path / 'people'}' FULL")
    assert isinstance(done, pa.Table)
    assert done["path"].to_pylist() == [people.location]
    assert not left_over.exists()
    assert lake.sql("VACUUM people LITE DRY RUN").num_rows == 0
    with pytest.raises(delvec.InvalidStatement, match="INVENTORY is expected"):
        lake.sql("VACUUM people USING files")
    with pytest.raises(delvec.RetentionTooShort):
        lake.sql(f"VACUUM delta.`{tmp_path / 'people'}` RETAIN 0 HOURS")
    with pytest.raises(delvec.InvalidStatement, match="HOURS is expected"):
        lake.sql("VACUUM people RETAIN 200")
    with pytest.raises(delvec.InvalidStatement, match="DRY RUN"):
        lake.sql("VACUUM people DRY")


def test_from_the_shell(people, left_over, tmp_path, run):
    folder = tmp_path / "people"
    dry = run("vacuum", folder, "--dry-run")
    assert dry.out.splitlines() == ["old.parquet"]
    assert "1 file (9 B) would be deleted" in dry.err
    assert json.loads(run("vacuum", folder, "--dry-run", "--json").out)["num-files"] == 1
    assert "1 file (9 B) deleted" in run("vacuum", folder, "--keep-version", "0").err
    assert not left_over.exists()


def test_lite_from_the_shell(people, left_over, tmp_path, run):
    assert "0 files (0 B) deleted" in run("vacuum", tmp_path / "people", "--lite").err
    assert left_over.exists()


def test_everyone_reads_the_table_afterwards(people, left_over):
    people.delete("id = 3")
    people.vacuum(0, enforce_retention_duration=False)
    assert people.to_arrow().num_rows == 9
    assert people.check()["num-errors"] == 0
    assert people.history(2)[0]["operation"] == "VACUUM END"
