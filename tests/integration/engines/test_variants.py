"""Variant columns: returned as two binaries unchanged on each engine, and the operations on such tables."""

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import delvec

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")

TEXTS = ["null", "1", '{"a":[1,{"b":null}],"c":"x"}', '"text"', "1.25"]
FEATURES = ("variantType", "variantShredding-preview")
EMPTY = b"\x01\x00\x00"
"""The metadata of a variant without names."""


def column(name, kind):
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


VARIANTS = {
    "type": "struct",
    "fields": [
        column("id", "long"),
        column("v", "variant"),
        column("l", {"type": "array", "elementType": "variant", "containsNull": True}),
        column("s", {"type": "struct", "fields": [column("v", "variant")]}),
    ],
}


def as_text(value):
    from pyspark.sql.types import VariantVal

    return None if value is None else VariantVal(value["value"], value["metadata"]).toJson()


@pytest.fixture
def whole(spark, write_table, data_file):
    """A file as written by Spark: unshredded variants, annotated since Spark 4.1."""
    values = ", ".join(f"({number}L, '{text}')" for number, text in enumerate(TEXTS))
    folder = write_table.folder / "from_spark"
    spark.sql(
        "SELECT id, parse_json(j) AS v, array(parse_json(j), NULL) AS l, named_struct('v', parse_json(j)) AS s "
        f"FROM VALUES {values}, (9L, NULL) AS t(id, j)"
    ).coalesce(1).write.parquet(str(folder))
    (path,) = folder.glob("*.parquet")
    target = write_table.folder / "variants"
    target.mkdir()
    path.rename(target / "whole.parquet")
    return data_file(None, name="whole.parquet", deleted=[1])


@pytest.fixture
def shredded(write_table, data_file, whole):
    """Files with shredded variants: one written by DuckDB, and one without annotations."""
    folder = write_table.folder / "variants"
    with duckdb.connect() as connection:
        connection.execute(
            "COPY (SELECT id, {'a': id}::VARIANT AS v FROM range(10, 12) AS t(id)) "
            f"TO '{folder / 'marked.parquet'}' (FORMAT parquet)"
        )
    kind = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.int64())])
    variant = pa.array([{"metadata": EMPTY, "value": None, "typed_value": 7}], kind)
    listed = pa.ListArray.from_arrays([0, 1], variant)
    inner = pa.StructArray.from_arrays([variant], ["v"])
    rows = pa.table({"id": [12], "v": variant, "l": listed, "s": inner})
    pq.write_table(rows, folder / "unmarked.parquet")
    for name in ("marked", "unmarked"):
        assert "typed_value" in str(pq.ParquetFile(folder / f"{name}.parquet").schema)
    return [data_file(None, name=f"{name}.parquet") for name in ("marked", "unmarked")]


def check_texts(found, texts):
    rows = found.sort_by("id").to_pylist()
    assert [row["id"] for row in rows] == list(texts)
    for row, text in zip(rows, texts.values(), strict=True):
        assert as_text(row["v"]) == as_text(row["l"][0]) == as_text(row["s"]["v"]) == text
        assert row["l"][1] is None


@pytest.mark.gate
def test_variants_are_read_as_they_are_stored(whole, write_table, read, engine):
    """The JSON value null is not NULL."""
    texts = {number: text for number, text in enumerate(TEXTS) if number != 1}
    table = write_table("variants", VARIANTS, [whole], features=FEATURES)
    check_texts(read(table), texts | {9: None})
    if engine == "duckdb":
        with pytest.raises(delvec.UnsupportedReaderFeature, match=r"'v IS NULL' reads column 'v'.*variant"):
            read(table, ["id"], "v IS NULL")
    else:
        assert read(table, ["id"], "v IS NULL")["id"].to_pylist() == [9]


