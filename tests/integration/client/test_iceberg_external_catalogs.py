"""``to_iceberg(catalog=)``: external SQL and REST catalogs show each conversion atomically."""

import json
import sqlite3
import time

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from tests.support.iceberg_rest_catalog import running
from tests.support.iceberg_tables import delta_rows

import delvec
from delvec.cli import main
from delvec_service.iceberg.metadata_directory import IcebergDirectory

BOTH = pytest.mark.parametrize("format_version", [2, 3])


@pytest.fixture
def sql(tmp_path, monkeypatch):
    """A catalog in SQLite, called prod."""
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", f"sqlite:///{tmp_path / 'catalog.db'}")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", _configuration())
    return tmp_path / "catalog.db"


@pytest.fixture
def rest(monkeypatch):
    """A REST catalog, called prod."""
    with running() as (url, catalog):
        monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TYPE", "rest")
        monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", url)
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", _configuration())
        yield catalog


def _configuration():
    from pyiceberg.utils.config import Config

    return Config()


@pytest.fixture(params=["sql", "rest"])
def catalog(request):
    """Each kind of catalog."""
    return request.getfixturevalue(request.param)


def rows(name, key="id"):
    """The rows of a table, read through the catalog."""
    return load_catalog("prod").load_table(name).scan().to_arrow().sort_by(key).to_pylist()


@BOTH
@pytest.mark.usefixtures("catalog")
def test_a_catalog_shows_each_conversion(lake, tmp_path, format_version):
    people = lake.create_table(tmp_path / "folk", "id long, p string", partition_by=["p"])

    def converted():
        done = people.to_iceberg(format_version=format_version, catalog="prod.sales.people")
        assert done["catalog"] == "prod.sales.people"
        assert rows("sales.people") == delta_rows(people)
        table = load_catalog("prod").load_table("sales.people")
        assert table.metadata.properties["delta-version"] == str(done["delta-version"])
        assert table.metadata.current_snapshot_id == done["snapshot-id"]
        assert table.snapshot_by_name(f"delta-{done['delta-version']}").snapshot_id == done["snapshot-id"]

    people.alter.set_properties({"delvec.iceberg.tagVersions": "true"})
    people.append([{"id": n, "p": "ab"[n % 2]} for n in range(20)])
    converted()
    converted()
    people.delete("id < 5")
    people.append([{"id": 50, "p": "c"}])
    converted()
    people.alter.add_columns("x double")
    converted()
    people.append([{"id": 51, "p": "c", "x": 0.5}])
    people.optimize.purge()
    converted()
    people.restore(3)
    converted()
    people.delete()
    converted()


@pytest.mark.usefixtures("catalog")
def test_a_table_without_files_is_registered(lake, tmp_path):
    people = lake.create_table(tmp_path / "people", "id long")
    people.to_iceberg(catalog="prod")
    assert rows("default.people") == []
    people.append([{"id": 1}])
    people.to_iceberg(catalog="prod")
    assert rows("default.people") == [{"id": 1}]


@pytest.mark.usefixtures("catalog")
def test_what_was_converted_meanwhile_is_shown_with_the_next(people):
    people.to_iceberg(catalog="prod.sales.people")
    for number in range(3):
        people.append([{"id": 500 + number, "p": "x", "x": 0.0}])
        people.to_iceberg()
    assert rows("sales.people") != delta_rows(people)
    people.to_iceberg(catalog="prod.sales.people")
    assert rows("sales.people") == delta_rows(people)
    assert len(load_catalog("prod").load_table("sales.people").metadata.snapshots) == 4


@pytest.fixture
def people(lake, tmp_path):
    made = lake.create_table(tmp_path / "people", "id long, p string, x double")
    made.append([{"id": n, "p": "a", "x": n / 3} for n in range(10)])
    return made


@pytest.mark.usefixtures("catalog")
def test_a_table_of_another_location_is_left_alone(people, lake, tmp_path):
    other = lake.create_table(tmp_path / "other", "id long")
    other.append([{"id": 1}])
    other.to_iceberg(catalog="prod.sales.people")
    with pytest.raises(delvec.IcebergCatalogError, match=r"prod\.sales\.people.*is at .*/other/_iceberg"):
        people.to_iceberg(catalog="prod.sales.people")
    assert rows("sales.people") == [{"id": 1}]
    # The other format version is another Iceberg table, too.
    with pytest.raises(delvec.IcebergCatalogError, match=r"is at .*/other/_iceberg/v2"):
        other.to_iceberg(format_version=3, catalog="prod.sales.people")
    assert people.to_iceberg(catalog="prod.sales.folk")["catalog"] == "prod.sales.folk"


