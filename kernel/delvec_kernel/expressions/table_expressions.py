r"""Expressions in a table's metadata: defaults, generated columns, CHECK constraints, invariants.

Anyone who can write a table's log chooses these texts, and clients that append evaluate them in a process that
can do far more than compute values. Checking them with one parser and passing them to another is unsafe, since two
parsers never agree on every text. Instead, a text is split into tokens of the few forms that Spark's lexer cannot read
differently, every token must be on an allow-list, and the engine gets the tokens rewritten, separated by one space:

- a word followed by ``(`` is an unqualified function of :data:`~delvec_kernel.expressions.spark_dialect.SCALARS`, or a keyword;
- any other word is a keyword of scalar expressions, none of which begins or continues a query, or it becomes an
  identifier in backticks, which no parser takes for a keyword;
- an identifier is a column of the table, a field after a dot, or the parameter of an enclosing lambda. Any other could be
  a session variable;
- comments are dropped, strings are put into single quotes, brackets must match;
- nothing contains ``${``: before tokenizing, Spark substitutes settings and environment variables of the driver there,
  even inside strings and identifiers (``spark.sql.variable.substitute``).

Spark's grammar has no query without SELECT, TABLE, VALUES, WITH, USING, or FROM after a bracket.
"""

import re
from collections.abc import Collection
from typing import Final

from delvec_errors import ExpressionNotAllowed
from delvec_errors.texts import is_text
from delvec_kernel.expressions.predicate_checks import short
from delvec_kernel.expressions.spark_dialect import SCALARS, STATEMENTS
from delvec_kernel.schema.column_paths import backticked

__all__ = ["NAMED", "allowed_expression", "check_functions", "names_in"]

_MAX_WORDS: Final = 20_000
_MAX_NESTING: Final = 100
_MAX_DEPTH: Final = 300
"""Maximum operator depth: Spark's parser and analyzer are recursive, and overflow the driver's stack beyond about 400."""

_LEXER: Final = re.compile(
    r"""
      (?P<space>[ \t\r\n]+)
    | (?P<comment>--(?:[^\r\n\\]|\\(?![\r\n]))*(?:\r?\n|\r|\Z) | /\*(?![+])(?:(?!/\*)(?!\*/).)*\*/)
    | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
    | (?P<hex>[xX]'[0-9A-Fa-f]*')
    | (?P<string>'(?:[^'\\]|\\.|'')*')
    | (?P<double>"(?:[^"\\]|\\.|"")*")
    | (?P<quoted>`(?:[^`]|``)+`)
    | (?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?:BD|bd|[LlSsYyFfDd])?(?!\w))
    | (?P<word>\w+)
    | (?P<sign>\|>|<=>|>>>|->|=>|<=|>=|<>|!=|==|\|\||::|<<|>>|-(?!-)|/(?!\*)|\*(?!/)|[+%&|^~!=<>().,:\[\]])
    """,
    re.VERBOSE | re.DOTALL,
)
_TYPES: Final = frozenset(
    [
        "array",
        "bigint",
        "binary",
        "boolean",
        "byte",
        "char",
        "character",
        "date",
        "dec",
        "decimal",
        "double",
        "float",
        "int",
        "integer",
        "interval",
        "long",
        "map",
        "numeric",
        "real",
        "short",
        "smallint",
        "string",
        "struct",
        "time",
        "timestamp",
        "timestamp_ltz",
        "timestamp_ntz",
        "tinyint",
        "varchar",
        "variant",
        "void",
    ]
)
_UNITS: Final = frozenset(
    [
        "century",
        "day",
        "days",
        "dayofweek",
        "dayofyear",
        "decade",
        "dow",
        "doy",
        "epoch",
        "hour",
        "hours",
        "isoyear",
        "microsecond",
        "microseconds",
        "millennium",
        "millisecond",
        "milliseconds",
        "minute",
        "minutes",
        "month",
        "months",
        "nanosecond",
        "nanoseconds",
        "quarter",
        "second",
        "seconds",
        "week",
        "weeks",
        "year",
        "years",
        "yearofweek",
    ]
)
_BEFORE_BRACKET: Final = frozenset(
    [
        "all",
        "and",
        "any",
        "as",
        "between",
        "case",
        "cast",
        "div",
        "else",
        "escape",
        "from",
        "ilike",
        "in",
        "is",
        "like",
        "not",
        "or",
        "regexp",
        "rlike",
        "some",
        "then",
        "when",
    ]
)
"""Keywords after which a bracket does not open an argument list."""
_KEYWORDS: Final = (
    _BEFORE_BRACKET
    | _TYPES
    | _UNITS
    | frozenset(
        [
            "both",
            "collate",
            "current_date",
            "current_time",
            "current_timestamp",
            "current_user",
            "distinct",
            "end",
            "false",
            "for",
            "leading",
            "localtimestamp",
            "null",
            "placing",
            "session_user",
            "to",
            "trailing",
            "true",
            "user",
        ]
    )
)
_SIZED: Final = frozenset(["char", "character", "dec", "decimal", "interval", "numeric", "string", "varchar"])
"""Types that may have parameters in brackets."""
_NO_OPERAND: Final = _BEFORE_BRACKET | {
    "both",
    "collate",
    "distinct",
    "for",
    "leading",
    "placing",
    "to",
    "trailing",
}
"""Keywords that do not end an operand, so that a following star means all columns, not multiplication."""
_QUANTIFIERS: Final = frozenset(["all", "any", "some"])
_QUANTIFIED: Final = frozenset(["ilike", "like"])
_UNIT_FUNCTIONS: Final = frozenset(
    ["date_add", "date_diff", "dateadd", "datediff", "extract", "timestampadd", "timestampdiff"]
)
"""Functions whose first argument is a unit."""
_SUBSTITUTED: Final = "${"
_QUERIES: Final = frozenset(["from", "map", "reduce", "select", "table", "values", "with"])
_NOT_IN_QUERIES: Final = frozenset(
    ["=", "==", "<", ">", "<=", ">=", "<>", "!=", "<=>", ")", "(", ".", ",", "->", "||", "::"]
)
"""Signs that cannot follow a word that begins a query: there the word is a name, or a function before a bracket."""
_NAMES: Final = ("word", "quoted")
_NESTED: Final = ("array", "map", "struct")
_NEXT: Final = -1
_SEPARATORS: Final = frozenset([",", "and", "or", "then", "when"])
"""Separators whose two sides are not nested, or are balanced by Spark's parser."""
_OPENING: Final = {"(": ")", "[": "]"}
_ANGLES: Final = {"<": 1, ">": -1, ">>": -2, ">>>": -3, "<>": 0, ",": 0, ":": 0}
NAMED: Final = (
    "Statements can call Spark's built-in functions; list others of your session, such as UDFs, with "
    "sql(..., functions=[...])"
)
"""Advice for an unknown function in a statement."""
_ALLOWED: Final = "Allowed are columns of the table, literals, operators, and Spark's built-in functions that compute one value"