def test_shredded_variants_are_put_together(whole, shredded, write_table, read, lake, engine):
    table = write_table("variants", VARIANTS, [whole, *shredded], features=FEATURES)
    assert sorted(read(table, ["id"])["id"].to_pylist()) == [0, 2, 3, 4, 9, 10, 11, 12]
    rows = {row["id"]: row for row in read(table).to_pylist()}
    assert [as_text(rows[key]["v"]) for key in (4, 10, 11, 12)] == ["1.25", '{"a":10}', '{"a":11}', "7"]
    assert as_text(rows[12]["l"][0]) == as_text(rows[12]["s"]["v"]) == "7"
    assert rows[9]["v"] is None
    assert as_text(read(table, ["v", "id"], "id = 11")["v"][0].as_py()) == '{"a":11}'
    assert lake.sql(f"SELECT count(*) AS n FROM `{table}` WHERE id > 9").to_pylist() == [{"n": 3}]
    if engine == "duckdb":
        found = lake.sql(f"SELECT v FROM `{table}` WHERE id = 12").to_pylist()
        assert as_text(found[0]["v"]) == "7"
        assert lake.table(str(table)).to_duckdb().filter("id = 12").fetchall()[0][1]["value"] is not None


SHREDDINGS = {
    "object": "a BIGINT, b STRING, o STRUCT<x: INT, y: ARRAY<STRING>>",
    "array": "ARRAY<STRUCT<a: INT>>",
    "number": "INT",
    "wide": "d DATE, t TIMESTAMP, n TIMESTAMP_NTZ, f FLOAT, g DOUBLE, p DECIMAL(9, 2), q DECIMAL(38, 4), z BOOLEAN, r BINARY, "
    "i TINYINT, u SMALLINT",
}
SHREDDED = [
    "parse_json('null')",
    "CAST(NULL AS VARIANT)",
    """parse_json('{"a": 1, "b": "x", "o": {"x": 2, "y": ["p", null, "q", 3], "k": 1}}')""",
    """parse_json('{"a": null, "b": null, "o": null, "c": [1, {"d": null}]}')""",
    """parse_json('{"a": "text", "b": 5, "o": {"x": "1", "y": {}}}')""",
    """parse_json('{}')""",
    """parse_json('{"B": 1, "é": "ü", "": ""}')""",
    """parse_json('[{"a": 1}, {"a": null}, {"a": "x", "b": 2}, null, 5, []]')""",
    """parse_json('[]')""",
    "parse_json('7')",
    "parse_json('9223372036854775807')",
    "parse_json('1.5e3')",
    "parse_json('\"text\"')",
    "parse_json('true')",
    (
        "to_variant_object(named_struct('d', date'1500-01-02', 't', timestamp'2020-01-02 03:04:05.678901', 'n', "
        "timestamp_ntz'1600-01-02 03:04:05', 'f', float('1.5'), 'g', double('NaN'), 'p', 1.50BD, 'z', false, 'r', x'00ff', "
        "'q', 1234567890123456789012345678.9012BD, 'i', 1Y, 'u', -2S))"
    ),
    "to_variant_object(named_struct('d', timestamp'2020-01-02 03:04:05', 'i', 500, 'p', 1.5BD, 'q', 1, 'g', 1.25BD, 'f', 0.1D))",
    "parse_json(concat('{\"b\": \"', repeat('long', 100), '\"}'))",
]


def nullable(kind):
    """Return the type with fields that may all be NULL."""
    if pa.types.is_struct(kind):
        return pa.struct([(item.name, nullable(item.type)) for item in kind])
    return pa.list_(nullable(kind.value_type)) if pa.types.is_list(kind) else kind


