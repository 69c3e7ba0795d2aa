"""What transactions over several tables depend on: each command after a read, and a commit of another writer in between."""

import pyarrow as pa
import pytest

import delvec
from delvec_commands.dml.table_definition import TableDefinition
from delvec_contract.plans import AdditionsRequest
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
        feed = {"delta.enableChangeDataFeed": "true"}
        table = connection.create_table(name, pa.schema(COLUMNS.items()), properties=feed, managed=True)
        table.append(rows((1, 10), (2, 20)))
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
    source = rows((1, number)).to_pylist()  # whose types are the table's
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
    **{key: [(1, 11), (2, 20), (9, 9)] for key in ("merge", "update", "replace where")},
    "append": [(1, 10), (2, 20), (3, 11), (9, 9)],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_a_command_passes_rows_that_it_does_not_depend_on(lake, command, isolation):
    """Nobody has read them: a serializable transaction depends on what it has read, other than by commands that commit."""
    tx = lake.transaction(["counts"], isolation=isolation)
    if isolation == "snapshot":
        tx.table("counts").to_arrow()
    lake.table("counts").append(rows((9, 9)))
    COMMANDS[command](tx.table("counts"), 11)
    # A plan of the user's own is a read, as any other.
    if command in DEPENDS_ON_EVERY_ROW or (command, isolation) == ("low level", "serializable"):
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


def additions(table):
    asked = AdditionsRequest(starting_version=0)
    return table.service.additions(table.id, asked)[1].num_rows


READS = {
    "rows": lambda table: table.to_arrow().num_rows,
    "a plan": lambda table: table.plan(row_ids=True)[0].num_files_total,
    "a count": lambda table: table.count(),
    "the version": lambda table: table.version(),
    "changes": lambda table: table.changes(0).num_rows,
    "changes to a version": lambda table: table.changes(0, 99).num_rows,
    "additions": additions,
    "history": lambda table: len(table.history()),
    "detail": lambda table: table.detail()["numFiles"],
    "an update of no row": lambda table: table.update({"n": "0"}, "id = 77").version,
    "a merge of no row": lambda table: (
        table.merge(rows((77, 0)), "target.id = source.id").when_matched_delete().execute().version
    ),
}
TELL_OF_THE_NEWEST = ("history", "detail")


@pytest.mark.parametrize("read", READS)
def test_every_read_is_pinned_and_a_later_change_of_the_table_a_conflict(lake, read):
    for isolation in ("snapshot", "serializable"):
        tx = lake.transaction(isolation=isolation)
        answer = READS[read](tx.table("counts"))
        lake.table("counts").append(rows((9, 9)))
        assert read in TELL_OF_THE_NEWEST or READS[read](tx.table("counts")) == answer
        tx.table("others").append(rows((3, 30)))
        if isolation == "snapshot":
            tx.commit()
            continue
        with pytest.raises(delvec.ConcurrentModification, match="counts"):
            tx.commit()
    assert content(lake, "others") == [(1, 10), (2, 20), (3, 30)]


@pytest.mark.parametrize("read", READS)
def test_an_append_to_a_table_depends_on_what_was_read_of_it_before(lake, read):
    tx = lake.transaction()
    READS[read](tx.table("counts"))
    lake.table("counts").append(rows((9, 9)))
    tx.table("counts").append(rows((3, 30)))
    with pytest.raises(delvec.ConcurrentModification, match="counts"):
        tx.commit()
    assert content(lake) == [(1, 10), (2, 20), (9, 9)]


INDEPENDENT = {
    "an append": lambda tx: tx.table("counts").append(rows((3, 30))),
    "an append of nothing": lambda tx: tx.table("counts").append(rows((3, 30)).slice(0, 0)),
    "INSERT": lambda tx: tx.sql("INSERT INTO counts VALUES (3, 30)"),
    "INSERT with a default": lambda tx: tx.sql("INSERT INTO counts VALUES (3, DEFAULT)"),
    "an old version": lambda tx: tx.table("counts").to_arrow(version=0),
    "changes up to an old version": lambda tx: tx.table("counts").changes(0, 0),
}


@pytest.mark.parametrize("use", INDEPENDENT)
def test_what_depends_on_no_row_of_the_newest_version_is_no_read(lake, use):
    tx = lake.transaction()
    INDEPENDENT[use](tx)
    lake.table("counts").append(rows((9, 9)))
    tx.table("others").append(rows((3, 30)))
    tx.commit()
    assert lake.table("counts").count(predicate="id = 9") == 1
    assert content(lake, "others") == [(1, 10), (2, 20), (3, 30)]


STATEMENTS = {
    "INSERT INTO counts SELECT id + 2, n FROM counts": True,
    "DELETE FROM counts WHERE n >= (SELECT max(n) FROM counts)": True,
    "MERGE INTO counts t USING (SELECT max(id) AS id FROM counts) s ON t.id = s.id WHEN MATCHED THEN DELETE": True,
    "DELETE FROM counts WHERE id IN (SELECT id FROM others)": False,
    "UPDATE counts SET n = 0 WHERE id = 1": False,
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_depends_on_the_rows_that_its_query_reads(lake, statement):
    tx = lake.transaction()
    tx.sql(statement)
    lake.table("counts").append(rows((9, 9)))
    if STATEMENTS[statement]:
        with pytest.raises(delvec.ConcurrentModification, match="counts"):
            tx.commit()
    else:
        tx.commit()


def test_a_statement_depends_on_other_tables_that_its_query_reads(lake):
    tx = lake.transaction()
    tx.sql("DELETE FROM counts WHERE id IN (SELECT id FROM others)")
    lake.table("others").append(rows((9, 9)))
    with pytest.raises(delvec.ConcurrentModification, match="others"):
        tx.commit()
