"""Locates errors in SQL texts: line, column, and an excerpt with carets."""

from typing import Final, TypeVar

from sqlglot import exp

from delvec_errors import DelvecError

__all__ = ["excerpt", "located", "place", "span_of"]

_Error = TypeVar("_Error", bound=DelvecError)
_CONTEXT: Final = 60
"""Characters of a long line shown before and after the error."""


def place(text: str, at: int) -> tuple[int, int]:
    """Return the 1-based line and column of a position in a text."""
    before = text[:at]
    return before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1


def excerpt(text: str, start: int, end: int) -> str:
    """Return the line at ``start``, and below it carets up to ``end``, exclusive."""
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", start)
    last = len(text) if last < 0 else last
    end = max(start + 1, min(end, last, start + _CONTEXT))
    left, right = max(first, start - _CONTEXT), min(last, end + _CONTEXT)
    before, after = "..." * (left > first), "..." * (right < last)
    line = "".join(each if each.isprintable() else " " for each in text[left:right])
    return f"  {before}{line}{after}\n  {' ' * (len(before) + start - left)}{'^' * (end - start)}"


def located(error: _Error, text: str, start: int, end: int) -> _Error:
    """Add ``line``, ``column`` and ``excerpt`` to an error's details."""
    line, column = place(text, start)
    where = {"line": line, "column_number": column, "excerpt": excerpt(text, start, end)}
    return type(error)(error.message, **(where | error.details))


def span_of(node: exp.Expr) -> tuple[int, int] | None:
    """Return the (start, end) of a node in the parsed text, or None if unknown."""
    known = [part.meta for part in node.walk() if "start" in part.meta and "end" in part.meta]
    if not known:
        return None
    return min(each["start"] for each in known), max(each["end"] for each in known) + 1
