"""Writes docs/sql-grammar.md from the statement forms beside the parser: ``python dev/sql_grammar.py``."""

from itertools import groupby
from pathlib import Path
from typing import Final

from delvec.sql.grammar import FORMS, Form

__all__ = ["PAGE", "grammar_page"]

PAGE: Final = Path(__file__).parents[1] / "docs" / "sql-grammar.md"
_HEAD: Final = """# Statements in SQL

The forms that [`lake.sql()` and `delvec sql`](sql.md) take, each with an example. `[…]` may be left out, `|` separates
alternatives, `{…}` groups them; `t` and `s` are tables: names, or ``delta.`/path` ``.
"""


def grammar_page() -> str:
    """Return the page."""
    parts = [_HEAD]
    for subject, forms in groupby(FORMS, key=lambda form: form.subject):
        parts.append(f"## {subject}\n")
        parts += [_entry(form) for form in forms]
    return "\n".join(parts)


def _entry(form: Form) -> str:
    return f"- {_code(form.syntax)}\n  <br>{_code(form.example)}\n"


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


if __name__ == "__main__":
    PAGE.write_text(grammar_page(), encoding="utf-8")
