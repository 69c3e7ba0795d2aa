"""Spark reads files of other types in branches of their own, by schemas that the driver, or tasks, have read before."""

from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.typed_files import FORMS, TYPES, annotate, nested, scan_of, write_form

from delvec_engines import file_schemas
from delvec_engines.protocol import WriteTarget
from delvec_engines.spark import SparkEngine, stored_schemas
from delvec_engines.spark import scan as scan_module
from delvec_errors import CorruptTable, UnsupportedTable
from delvec_kernel.expressions.predicate import parse
from delvec_kernel.schema.types import (
    ArrayType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    data_type_from_json,
)

pytestmark = pytest.mark.full(
    "tests/integration/engines/test_file_types.py reads such a file in the gate, and test_file_columns.py all forms with DuckDB"
)
BEYOND_SPARK = {("float16", "float"), ("float16", "double")} | {
    (form, kind)
    for form in ("nanoseconds", "nanoseconds without zone")
    for kind in ("timestamp", "timestamp_ntz")
}


@pytest.fixture(scope="module")
def engine(spark):
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return SparkEngine(session)


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    """Return a folder with files of each form, with dictionaries and without: Spark decodes them differently."""
    folder = tmp_path_factory.mktemp("forms")
    for number, form in enumerate(FORMS.values()):
        write_form(folder / f"{number}-plain.parquet", form)
        is_int96 = pa.types.is_timestamp(form.values.type)
        path = folder / f"{number}-dictionary.parquet"
        pq.write_table(
            nested(form.values), path, store_schema=False, use_deprecated_int96_timestamps=is_int96
        )
        if not is_int96:
            annotate(path, form.annotation)
    return folder


def nested_schema(kind):
    return StructType(
        (
            StructField("v", kind),
            StructField("s", StructType((StructField("v", kind),))),
            StructField("a", ArrayType(kind)),
            StructField("m", MapType(PrimitiveType("string"), kind)),
        )
    )


@pytest.mark.parametrize("name", TYPES)
def test_every_form_is_read_exactly_or_refused(engine, forms, name):
    schema = nested_schema(data_type_from_json(name))
    files, expected = [], []
    for number, (form, case) in enumerate(FORMS.items()):
        for file in (f"{number}-plain.parquet", f"{number}-dictionary.parquet"):
            if name in case.read and (form, name) not in BEYOND_SPARK:
                files.append(file)
                expected += [(value,) * 4 for value in case.read[name]]
                continue
            error = UnsupportedTable if (form, name) in BEYOND_SPARK else CorruptTable
            if form == "bson" and name in {"string", "binary"}:
                continue  # DuckDB cannot open the file, Spark can
            with pytest.raises(error) as caught:
                engine.read(scan_of(forms, [file], schema), None, None)
            assert caught.value.details["file"] == file
            assert caught.value.details["column"] in {"v", "s.v", "a.element", "m.value"}
    rows = engine.read(scan_of(forms, files, schema), None, None).to_pylist()
    found = [(row["v"], row["s"]["v"], row["a"][0], row["m"][0][1]) for row in rows]
    assert Counter(found) == Counter(expected)


def test_an_error_of_a_lazy_frame_is_typed(engine, tmp_path):
    write_form(tmp_path / "a.parquet", FORMS["uint8"])
    frame = engine.to_df(scan_of(tmp_path, ["a.parquet"], nested_schema(PrimitiveType("byte"))))
    with pytest.raises(CorruptTable, match=r"a\.parquet.*people.*version 7.*column 'a\.element'.*hold 200"):
        frame.select("a").collect()
    assert frame.select("v").limit(1).collect()[0]["v"] == 1


def test_tasks_read_the_schemas_of_files(engine, tmp_path):
    for name in "abc":
        write_form(tmp_path / f"{name}.parquet", FORMS["int32" if name == "a" else "uint8"])
    scan = scan_of(tmp_path, [f"{name}.parquet" for name in "abc"], StructType(()))
    (tmp_path / "c.parquet").unlink()
    read = stored_schemas._read_in_tasks(engine.spark, scan)
    assert {path: schema[1].kind.name for path, schema in read.items()} == {
        "a.parquet": "integer",
        "b.parquet": "unsigned",
    }
    assert list(file_schemas.without_schemas(scan).files["path"].to_pylist()) == ["c.parquet"]


@pytest.mark.parametrize(
    ("form", "kind", "details"),
    [
        ("uint64", "long", {"table": "people", "version": 7}),
        ("int64", "integer", {"table": "people", "version": 7, "file": "a.parquet", "column": "v"}),
        ("decimal(10,2) in bytes", "decimal(10,2)", {"table": "people", "version": 7}),
    ],
)
def test_what_spark_refuses_itself_is_typed(engine, tmp_path, monkeypatch, form, kind, details):
    """Where the driver cannot read the table's storage."""
    pq.write_table(nested(FORMS[form].values), tmp_path / "a.parquet", store_schema=False)
    annotate(tmp_path / "a.parquet", FORMS[form].annotation)
    monkeypatch.setattr(scan_module, "stored_schemas", lambda _, scan: [None] * len(scan))
    schema = StructType((StructField("v", data_type_from_json(kind)),))
    scan = scan_of(tmp_path, ["a.parquet"], schema)
    for work in (
        lambda: engine.read(scan, None, None),
        lambda: engine.count(scan, parse("v > 5", schema)),
        lambda: engine.find_rows(scan, parse("v > 5", schema)),
        lambda: engine.compact(scan, [["a.parquet"]], WriteTarget(tmp_path.as_uri(), schema, [], {}, "tx-1")),
    ):
        with pytest.raises(CorruptTable) as caught:
            work()
        assert caught.value.details == details
