"""A cursor over the tokens of a statement; errors have line and column.

Tested in `tests/integration/client/sql/test_statements.py`.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, NoReturn, TypeVar

from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from delvec_errors import InvalidStatement
from delvec_kernel.expressions.source_text import located, place
from delvec_kernel.expressions.spark_dialect import SPARK
from delvec_kernel.expressions.table_expressions import check_functions
from delvec_kernel.schema.column_paths import backticked

__all__ = [
    "NOT_A_PATH",
    "Cursor",
    "TableName",
    "invalid",
    "is_path",
    "newest_version",
    "parse_error",
    "word_start",
]

NOT_A_PATH: Final = "write a table's name without quotes or in backticks; a string in quotes is a table's path, and must contain /."

_OPENING: Final = frozenset({"(", "[", "CASE"})
_CLOSING: Final = frozenset({")", "]", "END"})
_NAMES: Final = frozenset({TokenType.IDENTIFIER, TokenType.VAR})
_NOT_WORDS: Final = frozenset({TokenType.STRING, TokenType.IDENTIFIER})
_LITERALS: Final = frozenset({TokenType.STRING, TokenType.NUMBER})
_PATHS: Final = 2
_PLACE: Final = re.compile(r" from (\d+):(\d+)")
_MISSING: Final = re.compile(r"Required keyword: '\w+' missing for <class '[\w.]*\.(\w+)'>")
_CLAUSES: Final = frozenset({"Cast", "Having", "Join", "Limit", "Offset", "Qualify", "Where"})
_PATH_VERSION: Final = re.compile(r"(?P<path>.*/.*[^/])@v(?P<version>\d+)", re.DOTALL)
_VERSION: Final = re.compile(r"v(\d+)", re.IGNORECASE)
_Item = TypeVar("_Item")


class _Statements(Spark):
    """Spark's dialect, whose tokenizer also splits what it would return as one word: commands, and GROUP BY."""

    class Tokenizer(Spark.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if " " not in word
        }


_STATEMENTS: Final = _Statements()


def is_path(text: str) -> bool:
    """Whether a quoted string is a table's path."""
    return "/" in text


def invalid(text: str, at: int, reason: str) -> InvalidStatement:
    """Return the error for a position in the text."""
    line, column = place(text, at)
    error = InvalidStatement(f"Line {line}, column {column}: {reason}", line=line, column=column)
    word = re.compile(r"\w*").match(text, at)
    return located(error, text, at, word.end() if word else at)


def parse_error(error: ParseError | TokenError, text: str) -> InvalidStatement:
    """Return the error for a parse error of sqlglot."""
    errors = getattr(error, "errors", None)
    first = errors[0] if errors else {}
    line, column = first.get("line"), first.get("col")
    reason = str(first.get("description") or error).partition("\n")[0].rstrip(".")
    missing = _MISSING.match(reason)
    if missing is not None:
        reason = f"{missing[1].upper() if missing[1] in _CLAUSES else 'an expression'} is not complete"
    found = _PLACE.search(reason) if line is None else None
    if found is not None:
        line, column = int(found[1]), int(found[2])
    if line is None or column is None:
        return InvalidStatement(f"The statement cannot be parsed: {reason}.", line=1, column=1)
    # sqlglot's column is the end of the word.
    width = len(str(first.get("highlight") or " "))
    column = max(1, int(column) - width + 1)
    invalid = InvalidStatement(
        f"Line {line}, column {column}: the statement cannot be parsed here: {reason}.",
        line=line,
        column=column,
    )
    start = min(len(text), sum(len(each) + 1 for each in text.split("\n")[: int(line) - 1]) + column - 1)
    return located(invalid, text, start, start + width)


@dataclass(frozen=True)
class TableName:
    """A table name in a statement.

    Attributes:
        name: a name, or a location.
        last: the last part, by which columns may be qualified if there is no alias.
        version: the version of ``VERSION AS OF``, or of ``@v3``.
        timestamp: the timestamp of ``TIMESTAMP AS OF``.
        changes: the changes of ``table_changes``: the first and the last version or timestamp; None for the last is the newest.
    """

    name: str
    last: str
    version: int | None = None
    timestamp: str | None = None
    changes: tuple[int | str, int | str | None] | None = None

    def changes_of(self) -> dict[str, Any]:
        """Return the arguments of :meth:`delvec.DeltaTable.changes`; a version that was pinned is the last."""
        assert self.changes is not None  # noqa: S101 - called for table_changes
        first, last = self.changes
        return {
            f"{end}_{'version' if isinstance(value, int) else 'timestamp'}": value
            for end, value in (("start", first), ("end", self.version if last is None else last))
        }

    @property
    def is_newest(self) -> bool:
        """Whether the newest version of the table is read."""
        fixed = self.changes is not None and self.changes[1] is not None
        return self.version is None and self.timestamp is None and not fixed

    @classmethod
    def at(cls, location: str) -> "TableName":
        """Return the name of the table at a location, with the version of ``/path@v3``."""
        found = _PATH_VERSION.fullmatch(location)
        if found is None:
            return cls(location, location)
        return cls(found["path"], found["path"], version=int(found["version"]))

    @classmethod
    def of(cls, parts: list[str]) -> "TableName":
        """Return the name with these parts; ``delta.`/path` `` is a location."""
        if len(parts) == _PATHS and parts[0].lower() == "delta":
            return cls.at(parts[1])
        return cls(".".join(parts), parts[-1])


