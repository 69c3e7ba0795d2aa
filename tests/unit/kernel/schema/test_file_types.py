"""What a file's field may have to be read as the table's type: one decision for all engines."""

from dataclasses import replace

import pytest
from tests.support.typed_files import FORMS, TYPES, schema_in, write_form

from delvec_kernel.schema.file_types import FileTypeMismatch, StoredFields, check_file, holds, naming
from delvec_kernel.schema.types import (
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
    data_type_from_json,
)
from delvec_parquet.file_schema import FileField
from delvec_parquet.primitive_columns import ColumnKind

LONG = PrimitiveType("long")


@pytest.mark.parametrize("form", FORMS)
def test_the_types_that_a_form_is_read_as(tmp_path, form):
    write_form(tmp_path / "a", FORMS[form])
    value = schema_in(tmp_path / "a")[1]
    # Numbers that do not fit show when they are read.
    narrower = {"byte", "short", "integer", "long"} & FORMS[form].only_spark if "int" in form else set()
    found = {kind for kind in TYPES if holds(value, data_type_from_json(kind))}
    expected = set(FORMS[form].read) if form != "bson" else {"string", "binary"}
    assert found - narrower == expected
    assert holds(value, PrimitiveType("void"))
    assert not holds(value, StructType(())) or form == "null"


@pytest.mark.parametrize(
    ("precision", "scale", "kind"),
    [
        (10, 3, "decimal(10,2)"),
        (10, 2, "decimal(9,2)"),
        (39, 2, "decimal(38,2)"),
        (5, 6, "decimal(38,18)"),
        (0, 0, "decimal(5,2)"),
    ],
)
def test_decimals_that_may_not_fit_or_are_none(precision, scale, kind):
    stored = FileField("a", "value", None, "fixed", ColumnKind("decimal", precision=precision, scale=scale))
    assert not holds(stored, data_type_from_json(kind))


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_a_moment_in_units_that_nobody_knows_yet_is_not_read(kind):
    stored = FileField("a", "value", None, "int64", ColumnKind("timestamp", unit="", is_utc=True))
    assert not holds(stored, PrimitiveType(kind))
    micros = replace(stored, kind=replace(stored.kind, unit="us"))
    assert holds(micros, PrimitiveType(kind))
    assert not holds(replace(micros, physical="int32"), PrimitiveType(kind))


def column(name, kind=LONG, number=None, physical=None):
    metadata = (
        {}
        if number is None
        else {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    )
    return StructField(name, kind, metadata=metadata)


def stored(name, number=None, inside=()):
    if inside:
        return FileField(name, "struct", number, inside=inside)
    return FileField(name, "value", number, "int64", ColumnKind("integer"))


def test_how_columns_are_found():
    file = (stored("A", 1), stored("col-b", 2))
    assert StoredFields(file, "name").of(column("a")) is file[0]
    assert StoredFields(file, "physical-name").of(column("b", number=1, physical="COL-B")) is file[1]
    assert StoredFields(file, "id").of(column("b", number=1, physical="col-b")) is file[0]
    assert StoredFields(file, "name").of(column("c")) is None
    assert StoredFields(file, "id").of(column("a", number=9, physical="A")) is None
    assert [naming(mode) for mode in ("none", "NAME", "id")] == ["name", "physical-name", "id"]


def test_columns_that_cannot_be_told_apart_are_refused_where_they_are_read():
    file = (stored("sf"), stored("SF"), stored("s", inside=(stored("a"), stored("A"))))
    check_file(file, [column("other")], "name")
    with pytest.raises(FileTypeMismatch, match=r"'sf', 'SF'") as caught:
        check_file(file, [column("sf")], "name")
    assert caught.value.column == "sf"
    with pytest.raises(FileTypeMismatch) as caught:
        check_file(file, [column("s", StructType((column("a"),)))], "name")
    assert caught.value.column == "s.a"
    by_id = (stored("x", 1), stored("y", 1), stored("z", 2))
    check_file(by_id, [column("a", number=2, physical="a")], "id")
    with pytest.raises(FileTypeMismatch, match="several columns of the field id 1: 'x', 'y'"):
        check_file(by_id, [column("a", number=1, physical="x")], "id")


def test_a_mismatch_says_what_the_file_and_the_table_have():
    with pytest.raises(FileTypeMismatch, match="it has int64, and the table string"):
        check_file((stored("a"),), [column("a", PrimitiveType("string"))], "name")
    with pytest.raises(FileTypeMismatch, match="it has struct, and the table long"):
        check_file((stored("a", inside=(stored("b"),)),), [column("a")], "name")


def test_field_ids_are_needed_only_where_columns_are_found_by_them():
    check_file((stored("a"),), [column("a")], "name")
    check_file((), [column("a", number=1, physical="x")], "id")
    with pytest.raises(FileTypeMismatch, match="no field ids"):
        check_file((stored("a"),), [column("a", number=1, physical="a")], "id")


@pytest.mark.parametrize(
    ("physical", "bits", "least"),
    [
        ("int32", 8, 3),
        ("int32", 16, 5),
        ("int32", 32, 10),
        ("int32", 0, 10),
        ("int64", 64, 20),
        ("int64", 0, 20),
    ],
)
@pytest.mark.parametrize("scale", [0, 1])
def test_integers_are_held_by_decimals_with_room_for_all_of_them(physical, bits, least, scale):
    stored = FileField("a", "value", None, physical, ColumnKind("integer", bits=bits))
    assert holds(stored, DecimalType(least + scale, scale))
    assert not holds(stored, DecimalType(least + scale - 1, scale))
