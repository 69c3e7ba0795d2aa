"""Rows that Spark finds for a predicate."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from delvec_engines.spark import SparkEngine
from delvec_engines.spark.dv_filter import BitSets, nonzero_words
from delvec_engines.spark.find_rows import physical_rows
from delvec_errors import InvalidPredicate

pytestmark = [
    pytest.mark.spark,
    pytest.mark.full_on_spark("the gate has the main cases: each starts jobs of Spark"),
]


def test_rows_by_file(engine, numbers_scan, where):
    scan = numbers_scan.scan

    found = engine.find_rows(scan, where(scan, "id % 1000 = 7 or id >= 100990"))

    assert set(found["a.parquet"]) == {i for i in range(100_000) if i % 1000 == 7}
    assert set(found["b.parquet"]) == {7, *range(990, 1000)}


@pytest.mark.gate
def test_one_row_half_the_rows_and_none(engine, numbers_scan, where):
    scan = numbers_scan.scan

    assert engine.find_rows(scan, where(scan, "id = 65536")) == {"a.parquet": BitMap64([65536])}
    assert engine.find_rows(scan, where(scan, "id < 0")) == {}
    half = engine.find_rows(scan, where(scan, "id % 2 = 0 and text != 's'"))
    assert half == {"a.parquet": BitMap64(range(0, 100_000, 2))}


def test_null_is_not_true(engine, make_scan, where):
    rows = pa.table({"x": [1, None, 3]})
    scan = make_scan([{"name": "a b", "rows": rows}], rows.schema)

    assert engine.find_rows(scan, where(scan, "x != 1")) == {"a%20b": BitMap64([2])}
    assert engine.find_rows(scan, where(scan, "x is null")) == {"a%20b": BitMap64([1])}


def test_a_name_that_spark_would_resolve_as_a_variable_is_refused(engine, numbers_scan, where, spark):
    for text in ("text = '${env:HOME}'", "text = r'${spark:spark.app.name}'"):
        with pytest.raises(InvalidPredicate, match="environment variable"):
            engine.find_rows(numbers_scan.scan, where(numbers_scan.scan, text))
    assert engine.find_rows(numbers_scan.scan, where(numbers_scan.scan, "text = '$'")) == {}


def test_partition_columns_in_the_predicate(engine, make_scan, where):
    rows = pa.table({"x": [1, 2, 3]})
    names = ["p=ü %/1.parquet", "p=b/2.parquet", "3.parquet"]
    files = [
        {"name": name, "rows": rows, "values": {"p": p}, "deleted": deleted}
        for name, p, deleted in zip(names, ["ü %", "b", None], [None, [0], None], strict=True)
    ]
    scan = make_scan(files, pa.schema([("x", pa.int64()), ("p", pa.string())]), partition_by=["p"])
    paths = scan.files["path"].to_pylist()

    assert engine.find_rows(scan, where(scan, "p = 'ü %' or x = 2")) == {
        paths[0]: BitMap64([0, 1, 2]),
        paths[1]: BitMap64([1]),
        paths[2]: BitMap64([1]),
    }
    assert engine.find_rows(scan, where(scan, "p is null")) == {paths[2]: BitMap64([0, 1, 2])}


def test_a_constant_predicate_reads_no_column(engine, make_scan, where):
    rows = pa.table({"x": [1, 2, 3]})
    scan = make_scan([{"name": "a", "rows": rows}], rows.schema)

    assert engine.find_rows(scan, where(scan, "1 = 1")) == {"a": BitMap64([0, 1, 2])}


def test_only_the_predicates_columns_are_read(spark, numbers_scan, where, capsys):
    engine, scan = SparkEngine(spark), numbers_scan.scan

    engine._frames.located(scan, ["id"], [1, 2]).filter("id > 5").explain()

    plan = capsys.readouterr().out
    assert "ReadSchema: struct<id:bigint" in plan
    assert "text" not in plan
    assert "GreaterThan(id,5)" in plan
    assert "Join" not in plan


def test_a_nondeterministic_predicate_is_refused(engine, numbers_scan, where):
    with pytest.raises(InvalidPredicate, match="not deterministic"):
        engine.find_rows(numbers_scan.scan, where(numbers_scan.scan, "rand() < 0.5"))


def test_a_predicate_that_fails_only_on_deleted_rows(engine, make_scan, where):
    good, bad = pa.table({"x": ["1", "2"]}), pa.table({"x": ["word", "1", "2", "1"]})
    files = [{"name": "a", "rows": good}, {"name": "b", "rows": bad, "deleted": [0, 3]}]
    scan = make_scan(files, good.schema)

    assert engine.find_rows(scan, where(scan, "cast(x as int) = 1")) == {
        "a": BitMap64([0]),
        "b": BitMap64([1]),
    }
    assert engine.count(scan, where(scan, "cast(x as int) = 1")) == 2


def test_a_predicate_that_fails_on_live_rows(engine, make_scan, where):
    rows = pa.table({"x": ["word", "1"]})
    scan = make_scan([{"name": "a", "rows": rows, "deleted": [1]}], rows.schema)

    with pytest.raises(InvalidPredicate, match="failed on rows of table 'people'"):
        engine.find_rows(scan, where(scan, "cast(x as int) = 1"))


def test_rows_are_estimated_where_statistics_are_missing(make_scan):
    rows = pa.table({"x": list(range(1000))})
    scan = make_scan([{"name": "a", "rows": rows}, {"name": "b", "rows": rows}], rows.schema)
    unknown = pa.array([None, 7], pa.int64())
    position = scan.files.schema.get_field_index("num_records")
    size = scan.files["size"][0].as_py()
    object.__setattr__(scan, "files", scan.files.set_column(position, "num_records", unknown))

    assert physical_rows(scan) == size // 8 + 7


row_sets = st.sets(st.integers(0, 2**20) | st.integers(2**32 - 100, 2**32 + 100), max_size=200)


@given(row_sets)
@pytest.mark.gate
def test_words_have_the_bits_of_the_rows(rows):
    positions, values = nonzero_words(BitMap64(rows))

    assert not (values == 0).any()
    assert (np.diff(positions) > 0).all()
    words = zip(positions.tolist(), values.tolist(), strict=True)
    assert {at * 64 + bit for at, word in words for bit in range(64) if word >> bit & 1} == rows


@given(st.lists(st.sets(st.integers(0, 2**16), max_size=50), max_size=4))
@pytest.mark.gate
def test_the_sparse_layout_holds_the_same_rows(files):
    sets = BitSets.of([BitMap64(rows) for rows in files], dense_limit=-1)

    for i, rows in enumerate(files):
        presence, ranks, words = (
            np.array(sets.columns[name][i].as_py(), np.int64).view(np.uint64)
            for name in ("presence", "ranks", "words")
        )
        found = set()
        for row in {*rows, *(row + 1 for row in rows)}:
            at, bit = row >> 12, np.uint64((row >> 6) & 63)
            if at >= len(presence) or not (presence[at] >> bit) & np.uint64(1):
                continue
            below = presence[at] & ~(np.uint64(2**64 - 1) << bit)
            if int(words[int(ranks[at]) + int(below).bit_count()]) >> (row & 63) & 1:
                found.add(row)
        assert found == rows
