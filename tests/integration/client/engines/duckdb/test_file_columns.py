"""The DuckDB engine reads each type of a file exactly as the table's, or refuses the file by name."""

from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from tests.support.typed_files import FORMS, SHAPES, TYPES, Form, annotate, scan_of, without, write_form

from delvec_engines.duckdb import DuckDBEngine
from delvec_engines.protocol import WriteTarget
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


@pytest.fixture(scope="module")
def engine():
    made = DuckDBEngine()
    yield made
    made.close()


def nested(kind):
    text = PrimitiveType("string")
    return StructType(
        (
            StructField("v", kind),
            StructField("s", StructType((StructField("v", kind),))),
            StructField("a", ArrayType(kind)),
            StructField("m", MapType(text, kind)),
        )
    )


def values_of(rows):
    return [
        rows["v"].to_pylist(),
        [row["v"] for row in rows["s"].to_pylist()],
        [row[0] for row in rows["a"].to_pylist()],
        [row[0][1] for row in rows["m"].to_pylist()],
    ]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_read_exactly_or_refused(engine, tmp_path, form):
    write_form(tmp_path / "a.parquet", FORMS[form])
    for name in TYPES:
        schema = nested(data_type_from_json(name))
        expected = FORMS[form].read.get(name)
        if expected is None:
            for column in schema.names:
                with pytest.raises((CorruptTable, UnsupportedTable)) as caught:
                    engine.read(scan_of(tmp_path, ["a.parquet"], schema.select([column])), None, None)
                assert caught.value.details["file"] == "a.parquet", (name, column)
                assert "people" in caught.value.message
            continue
        found = values_of(engine.read(scan_of(tmp_path, ["a.parquet"], schema), None, None))
        assert found == [expected] * 4, name
        if name in {"float", "double"}:
            assert str(found) == str([expected] * 4), name  # also -0.0


# --- shapes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_read_exactly_or_refused(engine, tmp_path, shape):
    case = SHAPES[shape]
    pq.write_table(case.file, tmp_path / "a.parquet", store_schema=False)
    scan = scan_of(tmp_path, ["a.parquet"], case.schema)
    if case.rows is None:
        with pytest.raises(CorruptTable, match=r"a\.parquet.*people.*version 7") as caught:
            engine.read(scan, None, None)
        assert caught.value.details["file"] == "a.parquet"
    else:
        assert engine.read(scan, None, None).to_pylist() == case.rows


def test_lists_and_maps_without_the_older_annotation_are_refused(engine, tmp_path):
    """DuckDB takes them for structs; Spark does not."""
    write_form(tmp_path / "a.parquet", FORMS["int32"])
    without(tmp_path / "a.parquet", 6)
    schema = nested(PrimitiveType("integer"))
    for name in "am":
        with pytest.raises(UnsupportedTable, match=rf"a\.parquet.*column '{name}'.*Spark"):
            engine.read(scan_of(tmp_path, ["a.parquet"], schema.select([name])), None, None)
    assert engine.read(scan_of(tmp_path, ["a.parquet"], schema.select("vs")), None, None).num_rows == 4


@pytest.mark.parametrize("form", ["decimal(9,2) in int32", "decimal(10,2) in bytes", "uint32", "uint64"])
def test_numbers_that_duckdb_would_read_as_others_are_refused(engine, tmp_path, form):
    write_form(tmp_path / "a.parquet", FORMS[form])
    without(tmp_path / "a.parquet", 6)
    kind = data_type_from_json(next(iter(FORMS[form].read)))
    with pytest.raises(UnsupportedTable, match=r"a\.parquet.*Spark"):
        engine.read(scan_of(tmp_path, ["a.parquet"], nested(kind).select("v")), None, None)


