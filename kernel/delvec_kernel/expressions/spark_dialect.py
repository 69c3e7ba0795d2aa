"""sqlglot's Spark dialect, made stricter for predicates, and lists of Spark's functions.

Tested in `tests/unit/kernel/expressions/test_predicate.py` and
`tests/integration/spark/test_spark_expressions.py`.
"""

from collections.abc import Callable
from typing import ClassVar, Final

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

from delvec_kernel.expressions.functions import FUNCTIONS, function_of

__all__ = [
    "AGGREGATES",
    "GENERATORS",
    "SCALARS",
    "SPARK",
    "STATEMENTS",
    "WINDOW_ONLY",
    "SparkDialect",
    "is_deterministic_function",
]


def _cast_to(kind: str) -> Callable[[list[exp.Expr]], exp.Expr]:
    def cast(arguments: list[exp.Expr]) -> exp.Expr:
        if len(arguments) != 1:
            raise ParseError(f"{kind.partition('(')[0].lower()}() takes one value")
        return exp.Cast(this=arguments[0], to=exp.DataType.build(kind))

    return cast


class _Parser(SparkParser):
    """Distinguishes CAST from TRY_CAST: under ANSI, Spark 4's default, only TRY_CAST returns NULL on failure.

    Takes Delta's ``table@v3`` for ``table VERSION AS OF 3``, and those functions for casts that sqlglot does not: ``bigint(x)``.
    """

    STRICT_CAST = True
    FUNCTIONS: ClassVar = SparkParser.FUNCTIONS | {
        kind.partition("(")[0]: _cast_to(kind)
        for kind in ("BIGINT", "BINARY", "DECIMAL(10, 0)", "SMALLINT", "TINYINT")
    }
    TABLE_POSTFIX_TOKENS = SparkParser.TABLE_POSTFIX_TOKENS | {TokenType.PARAMETER}

    def _parse_version(self) -> exp.Version | None:
        if self._curr is None or self._curr.text != "@" or self._curr.token_type != TokenType.PARAMETER:
            return super()._parse_version()
        self._advance()
        version = "" if self._curr is None else self._curr.text
        if version[:1].lower() != "v" or not version[1:].isdecimal():
            self.raise_error("A version such as @v3 is expected")
        self._advance()
        return exp.Version(this="VERSION", expression=exp.Literal.number(version[1:]), kind="AS OF")


class SparkDialect(Spark):
    """Spark's dialect with :class:`_Parser`."""

    Parser = _Parser


SPARK: Final = SparkDialect()


# Names that sqlglot parses as anonymous functions; it has classes for the rest.
AGGREGATES: Final = frozenset(
    [
        "any",
        "bit_and",
        "bit_or",
        "bit_xor",
        "bitmap_construct_agg",
        "bitmap_or_agg",
        "bitmap_and_agg",
        "bool_and",
        "bool_or",
        "count_min_sketch",
        "every",
        "first_value",
        "grouping",
        "grouping_id",
        "histogram_numeric",
        "hll_sketch_agg",
        "hll_union_agg",
        "kurtosis",
        "last_value",
        "listagg",
        "max_by",
        "min_by",
        "mode",
        "percentile",
        "percentile_approx",
        "percentile_cont",
        "percentile_disc",
        "regr_avgx",
        "regr_avgy",
        "regr_count",
        "regr_intercept",
        "regr_r2",
        "regr_slope",
        "regr_sxx",
        "regr_sxy",
        "regr_syy",
        "schema_of_json_agg",
        "skewness",
        "some",
        "std",
        "string_agg",
        "try_avg",
        "try_sum",
    ]
)
WINDOW_ONLY: Final = frozenset(
    ["cume_dist", "dense_rank", "lag", "lead", "nth_value", "ntile", "percent_rank", "rank", "row_number"]
)
GENERATORS: Final = frozenset(
    [
        "explode",
        "explode_outer",
        "inline",
        "inline_outer",
        "json_tuple",
        "posexplode",
        "posexplode_outer",
        "stack",
        "variant_explode",
        "variant_explode_outer",
    ]
)

