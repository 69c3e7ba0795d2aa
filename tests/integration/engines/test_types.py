"""Every type is read back unchanged on each engine."""

from decimal import Decimal

import pyarrow as pa
import pytest

import delvec

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")

DAYS = [
    -719162,  # 0001-01-01
    -141428,  # the last day of the Julian calendar, 1582-10-04, in the proleptic one 1582-10-14
    -141427,  # 1582-10-15
    -1,
    0,
    2932896,  # 9999-12-31
    2932897,  # 10000-01-01
    11248737,  # 32767-12-31
]
MICROSECONDS = [
    -62135596800_000_000,  # 0001-01-01
    -12219292800_000_001,
    -2717640000_000_000,  # 1883, when zones were local means
    -1,
    0,
    1710052200_123_456,  # within the hour that New York leaves out
    253402300800_000_000,  # 10000-01-01
    900_000_000_000_000_000,  # 30489-11-01
]
FIRST, LAST = -(2**63), 2**63 - 1


def columns(count=8):
    largest, scaled = Decimal("9" * 38), Decimal("0." + "9" * 38)
    texts = ["", " ", "a'b\"c`d\\", "é漢\U0001f600", "\x00\x01\n", "NULL", "x" * 5000, None]
    return {
        "id": pa.array(range(count), pa.int64()),
        "byte": pa.array([-128, 127, 0, -1, 1, 2, 3, None], pa.int8()),
        "short": pa.array([-32768, 32767, 0, -1, 1, 2, 3, None], pa.int16()),
        "int": pa.array([-(2**31), 2**31 - 1, 0, -1, 1, 2, 3, None], pa.int32()),
        "long": pa.array([FIRST, LAST, 0, -1, 1, 2, 3, None], pa.int64()),
        "float": pa.array(
            [0.0, -0.0, 1.5, float("nan"), float("inf"), -float("inf"), 1e-45, None], pa.float32()
        ),
        "double": pa.array([0.0, -0.0, 0.1, float("nan"), float("inf"), -float("inf"), 5e-324, None]),
        "boolean": pa.array([True, False] * 3 + [True, None]),
        "string": pa.array(texts),
        "binary": pa.array([b"", b"\x00\xff", b"abc", b"\x80" * 70, b"1", b"2", b"3", None]),
        "date": pa.array([*DAYS[:7], None], pa.int32()).cast(pa.date32()),
        "late": pa.array([*DAYS[1:], None], pa.int32()).cast(pa.date32()),
        "timestamp": pa.array([*MICROSECONDS[:7], None]).cast(pa.timestamp("us", "UTC")),
        "ntz": pa.array([*MICROSECONDS[1:], None]).cast(pa.timestamp("us")),
        "dec_5_2": pa.array([Decimal(f"{n}.99") for n in range(-3, 4)] + [None], pa.decimal128(5, 2)),
        "dec_9_0": pa.array([10**9 - 1, 1 - 10**9, 0, 1, 2, 3, 4, None], pa.decimal128(9, 0)),
        "dec_18_9": pa.array([Decimal("999999999.999999999")] * 7 + [None], pa.decimal128(18, 9)),
        "dec_38_0": pa.array([largest, largest.copy_negate(), 0, 1, 2, 3, 4, None], pa.decimal128(38, 0)),
        "dec_38_18": pa.array([Decimal("1E-18")] * 7 + [None], pa.decimal128(38, 18)),
        "dec_38_38": pa.array(
            [scaled, scaled.copy_negate(), 0, Decimal("1E-38"), 0, 0, 0, None], pa.decimal128(38, 38)
        ),
    }


VERSIONS = {
    "version 1 pages, plain": {"data_page_version": "1.0", "use_dictionary": False, "compression": "none"},
    "version 2 pages, dictionary": {"data_page_version": "2.0", "compression": "zstd", "version": "2.6"},
    "decimals as integers": {"store_decimal_as_integer": True, "compression": "gzip", "row_group_size": 3},
    "lz4": {"compression": "lz4", "version": "1.0"},
    "small pages": {"data_page_size": 1, "write_batch_size": 1, "compression": "snappy"},
    "milliseconds have no place, INT96 has": {"use_deprecated_int96_timestamps": True},
}


@pytest.mark.gate
def test_every_primitive_type_in_every_layout(write_table, data_file, read, same):
    rows = pa.table(columns())
    files = []
    for number, (name, options) in enumerate(VERSIONS.items()):
        these = rows
        if options.get("use_deprecated_int96_timestamps"):
            # Arrow has INT96 as 64-bit nanoseconds, which limits the range that it can write.
            these = rows.slice(2, 4)
        files.append(data_file(these, name=f"{number} {name}.parquet", options=options, deleted=[1]))
    table = write_table("types", rows.schema, files)

    expected = [file.rows.take([n for n in range(file.rows.num_rows) if n != 1]) for file in files]
    same(read(table), pa.concat_tables(expected))


def test_a_codec_that_spark_lacks_is_an_error_that_names_the_file(write_table, data_file, read, engine):
    rows = pa.table({"id": [1, 2, 3]})
    table = write_table("brotli", rows.schema, [data_file(rows, options={"compression": "brotli"})])
    if engine == "duckdb":
        assert read(table).equals(rows)
    else:
        with pytest.raises(delvec.CorruptTable, match=r"part-00000\.parquet.*Brotli"):
            read(table)
