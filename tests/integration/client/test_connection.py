import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import delvec
from delvec_errors import (
    BadRequest,
    EngineUnavailable,
    InvalidSchema,
    LocationNotAllowed,
    NotADeltaTable,
    ServiceUnavailable,
    TableAlreadyExists,
    TableNotFound,
    UnusableFile,
)

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])


@pytest.fixture
def lake():
    """With a database that outlives the connection."""
    with delvec.connect() as connection:
        yield connection


def test_table_is_found_by_name_location_and_relative_path(lake, tmp_path, monkeypatch):
    made = lake.create_table(tmp_path / "people", SCHEMA)
    monkeypatch.chdir(tmp_path)
    for place in (
        "people",
        tmp_path / "people",
        str(tmp_path / "people"),
        "./people",
        made.location,
        Path("people"),
    ):
        found = lake.table(place)
        assert (found.id, found.name, found.location) == (made.id, "people", made.location)
    assert lake.table(made.id).name == "people"


def test_reading_by_location_registers_a_table_that_the_service_does_not_know(lake, people):
    lake.drop_table("people")
    assert lake.tables() == []
    assert lake.table(people.location).count() == 10
    assert [table.name for table in lake.tables()] == ["people"]


def test_dropping_forgets_the_table_and_keeps_its_files(lake, people, tmp_path):
    lake.drop_table(people.location)
    assert list((tmp_path / "people").glob("*.parquet"))
    with pytest.raises(TableNotFound):
        lake.table("people")
    with pytest.raises(TableNotFound):
        lake.drop_table("people")
    with pytest.raises(TableNotFound, match="no table is registered at"):
        lake.drop_table(people.location)


def test_what_is_not_there_is_named(lake, tmp_path):
    with pytest.raises(TableNotFound, match="nobody"):
        lake.table("nobody")
    with pytest.raises(NotADeltaTable, match="nothing_here"):
        lake.table(tmp_path / "nothing_here")
    assert lake.tables() == []


def test_names_that_are_not_names_are_refused(lake):
    with pytest.raises(BadRequest, match="name"):
        lake.create_table("bad name", SCHEMA)


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_no_table(lake, name):
    for call in (lake.table, lake.drop_table, lambda given: lake.create_table(given, SCHEMA)):
        with pytest.raises(BadRequest, match="empty"):
            call(name)


def test_creating_twice_is_refused(lake, tmp_path):
    lake.create_table(tmp_path / "t", SCHEMA)
    with pytest.raises(TableAlreadyExists):
        lake.create_table(tmp_path / "t", SCHEMA)


@pytest.mark.parametrize(
    "schema",
    [
        SCHEMA,
        "id long, name string",
        {"type": "struct", "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "name", "type": "string", "nullable": True, "metadata": {}},
        ]},
    ],
    ids=["arrow", "text", "json"],
)  # fmt: skip
def test_schema_may_come_in_several_forms(lake, tmp_path, schema):
    assert lake.create_table(tmp_path / "t", schema).schema() == SCHEMA


def test_schema_without_an_equivalent_is_refused(lake, tmp_path):
    with pytest.raises(InvalidSchema):
        lake.create_table(tmp_path / "t", pa.schema([("x", pa.month_day_nano_interval())]))
    assert not (tmp_path / "t").exists()


def test_created_table_has_what_was_asked_for(lake, tmp_path):
    table = lake.create_table(
        tmp_path / "t",
        SCHEMA,
        partition_by="name",
        properties={"delta.appendOnly": True, "owner": "me"},
        description="about people",
        name="folks",
    )
    detail = table.detail()
    assert table.name == "folks"
    assert detail["partitionColumns"] == ["name"]
    assert detail["description"] == "about people"
    assert detail["properties"]["delta.appendOnly"] == "true"
    assert detail["properties"]["owner"] == "me"
    assert detail["properties"]["delta.enableDeletionVectors"] == "true"
    assert table.version() == 0


def test_tables_follows_every_page(lake, tmp_path):
    for number in range(3):
        lake.create_table(tmp_path / f"t{number}", SCHEMA)
    assert sorted(table.name for table in lake.tables()) == ["t0", "t1", "t2"]


def test_names_outlive_the_connection(people, lake):
    lake.close()
    with delvec.connect() as again:
        assert again.table("people").count() == 10


def test_closed_connection_says_so(people, lake):
    lake.close()
    lake.close()
    with pytest.raises(ServiceUnavailable, match="closed"):
        people.count()


@pytest.mark.parametrize("engine", ["spark", "polars", 7])
def test_unknown_engine_is_refused(lake, people, engine):
    with pytest.raises(EngineUnavailable, match="'duckdb', a SparkSession or an Engine"):
        lake.table("people", engine=engine)


def test_url_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("DELVEC_URL", "http://127.0.0.1:9")
    with delvec.connect() as lake:
        assert lake.url == "http://127.0.0.1:9"
        assert repr(lake) == "Connection('http://127.0.0.1:9')"


def test_contradicting_arguments_are_refused():
    with pytest.raises(BadRequest, match="running service"):
        delvec.connect(token="x")
    with pytest.raises(BadRequest, match="leave out url"):
        delvec.connect("http://h", database_url="sqlite://")


