"""MERGE with schema evolution adds fields to structs in arrays and maps, as an append does."""

import pyarrow as pa
import pytest

import delvec

SCHEMA = "id long, tags array<struct<a: int>>, named map<string, struct<a: int>>, deep array<map<string, array<struct<a: int>>>>"


def element(*fields):
    return pa.struct([(name, pa.int32()) for name in fields])


def rows(ids, value, fields):
    """Return rows whose structs all are ``value``."""
    kind = element(*fields)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "tags": pa.array([[value, None]] * len(ids), pa.list_(kind)),
            "named": pa.array([[("k", value)]] * len(ids), pa.map_(pa.string(), kind)),
            "deep": pa.array([[[("k", [value])]]] * len(ids), pa.list_(pa.map_(pa.string(), pa.list_(kind)))),
        }
    )


@pytest.fixture
def table(lake, engine, tmp_path):
    """Rows 1 and 2."""
    table = lake.create_table(tmp_path / "t", SCHEMA, engine=engine)
    table.append(rows([1, 2], {"a": 1}, ["a"]))
    return table


def found(table):
    return table.to_arrow().sort_by("id").to_pylist()


def test_fields_in_arrays_and_maps_are_added(table):
    source = rows([2, 3], {"a": 5, "b": 7}, ["a", "b"])
    merge = table.merge(source, "source.id = target.id", merge_schema=True).when_matched_update_all()
    done = merge.when_not_matched_insert_all().execute()

    assert (done["numTargetRowsUpdated"], done["numTargetRowsInserted"]) == (1, 1)
    expected = rows([1], {"a": 1, "b": None}, ["a", "b"]).to_pylist()
    assert found(table) == expected + source.to_pylist()

    # Fields that only the table has are NULL in what the source gives.
    again = rows([3], {"a": 9}, ["a"])
    table.merge(again, "source.id = target.id", merge_schema=True).when_matched_update_all().execute()
    assert found(table)[2] == rows([3], {"a": 9, "b": None}, ["a", "b"]).to_pylist()[0]


def test_only_fields_of_assigned_columns_are_added(table):
    source = rows([2], {"a": 5, "b": 7}, ["a", "b"])
    merge = table.merge(source, "source.id = target.id", merge_schema=True)
    merge.when_matched_update({"tags": "source.tags"}).execute()

    kinds = {field.name: str(field.type) for field in table.schema()}
    assert ["b: int32" in kinds[name] for name in ("tags", "named", "deep")] == [True, False, False]
    assert found(table)[1]["tags"] == [{"a": 5, "b": 7}, None]
    assert found(table)[1]["named"] == [("k", {"a": 1})]


def test_without_evolution_the_field_is_named(table):
    source = rows([2], {"a": 5, "b": 7}, ["a", "b"])
    merge = table.merge(source, "source.id = target.id").when_matched_update({"named": "source.named"})
    with pytest.raises(delvec.SchemaMismatch, match=r"named\.value' has a field 'b' .* leave it out, or"):
        merge.execute()