SCALARS: Final = frozenset(
    [
        "acos",
        "acosh",
        "add_months",
        "aes_decrypt",
        "aggregate",
        "array",
        "array_append",
        "array_compact",
        "array_contains",
        "array_distinct",
        "array_except",
        "array_insert",
        "array_intersect",
        "array_join",
        "array_max",
        "array_min",
        "array_position",
        "array_prepend",
        "array_remove",
        "array_repeat",
        "array_size",
        "array_sort",
        "array_union",
        "arrays_overlap",
        "arrays_zip",
        "ascii",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "base64",
        "bigint",
        "bin",
        "binary",
        "bit_count",
        "bit_get",
        "bit_length",
        "bitmap_bit_position",
        "bitmap_bucket_number",
        "bitmap_count",
        "boolean",
        "bround",
        "cardinality",
        "cast",
        "cbrt",
        "ceil",
        "ceiling",
        "char",
        "chr",
        "coalesce",
        "collate",
        "collation",
        "conv",
        "convert_timezone",
        "cos",
        "cosh",
        "cot",
        "crc32",
        "csc",
        "date",
        "date_format",
        "date_from_unix_date",
        "date_part",
        "date_trunc",
        "dateadd",
        "datepart",
        "dayname",
        "decimal",
        "decode",
        "degrees",
        "double",
        "e",
        "element_at",
        "elt",
        "encode",
        "equal_null",
        "exists",
        "exp",
        "expm1",
        "factorial",
        "filter",
        "find_in_set",
        "flatten",
        "float",
        "floor",
        "forall",
        "format_number",
        "format_string",
        "from_csv",
        "from_json",
        "from_unixtime",
        "from_utc_timestamp",
        "get",
        "get_json_object",
        "getbit",
        "greatest",
        "hash",
        "hex",
        "hypot",
        "if",
        "ifnull",
        "ilike",
        "initcap",
        "int",
        "is_valid_utf8",
        "is_variant_null",
        "json_array_length",
        "json_object_keys",
        "last_day",
        "least",
        "levenshtein",
        "like",
        "ln",
        "log",
        "log10",
        "log1p",
        "log2",
        "lpad",
        "luhn_check",
        "make_date",
        "make_dt_interval",
        "make_interval",
        "make_time",
        "make_timestamp",
        "make_timestamp_ltz",
        "make_timestamp_ntz",
        "make_valid_utf8",
        "make_ym_interval",
        "map",
        "map_concat",
        "map_contains_key",
        "map_entries",
        "map_filter",
        "map_from_arrays",
        "map_from_entries",
        "map_keys",
        "map_values",
        "map_zip_with",
        "mask",
        "md5",
        "mod",
        "monthname",
        "months_between",
        "named_struct",
        "nanvl",
        "negative",
        "next_day",
        "nullif",
        "nullifzero",
        "nvl",
        "nvl2",
        "octet_length",
        "overlay",
        "parse_json",
        "parse_url",
        "pi",
        "pmod",
        "positive",
        "pow",
        "power",
        "printf",
        "quote",
        "radians",
        "reduce",
        "regexp_count",
        "regexp_extract",
        "regexp_extract_all",
        "regexp_instr",
        "regexp_replace",
        "regexp_substr",
        "repeat",
        "replace",
        "reverse",
        "right",
        "rint",
        "round",
        "rpad",
        "schema_of_csv",
        "schema_of_json",
        "schema_of_variant",
        "sec",
        "sentences",
        "sequence",
        "sha",
        "sha1",
        "sha2",
        "shiftleft",
        "shiftright",
        "shiftrightunsigned",
        "sign",
        "signum",
        "sin",
        "sinh",
        "size",
        "slice",
        "smallint",
        "sort_array",
        "soundex",
        "space",
        "split",
        "split_part",
        "sqrt",
        "st_asbinary",
        "st_geogfromwkb",
        "st_geomfromwkb",
        "st_setsrid",
        "st_srid",
        "str_to_map",
        "string",
        "struct",
        "substring_index",
        "tan",
        "tanh",
        "time",
        "time_diff",
        "time_trunc",
        "timestamp",
        "timestamp_micros",
        "timestamp_millis",
        "timestamp_seconds",
        "timestampadd",
        "timestampdiff",
        "tinyint",
        "to_binary",
        "to_char",
        "to_csv",
        "to_json",
        "to_number",
        "to_time",
        "to_unix_timestamp",
        "to_timestamp",
        "to_timestamp_ltz",
        "to_timestamp_ntz",
        "to_utc_timestamp",
        "to_varchar",
        "to_variant_object",
        "transform",
        "transform_keys",
        "transform_values",
        "translate",
        "trunc",
        "try_add",
        "try_aes_decrypt",
        "try_cast",
        "try_divide",
        "try_element_at",
        "try_make_interval",
        "try_make_timestamp",
        "try_make_timestamp_ltz",
        "try_make_timestamp_ntz",
        "try_mod",
        "try_multiply",
        "try_parse_json",
        "try_parse_url",
        "try_subtract",
        "try_to_binary",
        "try_to_date",
        "try_to_number",
        "try_to_time",
        "try_to_timestamp",
        "try_url_decode",
        "try_validate_utf8",
        "try_variant_get",
        "typeof",
        "unbase64",
        "unhex",
        "unix_date",
        "unix_micros",
        "unix_millis",
        "unix_seconds",
        "unix_timestamp",
        "url_decode",
        "url_encode",
        "validate_utf8",
        "variant_get",
        "weekday",
        "weekofyear",
        "width_bucket",
        "xxhash64",
        "zeroifnull",
        "zip_with",
    ]
).union(*(each.names for each in FUNCTIONS))
"""Spark's built-in scalar functions, including those of the clock, random numbers and the user's name.

Omitted on purpose: functions that call Java or read files (``reflect``, ``from_avro``, ``from_protobuf``), that describe
the task or the file (``input_file_name``, ``spark_partition_id``), that parse XML, or that always fail (``raise_error``).
"""

STATEMENTS: Final = SCALARS | frozenset(
    [
        "assert_true",
        "current_catalog",
        "current_database",
        "current_schema",
        "input_file_block_length",
        "input_file_block_start",
        "input_file_name",
        "monotonically_increasing_id",
        "raise_error",
        "session_window",
        "spark_partition_id",
        "version",
        "window",
        "window_time",
    ]
)
"""Functions allowed in statements, which also include those about the user's session."""

# Of functions that are not in the table: in doubt, a predicate is not evaluated again.
_NON_DETERMINISTIC_PREFIXES: Final = (
    "Current",
    "Localtime",
    "Rand",
    "Session",
    "Unix",
    "Utc",
    "Uuid",
    "Version",
    "Generate",
)


def is_deterministic_function(node: exp.Expr) -> bool:
    """Whether ``node`` is not a function, or one that always returns the same value for the same arguments."""
    function = function_of(node)
    if function is not None:
        return not function.varies
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in SCALARS
    if isinstance(node, exp.AnonymousAggFunc):
        return False
    return not (isinstance(node, exp.Func) and type(node).__name__.startswith(_NON_DETERMINISTIC_PREFIXES))
