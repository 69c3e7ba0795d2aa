"""The functions that a query in Spark's SQL may call on DuckDB besides those of conditions, in one table.

DuckDB has functions of the same names with other values (``trunc``, ``typeof``, ``url_encode``), and sqlglot translates some
almost rightly, so what is not in the table is refused by name and runs on Spark.

Tested in `tests/integration/engines/test_spark_values.py`.
"""

import re
from typing import Final

from sqlglot import exp

from delvec.sql.value_types import is_translated
from delvec_engines.duckdb.dialect_functions import to_re2
from delvec_kernel.schema.types import ArrayType, DataType, MapType, StructType

__all__ = ["CALLS", "NOT_TRANSLATED", "PATTERNS", "RESULT_TYPES", "WEEKDAYS", "refusal"]

NOT_TRANSLATED: Final = "Delvec does not translate it"

CALLS: Final = (exp.Func, exp.AtTimeZone, exp.FromTimeZone)
"""What sqlglot makes of calls of functions."""

RESULT_TYPES: Final[dict[type[exp.Expr] | str, str]] = {
    exp.AddMonths: "DATE",
    exp.Ascii: "INTEGER",
    exp.BitLength: "INTEGER",
    exp.CountIf: "BIGINT",
    exp.DateFromUnixDate: "DATE",
    exp.DenseRank: "INTEGER",
    exp.Factorial: "BIGINT",
    exp.Extract: "INTEGER",
    exp.Levenshtein: "INTEGER",
    exp.Ntile: "INTEGER",
    exp.Rank: "INTEGER",
    exp.RegexpCount: "INTEGER",
    exp.RegrCount: "BIGINT",
    exp.RowNumber: "INTEGER",
    exp.Sign: "DOUBLE",
    exp.StrPosition: "INTEGER",
    exp.UnixDate: "INTEGER",
    exp.WeekOfYear: "INTEGER",
    "cardinality": "INTEGER",
    "date_part": "INTEGER",
    "datepart": "INTEGER",
    "json_array_length": "INTEGER",
}
"""The types of Spark's results where DuckDB's have another, of functions whose SQL is not written here."""

_OF_MOMENTS: Final = (
    exp.StrToTime,
    exp.StrToUnix,
    exp.TimestampAdd,
    exp.TimestampFromParts,
    exp.TimestampTrunc,
    exp.TimeToStr,
    exp.UnixMicros,
    exp.UnixMillis,
    exp.UnixSeconds,
    exp.UnixToStr,
)
_OF_TEXT: Final = (
    exp.Chr,
    exp.Decode,
    exp.DecodeCase,
    exp.Encode,
    exp.FromBase64,
    exp.Hex,
    exp.Initcap,
    exp.JSONExtractScalar,
    exp.JSONKeys,
    exp.Left,
    exp.MD5,
    exp.Overlay,
    exp.Pad,
    exp.RegexpExtract,
    exp.RegexpExtractAll,
    exp.RegexpReplace,
    exp.RegexpSplit,
    exp.Repeat,
    exp.Replace,
    exp.Reverse,
    exp.Right,
    exp.SHA,
    exp.SHA2,
    exp.Space,
    exp.SplitPart,
    exp.SubstringIndex,
    exp.ToBase64,
    exp.Translate,
    exp.Unhex,
)
_OF_NUMBERS: Final = (
    exp.BitwiseCount,
    exp.Cbrt,
    exp.Ceil,
    exp.Degrees,
    exp.Exp,
    exp.Floor,
    exp.Ln,
    exp.Log,
    exp.Pi,
    exp.Pow,
    exp.Round,
    exp.SafeDivide,
    exp.Sin,
    exp.Sqrt,
)
_OF_VALUES: Final = (
    exp.Array,
    exp.ArrayAppend,
    exp.ArrayCompact,
    exp.ArrayContains,
    exp.ArrayFilter,
    exp.ArrayInsert,
    exp.ArrayMax,
    exp.ArrayMin,
    exp.ArrayPosition,
    exp.ArrayPrepend,
    exp.ArrayRemove,
    exp.ArraySize,
    exp.ArraySlice,
    exp.ArraySort,
    exp.ArrayToString,
    exp.EqualNull,
    exp.Flatten,
    exp.Map,
    exp.MapFromEntries,
    exp.MapKeys,
    exp.Reduce,
    exp.Transform,
    exp.VarMap,
)
_OF_ROWS: Final = (
    exp.AnyValue,
    exp.ApproxDistinct,
    exp.ApproxQuantile,
    exp.ArgMax,
    exp.ArgMin,
    exp.ArrayAgg,
    exp.ArrayUniqueAgg,
    exp.Avg,
    exp.BitwiseAndAgg,
    exp.BitwiseOrAgg,
    exp.BitwiseXorAgg,
    exp.Corr,
    exp.Count,
    exp.CovarPop,
    exp.CovarSamp,
    exp.CumeDist,
    exp.First,
    exp.FirstValue,
    exp.GroupConcat,
    exp.Lag,
    exp.Last,
    exp.LastValue,
    exp.Lead,
    exp.LogicalAnd,
    exp.LogicalOr,
    exp.Max,
    exp.Median,
    exp.Min,
    exp.Mode,
    exp.NthValue,
    exp.PercentRank,
    exp.PercentileCont,
    exp.Quantile,
    exp.RegrSlope,
    exp.Stddev,
    exp.StddevPop,
    exp.StddevSamp,
    exp.Sum,
    exp.Variance,
    exp.VariancePop,
)
_DATES_AND_DAYS: Final = (exp.DateTrunc, exp.LastDay, exp.NextDay, exp.TimeStrToTime)
_SAME: Final = frozenset(
    {*_OF_MOMENTS, *_OF_TEXT, *_OF_NUMBERS, *_OF_VALUES, *_OF_ROWS, *_DATES_AND_DAYS, *RESULT_TYPES}
    | {"bin", "make_date", "map_entries", "map_values", "mean", "octet_length", "weekday"}
    | {exp.Xor}
)
PATTERNS: Final = (
    exp.RegexpCount,
    exp.RegexpExtract,
    exp.RegexpExtractAll,
    exp.RegexpReplace,
    exp.RegexpSplit,
)
_FORMATTED: Final = (exp.StrToTime, exp.StrToUnix, exp.TimeToStr, exp.TsOrDsToDate, exp.UnixToStr)
_CODE: Final = re.compile(r"%-?[a-zA-Z](?:strict)?")
"""strftime's code for letters of Spark's; sqlglot leaves alone the letters and quotes that it does not know."""
_PARTS: Final = frozenset({"year", "quarter", "month", "week", "day", "hour", "minute"})
WEEKDAYS: Final = frozenset({"dayofweek", "dow"})
_TRUNCATED_TO: Final = frozenset({"YEAR", "YYYY", "YY", "QUARTER", "MONTH", "MM", "MON", "WEEK"})