def test_connection_is_shared_by_threads(people):
    counts = []
    threads = [threading.Thread(target=lambda: counts.append(people.count("id < 5"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [5] * 8


@pytest.mark.parametrize("missing", ["sqlalchemy", "delvec_service"])
def test_missing_service_is_explained(missing, tmp_path):
    program = f"""
import sys
sys.modules[{missing!r}] = None
import delvec
try:
    delvec.connect()
except delvec.EngineUnavailable as error:
    print(error)
"""
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    assert "pip install '.[local]'" in done.stdout


@pytest.mark.full("starts processes")
def test_missing_duckdb_is_explained(tmp_path):
    program = """
import sys
sys.modules["duckdb"] = None
import delvec
try:
    with delvec.connect() as lake:
        lake.table("anything")
except delvec.EngineUnavailable as error:
    print(error)
"""
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    assert "the DuckDB engine needs duckdb: pip install '.[local]'" in done.stdout


def test_an_embedded_service_stays_in_its_roots(tmp_path):
    """A log that comes from somebody else may name any file; with roots, none outside of them is read."""
    log = hostile_log(tmp_path / "lake" / "people", tmp_path / "secret.parquet")
    with delvec.connect(database_url=f"sqlite:///{tmp_path / 'own.db'}", roots=tmp_path / "lake") as lake:
        table = lake.table(tmp_path / "lake" / "people")
        for read in (table.to_arrow, lambda: table.update(set={"id": "id + 1"})):
            with pytest.raises(LocationNotAllowed, match="secret"):
                read()
        with pytest.raises(LocationNotAllowed):
            lake.create_table(tmp_path / "elsewhere", "id long")
    assert not log.with_name(f"{3:020}.json").exists()


def hostile_log(table, secret, path=None):
    """A table with row 1, whose log names a file with row 42 elsewhere; returns the version's file."""
    with delvec.connect(database_url="sqlite://") as lake:
        lake.create_table(table, "id long").append(pa.table({"id": [1]}))
    secret.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": [42]}), secret)
    add = {"path": path or f"file://{secret}", "partitionValues": {}, "size": secret.stat().st_size}
    add |= {"modificationTime": 1, "dataChange": True, "stats": '{"numRecords":1}'}
    log = table / "_delta_log" / f"{2:020}.json"
    log.write_text(json.dumps({"add": add}) + "\n")
    return log


@pytest.mark.parametrize(
    "path", [None, "linked.parquet", "folder/secret.parquet", "s3://other-bucket/secret.parquet"]
)
def test_without_roots_a_log_names_only_files_of_its_table(tmp_path, path):
    """Otherwise the author of the log could read the rows of that file in the table."""
    people, secret = tmp_path / "people", tmp_path / "secret" / "secret.parquet"
    log = hostile_log(people, secret, path)
    (people / "linked.parquet").symlink_to(secret)
    (people / "folder").symlink_to(secret.parent)
    with delvec.connect(database_url=f"sqlite:///{tmp_path / 'own.db'}") as lake:
        lake.create_table(secret.parent / "opened", "id long")  # which is no reason to read more there
        table = lake.table(people)
        for read in (
            table.to_arrow,
            table.to_duckdb,
            lambda: lake.sql(f"SELECT sum(id) AS total FROM delta.`{people}`").to_arrow_table(),
            lambda: table.update(set={"id": "id + 1"}),
            lambda: table.delete("id + 1 > 40"),
            table.optimize,
            lambda: table.clone(tmp_path / "deep"),
            lambda: table.clone(tmp_path / "shallow", shallow=True).to_arrow(),
        ):
            with pytest.raises(LocationNotAllowed, match="DELVEC_ROOTS"):
                read()
    assert not log.with_name(f"{3:020}.json").exists()
    assert not list(tmp_path.glob("deep/*.parquet"))


@pytest.mark.parametrize("name", ["DELVEC_ROOTS", "DELVEC_WAREHOUSE", "warehouse", "roots"])
def test_a_log_may_name_files_where_the_user_says(tmp_path, monkeypatch, name):
    people, secret = tmp_path / "people", tmp_path / "secret" / "secret.parquet"
    hostile_log(people, secret)
    chosen = {"warehouse": secret.parent} if name == "warehouse" else {}
    if name == "roots":
        chosen = {"roots": [people, secret.parent]}
    if name.startswith("DELVEC_"):
        monkeypatch.setenv(name, str(secret.parent))
    with delvec.connect(database_url=f"sqlite:///{tmp_path / 'own.db'}", **chosen) as lake:
        table = lake.table(people)
        assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 42]
        table.update(set={"id": "id + 1"})
        assert sorted(table.to_arrow()["id"].to_pylist()) == [2, 43]


def test_an_embedded_connection_names_a_setting_that_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setenv("DELVEC_ROOTS", '["/data"')
    with pytest.raises(BadRequest, match="DELVEC_ROOTS: must be a JSON list"):
        delvec.connect(database_url=f"sqlite:///{tmp_path / 'own.db'}")


def test_a_data_file_that_is_a_fifo_is_not_waited_for(tmp_path):
    with delvec.connect(database_url=f"sqlite:///{tmp_path / 'own.db'}") as lake:
        table = lake.create_table(tmp_path / "people", "id long")
        table.append(pa.table({"id": [1]}))
        (file,) = (tmp_path / "people").glob("*.parquet")
        file.unlink()
        os.mkfifo(file)
        with pytest.raises(UnusableFile, match="not a regular file"):
            table.to_arrow()
