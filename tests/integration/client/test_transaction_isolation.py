"""What transactions over several tables depend on: each command after a read, and a commit of another writer in between."""

import pyarrow as pa
import pytest

import delvec
from delvec_commands.dml.table_definition import TableDefinition
from delvec_kernel.schema.types import StructType

pytestmark = pytest.mark.every_case("each is a way to lose a write")

COLUMNS = {"id": pa.int64(), "n": pa.int64()}


@pytest.fixture(scope="module")
def connection(tmp_path_factory):
    warehouse = tmp_path_factory.mktemp("lake")
    with delvec.connect(warehouse, database_url="sqlite://") as lake:
        yield lake


@pytest.fixture
def lake(connection):
    for name in ("counts", "others"):
        connection.create_table(name, pa.schema(COLUMNS.items()), managed=True).append(rows((1, 10), (2, 20)))
    yield connection
    for name in ("counts", "others"):
        connection.drop_table(name)


def rows(*values):
    return pa.table(
        dict(zip(COLUMNS, map(list, zip(*values, strict=True)), strict=True)), pa.schema(COLUMNS.items())
    )


def content(lake, name="counts"):
    return sorted(tuple(row.values()) for row in lake.table(name).to_arrow(["id", "n"]).to_pylist())


def merged(table, number):
    source = rows((1, number))
    return table.merge(source, "target.id = source.id").when_matched_update_all().execute()


def replaced(table, _number):
    table.replace_with(TableDefinition(StructType.from_arrow(pa.schema(COLUMNS.items()))))


def low_level(table, _number):
    scan, _ = table.plan(predicate="id = 1", row_ids=True)
    paths = scan.files["path"].to_pylist()
    with table.transaction("DELETE", predicate="id = 1") as changes:
        changes.delete_rows({path: [0] for path in paths[:1]})


COMMANDS = {
    "merge": merged,
    "update": lambda table, number: table.update({"n": str(number)}, "id = 1"),
    "overwrite": lambda table, number: table.overwrite(rows((1, number))),
    "replace where": lambda table, number: table.overwrite(rows((1, number)), replace_where="id = 1"),
    "replace table": replaced,
    "delete": lambda table, _: table.delete("id = 1"),
    "delete keys": lambda table, _: table.delete(keys=pa.table({"id": pa.array([1], pa.int64())})),
    "low level": low_level,
    "append": lambda table, number: table.append(rows((3, number))),
}
DEPENDS_ON_EVERY_ROW = ("overwrite", "replace table")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_a_command_after_a_read_does_not_undo_what_another_writer_has_changed_since(lake, command, isolation):
    tx = lake.transaction(isolation=isolation)
    [number] = tx.table("counts").to_arrow(["n"], "id = 1")["n"].to_pylist()
    lake.table("counts").update({"n": "n + 5"}, "id = 1")
    COMMANDS[command](tx.table("counts"), number + 1)
    if (command, isolation) == ("append", "snapshot"):
        tx.commit()
        assert content(lake) == [(1, 15), (2, 20), (3, 11)]
        return
    with pytest.raises(delvec.ConcurrentModification, match="counts"):
        tx.commit()
    assert content(lake) == [(1, 15), (2, 20)]


AFTER = {
    "merge": [(1, 11), (2, 20), (9, 9)],
    "update": [(1, 11), (2, 20), (9, 9)],
    "replace where": [(1, 11), (2, 20), (9, 9)],
    "append": [(1, 10), (2, 20), (3, 11), (9, 9)],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_a_command_passes_rows_that_it_does_not_depend_on(lake, command, isolation):
    """Nobody has read them: serializable transactions depend on what they have read, other than by the command."""
    tx = lake.transaction(["counts"], isolation=isolation)
    if isolation == "snapshot":
        tx.table("counts").to_arrow()
    lake.table("counts").append(rows((9, 9)))
    COMMANDS[command](tx.table("counts"), 11)
    if command in DEPENDS_ON_EVERY_ROW:
        with pytest.raises(delvec.ConcurrentModification, match="counts"):
            tx.commit()
        assert content(lake) == [(1, 10), (2, 20), (9, 9)]
        return
    tx.commit()
    assert content(lake) == AFTER.get(command, [(2, 20), (9, 9)])


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_a_command_changes_the_version_that_its_transaction_has_read_also_after_a_change_of_columns(
    lake, isolation
):
    tx = lake.transaction(isolation=isolation)
    assert tx.table("counts").count() == 2
    lake.table("counts").alter.add_columns("more string")
    tx.table("counts").overwrite(rows((1, 11)))
    with pytest.raises(delvec.MetadataChanged, match="counts"):
        tx.commit()
    tx = lake.transaction(isolation=isolation)
    assert tx.table("counts").to_arrow().num_rows == 2
    lake.table("counts").append(rows((9, 9)))
    tx.table("counts").append(pa.table({"id": [3], "n": [3], "new": ["x"]}), merge_schema=True)
    if isolation == "snapshot":
        tx.commit()
        assert content(lake) == [(1, 10), (2, 20), (3, 3), (9, 9)]
        return
    with pytest.raises(delvec.ConcurrentModification, match="counts"):
        tx.commit()


def test_a_commit_of_the_users_own_is_based_on_the_version_that_the_transaction_has_read(lake):
    tx = lake.transaction(isolation="snapshot")
    assert tx.table("counts").count() == 2
    newest = lake.table("counts").update({"n": "n + 5"}, "id = 1").version
    scan, _ = tx.table("counts").plan(version=newest)
    changes = tx.table("counts").transaction("DELETE", read_version=newest)
    changes.remove(scan.files["path"].to_pylist())
    with pytest.raises(delvec.ConcurrentWrite, match=f"based on version {newest}"):
        changes.commit()
