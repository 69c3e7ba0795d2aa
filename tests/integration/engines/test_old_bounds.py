"""Files of writers before column orders, such as Impala and old Hive: their bounds are in the order of signed bytes."""

from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.typed_files import give_old_bounds

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; Spark does not believe such bounds")

ROWS = {
    "s": ["Two Way", "\u00e9", "a"],
    "b": [b"a", b"\xff", b"b"],
    "u": [1, 3_000_000_000, 5],
    "d": [Decimal("1.00"), Decimal("-1.00"), Decimal("2.00")],
    "x": [{"s": "Two Way"}, {"s": "\u00e9"}, {"s": "a"}],
}
STORED = pa.schema(
    [
        ("s", pa.string()),
        ("b", pa.binary()),
        ("u", pa.uint32()),
        ("d", pa.decimal128(20, 2)),
        ("x", pa.struct([("s", pa.string())])),
    ]
)
TEXTS = "\u00e9".encode(), b"a"
"""The least and the greatest, if bytes are signed."""
BOUNDS = [
    TEXTS,
    (b"\xff", b"b"),
    ((3_000_000_000).to_bytes(4, "little"), (5).to_bytes(4, "little")),
    ((100).to_bytes(9, "big"), (-100).to_bytes(9, "big", signed=True)),
    TEXTS,
]
CONDITIONS = {
    "s = '\u00e9'": [1],
    "s = 'Two Way'": [0],
    "s <= 'zz'": [0, 2],
    "s > 'a'": [1],
    "b = X'FF'": [1],
    "b > X'62'": [1],
    "u > 5": [1],
    "u = 3000000000": [1],
    "d < 0": [1],
    "d > 1": [2],
    "x.s = '\u00e9'": [1],
    "x.s <= 'zz'": [0, 2],
}


@pytest.fixture
def table(lake, engine, write_table, data_file, tmp_path):
    (tmp_path / "t").mkdir()
    path = tmp_path / "t" / "a.parquet"
    pq.write_table(pa.Table.from_pydict(ROWS, STORED), path, store_schema=False)
    give_old_bounds(path, BOUNDS)
    schema = STORED.set(2, pa.field("u", pa.int64()))
    folder = write_table("t", schema, [data_file(None, name="a.parquet")])
    return lake.table(folder, engine=engine)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_rows_are_found_whatever_such_bounds_say(table, condition):
    expected = sorted(repr([ROWS[name][row] for name in ROWS]) for row in CONDITIONS[condition])
    found = table.to_arrow(predicate=condition)
    assert sorted(repr(list(row.values())) for row in found.to_pylist()) == expected


def test_merge_finds_the_row_that_it_would_insert_again(table):
    source = pa.Table.from_pydict(ROWS, table.to_arrow().schema).slice(1, 1)
    table.merge(
        source, "t.s = n.s", source_alias="n", target_alias="t"
    ).when_not_matched_insert_all().execute()
    assert table.to_arrow().num_rows == 3
    assert table.delete("s = '\u00e9'")["numDeletedRows"] == 1
