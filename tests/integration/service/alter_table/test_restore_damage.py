"""RESTORE where the metadata of a version cannot be read: a typed error, and nothing is committed."""

import json

import pytest

import delvec
from delvec_errors import DelvecError

SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
DAMAGES = {
    "column id": {
        "configuration": {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "x"}
    },
    "no JSON": {"schemaString": "{"},
    "no struct": {"schemaString": '"long"'},
    "unknown type": {
        "schemaString": json.dumps(
            {**SCHEMA, "fields": [{"name": "id", "type": "x", "nullable": True, "metadata": {}}]}
        )
    },
    "deep": {"schemaString": '{"type":"array","elementType":' * 5000 + '"long"' + "}" * 5000},
    "fields": {"schemaString": '{"type":"struct","fields":[1]}'},
    "surrogate": {
        "schemaString": json.dumps(
            {**SCHEMA, "fields": [{"name": "\ud800", "type": "long", "nullable": True, "metadata": {}}]}
        )
    },
    "mapping": {"configuration": {"delta.columnMapping.mode": "x"}},
    "no mapping": {"configuration": {"delta.columnMapping.mode": "name"}},
    "unknown partition": {"partitionColumns": ["nobody"]},
    "partitions": {"partitionColumns": ["id", "id"]},
    "property": {"configuration": {"delta.checkpointInterval": "x", "delta.appendOnly": "maybe"}},
    "format": {"format": {"provider": "orc", "options": {}}},
    "no format": {"format": None},
    "number": {"configuration": {"delta.logRetentionDuration": "interval 99999999999999999999 weeks"}},
}


def log(folder, version, *actions):
    path = folder / "_delta_log" / f"{version:020}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))


def metadata(**changes):
    found = {
        "id": "5f7b3c0e-0000-4000-8000-000000000001",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(SCHEMA),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": 1_700_000_000_000,
    }
    return {"metaData": {**found, **changes}}


PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


@pytest.mark.parametrize("damaged", ["restored", "newest"])
def test_unreadable_metadata_is_a_typed_error(tmp_path, damaged):
    outcomes = {}
    with delvec.connect(database_url=f"sqlite:///{tmp_path / 'x.db'}") as lake:
        for name, change in DAMAGES.items():
            folder = tmp_path / name
            bad, good = metadata(**change), metadata()
            log(folder, 0, PROTOCOL, bad if damaged == "restored" else good)
            log(folder, 1, good if damaged == "restored" else bad)
            outcomes[name] = _restored(lake, folder)
            if outcomes[name] != "restored":
                assert len(list((folder / "_delta_log").glob("*.json"))) == 2, name

    assert "InternalError" not in outcomes.values(), outcomes
    if damaged == "restored":
        assert outcomes["column id"] == outcomes["no JSON"] == "CorruptLog"


def _restored(lake, folder):
    try:
        lake.table(str(folder)).restore(0)
    except DelvecError as error:
        return error.type
    return "restored"
