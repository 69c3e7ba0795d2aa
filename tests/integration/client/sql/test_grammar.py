"""Each statement form's example runs, and its page is up to date."""

import runpy
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import delvec
from delvec.sql.grammar import FORMS
from delvec.sql.queries import QUERIES
from delvec.sql.statements import STATEMENTS

ROOT = Path(__file__).parents[4]
PAGE = runpy.run_path(str(ROOT / "dev" / "sql_grammar.py"))


def test_each_example_runs(tmp_path):
    (tmp_path / "files").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "files" / "0.parquet")
    with delvec.connect(database_url="sqlite://") as elsewhere:
        elsewhere.create_table(tmp_path / "existing", "id long")
    with delvec.connect(tmp_path / "lake", database_url="sqlite://") as lake:
        lake.create_table("parcels", "id long", managed=True)
        lake.drop("parcels")
        results = {form.example: lake.sql(form.example.replace("/data", str(tmp_path))) for form in FORMS}
        assert results[
            "INSERT INTO people (id, name, age) VALUES (1, 'Ada', 36), (2, DEFAULT, 17), (3, 'Cy', 70)"
        ]["numOutputRows"]
        names = [row["name"] for row in lake.sql("SELECT name FROM people ORDER BY id").to_pylist()]
        assert names == ["Ada", "IO"]
        assert {table.name for table in lake.tables()} == {
            "adults",
            "files",
            "found",
            "guests",
            "orders",
            "parcels",
            "people",
        }


def test_every_statement_has_a_form():
    words = {form.example.split()[0] for form in FORMS}
    assert set(STATEMENTS) <= words | {"DESC"}
    assert words <= set(STATEMENTS) | QUERIES | {"REPLACE"}


def test_the_page_is_up_to_date():
    page = PAGE["PAGE"].read_text(encoding="utf-8")
    assert page == PAGE["grammar_page"](), "run python dev/sql_grammar.py"
