import pytest

from delvec.ddl import parse_ddl
from delvec.protocol.errors import InvalidSchema


def columns(text):
    return {
        field["name"]: (field["type"], field["nullable"]) for field in parse_ddl(text).to_json()["fields"]
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id long", {"id": ("long", True)}),
        ("id BIGINT NOT NULL, name String", {"id": ("long", False), "name": ("string", True)}),
        ("id: int, b: byte", {"id": ("integer", True), "b": ("byte", True)}),
        ("`a b``c` tinyint, größe smallint", {"a b`c": ("byte", True), "größe": ("short", True)}),
        ("d decimal(10, 2), e dec, f numeric(3)", {
            "d": ("decimal(10,2)", True), "e": ("decimal(10,0)", True), "f": ("decimal(3,0)", True),
        }),
        ("t timestamp, n timestamp_ntz, d date", {
            "t": ("timestamp", True), "n": ("timestamp_ntz", True), "d": ("date", True),
        }),
        ("date date, map int", {"date": ("date", True), "map": ("integer", True)}),
    ],
)  # fmt: skip
def test_columns_are_read_as_spark_reads_them(text, expected):
    assert columns(text) == expected


def test_nested_types_close_together():
    (field,) = parse_ddl("m map<string,array<struct<x: int NOT NULL, y: double>>>").to_json()["fields"]
    struct = field["type"]["valueType"]["elementType"]
    assert [(f["name"], f["type"], f["nullable"]) for f in struct["fields"]] == [
        ("x", "integer", False),
        ("y", "double", True),
    ]


def test_comment_is_kept():
    (field,) = parse_ddl("id long COMMENT 'the patient''s id'").to_json()["fields"]
    assert field["metadata"] == {"comment": "the patient's id"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "its end where a column's name"),
        ("id", "its end where a type"),
        ("id long,", "its end where a column's name"),
        ("id foo", "'foo' where a type"),
        ("id varchar(10)", "'varchar' where a type"),
        ("id long name string", "'name' where a comma"),
        ("id long)", r"'\)' where a comma"),
        ("id array<int", "its end where '>'"),
        ("id map<string>", "'>' where ','"),
        ("id decimal(a,b)", "two numbers"),
        ("id decimal(10,", "its end where a scale"),
        ("id long not nul", "'nul' where NULL"),
        ("id long comment x", "'x' where a comment"),
        ("id long; drop table x", r"at '; drop table x'"),
        ("`` long", "cannot be read"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text, message):
    with pytest.raises(InvalidSchema, match=message):
        parse_ddl(text)