def test_a_conversion_that_began_anew_is_followed_by_sql(sql, people, tmp_path):
    del sql
    for number in range(3):
        people.append([{"id": 500 + number, "p": "x", "x": 0.0}])
        people.to_iceberg(catalog="prod.sales.people")
    for path in sorted((tmp_path / "people" / "_iceberg").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    people.delete("id = 1")
    people.to_iceberg(catalog="prod.sales.people")
    assert rows("sales.people") == delta_rows(people)


def test_a_conversion_that_began_anew_is_refused_by_name_by_rest(rest, people, tmp_path):
    del rest
    people.to_iceberg(catalog="prod.sales.people")
    shown = rows("sales.people")
    for path in (tmp_path / "people" / "_iceberg" / "v2").glob("metadata/*"):
        if path.suffix != ".avro":
            path.unlink()
    people.delete("id = 1")
    with pytest.raises(delvec.IcebergCatalogError, match="drop it from the catalog"):
        people.to_iceberg(catalog="prod.sales.people")
    assert rows("sales.people") == shown


# --- several at once, and faults ------------------------------------------------------------------------


def test_of_two_converters_the_slower_one_does_not_turn_sql_back(sql, people, monkeypatch):
    del sql
    people.to_iceberg(catalog="prod.sales.people")
    people.append([{"id": 100, "p": "x", "x": 0.0}])
    newest = IcebergDirectory.newest
    calls = []

    def beforehand(self):
        calls.append(None)
        found = newest(self)
        if len(calls) == 2:  # the slower one is about to update the pointer
            people.append([{"id": 101, "p": "x", "x": 0.0}])
            people.to_iceberg(catalog="prod.sales.people")
        return found

    monkeypatch.setattr(IcebergDirectory, "newest", beforehand)
    people.to_iceberg(catalog="prod.sales.people")
    assert rows("sales.people") == delta_rows(people)


def test_of_two_converters_the_slower_one_does_not_turn_rest_back(rest, people):
    people.to_iceberg(catalog="prod.sales.people")
    people.append([{"id": 100, "p": "x", "x": 0.0}])

    def another():
        people.append([{"id": 101, "p": "x", "x": 0.0}])
        people.to_iceberg(catalog="prod.sales.people")

    rest.before_commit = another
    people.to_iceberg(catalog="prod.sales.people")
    assert rows("sales.people") == delta_rows(people)
    assert rest.commits == 1


def test_a_database_that_fails_is_one_error_and_the_catalog_as_before(sql, people):
    people.to_iceberg(catalog="prod.sales.people")
    shown = rows("sales.people")
    people.delete("id = 1")
    with sqlite3.connect(sql) as database:
        database.execute("ALTER TABLE iceberg_tables RENAME TO away")
    with pytest.raises(delvec.IcebergCatalogError, match="published at") as raised:
        people.to_iceberg(catalog="prod.sales.people")
    assert raised.value.retryable
    with sqlite3.connect(sql) as database:
        database.execute("ALTER TABLE away RENAME TO iceberg_tables")
    assert rows("sales.people") == shown
    people.to_iceberg(catalog="prod.sales.people")
    assert rows("sales.people") == delta_rows(people)


@pytest.mark.parametrize("status", [400, 403, 500, 503])
def test_a_rest_catalog_that_refuses_is_one_error_and_as_before(rest, people, status):
    people.to_iceberg(catalog="prod.sales.people")
    shown = rows("sales.people")
    people.delete("id = 1")
    rest.refuse = status
    with pytest.raises(delvec.IcebergCatalogError, match=r"catalog 'prod' did not accept .*published at"):
        people.to_iceberg(catalog="prod.sales.people")
    assert rows("sales.people") == shown
    rest.refuse = None
    people.to_iceberg(catalog="prod.sales.people")
    assert rows("sales.people") == delta_rows(people)


# --- names and permission -------------------------------------------------------------------------------


@pytest.mark.usefixtures("sql")
def test_names_that_mean_nothing(people):
    with pytest.raises(delvec.BadRequest, match="has no usable catalog 'elsewhere'"):
        people.to_iceberg(catalog="elsewhere")
    with pytest.raises(delvec.BadRequest, match=r"prod\.sales\.orders"):
        people.to_iceberg(catalog="prod..people")


def test_a_catalog_of_another_kind_is_refused(people, monkeypatch):
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TYPE", "in-memory")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", _configuration())
    assert isinstance(load_catalog("prod"), SqlCatalog)  # which it is a kind of
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TYPE", "noop")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", _configuration())
    with pytest.raises(delvec.BadRequest, match="'prod'"):
        people.to_iceberg(catalog="prod")


@pytest.mark.usefixtures("sql")
def test_a_property_names_the_catalog(people):
    people.alter.set_properties({"delvec.iceberg.catalog": "prod.sales.people"})
    assert people.to_iceberg()["catalog"] == "prod.sales.people"
    assert rows("sales.people") == delta_rows(people)


@pytest.mark.usefixtures("sql")
def test_commits_are_shown_by_the_catalog_that_the_property_names(people):
    people.alter.set_properties(
        {"delvec.iceberg.formatVersions": "2,3", "delvec.iceberg.catalog": "prod.sales.people"}
    )
    people.delete("id = 1")
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if load_catalog("prod").table_exists("sales.people") and rows("sales.people") == delta_rows(people):
            break
        time.sleep(0.1)
    else:
        pytest.fail("the catalog was not told")
    assert load_catalog("prod").load_table("sales.people").format_version == 3
    assert people.to_iceberg(format_version=2)["catalog"] is None


@pytest.mark.usefixtures("sql")
def test_the_shell_names_a_catalog(people, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["iceberg", "convert", str(tmp_path / "people"), "--catalog", "prod.sales.people", "--json"])
    assert json.loads(capsys.readouterr().out)["catalog"] == "prod.sales.people"
    assert rows("sales.people") == delta_rows(people)
