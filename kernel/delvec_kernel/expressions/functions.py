"""Spark's functions that Delvec knows more of than the name, each in one row of a table.

From a row follow the kind of a call's value, whether a predicate with it may be evaluated again, its SQL in DuckDB, and
whether Spark leaves it to DuckDB. What no template of SQL can say is written elsewhere: DuckDB's SQL in
``delvec_engines.duckdb.dialect``, bounds of a monotone function in ``delvec_kernel.data_skipping.monotone``.

Tested in `tests/unit/kernel/expressions/test_functions.py` and `tests/unit/engines/duckdb/test_dialect.py`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from sqlglot import exp

__all__ = ["FUNCTIONS", "SAME", "Function", "Parameter", "function_of"]

Parameter: TypeAlias = Literal["any", "string", "date", "moment"]
"""How an argument is written: as it is, as a string, as a date, or refused unless it is a date or timestamp."""

SAME: Final = "same"
"""The result of a function whose value is of the kind of its first argument."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function.

    Attributes:
        names: Spark's names in small letters.
        node: sqlglot's class for a call; None if it has none.
        result: the kind of the value, as of ``kind_of``; None if it depends on more than the function.
        parameters: the parameters of ``duckdb``.
        duckdb: DuckDB's SQL with the same value, with a place for each argument; None if it is no template.
        keys: sqlglot's names of the arguments. A call with others is refused, unless they change nothing in Spark.
        varies: why two evaluations differ; empty if they do not.
        is_monotone: whether its value rises with the first argument: then there are rules for its bounds.
        is_proven: whether DuckDB's value is Spark's for all arguments, so that Spark may leave it to DuckDB.
    """

    names: tuple[str, ...]
    node: type[exp.Expr] | None
    result: str | None = None
    parameters: tuple[Parameter, ...] = ()
    duckdb: str | None = None
    keys: tuple[str, ...] = ("this", "expression")
    varies: Literal["", "clock", "session", "row"] = ""
    is_monotone: bool = False
    is_proven: bool = True

    def arguments(self, call: exp.Expr) -> list[exp.Expr] | None:
        """Return the arguments of a call for ``duckdb``, or None if it has others than ``parameters``."""
        if isinstance(call, exp.Anonymous):
            arguments = list(call.expressions)
        else:
            keys = self.keys[: len(self.parameters)]
            if any(
                value for key, value in call.args.items() if key not in keys and key not in _WITHOUT_EFFECT
            ):
                return None
            arguments = [call.args[key] for key in keys if call.args.get(key) is not None]
        return arguments if len(arguments) == len(self.parameters) else None


# `safe` says that sqlglot's to_date() gives NULL for what is no date; Spark's fails, and so does DuckDB's cast.
_WITHOUT_EFFECT: Final = frozenset({"safe"})


def _date_part(node: type[exp.Expr], *names: str, is_monotone: bool = False) -> Function:
    return Function(
        names, node, "integer", ("moment",), f"CAST({names[0]}({{}}) AS INTEGER)", is_monotone=is_monotone
    )


FUNCTIONS: Final = (
    # --- numbers
    Function(("abs",), exp.Abs, SAME, ("any",), "abs({})"),
    Function(("isnan",), exp.IsNan, "boolean", ("any",), "coalesce(isnan(CAST({} AS DOUBLE)), FALSE)"),
    # --- strings
    Function(("char_length", "character_length", "len", "length"), exp.Length, "integer"),
    Function(("lcase", "lower"), exp.Lower, "string"),
    Function(("ucase", "upper"), exp.Upper, "string"),
    Function(("btrim", "ltrim", "rtrim", "trim"), exp.Trim, "string"),
    Function(("substr", "substring"), exp.Substring, "string", is_monotone=True),
    Function(("left",), exp.Left, is_monotone=True),
    Function(("concat",), exp.Concat, "string"),
    Function(("concat_ws",), exp.ConcatWs, "string"),
    Function(("contains",), exp.Contains, "boolean", ("string", "string"), "contains({}, {})"),
    Function(("startswith",), exp.StartsWith, "boolean", ("string", "string"), "starts_with({}, {})"),
    Function(("endswith",), exp.EndsWith, "boolean", ("string", "string"), "ends_with({}, {})"),
    Function(
        ("instr", "locate", "position"),
        exp.StrPosition,
        "integer",
        ("string", "string"),
        "CAST(instr({}, {}) AS INTEGER)",
        keys=("this", "substr"),
    ),
    Function(("regexp_like", "rlike"), exp.RegexpLike, "boolean", is_proven=False),
    Function(("regexp",), None, "boolean", is_proven=False),
    # --- NULL
    Function(("isnull",), None, "boolean", ("any",), "({} IS NULL)"),
    Function(("isnotnull",), None, "boolean", ("any",), "({} IS NOT NULL)"),
    # --- dates and times
    _date_part(exp.Year, "year", is_monotone=True),
    _date_part(exp.Quarter, "quarter"),
    _date_part(exp.Month, "month"),
    _date_part(exp.Day, "day"),
    _date_part(exp.DayOfMonth, "dayofmonth"),
    _date_part(exp.DayOfYear, "dayofyear"),
    Function(("dayofweek",), exp.DayOfWeek, "integer", ("date",), "CAST(dayofweek({}) + 1 AS INTEGER)"),
    _date_part(exp.Hour, "hour"),
    _date_part(exp.Minute, "minute"),
    _date_part(exp.Second, "second"),
    Function(("extract",), exp.Extract, "integer"),
    Function(("to_date",), exp.TsOrDsToDate, "date", ("date",), "{}", is_monotone=True),
    Function(("date_add", "date_sub"), exp.TsOrDsAdd, "date"),
    Function(("date_diff", "datediff"), exp.DateDiff, "integer"),
    # --- the clock, the session, and chance
    Function(("curdate", "current_date"), exp.CurrentDate, "date", duckdb="current_date", varies="clock"),
    Function(("current_timestamp",), exp.CurrentTimestamp, "timestamp", duckdb="now()", varies="clock"),
    Function(("now",), None, duckdb="now()", varies="clock"),
    Function(("current_time",), exp.CurrentTime, varies="clock"),
    Function(("localtimestamp",), exp.Localtimestamp, varies="clock"),
    Function(("current_timezone",), exp.CurrentTimezone, varies="session"),
    Function(("current_user",), exp.CurrentUser, varies="session"),
    Function(("session_user",), exp.SessionUser, varies="session"),
    Function(("user",), None, varies="session"),
    Function(("rand", "random"), exp.Rand, "double", duckdb="random()", varies="row", is_proven=False),
    Function(("randn",), exp.Randn, varies="row"),
    Function(("randstr",), exp.Randstr, varies="row"),
    Function(("shuffle",), exp.Shuffle, varies="row"),
    Function(("uniform",), exp.Uniform, varies="row"),
    Function(("uuid",), exp.Uuid, varies="row"),
    Function(("aes_encrypt",), None, varies="row"),
)


def _named(functions: Iterable[Function]) -> dict[str, Function]:
    return {name: each for each in functions for name in each.names}


_OF_NODE: Final = {each.node: each for each in FUNCTIONS if each.node is not None}
_OF_NAME: Final = _named(each for each in FUNCTIONS if each.node is None)


def function_of(call: exp.Expr) -> Function | None:
    """Return the function that an expression calls; None if it calls none, or another one."""
    if isinstance(call, exp.Anonymous):
        return _OF_NAME.get(call.name.lower())
    return _OF_NODE.get(type(call))
