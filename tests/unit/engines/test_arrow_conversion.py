"""Arrow columns as the table's types: dictionaries and views of DataFrames, and NULL structs."""

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delvec_engines.arrow_conversion import cast_batch, decoded, physical_schema
from delvec_errors import ConstraintViolation
from delvec_kernel.schema.types import StructType

REQUIRED = pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("t", pa.string(), nullable=False)])
NESTED = pa.schema({"id": pa.int64(), "l": pa.list_(REQUIRED), "m": pa.map_(pa.string(), REQUIRED)})
ROWS = [
    {"id": 1, "l": [{"a": 1, "t": "x"}, None], "m": [("k", None), ("j", {"a": 2, "t": "y"})]},
    {"id": 2, "l": None, "m": None},
    {"id": 3, "l": [], "m": []},
]
LETTERS = ["a", "b", None, "a"]


def letters(kind):
    return pl.DataFrame(
        {"id": range(4), "s": pl.Series(LETTERS, dtype=kind), "l": [[each] for each in LETTERS]}
    ).cast({"l": pl.List(kind)})


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["a", "b"]), pl.String], ids=str)
def test_categories_of_polars_are_text(lake, tmp_path, kind):
    schema = pa.schema({"id": pa.int64(), "s": pa.string(), "l": pa.list_(pa.string())})
    table = lake.create_table(tmp_path / "t", schema, engine="duckdb")
    table.append(letters(kind))
    merge = table.merge(letters(kind), "target.id = source.id + 10")
    merge.when_not_matched_insert({"id": "source.id + 10", "s": "source.s", "l": "source.l"}).execute()
    found = table.to_arrow().sort_by("id")
    assert found["s"].to_pylist() == LETTERS * 2
    assert found["l"].to_pylist() == [[each] for each in LETTERS] * 2


@pytest.mark.parametrize("values", [pa.string(), pa.string_view(), pa.binary_view(), pa.int64()])
def test_a_dictionary_is_decoded(values):
    data = [1, None, 2] if values == pa.int64() else ["a", None, "b"]
    data = [each and each.encode() for each in data] if values == pa.binary_view() else data
    dictionary = pa.array([data[0], data[2]], values)
    array = pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.int8()), dictionary)
    assert decoded(array).to_pylist() == data


def test_null_structs_in_arrays_and_maps_are_written(lake, tmp_path):
    """Their fields are NULL, although they are NOT NULL where there is a struct."""
    table = lake.create_table(tmp_path / "t", NESTED, engine="duckdb")
    table.append([{**row, "m": row["m"] and dict(row["m"])} for row in ROWS])
    frame = pl.from_arrow(pa.Table.from_pylist(ROWS, NESTED).drop_columns("m"))
    table.merge(frame, "target.id = source.id").when_matched_update({"l": "source.l"}).execute()
    table.update({"id": "id + 10"}, "id = 1")
    table.append(frame)
    table.optimize()
    changed = [*ROWS[1:], {**ROWS[0], "id": 11}]
    expected = [*changed, *({**row, "m": None} for row in ROWS)]
    assert sorted(table.to_arrow().to_pylist(), key=str) == sorted(expected, key=str)


def test_only_columns_are_not_null_in_files(tmp_path):
    schema = StructType.from_arrow(
        pa.schema([pa.field("s", REQUIRED, nullable=False), pa.field("n", pa.int64())])
    )
    fields = physical_schema(schema, has_mapping=False)
    assert [field.nullable for field in fields] == [False, True]
    assert fields.field("s").type.field("a").nullable
    pq.write_table(fields.empty_table(), tmp_path / "a.parquet")


@pytest.mark.parametrize("text", [pa.string(), pa.string_view()])
def test_null_in_a_field_that_forbids_it_is_an_error(text):
    schema = StructType.from_arrow(pa.schema({"s": REQUIRED}))
    kind = pa.struct({"a": pa.int64(), "t": text})
    sound = pa.record_batch({"s": pa.array([{"a": 1, "t": "x"}, None], kind)})
    assert cast_batch(sound, schema, schema.to_arrow(), check_nulls=True)["s"].to_pylist() == [
        {"a": 1, "t": "x"},
        None,
    ]
    broken = pa.record_batch({"s": pa.array([{"a": 1, "t": None}, None], kind)})
    with pytest.raises(ConstraintViolation, match=r"s\.t"):
        cast_batch(broken, schema, schema.to_arrow(), check_nulls=True)


@pytest.mark.parametrize("view", [pa.list_view, pa.large_list_view])
def test_views_of_lists_are_lists(view):
    rows = [["a"], None, [], ["b", None], None]
    target = pa.schema({"l": pa.list_(pa.string())})
    lists = pa.array(rows, view(pa.string()))
    for start in (0, 1, 3):
        batch = pa.record_batch({"l": lists.slice(start)})
        found = cast_batch(batch, StructType.from_arrow(target), target, check_nulls=True)
        found.validate(full=True)
        assert found["l"].to_pylist() == rows[start:]
