"""Errors in SQL are located: line, column, and an excerpt with carets."""

import pickle

import pyarrow as pa
import pytest

from delvec_errors import BadRequest, from_wire
from delvec_kernel.expressions.predicate import parse
from delvec_kernel.expressions.source_text import excerpt
from delvec_kernel.schema.types import StructType

SCHEMA = StructType.from_arrow(
    pa.schema([("id", pa.int64()), ("name", pa.string()), ("a", pa.struct([("b", pa.int64())]))])
)


@pytest.mark.parametrize(
    ("text", "line", "column", "marked"),
    [
        ("id > 1 AND nmae = 'x'", 1, 12, "nmae"),
        ("id >\n 1 AND\n  idd = 3", 3, 3, "idd"),
        ("id = 1 AND a.bb = 1", 1, 12, "a.bb"),
        ("id = 1)", 1, 7, ")"),
        ("id = 1\n AND foo bar", 2, 10, "bar"),
        ("sum(name) > 1", 1, 1, "sum(name"),
        ("id > 1 AND (id)", 1, 13, "id"),
        ("id = 1 AND\nname = 'abc", None, None, None),
    ],
)
def test_errors_are_located_in_the_text(text, line, column, marked):
    with pytest.raises(BadRequest) as caught:
        parse(text, SCHEMA)
    error = caught.value
    assert "\n" not in error.message
    shown, carets = error.details["excerpt"].split("\n")
    start = carets.index("^")
    if marked is not None:
        assert (error.details["line"], error.details["column_number"]) == (line, column)
        assert shown[start : start + carets.count("^")] == marked
        assert shown.strip() == text.split("\n")[line - 1].strip()
    assert str(error) == f"{error.message}\n{error.details['excerpt']}"
    assert str(from_wire(error.to_wire())) == str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    ("text", "start", "end", "shown"),
    [
        ("x" * 500, 0, 500, "  " + "x" * 120 + "...\n  " + "^" * 60),
        (
            "a" * 200 + "b" + "c" * 200,
            200,
            201,
            "  ..." + "a" * 60 + "b" + "c" * 60 + "...\n" + " " * 65 + "^",
        ),
        ("a\tb\x1b\x00c", 2, 3, "  a b  c\n    ^"),
        ("", 0, 0, "  \n  ^"),
        ("ab\ncd", 3, 99, "  cd\n  ^^"),
    ],
)
def test_excerpts_are_short_and_printable(text, start, end, shown):
    assert excerpt(text, start, end) == shown
