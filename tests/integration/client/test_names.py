"""Table names: scope, assignment and removal; a name never resolves to the wrong table."""

import shutil

import pytest

import delvec
from delvec_errors import (
    AmbiguousTable,
    BadRequest,
    InvalidLocation,
    NotADeltaTable,
    TableAlreadyExists,
    TableNotFound,
)

SCHEMA = "id long"


def test_a_name_of_one_project_means_nothing_in_another(tmp_path, monkeypatch):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    monkeypatch.chdir(one)
    with delvec.connect() as lake:
        lake.create_table("sales", SCHEMA).append([{"id": 1}])
        lake.create_table(tmp_path / "elsewhere" / "people", SCHEMA, name="people")
    monkeypatch.chdir(two)
    with delvec.connect() as lake:
        for name in ("sales", "people"):
            with pytest.raises(TableNotFound):
                lake.table(name)
        assert lake.tables() == []
        assert lake.table("../one/sales").count() == 1
    monkeypatch.chdir(one)
    with delvec.connect() as lake:
        assert {table.name for table in lake.tables()} == {"sales", "people"}


@pytest.mark.parametrize("given", ["positional", "keyword", "environment"])
def test_a_warehouse_is_the_place_of_names_wherever_the_program_runs(tmp_path, monkeypatch, given):
    where = str(tmp_path / "lake")
    if given == "environment":
        monkeypatch.setenv("DELVEC_WAREHOUSE", where)

    def connect():
        if given == "positional":
            return delvec.connect(where)
        return delvec.connect(warehouse=where) if given == "keyword" else delvec.connect()

    monkeypatch.chdir(tmp_path)
    with connect() as lake:
        orders = lake.create_table("sales.orders", SCHEMA)
        assert orders.location == f"file://{where}/sales.db/orders"
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    with connect() as lake:
        assert lake.table("sales.orders").id == orders.id
        assert [table.name for table in lake.tables("sales")] == ["sales.orders"]


def test_a_warehouse_may_be_a_url_and_a_service_is_no_warehouse(tmp_path, monkeypatch):
    with delvec.connect("memory:///names-lake") as lake:
        assert lake.create_table("a.b", SCHEMA).location == "memory:///names-lake/a.db/b"
    monkeypatch.setenv("DELVEC_URL", "http://127.0.0.1:9")
    with delvec.connect(tmp_path) as lake:
        assert lake.url is None
    with pytest.raises(BadRequest, match="twice"):
        delvec.connect(tmp_path, warehouse=tmp_path)
    with pytest.raises(BadRequest, match="warehouse applies only to a service in this process"):
        delvec.connect("http://host", warehouse=tmp_path)
    with pytest.raises(InvalidLocation, match="ftp"):
        delvec.connect("ftp://host/lake")


def test_names_in_the_warehouse_outlive_the_database(tmp_path):
    where = tmp_path / "lake"
    with delvec.connect(where, database_url="sqlite://") as lake:
        for name in ("people", "sales.eu.orders"):
            lake.create_table(name, SCHEMA).append([{"id": 1}])
    with delvec.connect(where, database_url="sqlite://") as lake:
        for name in ("people", "sales.eu.orders"):
            assert lake.table(name).name == name
            assert lake.sql(f"SELECT count(*) AS n FROM {name}").to_pylist() == [{"n": 1}]
        shutil.rmtree(where / "people")
        with pytest.raises(TableNotFound):
            lake.table("no_such_table")


def test_a_folder_name_that_is_not_alone_is_refused_and_both_are_shown(lake, tmp_path):
    first = lake.create_table(tmp_path / "a" / "sales", SCHEMA)
    second = lake.create_table(tmp_path / "b" / "sales", SCHEMA)

    for use in (lake.table, lake.drop, lambda name: lake.sql(f"DELETE FROM {name}")):
        with pytest.raises(AmbiguousTable) as caught:
            use("sales")
        assert first.location in str(caught.value)
        assert second.location in str(caught.value)

    assert lake.rename(second.location, "archive.sales").id == second.id
    assert lake.table("sales").id == first.id
    assert lake.table("archive.sales").id == second.id