@pytest.mark.parametrize("annotation", [{}, FORMS["string"].annotation])
def test_bytes_that_are_not_text_are_refused_by_name(engine, tmp_path, annotation):
    write_form(tmp_path / "a.parquet", Form(pa.array([b"ok"]), annotation))
    write_form(tmp_path / "b.parquet", Form(pa.array([b"\xff\x00a"]), annotation))
    schema = nested(PrimitiveType("string"))
    for name in "vsam":
        scan = scan_of(tmp_path, ["a.parquet", "b.parquet"], schema.select(name))
        with pytest.raises(CorruptTable) as caught:
            engine.read(scan, None, None)
        assert caught.value.details["file"] == "b.parquet"


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ("a long number in int32", "short"),
        ("uint8", "byte"),
        ("uint16", "short"),
        ("uint32", "integer"),
        ("uint64", "long"),
    ],
)
def test_numbers_that_do_not_fit_are_refused_by_name(engine, tmp_path, form, kind):
    write_form(tmp_path / "a.parquet", Form(FORMS[form].values[:1], FORMS[form].annotation))
    write_form(tmp_path / "b.parquet", FORMS[form])
    schema = nested(PrimitiveType(kind))
    scan = scan_of(tmp_path, ["a.parquet", "b.parquet"], schema)
    works = [partial(engine.read, scan, [name], None) for name in "vsam"]
    for text in ("v = 1", "s.v > 1", "a[0] < 5"):
        works += [
            partial(engine.count, scan, parse(text, schema)),
            partial(engine.find_rows, scan, parse(text, schema)),
        ]
    for work in works:
        with pytest.raises(
            CorruptTable, match=rf"column '.+': it has int.*, and the table {kind}, which cannot"
        ) as caught:
            work()
        assert caught.value.details["file"] == "b.parquet"
        assert caught.value.details["column"][0] in "vsam"
    fits = scan_of(tmp_path, ["a.parquet"], schema)
    assert values_of(engine.read(fits, None, None)) == [[1]] * 4
    assert engine.count(fits, parse("v = 1 AND s.v = 1", schema)) == 1


@pytest.mark.parametrize(
    "text", ["v = 'aé'", "s.v = 'aé'", "a[0] = 'aé'", "v LIKE 'a%é'", "v > 'aa' AND v < 'b'"]
)
def test_bytes_without_annotation_are_found_as_text(engine, tmp_path, text):
    write_form(tmp_path / "a.parquet", FORMS["string"])
    write_form(tmp_path / "b.parquet", FORMS["bytes"])
    schema = nested(PrimitiveType("string"))
    found = engine.find_rows(scan_of(tmp_path, ["a.parquet", "b.parquet"], schema), parse(text, schema))
    assert {path: list(rows) for path, rows in found.items()} == {"a.parquet": [0], "b.parquet": [0]}


def test_files_of_many_forms_are_read_in_one_scan(engine, tmp_path):
    """With rows left out of some, and positions of all."""
    forms = ["string", "bytes", "string, newer annotation", "enum"]
    for number, form in enumerate(forms):
        write_form(tmp_path / f"{number}.parquet", FORMS[form])
    schema = nested(PrimitiveType("string"))
    scan = scan_of(tmp_path, [f"{number}.parquet" for number in range(4)], schema)
    assert engine.read(scan, ["v"], None)["v"].to_pylist() == FORMS["string"].read["string"] * 4
    assert engine.count(scan, parse("v IS NOT NULL", schema)) == 4 * 5


def test_nothing_is_written_before_all_files_have_been_checked(engine, tmp_path):
    write_form(tmp_path / "0.parquet", FORMS["int32"])
    write_form(tmp_path / "1.parquet", FORMS["double"])
    schema = nested(PrimitiveType("long"))
    scan = scan_of(tmp_path, ["0.parquet", "1.parquet"], schema)
    target = WriteTarget(tmp_path.as_uri(), schema, [], {}, "tx-1")
    for work in (
        lambda: engine.copy_rows(scan, {"0.parquet": BitMap64([0])}, target),
        lambda: engine.compact(scan, [["0.parquet"], ["1.parquet"]], target),
        lambda: engine.cluster(scan, [["0.parquet"], ["1.parquet"]], [("v",)], target),
        lambda: next(iter(engine.read_batches(scan))),
    ):
        with pytest.raises(CorruptTable) as caught:
            work()
        assert caught.value.details["file"] == "1.parquet"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["0.parquet", "1.parquet"]


# --- column mapping -------------------------------------------------------------------------------------------


def mapped(name, kind, number, physical=None):
    metadata = {
        "delta.columnMapping.physicalName": physical or f"col-{number}",
        "delta.columnMapping.id": number,
    }
    return StructField(name, kind, metadata=metadata)


def with_ids(fields):
    return pa.schema(
        [each.with_metadata({b"PARQUET:field_id": str(number)}) for number, each in fields.items()]
    )


LONG, TEXT = PrimitiveType("long"), PrimitiveType("string")


