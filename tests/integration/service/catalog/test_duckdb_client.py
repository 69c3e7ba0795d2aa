"""DuckDB's extension ``unity_catalog``, unmodified, reads and writes managed tables of the service."""

import datetime as dt
import threading
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.support import duckdb_extensions
from tests.support.packages import NotInstalledError
from tests.support.served import served

import delvec

pytestmark = pytest.mark.full("installs a DuckDB that has the extension")
TOKEN = "s3cret"


@pytest.fixture(scope="module", autouse=True)
def extension():
    try:
        duckdb_extensions.packages()
    except NotInstalledError as error:
        pytest.skip(f"DuckDB's extensions could not be installed: {error}")


@pytest.fixture
def lake(tmp_path):
    with served(tmp_path, TOKEN) as url, delvec.connect(url, token=TOKEN) as lake:
        yield lake


@pytest.fixture
def duckdb(lake, tmp_path):
    """Runs statements in a new DuckDB, and returns the rows of the last."""
    attach = (
        f"CREATE SECRET (TYPE unity_catalog, TOKEN '{TOKEN}', ENDPOINT '{lake.url}'); "
        "ATTACH 'delvec' AS lake (TYPE unity_catalog, DEFAULT_SCHEMA 'sales'); "
    )

    def run(sql):
        return duckdb_extensions.query(attach + sql, tmp_path).to_pylist()

    return run


def test_rows_with_deletion_vectors_are_read_and_inserted(lake, duckdb):
    people = lake.create_table("sales.people", "id long, name string", managed=True)
    people.append([{"id": n, "name": f"n{n}"} for n in range(10)])
    people.delete("id % 3 = 0")
    people.update({"name": "'x'"}, "id = 4")

    rows = duckdb("SELECT * FROM lake.sales.people ORDER BY id")
    assert rows == people.to_arrow().sort_by("id").to_pylist()
    duckdb("INSERT INTO lake.sales.people VALUES (100, 'd'); INSERT INTO lake.sales.people VALUES (101, 'e')")
    people.delete("id = 100")

    assert [row["id"] for row in duckdb("SELECT id FROM lake.sales.people ORDER BY id")] == [
        *(1, 2, 4, 5, 7, 8, 101)
    ]
    assert people.count() == 7
    assert [entry["engineInfo"] for entry in people.history(3)][1:] == ["DuckDB", "DuckDB"]


def test_values_of_each_type_are_the_same(lake, duckdb):
    schema = (
        "id long, d decimal(20,2), ts timestamp, day date, s struct<x:int,y:string>, a array<long>, "
        "m map<string,int>, b boolean, f float, bin binary, p string"
    )
    table = lake.create_table("sales.typed", schema, managed=True, partition_by=["p"])
    row = {
        "id": 1,
        "d": Decimal("123456789012345678.91"),
        "ts": dt.datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC),
        "day": dt.date(1582, 10, 4),
        "s": {"x": 1, "y": "é"},
        "a": [1, None],
        "m": [("k", 1)],
        "b": True,
        "f": 1.5,
        "bin": b"\0\xff",
        "p": "a=1 é/%20",
    }
    table.append([row, dict.fromkeys(row) | {"id": 2}])

    assert duckdb("SELECT * FROM lake.sales.typed ORDER BY id") == table.to_arrow().sort_by("id").to_pylist()


def test_inserts_of_a_transaction_are_one_version(lake, duckdb):
    people = lake.create_table("sales.people", "id long", managed=True)

    insert = "INSERT INTO lake.sales.people VALUES"
    duckdb(f"BEGIN; {insert} (1); {insert} (2); COMMIT; SELECT 1")

    assert (people.version(), people.count()) == (1, 2)


def test_what_duckdb_writes_past_column_mapping_is_refused(lake, duckdb):
    mapped = lake.create_table(
        "sales.mapped", "id long", managed=True, properties={"delta.columnMapping.mode": "name"}
    )
    mapped.append([{"id": 1}])

    assert duckdb("SELECT * FROM lake.sales.mapped") == [{"id": 1}]
    with pytest.raises(AssertionError, match="its writer does not know column mapping"):
        duckdb("INSERT INTO lake.sales.mapped VALUES (2); SELECT 1")
    assert mapped.version() == 1


def test_no_row_is_lost_while_delvec_deletes_and_duckdb_inserts(lake, duckdb):
    people = lake.create_table("sales.people", "id long", managed=True)
    people.append(pa.table({"id": range(200)}))
    is_over = threading.Event()
    deleted = []

    def delete():
        for number in range(200):
            people.delete(f"id = {number}")
            deleted.append(number)
            if is_over.wait(0.1):  # without pauses DuckDB, which is slower, can lose every race
                return

    thread = threading.Thread(target=delete)
    thread.start()
    try:
        for start in range(1000, 1200, 20):
            values = range(start, start + 20)
            insert = "".join(f"INSERT INTO lake.sales.people VALUES ({value}); " for value in values)
            try:
                duckdb(f"{insert} SELECT 1")
            except AssertionError as error:  # it does not repeat a lost race
                if "ommit" not in str(error):
                    raise
    finally:
        is_over.set()
        thread.join()
    rows = sorted(people.to_arrow()["id"].to_pylist())
    inserted = [row for row in rows if row >= 1000]

    assert deleted
    assert [row for row in rows if row < 1000] == list(range(len(deleted), 200))
    assert len(set(inserted)) == len(inserted)
    by_duckdb = [entry for entry in people.history() if entry.get("engineInfo") == "DuckDB"]
    assert len(by_duckdb) == len(inserted) > 0