def test_a_table_in_the_working_directory_and_one_elsewhere_are_not_taken_for_each_other(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with delvec.connect() as lake:
        lake.create_table(tmp_path / "elsewhere" / "sales", SCHEMA)
    with delvec.connect(database_url="sqlite://") as lake:
        lake.create_table("sales", SCHEMA)
    with delvec.connect() as lake, pytest.raises(AmbiguousTable, match="elsewhere/sales"):
        lake.table("sales")


def test_a_name_that_is_taken_is_refused_with_both_locations(lake, people, tmp_path):
    lake.register(people.location, "crm.people")
    other = lake.create_table(tmp_path / "other", SCHEMA)

    for use in (
        lambda: lake.register(other.location, "crm.people"),
        lambda: lake.rename("other", "crm.people"),
        lambda: lake.create_table(tmp_path / "third", SCHEMA, name="crm.people"),
    ):
        with pytest.raises(TableAlreadyExists) as caught:
            use()
        assert people.location in str(caught.value)
        assert str(tmp_path) in str(caught.value).replace(people.location, "")
    assert not (tmp_path / "third").exists()


def test_register_drop_and_register_again(lake, people, tmp_path):
    registered = lake.register(tmp_path / "people", "crm.people")
    assert (registered.id, registered.name) == (people.id, "crm.people")
    assert lake.register(tmp_path / "people", "crm.people").id == people.id
    lake.drop("crm.people")
    for name in ("crm.people", "people"):
        with pytest.raises(TableNotFound):
            lake.table(name)
    assert lake.register(tmp_path / "people").count() == 10
    with pytest.raises(NotADeltaTable):
        lake.register(tmp_path, "nothing")
    for name in ("a b", "a..b", ".a", "a.", "1a", "a/b", ""):
        with pytest.raises(BadRequest):
            lake.register(people.location, name)


def test_create_if_not_exists(lake, people, tmp_path):
    for place in ({"name_or_location": people.location}, {"name_or_location": tmp_path / "people"}):
        same = lake.create_table(schema="other string", if_not_exists=True, **place)
        assert (same.id, same.count()) == (people.id, 10)
    lake.register(people.location, "crm.people")
    assert lake.create_table("crm.people", SCHEMA, if_not_exists=True).id == people.id
    assert lake.create_table(tmp_path / "new", SCHEMA, if_not_exists=True).version() == 0
    with pytest.raises(TableAlreadyExists):
        lake.create_table(tmp_path / "new2", SCHEMA, name="crm.people", if_not_exists=True)
    with pytest.raises(BadRequest, match="not both"):
        lake.create_table(tmp_path / "new", SCHEMA, if_not_exists=True, replace=True)


@pytest.mark.parametrize(
    ("dialect", "place"),
    [
        ("spark", "delta.`{path}`"),
        ("spark", "`{path}`"),
        ("spark", "'{path}'"),
        ("duckdb", "'{path}'"),
        ("duckdb", '"{path}"'),
        ("duckdb", "delta_scan('{path}')"),
    ],
)
def test_sql_reads_tables_by_their_path(lake, people, tmp_path, dialect, place):
    source = place.format(path=tmp_path / "people")
    rows = lake.sql(f"SELECT p.id FROM {source} AS p WHERE p.id < 2 ORDER BY p.id", dialect=dialect)
    assert rows.to_pylist() == [{"id": 0}, {"id": 1}]


def test_sql_changes_tables_by_their_path(lake, people, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for text in (
        f"DELETE FROM '{tmp_path}/people' WHERE id = 0",
        "DELETE FROM './people' WHERE id = 1",
        f"UPDATE delta.`{tmp_path}/people` SET name = 'x' WHERE id = 2",
        "INSERT INTO './people' SELECT id + 100, name, country FROM './people' WHERE id = 2",
    ):
        lake.sql(text)
    assert people.count() == 9
    assert people.count("name = 'x'") == 2
    with pytest.raises(delvec.InvalidStatement, match="without quotes"):
        lake.sql("DELETE FROM 'people'")


def test_sql_knows_namespaces(lake, people):
    lake.register(people.location, "crm.eu.people")
    assert lake.sql("SELECT count(*) AS n FROM crm.eu.people").to_pylist() == [{"n": 10}]
    assert lake.sql("UPDATE crm.eu.people SET name = 'x' WHERE people.id = 1")["numUpdatedRows"] == 1
    assert lake.sql("SHOW TABLES IN crm").column("name").to_pylist() == ["crm.eu.people"]
    assert lake.sql("SHOW TABLES IN other").num_rows == 0
