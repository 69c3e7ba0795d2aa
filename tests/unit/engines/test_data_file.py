"""Tasks read each type of a file with Arrow exactly as the table's, or refuse the file by name."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.typed_files import FORMS, TYPES, write_form

from delvec_engines.data_file import DataFile, open_data_file, reading, to_table_type
from delvec_engines.file_schemas import checked_schema
from delvec_errors import CorruptTable
from delvec_kernel.schema.types import (
    ArrayType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    data_type_from_json,
)
from delvec_storage.roots import Roots


def column_of(name, kind):
    kinds = {
        "v": kind,
        "s": StructType((StructField("v", kind),)),
        "a": ArrayType(kind),
        "m": MapType(PrimitiveType("string"), kind),
    }
    return StructField(name, kinds[name])


def values_of(name, column):
    inside = {
        "v": lambda each: each,
        "s": lambda each: each["v"],
        "a": lambda each: each[0],
        "m": lambda each: each[0][1],
    }
    return [inside[name](each) for each in column.to_pylist()]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_read_exactly_or_refused(tmp_path, form):
    write_form(tmp_path / "a.parquet", FORMS[form])
    file = DataFile(tmp_path.as_uri(), "a.parquet", "people", 7, Roots())
    for kind in TYPES:
        expected = FORMS[form].read.get(kind)
        for name in "vsam":
            item = column_of(name, data_type_from_json(kind))

            def read(item=item):
                with open_data_file(file) as opened, reading(file):
                    checked_schema(file, opened.metadata, [item], "none")
                    (chunk,) = opened.read([item.name])[item.name].chunks
                    return to_table_type(chunk, item.type, item.to_arrow().type, has_mapping=False)

            if expected is not None:
                assert values_of(name, read()) == expected, (kind, name)
            elif not (form == "bson" and kind in {"string", "binary"}):
                with pytest.raises(CorruptTable) as caught:
                    read()
                assert caught.value.details["file"] == "a.parquet", (kind, name)


_LIST_OF_TEXT = ArrayType(PrimitiveType("string"))
_MEMORY = {
    "views of text": (pa.array(["a", None], pa.string_view()), PrimitiveType("string")),
    "views of bytes": (pa.array([b"a", None], pa.binary_view()), PrimitiveType("binary")),
    "large text": (pa.array(["a", None], pa.large_string()), PrimitiveType("string")),
    "dictionary": (pa.array(["a", None]).dictionary_encode(), PrimitiveType("string")),
    "duration": (pa.array([1, None], pa.duration("us")), PrimitiveType("long")),
    "seconds": (pa.array([1, None], pa.duration("s")), PrimitiveType("long")),
    "JSON": (pa.array(["1", None], pa.json_()), PrimitiveType("string")),
    "list views": (pa.array([["a"], [], ["b", None], None], pa.list_view(pa.string())), _LIST_OF_TEXT),
    "large list views": (
        pa.array([None, ["a"], None], pa.large_list_view(pa.string_view())),
        _LIST_OF_TEXT,
    ),
    "views in a list": (pa.array([["a", None], None], pa.list_(pa.string_view())), _LIST_OF_TEXT),
    "views in a map": (
        pa.array([[("k", "v")], None], pa.map_(pa.string_view(), pa.string_view())),
        MapType(PrimitiveType("string"), PrimitiveType("string")),
    ),
    "views in a struct": (
        pa.array([{"v": b"a"}, {"v": None}], pa.struct([("v", pa.binary_view())])),
        StructType((StructField("v", PrimitiveType("binary")),)),
    ),
}


@pytest.mark.parametrize("form", _MEMORY)
def test_values_are_read_however_their_writer_had_them_in_memory(tmp_path, form):
    values, kind = _MEMORY[form]
    pq.write_table(pa.table({"v": values}), tmp_path / "a.parquet")
    file = DataFile(tmp_path.as_uri(), "a.parquet", "people", 7, Roots())
    target = StructField("v", kind).to_arrow().type
    with open_data_file(file) as opened, reading(file):
        checked_schema(file, opened.metadata, [StructField("v", kind)], "none")
        (chunk,) = opened.read()["v"].chunks
        found = to_table_type(chunk, kind, target, has_mapping=False)
    found.validate(full=True)
    expected = [1, None] if pa.types.is_duration(values.type) else values.to_pylist()
    assert (found.type, found.to_pylist()) == (target, expected)
