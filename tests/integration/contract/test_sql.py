"""SQL queries over tables in object stores: DuckDB can open only the files of those tables."""

import pyarrow as pa
import pytest

import delvec
from delvec.sql import queries
from delvec_errors import InvalidStatement


@pytest.fixture
def lake(tmp_path):
    with delvec.connect(database_url=f"sqlite:///{tmp_path / 'delvec.db'}") as connection:
        yield connection


def test_a_query_can_read_only_its_tables(lake, tmp_path, s3_location, monkeypatch):
    table = lake.create_table(s3_location, "id long, place string", partition_by=["place"], name="far")
    table.append(pa.table({"id": [1, 2, 3], "place": ["a b", "ä/b", None]}))
    table.delete("id = 2")
    near = lake.create_table(tmp_path / "near", "id long", name="near")
    near.append(pa.table({"id": [3]}))

    assert sorted(lake.sql("SELECT id FROM far")["id"].to_pylist()) == [1, 3]
    assert lake.sql("SELECT far.id FROM far JOIN near ON far.id = near.id")["id"].to_pylist() == [3]

    secret = tmp_path / "secret"
    secret.write_text("secret")
    monkeypatch.setattr(queries.Query, "on", lambda _, __, view, *___: _reading(secret, view))
    with pytest.raises(InvalidStatement, match="Cannot access file"):
        lake.sql("SELECT * FROM far")


def _reading(file, view):
    view(queries.TableName("far", "far"), None)
    return f"SELECT * FROM read_text('{file}')"