@pytest.fixture
def from_spark(spark, write_table, data_file):
    """``from_spark(shredding)`` returns Spark's texts of :data:`SHREDDED`, Spark's file, and a nested one without annotations."""

    def write(shredding):
        folder = write_table.folder / "from_spark"
        values = " UNION ALL ".join(
            f"SELECT {number}L AS id, {text} AS v" for number, text in enumerate(SHREDDED)
        )
        frame = spark.sql(values)
        texts = {row.id: row.t for row in frame.selectExpr("id", "to_json(v) AS t").collect()}
        settings = {"writeShredding.enabled": "true", "forceShreddingSchemaForTest": SHREDDINGS[shredding]}
        for name, value in settings.items():
            spark.conf.set(f"spark.sql.variant.{name}", value)
        try:
            frame.coalesce(1).write.parquet(str(folder))
        finally:
            for name in settings:
                spark.conf.unset(f"spark.sql.variant.{name}")
        (path,) = folder.glob("*.parquet")
        assert "typed_value" in str(pq.ParquetFile(path).schema)
        (write_table.folder / "variants").mkdir()
        path = path.rename(write_table.folder / "variants" / "marked.parquet")
        rows = pq.ParquetFile(path).read().combine_chunks()
        variants = rows["v"].chunk(0).cast(nullable(rows["v"].type))
        count = len(variants)
        offsets = pa.array(range(0, 2 * count + 1, 2), pa.int32())
        pairs = variants.take([each for number in range(count) for each in (number, None)])
        struct = pa.StructArray.from_arrays([rows["id"].chunk(0), variants], ["a", "v"])
        mapped = pa.MapArray.from_arrays(range(count + 1), ["k"] * count, variants)
        nested = {
            "id": pc.add(rows["id"], 100),
            "v": variants,
            "l": pa.ListArray.from_arrays(offsets, pairs),
            "s": struct,
            "m": mapped,
        }
        pq.write_table(pa.table(nested), write_table.folder / "variants" / "unmarked.parquet")
        return texts, [data_file(None, name=f"{name}.parquet") for name in ("marked", "unmarked")]

    return write


@pytest.mark.parametrize("shredding", SHREDDINGS)
def test_every_value_is_put_together_as_spark_does(from_spark, spark, write_table, lake, shredding):
    texts, files = from_spark(shredding)
    fields = [
        *VARIANTS["fields"][:3],
        column("s", {"type": "struct", "fields": [column("a", "long"), column("v", "variant")]}),
        column("m", {"type": "map", "keyType": "string", "valueType": "variant", "valueContainsNull": True}),
    ]
    schema = {"type": "struct", "fields": fields}
    table = write_table("variants", schema, files, features=FEATURES)
    rows = {row["id"]: row for row in lake.table(str(table)).to_arrow().to_pylist()}
    assert len(rows) == 2 * len(SHREDDED)
    for number in texts:
        marked, unmarked = rows[number], rows[number + 100]
        value = marked["v"]
        assert (value is None) == (number == 1)
        assert marked | {"v": None} == {"id": number, "v": None, "l": None, "s": None, "m": None}
        assert unmarked == {
            "id": number + 100, "v": value, "l": [value, None], "s": {"a": number, "v": value}, "m": [("k", value)]
        }  # fmt: skip
    again = pa.table({"id": list(texts), "v": pa.array([rows[number]["v"] for number in texts], VARIANT)})
    pq.write_table(again, table / "again.parquet")
    found = spark.read.schema("id long, v variant").parquet(str(table / "again.parquet"))
    assert {row.id: row.t for row in found.selectExpr("id", "to_json(v) AS t").collect()} == texts


VARIANT = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])


@pytest.mark.parametrize("mode", ["name", "id"])
def test_shredded_variants_of_mapped_columns(write_table, data_file, read, lake, engine, mode):
    kind = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.int64())])
    values = [
        {"metadata": EMPTY, "value": None, "typed_value": 7},
        None,
        {"metadata": EMPTY, "value": b"\x00", "typed_value": None},
    ]
    variants = pa.array(values, kind)
    inside = pa.field("col-4", kind, metadata={"PARQUET:field_id": "4"})
    schema = pa.schema(
        [
            pa.field("col-1", pa.int64(), metadata={"PARQUET:field_id": "1"}),
            pa.field("col-2", kind, metadata={"PARQUET:field_id": "2"}),
            pa.field("col-3", pa.struct([inside]), metadata={"PARQUET:field_id": "3"}),
        ]
    )
    struct = pa.StructArray.from_arrays([variants], fields=[inside])
    rows = pa.table([pa.array([1, 2, 3]), variants, struct], schema)

    def mapped(name, kind, number):
        metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
        return column(name, kind) | {"metadata": metadata}

    inner = {"type": "struct", "fields": [mapped("v", "variant", 4)]}
    fields = [mapped("id", "long", 1), mapped("v", "variant", 2), mapped("s", inner, 3)]
    table = write_table(
        "mapped",
        {"type": "struct", "fields": fields},
        [data_file(rows)],
        properties={"delta.columnMapping.mode": mode, "delta.enableDeletionVectors": "true"},
        features=[*FEATURES, "columnMapping", "deletionVectors"],
    )
    found = read(table).sort_by("id").to_pylist()
    assert (
        [as_text(row["v"]) for row in found]
        == [as_text(row["s"]["v"]) for row in found]
        == ["7", None, "null"]
    )
    opened = lake.table(str(table), engine=engine)
    assert opened.delete("id = 2")["numDeletedRows"] == 1
    assert [as_text(value) for value in read(table).sort_by("id")["v"].to_pylist()] == ["7", "null"]


