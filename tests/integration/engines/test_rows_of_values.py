"""Rows of Python values get the table's types, not those that Arrow would infer, on each engine."""

import datetime as dt
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from delvec_errors import SchemaMismatch

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")

COLUMNS = (
    "id long, small int, price decimal(10,2), near float, d double, day date, at timestamp, "
    "tags map<string,int>, by_id map<long,decimal(12,3)>, "
    "nested struct<a:int,m:map<string,double>>, items array<struct<price:decimal(5,1),m:map<string,date>>>"
)
DAY = dt.date(2024, 2, 29)
NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
GIVEN = {
    "id": 1.0,
    "small": 2,
    "price": 1.1,
    "near": 0.1,
    "d": 3,
    "day": DAY,
    "at": NOON.replace(tzinfo=None),
    "tags": {"a": 1, "b": None},
    "by_id": {7: 0.125},
    "nested": {"a": 1, "m": {"x": 1}},
    "items": [{"price": 1.5, "m": {"k": DAY}}, None, {"m": {}}],
}
STORED = GIVEN | {
    "id": 1,
    "price": Decimal("1.10"),
    "near": float(np.float32(0.1)),
    "at": NOON,
    "tags": [("a", 1), ("b", None)],
    "by_id": [(7, Decimal("0.125"))],
    "nested": {"a": 1, "m": [("x", 1.0)]},
    "items": [{"price": Decimal("1.5"), "m": [("k", DAY)]}, None, {"price": None, "m": []}],
}
NOTHING = dict.fromkeys(GIVEN)


@pytest.fixture
def make(lake, engine, tmp_path):
    made = 0

    def make(columns=COLUMNS, **options):
        nonlocal made
        made += 1
        return lake.create_table(tmp_path / f"t{made}", columns, engine=engine, **options)

    return make


def stored(table):
    rows = table.to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row["id"] is None, row["id"]))


@pytest.mark.gate
def test_values_get_the_types_of_the_table(make):
    table = make()
    table.append(
        [GIVEN, {}, {"id": 2, "price": Decimal(3), "tags": [("k", 4)], "items": []}, {"id": 3, "price": 4}]
    )
    others = {"price": Decimal(3), "tags": [("k", 4)], "items": []}
    expected = [STORED, NOTHING | {"id": 2} | others, NOTHING | {"id": 3, "price": Decimal(4)}, NOTHING]
    assert stored(table) == expected
    table.overwrite(table.to_arrow().to_pylist())
    assert stored(table) == expected
    table.overwrite([GIVEN], replace_where="id = 1")
    assert stored(table) == expected
    frame = pd.DataFrame([GIVEN, {"id": 2}]).drop(columns="near")
    table.overwrite(frame)
    assert stored(table) == [STORED | {"near": None}, NOTHING | {"id": 2}]