class Cursor:
    """A position in a statement's tokens.

    Args:
        text: the statement.
        functions: the session's functions that expressions may call besides Spark's own; None: functions are not
            checked, because the engine only translates functions it knows.

    Raises:
        InvalidStatement: it is empty, cannot be tokenized, or has several statements.
    """

    def __init__(self, text: str, functions: Collection[str] | None = None) -> None:
        self.text = text
        self._functions = functions
        try:
            self._tokens: list[Token] = list(_STATEMENTS.tokenize(text))
        except TokenError as error:
            raise parse_error(error, text) from None
        while self._tokens and self._tokens[-1].token_type == TokenType.SEMICOLON:
            self._tokens.pop()
        self._at = 0
        second = next((each for each in self._tokens if each.token_type == TokenType.SEMICOLON), None)
        if second is not None:
            raise invalid(text, second.start, "only one statement at a time is allowed")
        if not self._tokens:
            raise InvalidStatement("The statement is empty.", line=1, column=1)

    @property
    def at_end(self) -> bool:
        """Whether the cursor is at the end."""
        return self._at >= len(self._tokens)

    @property
    def position(self) -> int:
        """Offset of the next word."""
        return len(self.text) if self.at_end else self._tokens[self._at].start

    def word(self, ahead: int = 0) -> str:
        """Return the word ``ahead`` tokens from here in upper case; empty at the end."""
        at = self._at + ahead
        if at >= len(self._tokens) or self._tokens[at].token_type in _NOT_WORDS:
            return ""
        return self._tokens[at].text.upper()

    def take(self, *words: str) -> bool:
        """Skip these words if they come next; return whether they do."""
        if any(self.word(number) != word for number, word in enumerate(words)):
            return False
        self._at += len(words)
        return True

    def expect(self, *words: str) -> None:
        """Skip these words.

        Raises:
            InvalidStatement: other words come next.
        """
        for word in words:
            if not self.take(word):
                self.fail(f"{word} is expected")

    def skip(self) -> None:
        """Skip one word."""
        self._at += 1

    def end(self) -> None:
        """Check that the cursor is at the end.

        Raises:
            InvalidStatement: it is not.
        """
        if not self.at_end:
            self.fail("the end of the statement is expected")

    def fail(self, reason: str) -> NoReturn:
        """Raise InvalidStatement for the current position."""
        found = "the end" if self.at_end else repr(self._tokens[self._at].text)
        raise invalid(self.text, self.position, f"{reason}, not {found}.")

    def literal(self, what: str) -> str:
        """Parse a number or a string.

        Raises:
            InvalidStatement: something else comes next.
        """
        if self.at_end or self._tokens[self._at].token_type not in _LITERALS:
            self.fail(f"{what} is expected")
        token = self._tokens[self._at]
        self._at += 1
        text = str(token.text)
        while token.token_type == TokenType.STRING and not self.at_end:
            # The tokenizer takes 'it''s' for two strings.
            token, before = self._tokens[self._at], token
            if token.token_type != TokenType.STRING or token.start != before.end + 1:
                break
            text += f"'{token.text}"
            self._at += 1
        return text

    def number(self, what: str) -> float:
        """Parse a number.

        Raises:
            InvalidStatement: something else comes next.
        """
        if self.at_end or self._tokens[self._at].token_type != TokenType.NUMBER:
            self.fail(f"{what} is expected")
        return float(self.literal(what))

    def whole_number(self, what: str) -> int:
        """Parse an integer.

        Raises:
            InvalidStatement: something else comes next.
        """
        found = self.literal(what)
        if not found.isdecimal():
            self._at -= 1
            self.fail(f"{what} (a whole number) is expected")
        return int(found)

    def name(self, what: str = "a name") -> str:
        """Parse one part of a name.

        Raises:
            InvalidStatement: something else comes next.
        """
        if self.at_end:
            self.fail(f"{what} is expected")
        token = self._tokens[self._at]
        is_word = token.text.replace("_", "a").isalnum() and not token.text[0].isdigit()
        if token.token_type not in _NAMES and (token.token_type in _NOT_WORDS or not is_word):
            self.fail(f"{what} is expected")
        self._at += 1
        return str(token.text)

    def text_or_path(self, what: str) -> str:
        """Parse a string, a number, or a dotted name.

        Raises:
            InvalidStatement: something else comes next.
        """
        if not self.at_end and self._tokens[self._at].token_type in _LITERALS:
            return self.literal(what)
        parts = [self.name(what)]
        while self.take("."):
            parts.append(self.name(what))
        return ".".join(parts)

    def table(self) -> TableName:
        """Parse a table's name, with its version if given.

        Raises:
            InvalidStatement: something else comes next.
        """
        if not self.at_end and self._tokens[self._at].token_type == TokenType.STRING:
            at, path = self.position, self.literal("a table's path")
            if not is_path(path):
                raise invalid(self.text, at, NOT_A_PATH)
            relation_name = TableName.at(path)
        else:
            parts = [self.name("a table's name")]
            while self.take("."):
                parts.append(self.name("a table's name"))
            relation_name = TableName.of(parts)
        if self.take("@"):
            version = _VERSION.fullmatch(self.word())
            if version is None:
                self.fail("a version such as v3 is expected")
            self._at += 1
            return replace(relation_name, version=int(version[1]))
        start = self._at
        self.take("FOR")
        if self.take("VERSION", "AS", "OF"):
            return replace(relation_name, version=self.whole_number("a version"))
        if self.take("TIMESTAMP", "AS", "OF"):
            return replace(relation_name, timestamp=self.literal("a timestamp in quotes"))
        self._at = start
        return relation_name

    def alias(self, *keywords: str) -> str | None:
        """Parse an alias, unless one of these keywords comes next."""
        if self.take("AS"):
            return self.name("an alias")
        return None if self.at_end or self.word() in keywords else self.name("an alias")

    def column(self) -> str:
        """Parse the name of a column or struct field; returns the original text."""
        start = self.position
        self.name("a column")
        while self.take("."):
            self.name("a column")
        return self._since(start)

    def column_of_table(self) -> tuple[TableName, str]:
        """Parse ``table.column``."""
        at, parts = self.position, [self.name("a table's name")]
        while self.take("."):
            parts.append(self.name("a column"))
        if len(parts) == 1:
            raise invalid(self.text, at, "a table and a column are expected: people.age.")
        return TableName.of(parts[:-1]), backticked(parts[-1])

    def names(self) -> list[str]:
        """Parse a list of columns in parentheses."""
        return self.in_parentheses(lambda: self.name("a column"))

    def in_parentheses(self, item: Callable[[], _Item]) -> list[_Item]:
        """Parse a list of items in parentheses."""
        self.expect("(")
        found = [item()]
        while self.take(","):
            found.append(item())
        self.expect(")")
        return found

    def expression(self, *stops: str) -> str:
        """Parse an expression up to one of these words, a closing parenthesis, or the end.

        Raises:
            InvalidStatement: it is empty, or calls a function that is not allowed.
        """
        start = self.position
        expression = self.anything(*stops)
        if self._functions is not None:
            try:
                check_functions(expression, self._functions)
            except ValueError as error:
                raise invalid(self.text, start, str(error)) from None
        return expression

    def anything(self, *stops: str) -> str:
        """Like :meth:`expression`, but without checking functions.

        Raises:
            InvalidStatement: it is empty.
        """
        start, depth = self.position, 0
        while not self.at_end:
            word = self.word()
            if depth == 0 and (word in stops or word == ")"):
                break
            depth += (word in _OPENING) - (word in _CLOSING)
            self._at += 1
        if depth > 0:
            self.fail("a closing ) or END is expected")
        found = self._since(start) if self.position > start else ""
        if not found.strip():
            self.fail("an expression is expected")
        return found

    def columns(self) -> str:
        """Parse columns with their types, up to the closing parenthesis around them.

        Raises:
            InvalidStatement: it is empty.
        """
        start, depth = self.position, 0
        while not self.at_end and not (depth == 0 and self.word() == ")"):
            depth += (self.word() == "(") - (self.word() == ")")
            self._at += 1
        if self.position == start:
            self.fail("columns with their types are expected")
        return self._since(start)

    def expressions(self) -> list[str]:
        """Parse a list of expressions in parentheses."""
        return self.in_parentheses(lambda: self.expression(","))

    def assignments(self, *stops: str) -> dict[str, str]:
        """Parse ``column = expression, ...``."""
        assignments: dict[str, str] = {}
        while True:
            at = self.position
            column = self.column()
            if column in assignments:
                raise invalid(self.text, at, f"column {column} is set twice.")
            if not self.take("=") and not self.take("=="):
                self.fail("= is expected")
            assignments[column] = self.expression(",", *stops)
            if not self.take(","):
                return assignments

    def rest(self) -> str:
        """Return the rest of the text."""
        start = self.position
        self._at = len(self._tokens)
        return self.text[start:].rstrip().rstrip(";")

    def _since(self, start: int) -> str:
        return self.text[start : self._tokens[self._at - 1].end + 1] if self._at else ""


def newest_version(cursor: Cursor) -> TableName:
    """Parse the name of a table to change, without a version.

    Raises:
        InvalidStatement: a version is given.
    """
    at = cursor.position
    name = cursor.table()
    if not name.is_newest:
        raise invalid(cursor.text, at, "only the newest version of a table can be changed.")
    return name


def word_start(text: str, word: str) -> int | None:
    """Return where a word, in any case and not in a string, first stands in a statement; None if it does not."""
    return next(
        (
            token.start
            for token in SPARK.tokenize(text)
            if token.token_type != TokenType.STRING and token.text.lower() == word.lower()
        ),
        None,
    )