def allowed_expression(text: str, columns: Collection[str], owner: str, **details: str) -> str:
    """Return an equivalent expression that is safe to pass to an engine.

    Args:
        text: as in the metadata.
        columns: the columns it may read.
        owner: the beginning of error messages, such as "Column 'c' has the default".
        details: error details: the column or the constraint.

    Raises:
        ExpressionNotAllowed: names the owner, the expression, and the part that is not allowed.
    """
    try:
        return " ".join(_Writer(_words(text), {name.lower() for name in columns}, SCALARS).written())
    except _NotAllowedError as error:
        raise ExpressionNotAllowed(
            f"{owner} {short(text)}, which is not evaluated: {error}. {_ALLOWED}.",
            expression=text,
            disallowed=error.piece,
            **details,
        ) from None


def check_functions(text: str, function_names: Collection[str]) -> None:
    """Reject queries in a user's expression, and functions that are neither built into Spark nor in ``function_names``.

    Raises:
        ValueError: names the part, and what to do.
    """
    try:
        _Writer(_words(text), None, STATEMENTS | {name.lower() for name in function_names}).written()
    except _NotAllowedError as error:
        raise ValueError(f"the expression {short(text)} is not evaluated: {error}. {NAMED}.") from None


def names_in(text: str) -> list[str] | None:
    """Return the words of an expression that may be names; None if it cannot be tokenized."""
    try:
        return [_name(kind, word) for kind, word in _words(text) if kind in _NAMES]
    except _NotAllowedError:
        return None


class _NotAllowedError(ValueError):
    """A part of an expression is not allowed; becomes an error that names the expression and its owner."""

    def __init__(self, message: str, piece: str) -> None:
        super().__init__(message)
        self.piece = piece


def _words(text: str) -> list[tuple[str, str]]:
    """Tokenize an expression into (kind, text), without comments and space; kinds are the lexer's group names.

    Raises:
        _NotAllowedError: a part is not a token, or there are too many.
    """
    tokens: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _LEXER.match(text, at)
        if match is None:
            raise _NotAllowedError(
                f"it cannot be parsed from {short(text[at : at + 20])} on", text[at : at + 20]
            )
        at = match.end()
        kind = str(match.lastgroup)
        if kind not in ("space", "comment"):
            tokens.append((kind, match[0]))
        if len(tokens) > _MAX_WORDS:
            raise _NotAllowedError(f"it has more than {_MAX_WORDS:,} words", "")
    return tokens


def _name(kind: str, text: str) -> str:
    return text[1:-1].replace("``", "`") if kind == "quoted" else text


