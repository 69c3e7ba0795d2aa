"""Geospatial columns: returned as Well-Known Binary unchanged on each engine, and the operations on such tables."""

import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import delvec

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate")

POINT = struct.pack("<BIdd", 1, 1, 1.0, 2.0)
BIG_ENDIAN = struct.pack(">BIdd", 0, 1, 3.0, 4.0)
CURVE = struct.pack("<BIIdddddd", 1, 8, 3, 0.0, 0.0, 1.0, 1.0, 2.0, 0.0)
"""A CIRCULARSTRING, which parsers may not support."""
VALUES = {1: POINT, 2: BIG_ENDIAN, 3: CURVE, 4: None, 5: b"no geometry"}
STATS = {
    "numRecords": 5,
    "minValues": {"id": 1, "g": "POINT(0 0)"},
    "maxValues": {"id": 5, "g": "POINT(9 9)"},
    "nullCount": {"id": 0, "g": 1},
}


def column(name, kind):
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def schema(geometry="geometry(OGC:CRS84)", geography="geography(EPSG:4326, spherical)"):
    return {
        "type": "struct",
        "fields": [
            column("id", "long"),
            column("g", geometry),
            column("l", {"type": "array", "elementType": geography, "containsNull": True}),
            column("s", {"type": "struct", "fields": [column("g", geometry)]}),
        ],
    }


@pytest.fixture(params=["marked", "GeoParquet", "plain"])
def places(request, write_table, data_file):
    """``places(name)`` creates a table of one file: with Parquet's geospatial types, as GeoParquet, or neither."""

    def write(name="places", features=("geospatial", "deletionVectors"), properties=None, more=()):
        rows = pa.table(
            {
                "id": list(VALUES),
                "g": pa.array(VALUES.values(), pa.binary()),
                "l": pa.array([[value, None] for value in VALUES.values()], pa.list_(pa.binary())),
                "s": pa.array([{"g": value} for value in VALUES.values()], pa.struct([("g", pa.binary())])),
            }
        )
        if request.param == "GeoParquet":
            columns = '{"g": {"encoding": "WKB", "geometry_types": []}}'
            told = f'{{"version": "1.1.0", "primary_column": "g", "columns": {columns}}}'
            rows = rows.replace_schema_metadata({"geo": told})
        file = data_file(rows, name="places.parquet", stats=STATS, options={"store_schema": False})
        if request.param == "marked":
            (write_table.folder / name).mkdir()
            file = data_file(None, name="places.parquet", stats=STATS)
            write_marked(rows, write_table.folder / name / "places.parquet")
        on = {"delta.enableDeletionVectors": "true"}
        return write_table(
            name, schema(), [file, *more], properties=on | (properties or {}), features=features
        )

    return write


class Geometry(pa.ExtensionType):
    """An Arrow extension type written as a geometry; not registered, so it is not used for reading."""

    def __init__(self):
        super().__init__(pa.binary(), "geoarrow.wkb")

    def __arrow_ext_serialize__(self):
        return b"{}"


def write_marked(rows, path):
    """Write a file whose binaries are marked as geometries."""

    def marked(values):
        return pa.ExtensionArray.from_storage(Geometry(), values)

    values, lists, structs = (rows[name].combine_chunks() for name in ("g", "l", "s"))
    places = {
        "g": marked(values),
        "l": pa.ListArray.from_arrays(lists.offsets, marked(lists.values)),
        "s": pa.StructArray.from_arrays([marked(structs.field("g"))], ["g"]),
    }
    pq.write_table(pa.table({"id": rows["id"]} | places), path, store_schema=False, write_statistics=False)
    assert str(pq.ParquetFile(path).schema).count("Geometry") == len(places)


def test_values_are_read_as_the_files_have_them(places, read, lake, engine):
    table = places()
    found = read(table).sort_by("id")
    assert found.schema.field("g").type == pa.binary()
    assert dict(zip(found["id"].to_pylist(), found["g"].to_pylist(), strict=True)) == VALUES
    assert found["l"].to_pylist() == [[value, None] for value in VALUES.values()]
    assert found["s"].to_pylist() == [{"g": value} for value in VALUES.values()]
    assert read(table, ["id"], "g IS NULL")["id"].to_pylist() == [4]
    assert read(table, ["id"], f"g = x'{POINT.hex()}'")["id"].to_pylist() == [1]
    described = lake.sql(f"DESCRIBE TABLE `{table}`", engine=engine)
    assert described["data_type"].to_pylist()[:2] == ["bigint", "geometry(OGC:CRS84)"]
    opened = lake.table(str(table), engine=engine)
    assert opened.to_pandas().set_index("id")["g"][1] == POINT
    sql = lake.sql(f"SELECT g FROM `{table}` WHERE id = 2", engine=engine)
    assert (sql.to_pylist()[0]["g"] if engine == "duckdb" else bytes(sql.collect()[0].g)) == BIG_ENDIAN


def test_duckdb_makes_geometries_of_them(places, lake):
    relation = lake.table(str(places())).to_duckdb()
    found = relation.filter("id <= 2").project("id, ST_AsText(ST_GeomFromWKB(g)) AS t").order("id").fetchall()
    assert found == [(1, "POINT (1 2)"), (2, "POINT (3 4)")]


def test_rows_are_deleted_by_vector_and_nothing_writes_any(places, data_file, lake, engine):
    folder = places(
        features=["geospatial", "deletionVectors", "changeDataFeed"],
        properties={"delta.enableChangeDataFeed": "true"},
        more=[data_file(pa.table({"id": [7]}))],
    )
    table = lake.table(str(folder), engine=engine)
    for command in (
        lambda: table.update(set={"id": "id + 1"}),
        lambda: table.append(pa.table({"id": [6]})),
        table.optimize,
        lambda: (
            table.merge(pa.table({"id": [1]}), "s.id = t.id", source_alias="s", target_alias="t")
            .when_matched_update({"id": "t.id + 1"})
            .execute()
        ),
    ):
        with pytest.raises(delvec.UnsupportedWriterFeature, match=r"geospatial \(this change writes rows"):
            command()
    assert table.delete("id IN (1, 5)")["numDeletedRows"] == 2
    assert table.delete("g IS NULL AND id < 7")["numDeletedRows"] == 1
    assert sorted(table.to_arrow(predicate="id < 7")["g"].to_pylist()) == sorted([BIG_ENDIAN, CURVE])
    changes = table.changes(1)
    assert {row["id"]: row["g"] for row in changes.to_pylist()} == {1: POINT, 5: b"no geometry", 4: None}
    table.checkpoint()
    assert lake.table(table.location).count() == 3


def test_the_feature_is_needed(places, lake, engine):
    with pytest.raises(delvec.UnsupportedReaderFeature, match=r"geospatial columns \(g, l, s\)") as caught:
        lake.table(str(places(features=["deletionVectors"])), engine=engine).to_arrow()
    assert caught.value.details["features"] == ["geospatial"]
    assert (
        lake.table(str(places("dev", features=["geospatial-dev", "deletionVectors"])), engine=engine).count()
        == 5
    )


def test_such_columns_are_not_made(lake, tmp_path):
    with pytest.raises(delvec.InvalidSchema, match="use binary"):
        lake.create_table(str(tmp_path / "new"), schema())
    table = lake.create_table(str(tmp_path / "plain"), "id long")
    with pytest.raises(delvec.InvalidTableChange, match="does not write values of type geometry"):
        table.alter.add_columns({"type": "struct", "fields": [column("g", "geometry(OGC:CRS84)")]})
