"""Delvec tables as sources and models of dbt, run by dbt itself on DuckDB."""

import json

import pytest

import delvec
from delvec.testing import assert_rows, delvec_service, table_of  # noqa: F401

pytest.importorskip("dbt.adapters.duckdb", reason="dbt-duckdb is the extra dbt")
from dbt.adapters.duckdb.connections import DuckDBConnectionManager
from dbt.cli.main import dbtRunner

pytestmark = pytest.mark.filterwarnings("ignore")  # dbt's own

PROJECT = """
name: shop
profile: shop
flags: {send_anonymous_usage_stats: false}
"""
SOURCES = """
sources:
  - name: sales
    config: {meta: {plugin: delvec}}
    tables:
      - name: orders
      - name: first_orders
        config: {meta: {table: sales.orders, version: 0, where: "amount > 1", columns: [day, amount]}}
"""
ORDERS = [{"day": 1, "amount": 1}, {"day": 1, "amount": 2}, {"day": 2, "amount": 5}]


class Project:
    """A dbt project with one profile."""

    def __init__(self, folder, path=":memory:", **config):
        self.folder = folder / "project"
        (self.folder / "models").mkdir(parents=True)
        self.write("dbt_project.yml", PROJECT)
        self.write("models/sources.yml", SOURCES)
        plugin = {"module": "delvec.dbt", "alias": "delvec", "config": config}
        output = {"type": "duckdb", "path": path, "external_root": str(folder), "plugins": [plugin]}
        self.write("profiles.yml", json.dumps({"shop": {"target": "dev", "outputs": {"dev": output}}}))

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def model(self, name, sql, **config):
        options = {"materialized": "external", "plugin": "delvec", **config}
        self.write(f"models/{name}.sql", f"{{{{ config(**{options!r}) }}}}\n{sql}\n")

    def run(self, *arguments, fails=False):
        """Run the models as a process of its own would, and return what went wrong."""
        folder = str(self.folder)
        done = dbtRunner().invoke(
            ["--quiet", "run", "--project-dir", folder, "--profiles-dir", folder, *arguments]
        )
        DuckDBConnectionManager.close_all_connections()
        messages = [str(done.exception), *(each.message for each in done.result or ())]
        assert done.success != fails, messages
        return " ".join(messages)


@pytest.fixture
def lake(tmp_path):
    with delvec.connect(tmp_path / "lake") as lake:
        table_of(lake, "sales.orders", ORDERS, "day int, amount int")
        yield lake


@pytest.fixture
def project(lake, tmp_path):
    return Project(tmp_path, warehouse=str(tmp_path / "lake"))


REVENUE = "select day, sum(amount)::bigint as revenue from {{ source('sales', 'orders') }} where day >= %d group by day"


def test_a_model_replaces_its_table_and_others_read_it(project, lake):
    project.model("revenue", REVENUE % 0)
    project.model("best", "select max(revenue) as best from {{ ref('revenue') }}", meta={"table": "top"})
    project.model("early", "select day, amount from {{ source('sales', 'first_orders') }}")
    project.run()
    assert_rows(lake.table("main.revenue"), [{"day": 1, "revenue": 3}, {"day": 2, "revenue": 5}])
    assert_rows(lake.table("top"), [{"best": 5}])
    assert_rows(lake.table("main.early"), ORDERS[1:])

    lake.table("sales.orders").delete("day = 1")
    project.model("revenue", "select day, amount as sold, 'x' as kind from {{ source('sales', 'orders') }}")
    project.model("best", "select max(sold) as best from {{ ref('revenue') }}", meta={"table": "top"})
    project.run()
    assert_rows(lake.table("main.revenue"), [{"day": 2, "sold": 5, "kind": "x"}])
    assert_rows(lake.table("main.early"), ORDERS[1:])
    newest = lake.table("main.revenue").history()[0]
    assert (newest["version"], newest["userMetadata"]) == (1, "dbt: model.shop.revenue")


def test_a_unique_key_merges_and_ref_reads_the_whole_table(project, lake):
    options = {"unique_key": "day", "meta": {"partition_by": ["day"]}}
    project.model("revenue", REVENUE % 0, **options)
    project.model("days", "select count(*) as days from {{ ref('revenue') }}")
    project.run()
    lake.table("sales.orders").append([{"day": 2, "amount": 5}, {"day": 3, "amount": 1}])
    lake.table("sales.orders").delete("day = 1")
    project.model("revenue", REVENUE % 2, **options)
    project.run()

    revenue = lake.table("main.revenue")
    merged = [{"day": 1, "revenue": 3}, {"day": 2, "revenue": 10}, {"day": 3, "revenue": 1}]
    assert_rows(revenue, merged)
    assert_rows(lake.table("main.days"), [{"days": 3}])
    assert revenue.detail()["partitionColumns"] == ["day"]

    project.model("revenue", REVENUE % 9, **options)  # no rows, for which dbt-duckdb writes a placeholder
    project.run()
    assert_rows(revenue, merged)