class _Writer:
    """Checks and rewrites the tokens of one expression.

    Args:
        found: the tokens.
        columns: allowed identifiers, lower-case; None allows any.
        functions: allowed functions, lower-case.
    """

    def __init__(
        self, found: list[tuple[str, str]], columns: Collection[str] | None, functions: frozenset[str]
    ) -> None:
        self._words = found
        self._columns = columns
        self._functions = functions
        self._open: list[str] = []
        self._lambdas: list[tuple[int, frozenset[str]]] = []
        self._angles = 0
        self._depths = [0]
        self._cases = [0]

    def _measure(self, kind: str, text: str) -> None:
        """Update the bound on the operator depth."""
        lower = text.lower() if kind in ("sign", "word") else ""
        if lower in (")", "]"):
            if len(self._depths) > 1:
                self._depths.pop()
                self._cases.pop()
        elif lower in _SEPARATORS:
            self._depths[-1] = self._cases[-1]
        elif lower == "end":
            self._cases[-1] = max(0, self._cases[-1] - 1)
        elif kind == "sign" or lower in _BEFORE_BRACKET:
            self._depths[-1] += 1
            self._cases[-1] += lower == "case"
            if sum(self._depths) > _MAX_DEPTH:
                raise _NotAllowedError(f"it has more than {_MAX_DEPTH} operators inside each other", text)
        if lower in _OPENING:
            self._depths.append(0)
            self._cases.append(0)

    def written(self) -> list[str]:
        """Return the rewritten tokens."""
        if not self._words:
            raise _NotAllowedError("it is empty", "")
        out = []
        for at, (kind, text) in enumerate(self._words):
            if not is_text(text):
                raise _NotAllowedError("it contains an unpaired surrogate", "")
            if self._columns is not None:
                self._measure(kind, text)
            if _SUBSTITUTED in text and self._columns is not None:
                raise _NotAllowedError(
                    f"it contains {_SUBSTITUTED!r}, which Spark replaces by settings and environment variables",
                    _SUBSTITUTED,
                )
            if kind == "word":
                out.append(self._word(at, text))
            elif kind == "quoted":
                out.append(self._identifier(at, _name(kind, text)))
            elif kind == "sign":
                out.append(self._sign(at, text))
            else:
                self._check_not_called(at)
                out.append(_single_quoted(text) if kind == "double" else text)
        if self._open or self._angles:
            missing = self._open[-1] if self._open else ">"
            raise _NotAllowedError(f"{missing!r} is missing", missing)
        return out

    def _sign_at(self, at: int) -> str:
        """Return the sign at a position; empty if there is another token or none."""
        if 0 <= at < len(self._words) and self._words[at][0] == "sign":
            return self._words[at][1]
        return ""

    def _word(self, at: int, text: str) -> str:
        # Ignore case in ASCII only: some other letters have ASCII capitals, so that Spark reads a long s as an S.
        lower = text.lower() if text.isascii() else text
        before, following = self._sign_at(at - 1), self._sign_at(at + 1)
        if before == ".":
            return self._identifier(at, text)
        if (
            lower in _QUERIES
            and (before == "(" or at == 0)
            and (lower == "from" or (at + 1 < len(self._words) and following not in _NOT_IN_QUERIES))
        ):
            raise _NotAllowedError(f"it contains a query: {text.upper()}", text)
        if following == "(":
            known = _SIZED if self._angles else self._functions | _BEFORE_BRACKET | _SIZED
            if lower not in known or not self._may_quantify(at, lower):
                raise _NotAllowedError(f"it calls the function {text}, which is not known to be safe", text)
            return text
        if self._angles:
            return text if lower in _TYPES and following != ":" else backticked(text)
        if lower in _NESTED and following in ("<", "<>") and self._is_type(at):
            self._angles = _NEXT
            return text
        if lower in _KEYWORDS and following not in (".", "->", "=>") and self._is_keyword(at, lower):
            return text
        return backticked(text) if following == "=>" else self._identifier(at, text)

    def _may_quantify(self, at: int, lower: str) -> bool:
        """Whether a word is not ANY, ALL or SOME, or follows LIKE; elsewhere these are aggregates."""
        if self._columns is None or lower not in _QUANTIFIERS:
            return True
        return at > 0 and self._words[at - 1][1].lower() in _QUANTIFIED

    def _is_keyword(self, at: int, lower: str) -> bool:
        """Whether a keyword is in a position where it is one; otherwise it is a name, perhaps of a session variable."""
        if lower not in _TYPES and lower not in _UNITS:
            return self._may_quantify(at, lower)
        kind, before = self._words[at - 1] if at else ("", "")
        if self._is_type(at) or self._follows_operand(at) or (kind, before.lower()) == ("word", "to"):
            return True
        if lower in _UNITS and before == "(" and at > 1 and self._words[at - 2][1].lower() in _UNIT_FUNCTIONS:
            return True
        following = self._words[at + 1] if at + 1 < len(self._words) else ("", "")
        return following[0] in ("string", "double", "raw") or (
            lower == "interval" and (following[0] == "number" or following[1] in ("+", "-"))
        )

    def _is_column(self, name: str) -> bool:
        return self._columns is not None and name.lower() in self._columns

    def _is_type(self, at: int) -> bool:
        """Whether a word is a type, and not an identifier of the same name."""
        kind, text = self._words[at - 1] if at else ("", "")
        return (kind, text.lower()) == ("word", "as") or (kind, text) == ("sign", "::")

    def _identifier(self, at: int, name: str) -> str:
        self._check_not_called(at)
        is_field = self._sign_at(at - 1) == "."
        is_new = self._sign_at(at + 1) == "->" or self._is_parameter(at)
        if self._columns is not None and not is_field and not is_new and not self._is_column(name):
            lower = name.lower()
            if not any(lower in names for _, names in self._lambdas):
                raise _NotAllowedError(
                    f"{name!r} is neither a column that it may read nor a known keyword", name
                )
        return backticked(name)

    def _check_not_called(self, at: int) -> None:
        if self._sign_at(at + 1) == "(":
            name = self._words[at][1]
            raise _NotAllowedError(f"it calls {name}; functions must be called by their plain names", name)

    def _is_parameter(self, at: int) -> bool:
        """Whether a name is in the parameter list before an arrow."""
        while at < len(self._words) and self._words[at][0] in _NAMES and self._sign_at(at + 1) == ",":
            at += 2
        return self._sign_at(at + 1) == ")" and self._sign_at(at + 2) == "->"

    def _parameters(self, at: int) -> frozenset[str]:
        """Return the parameters of the arrow at a position."""
        in_brackets = self._sign_at(at - 1) == ")"
        at -= 2 if in_brackets else 1
        names = []
        while at >= 0 and self._words[at][0] in _NAMES:
            names.append(_name(*self._words[at]).lower())
            if not in_brackets or self._sign_at(at - 1) != ",":
                break
            at -= 2
        return frozenset(names)

    def _sign(self, at: int, sign: str) -> str:
        if sign in _OPENING:
            self._open.append(_OPENING[sign])
            if len(self._open) > _MAX_NESTING:
                raise _NotAllowedError(f"its brackets are nested more than {_MAX_NESTING} levels deep", sign)
        elif sign in (")", "]"):
            if not self._open or self._open.pop() != sign:
                raise _NotAllowedError(f"{sign!r} closes nothing", sign)
            self._lambdas = [each for each in self._lambdas if each[0] <= len(self._open)]
        elif self._angles:
            self._in_type(sign)
        elif sign in ("|>", ":") or (sign == "*" and not self._follows_operand(at)):
            raise _NotAllowedError(f"it contains {sign!r}", sign)
        elif sign == ".":
            self._check_dot(at)
        elif sign == "->":
            self._lambdas.append((len(self._open), self._parameters(at)))
        elif sign == ",":
            self._lambdas = [each for each in self._lambdas if each[0] < len(self._open)]
        return sign

    def _follows_operand(self, at: int) -> bool:
        if at == 0:
            return False
        kind, text = self._words[at - 1]
        if kind == "sign":
            return text in (")", "]")
        # A keyword after a dot is a field name.
        return kind != "word" or text.lower() not in _NO_OPERAND or self._sign_at(at - 2) == "."

    def _in_type(self, sign: str) -> None:
        if sign not in _ANGLES:
            raise _NotAllowedError(f"it contains {sign!r} in the name of a type", sign)
        self._angles = (0 if self._angles == _NEXT else self._angles) + _ANGLES[sign]
        if self._angles < 0:
            raise _NotAllowedError(f"{sign!r} closes nothing", sign)
        if self._angles > _MAX_NESTING:
            raise _NotAllowedError(
                f"it has a type with more than {_MAX_NESTING} others inside each other", sign
            )

    def _check_dot(self, at: int) -> None:
        is_field = at + 1 < len(self._words) and self._words[at + 1][0] in _NAMES
        if not is_field or not (self._words[at - 1][0] in _NAMES or self._sign_at(at - 1) in (")", "]")):
            raise _NotAllowedError("a dot is only allowed between a column and its field", ".")


def _single_quoted(text: str) -> str:
    """Convert a double-quoted string to single quotes, since ``doubleQuotedIdentifiers`` makes it an identifier."""
    pieces = re.findall(r'\\.|""|.', text[1:-1], re.DOTALL)
    return "'" + "".join({"'": r"\'", '""': '"'}.get(each, each) for each in pieces) + "'"
