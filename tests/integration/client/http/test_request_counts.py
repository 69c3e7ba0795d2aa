"""The number of requests per command, each of which is a round trip."""

import pyarrow as pa
import pytest

from delvec_service.in_process import InProcessService

PLAN, BEGIN, COMMIT = "plan_scan", "begin_transaction", "commit"
ROWS = pa.table({"id": pa.array(range(100), pa.int64()), "name": ["x"] * 100})


@pytest.fixture
def requests(monkeypatch):
    """The operations that were asked for."""
    made = []
    run = InProcessService._run

    def noting(self, operation, *rest):
        made.append(operation.name)
        return run(self, operation, *rest)

    monkeypatch.setattr(InProcessService, "_run", noting)
    return made


@pytest.fixture
def table(lake, tmp_path, request):
    properties = {"delta.enableDeletionVectors": str(request.param).lower()}
    table = lake.create_table(tmp_path / "table", "id long, name string", properties=properties)
    table.append(ROWS)
    return table


@pytest.mark.parametrize("table", [True], indirect=True)
def test_a_delete_by_vector_is_a_plan_and_a_commit(lake, table, requests):
    fresh = lake.table(table.location)
    requests.clear()

    fresh.delete("id = 3")

    assert requests == [PLAN, COMMIT]


@pytest.mark.parametrize(
    ("table", "command", "expected"),
    [
        (True, lambda table: table.delete(), [PLAN, COMMIT]),
        (True, lambda table: table.delete("id = 1000"), [PLAN]),
        (True, lambda table: table.delete("id = 3", dry_run=True), [PLAN]),
        (True, lambda table: table.delete(keys=pa.table({"id": [3]})), [BEGIN, PLAN, COMMIT]),
        (False, lambda table: table.delete("id = 3"), [PLAN, BEGIN, COMMIT]),
        (False, lambda table: table.delete(keys=pa.table({"id": [3]})), [BEGIN, PLAN, COMMIT]),
        (True, lambda table: table.update({"name": "'y'"}, "id = 3"), [PLAN, BEGIN, COMMIT]),
        (True, lambda table: table.append(ROWS), [BEGIN, COMMIT]),
        (True, lambda table: table.overwrite(ROWS), [BEGIN, PLAN, COMMIT]),
        (
            True,
            lambda table: table.merge(ROWS, "target.id = source.id").when_matched_update_all().execute(),
            [BEGIN, PLAN, COMMIT],
        ),
        (True, lambda table: table.to_arrow(), [PLAN]),
    ],
    indirect=["table"],
)
def test_a_command_asks_no_more_than_it_needs(table, command, expected, requests):
    requests.clear()

    command(table)

    assert requests == expected


@pytest.mark.parametrize("table", [True], indirect=True)
def test_deleting_by_keys_follows_columns_that_are_renamed_meanwhile(lake, table, monkeypatch):
    """Between the answer with the schema and the plan."""
    table.alter.set_properties({"delta.columnMapping.mode": "name"})
    plan, other = table.plan, lake.table(table.location)

    def after_a_rename(*arguments, **options):
        monkeypatch.setattr(table, "plan", plan)
        other.alter.rename_column("name", "called")
        return plan(*arguments, **options)

    monkeypatch.setattr(table, "plan", after_a_rename)
    done = table.delete(keys=pa.table({"id": [3, 4]}))

    assert done["numDeletedRows"] == 2
    assert table.to_arrow().num_rows == 98
