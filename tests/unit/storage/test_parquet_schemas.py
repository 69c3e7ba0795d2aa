"""Schemas are read with few bytes, and parsed once where files begin their footers alike."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.typed_files import give_old_bounds

from delvec_errors import CorruptTable, UnusableFile
from delvec_storage import files as storage
from delvec_storage.parquet_schemas import SchemaReader


@pytest.fixture(params=["file", "memory"])
def location(request, tmp_path):
    return tmp_path.as_uri() if request.param == "file" else f"memory:///{tmp_path.name}"


def write(location, path, table, **options):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    body = sink.getvalue().to_pybytes()
    storage.write_file(location, path, body)
    return len(body)


def names(schema):
    return [each.name for each in schema]


WIDE = pa.table({f"column_{number}": [1] for number in range(5000)})


def test_schemas_of_all_sizes_and_equal_ones_as_one_object(location):
    reader = SchemaReader()
    tables = {"a": pa.table({"x": [1]}), "b": WIDE, "c": pa.table({"x": [1] * 9}), "d": pa.table({"y": [1]})}
    sizes = {path: write(location, path, table) for path, table in tables.items()}
    found = {path: reader.read(location, path, size) for path, size in sizes.items()}
    assert {path: names(schema) for path, schema in found.items()} == {
        path: table.column_names for path, table in tables.items()
    }
    assert found["a"] is found["c"]
    assert reader.read(location, "b", sizes["b"]) is found["b"]


def test_a_schema_that_begins_like_a_known_one_is_another(location):
    reader = SchemaReader()
    short, long = pa.schema({"x": pa.int64()}), pa.schema({"x": pa.int64(), "y": pa.int64()})
    sizes = [write(location, str(place), schema.empty_table()) for place, schema in enumerate((short, long))]
    assert [names(reader.read(location, str(place), size)) for place, size in enumerate(sizes)] == [
        ["x"],
        ["x", "y"],
    ]


def test_what_is_not_parquet_has_no_schema(location):
    storage.write_file(location, "a", b"text")
    assert SchemaReader().read(location, "a", 4) is None
    storage.write_file(location, "a", b"")
    assert SchemaReader().read(location, "a", 0) is None


def test_damaged_footers_are_errors_that_name_the_file(location):
    storage.write_file(location, "a", b"PAR1" + b"\xff" * 20 + (20).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(CorruptTable, match="'a' is damaged"):
        SchemaReader().read(location, "a", 32)


def test_a_footer_too_large_to_be_one(tmp_path):
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1 << 30)
        file.seek(0, 2)
        file.write((1 << 29).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(UnusableFile):
        SchemaReader().read_local(str(tmp_path / "a"), "a")


def test_a_missing_file_is_an_error(location):
    with pytest.raises(FileNotFoundError):
        SchemaReader().read(location, "gone", 100)


def test_a_schema_knows_whether_its_file_says_how_bounds_are_ordered(tmp_path):
    reader = SchemaReader()
    for name in ("old", "new"):
        pq.write_table(pa.table({"x": ["a"]}), tmp_path / name)
    give_old_bounds(tmp_path / "old", [(b"a", b"a")])
    found = {
        name: reader.read(tmp_path.as_uri(), name, (tmp_path / name).stat().st_size)
        for name in ("old", "new", "old", "new")
    }
    assert {name: schema[0].ordered for name, schema in found.items()} == {"old": False, "new": True}
