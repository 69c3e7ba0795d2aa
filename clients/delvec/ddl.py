"""Schemas as text: Spark's column lists, ``id long NOT NULL, tags array<string>``.

Columns of the table may be computed: ``DEFAULT expr``, ``GENERATED ALWAYS AS (expr)``, or identity columns: ``GENERATED
{ ALWAYS | BY DEFAULT } AS IDENTITY (START WITH n INCREMENT BY m)``.

sqlglot is not used here: it takes ``id: long`` for a column without a type, and refuses doubled quotes.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from delvec_errors import InvalidSchema
from delvec_kernel.schema.char_varchar import as_texts
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import GENERATION, IDENTITY_ALLOWS_EXPLICIT, StructField, StructType

__all__ = ["AddedColumn", "parse_added_columns", "parse_ddl", "parse_type"]

_TOKEN = re.compile(
    r"""\s*(?: (?P<word>\w+) | `(?P<quoted>(?:[^`]|``)+)` | '(?P<text>(?:[^']|'')*)' | (?P<sign>[<>(),:])
    | (?P<other>"(?:[^"\\]|\\.)*"|\S) )""",
    re.VERBOSE,
)
_OF_BINARY = "binary, with Well-Known Binary in it"
_SUBSTITUTES = {"geometry": _OF_BINARY, "geography": _OF_BINARY, "variant": "strings"}
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
_CLAUSES = frozenset({"after", "comment", "default", "first", "generated", "not"})
_CHARACTERS = {"char": "char", "character": "char", "varchar": "varchar"}
_LONGEST = (1 << 31) - 1
_DECIMALS = frozenset({"decimal", "dec", "numeric"})


def parse_ddl(text: str) -> StructType:
    """Return the schema that a list of columns in Spark's DDL describes.

    Raises:
        InvalidSchema: naming the place and what was expected there.
    """
    return StructType.from_json(_Parser(text).schema())


def parse_type(text: str, name: str) -> StructField:
    """Return a column called ``name`` of the type that a text in Spark's DDL describes.

    Raises:
        InvalidSchema: it is not one type alone.
    """
    parser = _Parser(text)
    schema = as_texts({"type": "struct", "fields": [parser.column(name)]})
    return StructType.from_json(schema).fields[0]


@dataclass(frozen=True)
class AddedColumn:
    """A column in ALTER TABLE ... ADD COLUMNS.

    Attributes:
        column: its definition.
        struct: path of the struct that gets it as a field; empty for a column of the table.
        place: ``first`` or ``after``, if given.
    """

    column: StructField
    struct: str = ""
    place: Mapping[str, Any] = field(default_factory=dict)


def parse_added_columns(text: str) -> list[AddedColumn]:
    """Return the columns of ALTER TABLE ... ADD COLUMNS: ``address.zip string COMMENT '...' AFTER city, ...``.

    Raises:
        InvalidSchema: naming the place and what was expected there.
    """
    return _Parser(text).added_columns()


class _Parser:
    """Recursive descent over the tokens; builds Delta's schema JSON."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split())
        self._next = 0

    def _split(self) -> Iterator[tuple[str, str, int, int]]:
        position = 0
        while self._text[position:].strip():
            match = _TOKEN.match(self._text, position)
            if match is None:
                raise InvalidSchema(f"the schema cannot be parsed at {self._text[position:].strip()[:20]!r}")
            kind = str(match.lastgroup)
            value = match[kind]
            value = value.replace("``", "`") if kind == "quoted" else value.replace("''", "'")
            yield kind, value, position + len(match[0]) - len(match[0].lstrip()), match.end()
            position = match.end()

    def schema(self) -> dict[str, Any]:
        fields = self._fields(computed=True)
        if self._next < len(self._tokens):
            self._fail("a comma")
        return as_texts({"type": "struct", "fields": fields})

    def added_columns(self) -> list[AddedColumn]:
        columns = [self._added_column()]
        while self._take("sign", ","):
            columns.append(self._added_column())
        if self._next < len(self._tokens):
            self._fail("a comma")
        return columns

    def _added_column(self) -> AddedColumn:
        path = [self._name()]
        while self._take("other", "."):
            path.append(self._name())
        texts = as_texts({"type": "struct", "fields": [self._typed(path[-1], allow_computed=True)]})
        place: dict[str, Any] = {}
        if self._take("word", "first"):
            place = {"first": True}
        elif self._take("word", "after"):
            place = {"after": self._name()}
        struct = ".".join(map(backticked, path[:-1]))
        return AddedColumn(StructType.from_json(texts).fields[0], struct, place)

    def column(self, name: str) -> dict[str, Any]:
        """Return a column of the type that the text is."""
        kind = self._type()
        if self._next < len(self._tokens):
            self._fail("the end of the type")
        return {"name": name, "type": kind, "nullable": True, "metadata": {}}

    def _fields(self, *, computed: bool = False) -> list[dict[str, Any]]:
        fields = [self._field(computed=computed)]
        while self._take("sign", ","):
            fields.append(self._field(computed=computed))
        return fields

    def _field(self, *, computed: bool) -> dict[str, Any]:
        name = self._name()
        self._take("sign", ":")
        return self._typed(name, allow_computed=computed)

    def _name(self) -> str:
        return self._take("quoted") or self._take("word") or self._fail("a column's name")

    def _typed(self, name: str, *, allow_computed: bool) -> dict[str, Any]:
        if self._next == len(self._tokens) or self._tokens[self._next][:2] == ("sign", ","):
            raise InvalidSchema(f"column {name!r} has no type; write for example '{backticked(name)} long'")
        data_type = self._type()
        nullable = True
        metadata: dict[str, Any] = {}
        while True:
            if self._take("word", "not"):
                nullable = not (self._take("word", "null") or self._fail("NULL"))
            elif self._take("word", "comment"):
                comment = self._take("text")
                metadata["comment"] = self._fail("a comment in quotes") if comment is None else comment
            elif allow_computed and self._take("word", "default"):
                metadata["CURRENT_DEFAULT"] = self._expression(_CLAUSES)
            elif allow_computed and self._take("word", "generated"):
                metadata |= self._generated()
            else:
                return {"name": name, "type": data_type, "nullable": nullable, "metadata": metadata}

    def _generated(self) -> dict[str, Any]:
        by_default = bool(self._take("word", "by"))
        self._word("default" if by_default else "always")
        self._word("as")
        if self._take("word", "identity"):
            numbers = {"start": 1, "step": 1}
            if self._take("sign", "("):
                while not self._take("sign", ")"):
                    key = "start" if self._take("word", "start") else "step"
                    self._word("with" if key == "start" else "increment")
                    if key == "step":
                        self._word("by")
                    numbers[key] = self._number()
            found = {f"delta.identity.{key}": value for key, value in numbers.items()}
            return {**found, IDENTITY_ALLOWS_EXPLICIT: by_default}
        if by_default:
            self._fail("IDENTITY")
        self._expect("(")
        expression = self._expression()
        self._expect(")")
        return {GENERATION: expression}

    def _expression(self, ends: Collection[str] = ()) -> str:
        """Return the text up to the comma or bracket that ends it, or to one of some words."""
        first, depth = self._next, 0
        while self._next < len(self._tokens):
            kind, value, _, _ = self._tokens[self._next]
            if kind == "word" and not depth and value.lower() in ends and self._next > first:
                break
            if kind == "sign" and value in ",)" and not depth:
                break
            depth += (value == "(") - (value == ")") if kind == "sign" else 0
            self._next += 1
        if self._next == first:
            self._fail("an expression")
        return self._text[self._tokens[first][2] : self._tokens[self._next - 1][3]].strip()

    def _number(self) -> int:
        sign = -1 if self._take("other", "-") else 1
        digits = self._take("word") or self._fail("a number")
        return sign * int(digits) if digits.isdecimal() else self._fail("a number")

    def _word(self, word: str) -> None:
        if not self._take("word", word):
            self._fail(word.upper())

    def _type(self) -> Any:
        position = self._next
        name = (self._take("word") or self._fail("a type")).lower()
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        if name in _DECIMALS:
            return self._decimal()
        if name in _CHARACTERS:
            return self._characters(_CHARACTERS[name])
        if name in ("array", "map", "struct"):
            return self._nested(name)
        if name in _SUBSTITUTES:
            raise InvalidSchema(
                f"Delvec can read columns of type {name} but cannot write them yet; use {_SUBSTITUTES[name]}."
            )
        self._next = position
        return self._fail(
            "a type (string, long, integer, double, boolean, date, timestamp, decimal(p,s), ...)"
        )

    def _nested(self, name: str) -> dict[str, Any]:
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
        self._expect("<")
        fields = self._fields()
        self._expect(">")
        return {"type": "struct", "fields": fields}

    def _characters(self, name: str) -> str:
        self._expect("(")
        length = self._number()
        self._expect(")")
        if not 0 < length <= _LONGEST:
            raise InvalidSchema(f"{name}({length}) is invalid: the length must be from 1 to {_LONGEST}")
        return f"{name}({length})"

    def _decimal(self) -> str:
        if not self._take("sign", "("):
            return "decimal(10,0)"
        precision = self._take("word") or self._fail("a precision")
        scale = (self._take("word") or self._fail("a scale")) if self._take("sign", ",") else "0"
        self._expect(")")
        if not (precision.isdecimal() and scale.isdecimal()):
            raise InvalidSchema(f"decimal({precision},{scale}) is invalid: give precision and scale")
        return f"decimal({int(precision)},{int(scale)})"

    def _take(self, kind: str, value: str | None = None) -> str | None:
        """Return the next token if it is of that kind (and spelling, in any case), and move on."""
        if self._next < len(self._tokens):
            found, text, _, _ = self._tokens[self._next]
            if found == kind and (value is None or text.lower() == value):
                self._next += 1
                return text
        return None

    def _expect(self, sign: str) -> None:
        if not self._take("sign", sign):
            self._fail(repr(sign))

    def _fail(self, wanted: str) -> NoReturn:
        if self._next < len(self._tokens) and self._tokens[self._next][0] == "other":
            rest = self._text[self._tokens[self._next][2] :].strip()
            raise InvalidSchema(f"the schema cannot be parsed at {rest[:20]!r}")
        found = f"{self._tokens[self._next][1]!r}" if self._next < len(self._tokens) else "its end"
        raise InvalidSchema(f"the schema {self._text.strip()!r} has {found} where {wanted} is expected")