def refusal(node: exp.Expr, kind: DataType | None) -> str | None:
    """Return why a call may have another value in DuckDB than in Spark; None if it has the same.

    Args:
        node: the call.
        kind: the type of its first argument; None if it is unknown.
    """
    name = node.name.lower() if isinstance(node, exp.Anonymous) else type(node)
    if name not in _SAME and not is_translated(node):
        return NOT_TRANSLATED
    return _of_arguments(node) or _of_kind(node, kind)


def _of_arguments(node: exp.Expr) -> str | None:
    if isinstance(node, PATTERNS):
        return _of_pattern(node)
    if isinstance(node, _FORMATTED):
        return _of_format(node)
    reason = None
    match node:
        case exp.DateDiff() if (node.text("unit") or "DAY").upper() != "DAY":
            reason = "it counts other units than days otherwise"
        case exp.Extract() if node.name.lower() not in _PARTS | WEEKDAYS:
            reason = f"it has other values for {node.name.lower()}"
        case exp.Anonymous() if node.name.lower() in ("date_part", "datepart"):
            part = node.expressions[0].name.lower() if node.expressions else ""
            reason = None if part in _PARTS else f"it has other values for {part!r}"
        case exp.DateTrunc() if node.text("unit").upper() not in _TRUNCATED_TO:
            reason = f"it has other values for {node.text('unit')!r}"
        case exp.SubstringIndex() if not _is_index(node):
            reason = "it takes a literal character and a literal number"
        case exp.Shuffle():
            reason = NOT_TRANSLATED
        case exp.ArraySort() if node.args.get("expression") is not None:
            reason = "it does not sort by a function"
    return reason


def _is_index(node: exp.SubstringIndex) -> bool:
    separator, count = node.args.get("delimiter"), node.args.get("count")
    number = count.this if isinstance(count, exp.Neg) else count
    is_one = isinstance(separator, exp.Literal) and separator.is_string and len(separator.name) == 1
    return is_one and isinstance(number, exp.Literal) and number.is_int


def _of_pattern(node: exp.Expr) -> str | None:
    if node.args.get("limit") is not None:
        return "it has no limit"
    pattern = node.expression
    if not (isinstance(pattern, exp.Literal) and pattern.is_string and pattern.name):
        return "its pattern must be a literal"
    try:
        to_re2(pattern.name)
    except ValueError as error:
        return f"its pattern uses {error}, which RE2 reads differently"
    by = node.args.get("replacement")
    if by is not None and not (by.is_string and not set(by.name) & {"$", "\\"}):
        return "its replacement must be a literal without references to groups"
    return None


def _of_format(node: exp.Expr) -> str | None:
    form = node.args.get("format")
    if form is None:
        return None
    if not form.is_string:
        return "its format must be a literal"
    is_known = re.search("[A-Za-z'\\[]", _CODE.sub("", form.name)) is None
    return None if is_known else "its format has letters that it does not know"


def _of_kind(node: exp.Expr, kind: DataType | None) -> str | None:
    is_struct = isinstance(kind, StructType) or isinstance(node.this, exp.Struct)
    if isinstance(node, exp.Max | exp.Min) and is_struct:
        return "it compares structs otherwise"
    is_nested = isinstance(kind, ArrayType | MapType | StructType)
    if isinstance(node, exp.Cast) and is_nested and node.to.this == exp.DType.TEXT:
        return "it writes nested values otherwise"
    return None
