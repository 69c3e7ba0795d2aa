"""``delvec checkpoint`` and ``DeltaTable.checkpoint()``."""

import json

import pyarrow as pa
import pytest

import delvec


@pytest.fixture
def people(tmp_path):
    with delvec.connect() as lake:
        table = lake.create_table(str(tmp_path / "people"), pa.schema([("id", pa.int64())]))
        table.append(pa.table({"id": [1, 2, 3]}))
    return tmp_path / "people"


def test_a_closed_connection_has_written_its_checksums(people):
    assert (people / "_delta_log" / f"{1:020}.crc").exists()


def test_the_table_is_checkpointed_from_python(people):
    with delvec.connect() as lake:
        table = lake.table(str(people))
        first, second = table.checkpoint(), table.checkpoint(clean_up=True)
    assert (first["result"], first["version"], first["num-files"]) == ("written", 1, 1)
    assert (second["result"], second["clean-up"]["deleted"]) == ("exists", [])


def test_the_table_is_checkpointed_from_the_shell(people, run):
    dry = run("checkpoint", people, "--clean-up", "--dry-run")
    assert "nothing would be deleted: every checkpoint is still within" in dry.err
    assert not list(people.glob("_delta_log/*.checkpoint.*"))
    assert "wrote a classic checkpoint of version 1: 1 file" in run("checkpoint", people).err
    again = run("checkpoint", people, "--json")
    assert json.loads(again.out)["result"] == "exists"
