"""Statistics from the footers of Parquet files that another program wrote."""

import io
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delvec_kernel.statistics.parquet_footer import footer_schema, footer_statistics


@pytest.mark.parametrize("scale", [0, 6, 38])
def test_bounds_of_decimals_keep_all_38_digits(scale):
    digits = "98765432109876543210987654321098765432"
    values = [Decimal(f"{sign}{digits}e-{scale}") for sign in ("-", "")]
    stream = io.BytesIO()
    pq.write_table(pa.table({"amount": pa.array(values, pa.decimal128(38, scale))}), stream)
    footer = pq.read_metadata(stream)
    schema = footer_schema(footer)
    found = json.loads(footer_statistics(footer, schema, (), {}), parse_float=Decimal, parse_int=Decimal)
    assert (found["minValues"]["amount"], found["maxValues"]["amount"]) == tuple(values)


def test_reversed_bounds_are_left_out():
    sink = pa.BufferOutputStream()
    rows = pa.table({"s": ["greatest", "lowest__", "other___"], "n": [1, 2, 3]})
    pq.write_table(rows, sink, store_schema=False, use_dictionary=False)
    data = sink.getvalue().to_pybytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[start:]
    for before, after in ((b"greatest", b"????????"), (b"other___", b"greatest"), (b"????????", b"other___")):
        footer = footer.replace(before, after)
    metadata = pq.read_metadata(pa.BufferReader(data[:start] + footer))
    found = json.loads(footer_statistics(metadata, footer_schema(metadata), (), {}))
    assert (found["minValues"], found["maxValues"]) == ({"n": 1}, {"n": 3})
