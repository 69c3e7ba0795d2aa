"""Transactions over several tables in Python, in process and over HTTP."""

import pyarrow as pa
import pytest
from tests.integration.client.test_managed_tables import first_version
from tests.support.served import served

import delvec
from delvec_kernel import locations

TOKEN = "secret"
IDS = pa.table({"id": pa.array([1, 2, 3, 4, 5], pa.int64())})


@pytest.fixture(params=["in process", "over HTTP"])
def lake(request, tmp_path):
    warehouse = tmp_path / "lake"
    warehouse.mkdir()
    if request.param == "in process":
        with delvec.connect(warehouse, database_url="sqlite://") as connection:
            yield filled(connection, warehouse)
    else:
        with served(warehouse, TOKEN) as url, delvec.connect(url, token=TOKEN) as connection:
            yield filled(connection, warehouse)


def filled(lake, warehouse):
    for name in ("orders", "stock"):
        folder = warehouse / name
        first_version(folder, locations.table_id(locations.canonical(str(folder))))
        lake.register(folder, name).append(IDS)
    return lake


def ids(lake, name, **options):
    return sorted(lake.table(name).to_arrow(**options)["id"].to_pylist())


def test_commands_take_effect_together(lake):
    with lake.transaction() as tx:
        tx.table("orders").delete("id < 3")
        tx.table("stock").append(pa.table({"id": pa.array([6], pa.int64())}))
        assert (ids(lake, "orders"), ids(lake, "stock")) == ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5])
    assert (ids(lake, "orders"), ids(lake, "stock")) == ([3, 4, 5], [1, 2, 3, 4, 5, 6])
    assert [each.commit.version for each in tx.result.tables] == [3, 3]
    assert lake.table("orders").history(1)[0]["operation"] == "DELETE"


def test_all_kinds_of_commands(lake):
    source = pa.table({"id": pa.array([5, 9], pa.int64())})
    with lake.transaction() as tx:
        tx.table("orders").update({"id": "id + 100"}, "id = 1")
        merge = tx.table("stock").merge(source, "target.id = source.id")
        merge.when_matched_delete().when_not_matched_insert_all().execute()
    assert ids(lake, "orders") == [2, 3, 4, 5, 101]
    assert ids(lake, "stock") == [1, 2, 3, 4, 9]


def test_a_block_that_raises_commits_nothing(lake):
    def run():
        with lake.transaction() as tx:
            tx.table("orders").delete("id = 1")
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        run()
    assert ids(lake, "orders") == [1, 2, 3, 4, 5]
    tx = lake.transaction()
    tx.rollback()
    with pytest.raises(delvec.BadRequest, match="is over"):
        tx.table("orders")


def test_reads_stay_at_one_version(lake):
    with lake.transaction(["orders", "stock"]) as tx:
        lake.table("orders").delete("id = 1")
        lake.table("stock").delete("id = 1")
        assert tx.table("orders").count() == 5
        assert tx.table("stock").to_arrow(predicate="id = 1").num_rows == 1


def test_a_conflict_names_the_table_and_commits_nothing(lake):
    tx = lake.transaction()
    tx.table("orders").delete("id = 1")
    tx.table("stock").update({"id": "id + 10"}, "id = 2")
    lake.table("stock").update({"id": "id + 20"}, "id = 2")
    with pytest.raises(delvec.ConcurrentModification, match="'stock'"):
        tx.commit()
    assert (ids(lake, "orders"), ids(lake, "stock")) == ([1, 2, 3, 4, 5], [1, 3, 4, 5, 22])


def test_a_changed_table_that_was_only_read_is_a_conflict_unless_a_snapshot_suffices(lake):
    def run(isolation):
        with lake.transaction(isolation=isolation) as tx:
            assert tx.table("stock").to_arrow().num_rows
            tx.table("orders").append(IDS)
            lake.table("stock").append(IDS)

    with pytest.raises(delvec.ConcurrentModification):
        run("serializable")
    assert lake.table("orders").count() == 5
    run("snapshot")
    assert lake.table("orders").count() == 10


