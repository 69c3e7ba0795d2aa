"""Schema evolution of MERGE: adds exactly the columns that clauses assign."""

import pyarrow as pa
import pytest

from delvec_commands.dml.merge_builder import MergeStatement, When
from delvec_commands.dml.schema_evolution import new_columns, with_new_columns
from delvec_kernel.schema.types import StructType

HOME = pa.struct({"city": pa.string()})
MORE = pa.struct(
    {"city": pa.string(), "zip": pa.int32(), "at": pa.struct({"x": pa.int32(), "y": pa.int32()})}
)
TABLE = StructType.from_arrow(pa.schema({"id": pa.int64(), "home": HOME}))
SOURCE = StructType.from_arrow(
    pa.schema({"id": pa.int64(), "HOME": MORE, "work": MORE, "a b": pa.int32(), "x.y": pa.int32()})
)
UPDATE, INSERT, REST = ("matched", "update"), ("not-matched", "insert"), ("not-matched-by-source", "update")
EVERYTHING = ["`home`.`zip`", "`home`.`at`", "`work`", "`a b`", "`x.y`"]


def added(*clauses):
    whens = [When(*kind, values) for kind, values in clauses]
    return new_columns(MergeStatement(None, "true", "s", "t", True, whens), TABLE, SOURCE)


def names(*clauses):
    return [column.column for change in added(*clauses) for column in change.columns]


@pytest.mark.parametrize(
    ("key", "columns"),
    [
        ("work", ["`work`"]),
        ("t.work", ["`work`"]),
        ("T.`Work`", ["`work`"]),
        ("home.zip", ["`home`.`zip`"]),
        ("t.home.`zip`", ["`home`.`zip`"]),
        ("home.at", ["`home`.`at`"]),
        ("home", ["`home`.`zip`", "`home`.`at`"]),
        ("home.city", []),
        ("a b", ["`a b`"]),
        ("`a b`", ["`a b`"]),
        ("x.y", ["`x.y`"]),
        ("`x.y`", ["`x.y`"]),
        ("elsewhere", []),
        ("work.elsewhere", []),
    ],
)
def test_only_what_is_set_is_added(key, columns):
    assert names((UPDATE, {key: "1"})) == columns
    assert names((INSERT, {"id": "1"}), (UPDATE, {"id": "1", key: "1"})) == columns


def test_of_a_struct_that_the_table_lacks_the_fields_that_are_set_are_added():
    (change,) = added((UPDATE, {"work.at.y": "1", "work.city": "2"}))
    kind = with_new_columns(TABLE, [change]).field("work").type
    assert kind == StructType.from_arrow(pa.schema({"city": pa.string(), "at": pa.struct({"y": pa.int32()})}))


def test_a_star_adds_everything():
    for kind in (UPDATE, INSERT):
        assert names((kind, None)) == EVERYTHING
        assert names((kind, None), (UPDATE, {"work": "1"})) == EVERYTHING
    assert names((("matched", "delete"), None), (REST, {"work": "1"})) == []
