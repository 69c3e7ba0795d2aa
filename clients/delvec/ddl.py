"""Schemas as people type them: Spark's column lists, ``id long NOT NULL, tags array<string>``.

sqlglot is not used here: it takes ``id: long`` for a column without a type, and refuses doubled quotes.
"""

import re
from collections.abc import Iterator
from typing import Any, NoReturn

from delvec.protocol.errors import InvalidSchema
from delvec.protocol.types import StructType

__all__ = ["parse_ddl"]

_TOKEN = re.compile(
    r"""\s*(?: (?P<word>\w+) | `(?P<quoted>(?:[^`]|``)+)` | '(?P<text>(?:[^']|'')*)' | (?P<sign>[<>(),:]) )""",
    re.VERBOSE,
)
_PRIMITIVES = {
    "bigint": "long",
    "binary": "binary",
    "boolean": "boolean",
    "byte": "byte",
    "date": "date",
    "double": "double",
    "float": "float",
    "int": "integer",
    "integer": "integer",
    "long": "long",
    "real": "float",
    "short": "short",
    "smallint": "short",
    "string": "string",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "tinyint": "byte",
}
_DECIMALS = frozenset({"decimal", "dec", "numeric"})


def parse_ddl(text: str) -> StructType:
    """Return the schema that a list of columns in Spark's DDL describes.

    Raises:
        InvalidSchema: naming the place and what was expected there.
    """
    return StructType.from_json(_Parser(text).schema())


class _Parser:
    """Recursive descent over the tokens; builds Delta's schema JSON."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split())
        self._next = 0

    def _split(self) -> Iterator[tuple[str, str]]:
        position = 0
        while self._text[position:].strip():
            match = _TOKEN.match(self._text, position)
            if match is None:
                raise InvalidSchema(f"the schema cannot be read at {self._text[position:].strip()[:20]!r}")
            kind = str(match.lastgroup)
            value = match[kind]
            yield kind, value.replace("``", "`") if kind == "quoted" else value.replace("''", "'")
            position = match.end()

    def schema(self) -> dict[str, Any]:
        fields = self._fields()
        if self._next < len(self._tokens):
            self._fail("a comma")
        return {"type": "struct", "fields": fields}

    def _fields(self) -> list[dict[str, Any]]:
        fields = [self._field()]
        while self._take("sign", ","):
            fields.append(self._field())
        return fields

    def _field(self) -> dict[str, Any]:
        name = self._take("quoted") or self._take("word") or self._fail("a column's name")
        self._take("sign", ":")
        data_type = self._type()
        nullable = True
        if self._take("word", "not"):
            nullable = not (self._take("word", "null") or self._fail("NULL"))
        metadata = {}
        if self._take("word", "comment"):
            comment = self._take("text")
            metadata["comment"] = self._fail("a comment in quotes") if comment is None else comment
        return {"name": name, "type": data_type, "nullable": nullable, "metadata": metadata}

    def _type(self) -> Any:
        position = self._next
        name = (self._take("word") or self._fail("a type")).lower()
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        if name in _DECIMALS:
            return self._decimal()
        if name == "array":
            self._expect("<")
            element = self._type()
            self._expect(">")
            return {"type": "array", "elementType": element, "containsNull": True}
        if name == "map":
            self._expect("<")
            key = self._type()
            self._expect(",")
            value = self._type()
            self._expect(">")
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        if name == "struct":
            self._expect("<")
            fields = self._fields()
            self._expect(">")
            return {"type": "struct", "fields": fields}
        self._next = position
        return self._fail(
            "a type (string, long, integer, double, boolean, date, timestamp, decimal(p,s), ...)"
        )

    def _decimal(self) -> str:
        if not self._take("sign", "("):
            return "decimal(10,0)"
        precision = self._take("word") or self._fail("a precision")
        scale = (self._take("word") or self._fail("a scale")) if self._take("sign", ",") else "0"
        self._expect(")")
        if not (precision.isdecimal() and scale.isdecimal()):
            raise InvalidSchema(f"decimal({precision},{scale}) needs two numbers")
        return f"decimal({int(precision)},{int(scale)})"

    def _take(self, kind: str, value: str | None = None) -> str | None:
        """Return the next token if it is of that kind (and spelling, in any case), and move on."""
        if self._next < len(self._tokens):
            found, text = self._tokens[self._next]
            if found == kind and (value is None or text.lower() == value):
                self._next += 1
                return text
        return None

    def _expect(self, sign: str) -> None:
        if not self._take("sign", sign):
            self._fail(repr(sign))

    def _fail(self, wanted: str) -> NoReturn:
        found = f"{self._tokens[self._next][1]!r}" if self._next < len(self._tokens) else "its end"
        raise InvalidSchema(f"the schema {self._text.strip()!r} has {found} where {wanted} is expected")