def test_columns_are_found_by_field_id_whatever_their_names(engine, tmp_path):
    inner = pa.struct([pa.field("other", pa.int64(), metadata={b"PARQUET:field_id": b"4"})])
    file = with_ids({1: pa.field("x", pa.string()), 2: pa.field("y", pa.int64()), 3: pa.field("z", inner)})
    pq.write_table(pa.table({"x": ["a"], "y": [5], "z": [{"other": 7}]}, file), tmp_path / "a.parquet")
    schema = StructType(
        (
            mapped("n", LONG, 2),
            mapped("t", TEXT, 1),
            # Its name is that of another column in the file.
            mapped("new", LONG, 9, physical="y"),
            mapped("s", StructType((mapped("a", LONG, 4), mapped("b", LONG, 8, physical="other"))), 3),
        )
    )
    scan = scan_of(tmp_path, ["a.parquet"], schema, {"delta.columnMapping.mode": "id"})
    row = {"n": 5, "t": "a", "new": None, "s": {"a": 7, "b": None}}
    assert engine.read(scan, None, None).to_pylist() == [row]
    assert engine.count(scan, parse("n = 5 AND s.a = 7 AND new IS NULL", schema)) == 1


def test_a_file_without_field_ids_is_refused_where_they_are_needed(engine, tmp_path):
    pq.write_table(pa.table({"col-1": [1]}), tmp_path / "a.parquet")
    scan = scan_of(
        tmp_path, ["a.parquet"], StructType((mapped("n", LONG, 1),)), {"delta.columnMapping.mode": "id"}
    )
    with pytest.raises(CorruptTable, match=r"a\.parquet.*no field ids"):
        engine.read(scan, None, None)


# --- commands -------------------------------------------------------------------------------------------------


def as_bytes(table, folder):
    """Take the annotation of text from the table's files, as Impala and old versions of Hive write it."""
    for file in folder.glob("*.parquet"):
        annotate(file, {}, names=("name", "element"))
    assert table.version() >= 0


def test_text_of_writers_without_annotations_survives_every_rewrite(lake, tmp_path):
    schema = pa.schema({"id": pa.int64(), "name": pa.string(), "tags": pa.list_(pa.string())})
    table = lake.create_table(
        tmp_path / "t", schema, properties={"delta.enableDeletionVectors": "true"}, engine="duckdb"
    )
    names = ["aé", "\\x41", "a'b\"c\\d\t\n", "漢"]
    table.append(pa.table({"id": range(4), "name": names, "tags": [[name] for name in names]}, schema))
    table.append(pa.table({"id": [9], "name": ["z"], "tags": [["z"]]}, schema))
    as_bytes(table, tmp_path / "t")

    source = pa.table({"name": names[:3], "id": [10, 11, 12], "tags": [[name] for name in names[:3]]})
    merge = table.merge(source, "target.name = source.name")
    merge.when_matched_update({"id": "source.id"}).when_not_matched_insert_all().execute()
    table.update({"id": "13"}, "name = '漢'")
    table.optimize()
    expected = [{"id": 9, "name": "z", "tags": ["z"]}]
    expected += [{"id": 10 + place, "name": name, "tags": [name]} for place, name in enumerate(names)]

    assert table.to_arrow().sort_by("id").to_pylist() == expected
    assert table.to_duckdb().order("id").to_arrow_table().to_pylist() == expected
    assert lake.sql(f"SELECT count(*) AS n FROM delta.`{tmp_path}/t` WHERE name = 'aé'").to_pylist() == [
        {"n": 1}
    ]


def test_a_struct_whose_fields_were_all_replaced(lake, tmp_path):
    schema = pa.schema({"id": pa.int64(), "s": pa.struct([("w", pa.int64())])})
    table = lake.create_table(
        tmp_path / "t", schema, properties={"delta.columnMapping.mode": "name"}, engine="duckdb"
    )
    table.append(pa.table({"id": [1, 2], "s": [{"w": 1}, None]}, schema))
    table.alter.add_columns("x string", into="s")
    table.alter.drop_columns("s.w")

    assert table.to_arrow().sort_by("id").to_pylist() == [{"id": 1, "s": {"x": None}}, {"id": 2, "s": None}]
    table.update({"s.x": "'new'"}, "id = 1")
    expected = [{"id": 1, "s": {"x": "new"}}, {"id": 2, "s": None}]
    assert table.to_arrow().sort_by("id").to_pylist() == expected
    table.optimize()
    assert table.to_duckdb().order("id").to_arrow_table().to_pylist() == expected
    assert table.to_arrow(predicate="s IS NULL")["id"].to_pylist() == [2]