def test_what_cannot_be_part_of_a_transaction(lake, tmp_path):
    with lake.transaction() as tx:
        orders = tx.table("orders")
        orders.delete("id = 1")
        with pytest.raises(delvec.UnsupportedOperation, match="has a command for this table already"):
            orders.append(IDS)
        with pytest.raises(delvec.UnsupportedOperation, match="alter_table"):
            orders.alter.set_properties({"delvec.groupCommit": "false"})
        with pytest.raises(delvec.UnsupportedOperation, match="vacuum_table"):
            orders.vacuum(dry_run=True)
        tx.rollback()
    plain = lake.create_table("plain", IDS.schema)
    tx = lake.transaction()
    tx.table("orders").delete("id = 1")
    tx.table("plain").append(IDS)
    with pytest.raises(delvec.UnsupportedOperation, match="not managed by the catalog"):
        tx.commit()
    assert (plain.count(), ids(lake, "orders")) == (0, [1, 2, 3, 4, 5])


def test_the_low_level_transaction_is_one_command(lake):
    with lake.transaction() as tx:
        table = tx.table("orders")
        scan, _ = table.plan(predicate="id = 2", row_ids=True)
        with table.transaction("DELETE", read_version=scan.version) as changes:
            changes.delete_rows({path: [1] for path in scan.files["path"].to_pylist()})
        tx.table("stock").delete("id = 1")
    assert (ids(lake, "orders"), ids(lake, "stock")) == ([1, 3, 4, 5], [2, 3, 4, 5])


def test_a_snapshot_of_several_tables_is_one_moment(lake):
    snapshot = lake.snapshot(["orders", "stock"])
    with lake.transaction() as tx:
        tx.table("orders").delete("id < 3")
        tx.table("stock").delete("id < 3")
    assert snapshot.versions == {"orders": 1, "stock": 1}
    assert snapshot.table("orders").to_arrow().num_rows == snapshot.table("stock").count() == 5
    with pytest.raises(delvec.UnsupportedOperation, match="only read"):
        snapshot.table("orders").delete("id = 1")
    with pytest.raises(delvec.BadRequest, match="of orders, stock"):
        snapshot.table("other")


def test_sql(lake):
    with lake.transaction() as tx:
        tx.sql("DELETE FROM orders WHERE id < 3")
        tx.sql("INSERT INTO stock SELECT id + 10 AS id FROM stock WHERE id = 1")
    assert (ids(lake, "orders"), ids(lake, "stock")) == ([3, 4, 5], [1, 2, 3, 4, 5, 11])
    lake.sql("BEGIN; DELETE FROM orders WHERE id = 3; UPDATE stock SET id = 12 WHERE id = 11; COMMIT;")
    assert (ids(lake, "orders"), ids(lake, "stock")) == ([4, 5], [1, 2, 3, 4, 5, 12])
    assert (
        lake.sql("BEGIN; DELETE FROM orders; DELETE FROM stock WHERE CAST(id AS string) = ';'; ROLLBACK")
        is None
    )
    snapshot = lake.snapshot(["orders", "stock"])
    lake.sql("START TRANSACTION; DELETE FROM orders; DELETE FROM stock; COMMIT")
    query = "SELECT count(*) AS n FROM orders JOIN stock ON orders.id = stock.id"
    assert snapshot.sql(query).to_pylist() == [{"n": 2}]
    assert lake.sql(query).to_pylist() == [{"n": 0}]
    with pytest.raises(delvec.InvalidStatement, match="must end with COMMIT"):
        lake.sql("BEGIN; DELETE FROM orders")


def test_a_lost_answer_is_asked_for_again(lake, monkeypatch):
    tx = lake.transaction()
    tx.table("orders").delete("id = 1")
    tx.table("stock").delete("id = 1")
    call, calls = lake._service.call, []

    def losing(operation, *arguments, **options):
        answer = call(operation, *arguments, **options)
        if operation.name == "commit_transaction":
            calls.append(answer)
            if len(calls) == 1:
                raise delvec.CommitOutcomeUnknown("the answer was lost")
        return answer

    monkeypatch.setattr(lake._service, "call", losing)
    monkeypatch.setattr(lake._service, "wait", lambda _: None)
    assert tx.commit() == calls[0] == calls[1]
    assert tx.commit() is tx.result
    assert ids(lake, "orders") == [2, 3, 4, 5]