def test_merge_and_keys_take_them_too(make):
    table = make()
    table.append([{"id": 1, "price": 1.5}])
    merge = table.merge([GIVEN, GIVEN | {"id": 2}, {"id": 3}], "target.id = source.id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert stored(table) == [STORED, STORED | {"id": 2}, NOTHING | {"id": 3}]
    change = {"tags": "source.tags", "items": "source.items"}
    table.merge([{"id": 1, "tags": {"z": 9}, "items": []}], "target.id = source.id").when_matched_update(
        change
    ).execute()
    assert stored(table)[0] == STORED | {"tags": [("z", 9)], "items": []}
    assert table.delete(keys=[{"price": 1.1, "id": 2}])["numDeletedRows"] == 1
    assert [row["id"] for row in stored(table)] == [1, 3]


MISFITS = [
    ("id", 2**63, "id"),
    ("small", 2**31, "small"),
    ("small", 1.5, "small"),
    ("small", "1", "small"),
    ("price", 1.005, "price"),
    ("price", "1.5", "price"),
    ("price", True, "price"),
    ("price", float("nan"), "price"),
    ("price", 123456789, "price"),
    ("near", 1e300, "near"),
    ("day", NOON, "day"),
    ("at", 1, "at"),
    ("tags", {"a": "x"}, "tags.value"),
    ("tags", {1: 1}, "tags.key"),
    ("tags", {None: 1}, "tags.key"),
    ("tags", 3, "tags"),
    ("nested", {"a": 1, "m": {"x": "y"}}, "nested.m.value"),
    ("nested", [1], "nested"),
    ("items", [None, {"price": 99999}], "items.element.price"),
    ("items", "text", "items"),
]


def test_a_value_that_does_not_fit_is_named(make):
    table = make()
    for column, value, path in MISFITS:
        # Several lists before it, so that the row number differs from the element's position.
        rows = [GIVEN, GIVEN, {}, {column: value}, {"id": 5}]
        with pytest.raises(SchemaMismatch, match="row 3") as refused:
            table.append(rows)
        assert refused.value.details["column"] == path, value
        assert refused.value.details["row"] == 3
        assert refused.value.details["value"] in repr(value)
    with pytest.raises(SchemaMismatch, match=r"'nested\.other'"):
        table.append([{"id": 1, "nested": {"a": 1, "other": 2}}])
    assert (table.version(), list(table.scan().files())) == (0, [])
    assert not list(Path(table.location.removeprefix("file://")).rglob("*.parquet"))


def test_what_merge_cannot_take_over_is_named(make):
    table = make()
    rows = [{"id": 1, "tags": {"a": 1}}, {"id": 2, "tags": {"a": "x"}}]
    with pytest.raises(SchemaMismatch, match=r"row 1.*'x'") as refused:
        table.merge(rows, "target.id = source.id", merge_schema=True).when_not_matched_insert_all().execute()
    assert refused.value.details["column"] == "tags.value"
    # Columns that clauses do not use may have any type.
    values = {"id": "source.id", "small": "CAST(source.small AS INT) + 1", "price": "source.price"}
    merge = table.merge([{"id": 3, "small": "41", "price": 1}], "target.id = source.id")
    merge.when_not_matched_insert(values).execute()
    assert stored(table) == [NOTHING | {"id": 3, "small": 42, "price": Decimal(1)}]


def test_new_columns_are_inferred_and_known_ones_are_not(make):
    table = make("id int, price decimal(10,2), s struct<m:map<string,int>>")
    table.append(
        [{"id": 1, "price": 1.5, "s": {"m": {"a": 1}, "more": 2.5}, "note": {"x": 1}}, {"id": 2, "s": None}],
        merge_schema=True,
    )
    assert stored(table)[0] == {
        "id": 1,
        "price": Decimal("1.50"),
        "s": {"m": [("a", 1)], "more": 2.5},
        "note": {"x": 1},
    }
    assert [str(field.type) for field in table.schema()][:2] == ["int32", "decimal128(10, 2)"]


def test_columns_are_widened_for_values_that_need_it(make):
    table = make("id int, small short", properties={"delta.enableTypeWidening": "true"})
    table.append([{"id": 1, "small": 1}], merge_schema=True)
    assert [str(field.type) for field in table.schema()] == ["int32", "int16"]
    table.append([{"id": 2**40, "small": 2}, {"id": 2}], merge_schema=True)
    assert [str(field.type) for field in table.schema()] == ["int64", "int16"]
    with pytest.raises(SchemaMismatch, match="row 0"):
        table.append([{"id": "x"}], merge_schema=True)


def test_values_of_several_types_are_each_taken_for_what_they_are(make):
    table = make("id long, price decimal(10,2), d double, day date, at timestamp")
    zoned = NOON.astimezone(dt.timezone(dt.timedelta(hours=2)))
    rows = [
        {"id": 1, "price": 1, "d": 1, "at": NOON.replace(tzinfo=None)},
        {"id": np.int64(2), "price": Decimal("1.5"), "d": 2.5, "at": zoned},
        {"id": 3.0, "price": 2.25, "d": np.float32(0.5)},
    ]
    table.append(rows)
    found = stored(table)
    assert [row["price"] for row in found] == [Decimal(1), Decimal("1.5"), Decimal("2.25")]
    assert [row["d"] for row in found] == [1.0, 2.5, 0.5]
    assert [row["at"] for row in found] == [NOON, NOON, None]
    # Arrow would convert this datetime to a date, because the first value is one.
    with pytest.raises(SchemaMismatch, match="row 1"):
        table.append([{"day": DAY}, {"day": NOON}])
