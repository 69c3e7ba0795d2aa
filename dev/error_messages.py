"""Extracts error messages from the source: the texts passed to each error class, with ``…`` for variable parts."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["messages"]

_ROOT: Final = Path(__file__).parent.parent
_SOURCES: Final = ("kernel", "service", "clients")
_VALUE: Final = "…"


def messages(names: frozenset[str]) -> dict[str, set[str]]:
    """Return the texts of errors by class name, if they are literals where the error is raised."""
    found: dict[str, set[str]] = {}
    called = re.compile(rf"\b(?:{'|'.join(sorted(names))})\s*\(")
    for folder in _SOURCES:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            if called.search(source):  # parsing takes much longer
                for name, text in _calls(ast.parse(source), names):
                    found.setdefault(name, set()).add(text)
    return found


def _calls(tree: ast.AST, names: frozenset[str]) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in names
            and node.args
        ):
            text = _text(node.args[0])
            if text is not None:
                yield node.func.id, text


def _text(node: ast.expr) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else _VALUE for part in parts)
    return None
