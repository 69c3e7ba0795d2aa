import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from delvec_engines.input_data import to_arrow, to_reader
from delvec_errors import SchemaMismatch
from delvec_kernel.schema.types import StructType

ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
TABLE = pa.table({"id": [1, 2], "name": ["a", "b"]})


class Stream:
    def __arrow_c_stream__(self, requested_schema=None):
        return TABLE.__arrow_c_stream__(requested_schema)


class Array:
    def __arrow_c_array__(self, requested_schema=None):
        return TABLE.to_batches()[0].__arrow_c_array__(requested_schema)


@pytest.mark.parametrize("convert", [to_arrow, lambda data: to_reader(data).read_all()])
@pytest.mark.parametrize(
    "data",
    [
        TABLE,
        TABLE.to_batches()[0],
        pd.DataFrame(ROWS, index=[7, 8]),
        pd.DataFrame(ROWS).set_index(pd.Index([3, 4], name="index")),
        pl.DataFrame(ROWS),
        ROWS,
        Stream(),
        Array(),
    ],
    ids=lambda data: type(data).__module__ + "." + type(data).__name__,
)
def test_rows_arrive_whatever_they_came_in(data, convert):
    table = convert(data)
    assert table.to_pylist() == ROWS
    assert table.column_names == ["id", "name"]
    assert table.schema.metadata is None


def test_reader_is_not_collected():
    made = []

    def batches():
        for batch in TABLE.to_batches(max_chunksize=1):
            made.append(batch)
            yield batch

    reader = to_reader(pa.RecordBatchReader.from_batches(TABLE.schema, batches()))
    assert made == []
    assert to_arrow(reader).equals(TABLE)


def test_keys_of_every_dictionary_become_columns():
    assert to_arrow([{"id": 1}, {"name": "b"}]).to_pylist() == [
        {"id": 1, "name": None},
        {"id": None, "name": "b"},
    ]


def test_no_dictionaries_are_no_rows():
    assert to_arrow([]).num_rows == 0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (7, "not int"),
        ("people.parquet", "not str"),
        ([1, 2], "not list"),
        (None, "not NoneType"),
        ([{}, {}], "has 2 rows, but no row names a column"),
        (pl.LazyFrame(ROWS), r"polars.*LazyFrame.*collect"),
    ],
    ids=["int", "str", "list", "none", "no columns", "lazy"],
)
def test_what_is_not_tabular_is_refused(data, message):
    with pytest.raises(SchemaMismatch, match=message):
        to_arrow(data)


@pytest.mark.parametrize(
    "data", [[{"id": 1}, {"id": "x"}], pd.DataFrame({"id": [1, "x"]})], ids=["dicts", "pandas"]
)
def test_mixed_types_in_a_column_are_refused(data):
    with pytest.raises(SchemaMismatch, match=r"cannot be converted to Arrow|have no common type"):
        to_arrow(data)


def test_a_pandas_frame_of_nested_columns_alone_has_its_rows():
    schema = StructType.from_arrow(pa.schema({"l": pa.list_(pa.int64())}))
    assert to_arrow(pd.DataFrame({"l": [[1], None, []]}), schema)["l"].to_pylist() == [[1], None, []]
