"""Columns of type variant: two binaries as the files have them, on each engine alike, and what may be done to such tables."""

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import delvec

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
    """A file as Spark writes it: variants in one piece, marked as such from Spark 4.1 on."""
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
    """Files whose variants are in several columns: one as DuckDB writes it, and one without marks."""
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


def test_shredded_variants_are_refused_by_name_on_duckdb(whole, shredded, write_table, read, lake, engine):
    table = write_table("variants", VARIANTS, [whole, *shredded], features=FEATURES)
    assert sorted(read(table, ["id"])["id"].to_pylist()) == [0, 2, 3, 4, 9, 10, 11, 12]
    if engine != "duckdb":
        rows = {row["id"]: row for row in read(table).to_pylist()}
        assert [as_text(rows[key]["v"]) for key in (4, 10, 11, 12)] == ["1.25", '{"a":10}', '{"a":11}', "7"]
        assert as_text(rows[12]["l"][0]) == as_text(rows[12]["s"]["v"]) == "7"
        return
    for columns, name in ((["id", "v"], "v"), (["s"], "s"), (["l"], "l"), (None, "v")):
        with pytest.raises(delvec.UnsupportedReaderFeature, match="has a shredded variant") as caught:
            read(table, columns)
        assert caught.value.details["column"] == name
        assert caught.value.details["table"] == "variants"
    assert lake.sql(f"SELECT count(*) AS n FROM `{table}` WHERE id > 9").to_pylist() == [{"n": 3}]
    with pytest.raises(delvec.UnsupportedReaderFeature, match="has a shredded variant"):
        lake.sql(f"SELECT v FROM `{table}`")
    with pytest.raises(duckdb.Error, match=r"column 'v' has a shredded variant.*read it with Spark"):
        lake.table(str(table)).to_duckdb().fetchall()


def binaries(*values):
    return pa.array(
        [value and {"value": value, "metadata": EMPTY} for value in values],
        pa.struct([("value", pa.binary()), ("metadata", pa.binary())]),
    )


@pytest.fixture
def plain(write_table, data_file):
    """``plain(name)`` makes a table of three rows with vectors on: a file as Spark 4.0 writes it."""

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
