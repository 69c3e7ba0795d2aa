"""Paths of columns, as they are written."""

import pytest

from delvec_errors import InvalidTableChange
from delvec_kernel.schema.column_paths import parse_path, path_text


@pytest.mark.parametrize(
    ("text", "parts", "shown"),
    [
        ("a", ("a",), "a"),
        ("a.b.c", ("a", "b", "c"), "a.b.c"),
        ("`a.b`.c", ("a.b", "c"), "`a.b`.c"),
        ("`a``b`", ("a`b",), "`a``b`"),
        ("tags.element", ("tags", "element"), "tags.element"),
    ],
)
def test_paths_are_dot_separated_names(text, parts, shown):
    assert parse_path(text) == parts
    assert path_text(parts) == shown


@pytest.mark.parametrize("text", [".", "a.", "a..b", "`a", "`a`b", ""])
def test_invalid_paths_are_refused(text):
    with pytest.raises(InvalidTableChange, match="not a column path"):
        parse_path(text)