def test_merges_update_the_columns_that_the_model_says(project, lake):
    table_of(lake, "main.stock", [{"id": 1, "a": 1, "b": 1}, {"id": 2, "a": 1, "b": 1}])
    part = table_of(lake, "main.part", [{"id": 1, "a": 1, "b": 1}, {"id": 2, "a": 1, "b": 1}])
    table_of(lake, "main.other", [{"id": 1, "a": 1, "b": 1}, {"id": 2, "a": 1, "b": 1}])
    rows = "select unnest([1, 2, 3]) as id, 7 as a, 8 as b"
    project.model("stock", rows, unique_key=["id"], merge_update_columns=["a"])
    project.model("part", "select 2 as id, 7 as a", unique_key="id")  # leaves the column b alone
    only = "DBT_INTERNAL_DEST.id > 1"
    project.model(
        "other",
        f"select * from ({rows}) where id > 1",
        unique_key=["id"],
        merge_exclude_columns=["id", "a"],
        incremental_predicates=[only],
    )
    project.run()
    new = {"id": 3, "a": 7, "b": 8}
    assert_rows(part, [{"id": 1, "a": 1, "b": 1}, {"id": 2, "a": 7, "b": 1}])
    assert_rows(lake.table("main.stock"), [{"id": 1, "a": 7, "b": 1}, {"id": 2, "a": 7, "b": 1}, new])
    assert_rows(lake.table("main.other"), [{"id": 1, "a": 1, "b": 1}, {"id": 2, "a": 1, "b": 8}, new])


def test_appends_partitions_and_new_columns(project, lake):
    parts = table_of(lake, "main.parts", [{"day": 1, "n": 1}, {"day": 2, "n": 1}], partition_by=["day"])
    for name in ("log", "wide", "strict"):
        table_of(lake, f"main.{name}", [{"n": 1}])
    project.model("parts", "select 2::bigint as day, 5::bigint as n", incremental_strategy="insert_overwrite")
    rows = "select 2::bigint as n, 'x' as note"
    project.model("log", rows, incremental_strategy="append")
    project.model("wide", rows, incremental_strategy="append", on_schema_change="append_new_columns")
    project.model("strict", rows, incremental_strategy="append", on_schema_change="fail")
    said = project.run(fails=True)

    assert_rows(parts, [{"day": 1, "n": 1}, {"day": 2, "n": 5}])
    assert_rows(lake.table("main.log"), [{"n": 1}, {"n": 2}])
    assert_rows(lake.table("main.wide"), [{"n": 1, "note": None}, {"n": 2, "note": "x"}])
    assert_rows(lake.table("main.strict"), [{"n": 1}])
    assert "run with --full-refresh" in said

    project.run("--full-refresh", "--select", "strict")
    assert_rows(lake.table("main.strict"), [{"n": 2, "note": "x"}])


def test_a_service_and_a_database_file(delvec_service, tmp_path):  # noqa: F811
    project = Project(tmp_path, str(tmp_path / "shop.duckdb"), url=delvec_service, table="{identifier}")
    with delvec.connect(delvec_service) as lake:
        table_of(lake, "orders", ORDERS, "day int, amount int")
        for day in (0, 2):
            project.model("revenue", REVENUE % day, unique_key="day")
            project.model("first", "select 1 as one from {{ source('sales', 'first_orders') }}")
            project.write("models/sources.yml", SOURCES.replace("sales.orders", "orders"))
            project.run()
        project.model("days", "select count(*) as days from {{ ref('revenue') }}")
        project.run("--select", "days")
        assert_rows(lake.table("revenue"), [{"day": 1, "revenue": 3}, {"day": 2, "revenue": 5}])
        assert_rows(lake.table("days"), [{"days": 2}])


def test_mistakes_are_explained(lake, tmp_path):
    project = Project(tmp_path, warehouse=str(tmp_path / "lake"))
    project.model("revenue", REVENUE % 0, incremental_strategy="delete+insert", unique_key="day")
    assert "incremental_strategy must be" in project.run(fails=True)
    with pytest.raises(delvec.TableNotFound):
        lake.table("main.revenue")

    (tmp_path / "other").mkdir()
    other = Project(tmp_path / "other", warehose="lake")
    other.model("revenue", "select 1 as one")
    assert "has no option 'warehose'" in other.run(fails=True)
