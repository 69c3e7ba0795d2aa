"""Backups of the SQL store, and restoring them into another database."""

import json
from datetime import UTC, datetime

import pytest

from delvec_contract.policies import MaintenanceRun, Policy, PolicyContent
from delvec_errors import BadRequest, TableNotFound
from delvec_kernel.locations import table_id
from delvec_service.store.backup import LEFT_OUT, backup, restore
from delvec_service.store.database import Database
from delvec_service.store.health_samples import CommitCounts, HealthSampleStore
from delvec_service.store.maintenance_store import MaintenanceStore
from delvec_service.store.models import REVISION, Base
from delvec_service.store.registry import Registry

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
LOCATION = "file:///data/é people"
POLICY = Policy(
    name="nightly",
    type="system.vacuum",
    content=PolicyContent(enable=True, config={}),
    table_id=None,
    pattern="sales.*",
    updated_at=NOW,
)


@pytest.fixture
def database(url):
    made = Database(url)
    made.migrate()
    yield made
    made.close()


@pytest.fixture
def other(tmp_path):
    made = Database(f"sqlite:///{tmp_path / 'other.db'}")
    yield made
    made.close()


def fill(database):
    Registry(database).add(LOCATION, "people", "people")
    store = MaintenanceStore(database)
    store.set_policy("", POLICY)
    run = MaintenanceRun(
        id="run",
        table="people",
        type="system.vacuum",
        policy="nightly",
        state="done",
        reason="",
        started_at=NOW,
        ended_at=NOW,
    )
    store.record(table_id(LOCATION), run)
    HealthSampleStore(database).count(table_id(LOCATION), CommitCounts(3, 1, 0, 7, since=NOW))


def test_a_backup_of_either_database_restores_into_an_empty_one(database, other):
    fill(database)

    found = restore(other, backup(database))

    assert (
        found.rows
        == found.added
        == {
            "tables": 1,
            "maintenance_policies": 1,
            "maintenance_runs": 1,
            "commit_counts": 1,
            "commit_intervals": 1,
        }
    )
    assert Registry(other).get("people").location == LOCATION
    assert MaintenanceStore(other).policies("") == [POLICY]
    assert MaintenanceStore(other).runs("")[0].started_at == NOW
    assert HealthSampleStore(other).counts(table_id(LOCATION)).rows_saved == 7
    assert list(backup(other))[1:] == list(backup(database))[1:]


def test_existing_rows_stay_unless_replace_is_given(database, other):
    fill(database)
    lines = list(backup(database))
    restore(other, lines)
    Registry(other).add("file:///data/newer", "newer", "newer")
    MaintenanceStore(other).set_policy("", POLICY.model_copy(update={"pattern": "newer.*"}))

    again = restore(other, lines)

    assert again.added == {}
    assert MaintenanceStore(other).policy("", "nightly").pattern == "newer.*"
    restore(other, lines, replace=True)
    assert MaintenanceStore(other).policy("", "nightly").pattern == "sales.*"
    with pytest.raises(TableNotFound):
        Registry(other).get("newer")


def test_an_older_backup_gets_defaults_and_unknown_parts_are_reported(other):
    row = {
        "id": table_id(LOCATION),
        "name": "people",
        "location": LOCATION,
        "created_at": NOW.isoformat(),
        "colour": "red",
    }
    lines = [
        json.dumps({"format": "delvec-backup", "format-version": 1, "schema-revision": "0002"}),
        json.dumps({"table": "tables", "row": {"catalog": "", "folder_name": "people", **row}}),
        json.dumps({"table": "flags", "row": {"id": 1}}),
        json.dumps({"rows": 2}),
    ]

    found = restore(other, lines)

    assert found.added == {"tables": 1}
    assert sorted(found.unknown) == ["flags", "tables.colour"]


HEADER = json.dumps({"format": "delvec-backup", "format-version": 1, "schema-revision": REVISION})
ROW = json.dumps({"table": "maintenance_policies", "row": {"catalog": "", "name": "x"}})


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "truncated"),
        (["PK\x03\x04"], "not a JSON object"),
        (["{}"], "first line"),
        ([HEADER.replace("1,", "9,", 1)], "format version 9"),
        ([HEADER.replace(REVISION, "9999")], "upgrade Delvec"),
        ([HEADER, ROW], "truncated"),
        ([HEADER, '{"rows": 1}'], "neither a row"),
        ([HEADER, '{"rows": 0}', ROW], "follows its last"),
        ([HEADER, '{"table": "tables", "row": {"name": "x"}}', '{"rows": 1}'], "without catalog, id"),
        (
            [HEADER, '{"table": "tables", "row": {"catalog": "", "id": "x", "created_at": "soon"}}'],
            "not a valid time",
        ),
        ([HEADER, '{"table": "tables", "row": {"catalog": "", "id": {"a": []}}}'], "an invalid value"),
        ([HEADER, "[" * 100_000], "not a JSON object"),
    ],
)
def test_an_incomplete_backup_changes_nothing(other, lines, reason):
    other.migrate()
    fill(other)
    before = list(backup(other))[1:]

    with pytest.raises(BadRequest, match=reason):
        restore(other, lines, replace=True)

    assert list(backup(other))[1:] == before


def test_every_table_is_either_backed_up_or_left_out():
    """A table that can be rebuilt from the logs belongs in LEFT_OUT; all others are backed up."""
    assert set(Base.metadata.tables) >= LEFT_OUT
    for table in Base.metadata.sorted_tables:
        if table.name not in LEFT_OUT:
            assert "LargeBinary" not in {type(column.type).__name__ for column in table.columns}, table.name