def test_a_variant_without_metadata_is_damage(write_table, data_file, read, engine):
    if engine != "duckdb":
        pytest.skip("Spark has an error of its own")
    rows = pa.table({"id": [1], "v": pa.array([{"metadata": None, "value": b"\x00"}], VARIANT)})
    schema = {"type": "struct", "fields": VARIANTS["fields"][:2]}
    table = write_table("damaged", schema, [data_file(rows)], features=FEATURES)
    with pytest.raises(delvec.CorruptTable, match="column 'v' has a variant without metadata") as caught:
        read(table)
    assert caught.value.details["column"] == "v"


def test_a_variant_without_a_value_is_null_in_json(write_table, data_file, lake):
    rows = pa.table({"id": [1], "v": pa.array([{"metadata": EMPTY, "value": None}], VARIANT)})
    schema = {"type": "struct", "fields": VARIANTS["fields"][:2]}
    table = write_table("missing", schema, [data_file(rows)], features=FEATURES)
    assert lake.table(str(table)).to_arrow()["v"].to_pylist() == [{"metadata": EMPTY, "value": b"\x00"}]


def binaries(*values):
    return pa.array(
        [value and {"value": value, "metadata": EMPTY} for value in values],
        pa.struct([("value", pa.binary()), ("metadata", pa.binary())]),
    )


@pytest.fixture
def plain(write_table, data_file):
    """``plain(name)`` creates a table of three rows with deletion vectors enabled, from a file as Spark 4.0 writes it."""

    def write(name, properties=None):
        rows = pa.table({"id": [1, 2, 3], "v": binaries(b"\x0c\x01", None, b"\x00")})
        schema = {"type": "struct", "fields": VARIANTS["fields"][:2]}
        return write_table(
            name,
            schema,
            [data_file(rows), data_file(rows, stats=None)],
            properties={"delta.enableDeletionVectors": "true", **(properties or {})},
            features=["variantType", "deletionVectors"],
        )

    return write


def test_rows_of_tables_with_variants_are_deleted_by_vector(plain, lake, engine):
    table = lake.table(str(plain("deleted")), engine=engine)
    assert table.delete("id = 1")["numDeletedRows"] == 2
    assert table.delete(keys=pa.table({"id": [3]}))["numDeletedRows"] == 2
    rows = table.to_arrow()
    assert rows.to_pylist() == [{"id": 2, "v": None}] * 2
    assert rows.schema.field("v").type == pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
    table.checkpoint()
    assert lake.table(table.location).count() == 2
    assert table.vacuum(dry_run=True)["files"] == []
    assert table.delete()["numDeletedRows"] == 2


def test_nothing_that_writes_rows_touches_tables_with_variants(plain, lake, engine):
    folder = plain("kept")
    table = lake.table(str(folder), engine=engine)
    without = lake.table(str(plain("without", {"delta.enableDeletionVectors": "false"})), engine=engine)
    before = table.version
    files = sorted(path.name for path in folder.rglob("*"))
    commands = {
        "update": lambda: table.update(set={"id": "id + 1"}),
        "append": lambda: table.append(pa.table({"id": [4]})),
        "optimize": table.optimize,
        "delete": lambda: without.delete("id = 1"),
    }
    for command in commands.values():
        with pytest.raises(delvec.UnsupportedWriterFeature, match=r"variantType \(this change writes rows"):
            command()
    assert table.version == before
    assert sorted(path.name for path in folder.rglob("*")) == files
