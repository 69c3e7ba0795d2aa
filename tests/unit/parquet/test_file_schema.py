"""The schema in a footer as a tree, and the shapes of groups in files of other writers."""

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.typed_files import FORMS, schema_in, without, write_form

from delvec_parquet.file_schema import FileField, schema_of_footer
from delvec_parquet.thrift import STRUCT, list_header, varint, zigzag


def shape(stored):
    """Return a field's shape as DuckDB names the type."""
    match stored.shape:
        case "list":
            return f"{shape(stored.inside[0])}[]"
        case "map":
            return f"MAP({', '.join(map(shape, stored.inside))})"
        case "struct":
            return f"STRUCT({', '.join(f'{each.name} {shape(each)}' for each in stored.inside)})"
        case _:
            return "VARCHAR" if stored.physical == "binary" else "INTEGER"


NESTED = pa.schema(
    {
        "plain": pa.int32(),
        "s": pa.struct({"a": pa.int32(), "b": pa.list_(pa.string())}),
        "l": pa.list_(pa.list_(pa.struct({"x": pa.int32()}))),
        "m": pa.map_(pa.string(), pa.map_(pa.int32(), pa.list_(pa.int32()))),
        "lm": pa.list_(pa.map_(pa.string(), pa.list_(pa.int32()))),
        "alone": pa.struct({"list": pa.list_(pa.int32())}),
    }
)


@pytest.mark.parametrize("compliant", [True, False])
def test_groups_are_structs_lists_and_maps_as_for_duckdb(tmp_path, compliant):
    pq.write_table(NESTED.empty_table(), tmp_path / "a", use_compliant_nested_type=compliant)
    found = schema_in(tmp_path / "a")
    kinds = duckdb.read_parquet(str(tmp_path / "a")).types
    assert [each.name for each in found] == NESTED.names
    assert [shape(each) for each in found] == [str(kind) for kind in kinds]


def test_lists_and_maps_may_have_only_the_newer_annotation(tmp_path):
    write_form(tmp_path / "a", FORMS["int32"])
    both = schema_in(tmp_path / "a")
    without(tmp_path / "a", 6)
    found = schema_in(tmp_path / "a")
    assert [each.shape for each in found] == [each.shape for each in both]
    assert [each.converted for each in both[3:]] == [True, True]
    assert [each.converted for each in found[3:]] == [False, False]


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("int64", "int64"),
        ("uint8", "int32 (unsigned, 8 bits)"),
        ("nanoseconds", "int64 (timestamp in ns, UTC)"),
        ("milliseconds without zone", "int64 (timestamp in ms, no time zone)"),
        ("int96", "int96"),
        ("bytes", "binary"),
        ("string", "binary (string)"),
        ("decimal(9,2) in int32", "decimal(9,2)"),
        ("interval", "fixed (interval)"),
        ("time in milliseconds", "int32 (time)"),
    ],
)
def test_a_field_says_what_it_has(tmp_path, form, text):
    write_form(tmp_path / "a", FORMS[form])
    _, value, struct, array, pairs = schema_in(tmp_path / "a")
    assert str(value) == text
    assert (str(struct), str(array), str(pairs)) == ("struct", "list", "map")


def element(name, *, children=None, repetition=1, converted=None):
    fields = [b"" if children else b"\x15" + zigzag(1)]
    last = 0 if children else 1
    for number, value in ((3, repetition), (4, name), (5, children), (6, converted)):
        if value is not None:
            is_name = isinstance(value, str)
            body = varint(len(value)) + value.encode() if is_name else zigzag(value)
            fields.append(bytes([(number - last) << 4 | (8 if is_name else 5)]) + body)
            last = number
    return b"".join(fields) + b"\0"


def footer(*elements):
    return b"\x15\x02\x19" + list_header(len(elements), STRUCT) + b"".join(elements)


def test_repeated_fields_without_annotation_are_lists():
    """As protocol buffers and old versions of Hive and Avro write them."""
    found, _ = schema_of_footer(
        footer(
            element("root", children=3),
            element("numbers", repetition=2),
            element("pairs", children=2, repetition=2),
            element("a"),
            element("b"),
            element("bag", children=1, converted=3),
            element("entry", children=1, repetition=2),
            element("item"),
        )
    )
    numbers, pairs, bag = found
    assert shape(numbers) == "INTEGER[]"
    assert shape(pairs) == "STRUCT(a INTEGER, b INTEGER)[]"
    assert shape(bag) == "INTEGER[]"
    assert bag.name == "bag"


@pytest.mark.parametrize(
    "elements",
    [
        [element("root", children=2), element("a")],
        [element("root", children=1), element("a"), element("b")],
        [
            element("root", children=1),
            element("m", children=1, converted=1),
            element("kv", children=1),
            element("k"),
        ],
        [element("root", children=-1)],
        [element("root", children=1), *(element("s", children=1) for _ in range(99)), element("a")],
        [],
    ],
)
def test_schemas_that_do_not_add_up_are_errors(elements):
    with pytest.raises((ValueError, IndexError)):
        schema_of_footer(footer(*elements))


def test_every_truncated_schema_is_an_error(tmp_path):
    pq.write_table(NESTED.empty_table(), tmp_path / "a")
    data = tmp_path.joinpath("a").read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    _, end = schema_of_footer(data[start:-8])
    for length in range(end):
        with pytest.raises((ValueError, IndexError)):
            schema_of_footer(data[start : start + length])


def test_fields_are_compared_with_their_ids():
    assert FileField("a", "value", 1) != FileField("a", "value", 2)
