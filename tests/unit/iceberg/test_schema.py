"""Conversion of Delta schemas to Iceberg: stable ids, name mappings, and unsupported types."""

import pytest

from delvec_errors import IcebergUnsupported
from delvec_iceberg.schema import iceberg_schema, merged_name_mapping
from delvec_kernel.schema.types import ArrayType, GeospatialType, PrimitiveType, StructField, StructType

LONG = PrimitiveType("long")


def struct(**fields):
    return StructType(tuple(StructField(name, kind) for name, kind in fields.items()))


def ids(schema):
    return {item["name"]: item["id"] for item in schema.fields}


def test_a_name_keeps_its_id_and_a_new_one_gets_a_new_id():
    first = iceberg_schema(struct(a=LONG, b=ArrayType(LONG), c=LONG), {}, format_version=2)
    assert ids(first) == {"a": 1, "b": 2, "c": 3}
    assert first.last_column_id == 4  # of the element
    second = iceberg_schema(
        struct(c=LONG, d=LONG),
        {},
        format_version=2,
        earlier=[first.to_json(0)],
        last_column_id=first.last_column_id,
    )
    assert ids(second) == {"c": 3, "d": 5}
    # Without column mapping, a column added again reads old values under its name, as in Delta.
    third = iceberg_schema(
        struct(a=LONG),
        {},
        format_version=2,
        earlier=[first.to_json(0), second.to_json(1)],
        last_column_id=second.last_column_id,
    )
    assert ids(third) == {"a": 1}


def test_names_of_dropped_columns_stay_for_older_snapshots():
    before = [{"field-id": 1, "names": ["a"]}, {"field-id": 2, "names": ["b"]}]
    now = [{"field-id": 2, "names": ["b"]}, {"field-id": 3, "names": ["a"]}]
    assert merged_name_mapping(before, now) == now
    assert merged_name_mapping(before, now[:1]) == [now[0], before[0]]


@pytest.mark.parametrize(("kind", "format_version"), [("variant", 2), ("void", 2), ("void", 3)], ids=str)
def test_types_without_an_iceberg_equivalent_are_refused_by_column(kind, format_version):
    schema = struct(id=LONG, s=struct(list=ArrayType(PrimitiveType(kind))))
    with pytest.raises(IcebergUnsupported, match=f"'s.list.element' has type {kind}") as caught:
        iceberg_schema(schema, {}, format_version=format_version)
    assert caught.value.details["column"] == "s.list.element"


@pytest.mark.parametrize("format_version", [2, 3])
def test_geospatial_types_are_refused_by_column(format_version):
    schema = struct(id=LONG, s=struct(g=GeospatialType("binary", "geometry(OGC:CRS84)")))
    with pytest.raises(IcebergUnsupported, match=r"'s\.g' is of type geometry\(OGC:CRS84\)") as caught:
        iceberg_schema(schema, {}, format_version=format_version)
    assert caught.value.details["column"] == "s.g"


def test_variant_is_a_type_of_format_version_3():
    found = iceberg_schema(struct(v=PrimitiveType("variant")), {}, format_version=3)
    assert found.fields[0]["type"] == "variant"
