"""Maps as Hive writes them: Spark reads them, and DuckDB does not open such files."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.typed_files import annotate_maps_as_hive

from delvec_errors import UnsupportedTable

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "m": pa.array([[("a", 1), ("b", None)], [], None], pa.map_(pa.string(), pa.int32())),
    }
)


def test_maps_of_hive_are_read_or_refused_by_name(lake, engine, write_table, data_file, tmp_path):
    (tmp_path / "t").mkdir()
    path = tmp_path / "t" / "a.parquet"
    pq.write_table(ROWS, path, store_schema=False)
    annotate_maps_as_hive(path)
    table = lake.table(write_table("t", ROWS.schema, [data_file(None, name="a.parquet")]), engine=engine)
    if engine == "duckdb":
        with pytest.raises(UnsupportedTable, match=r"'a.parquet'.*older form.*read the table with Spark"):
            table.to_arrow(columns=["id"])
    else:
        assert sorted(table.to_arrow().to_pylist(), key=str) == ROWS.to_pylist()
