"""What is known about Spark's SQL functions: which belong into a predicate, which always give the same answer."""

from typing import Final

from sqlglot import exp

__all__ = ["AGGREGATES", "GENERATORS", "WINDOW_ONLY", "is_deterministic_function"]

# Names that the parser does not know as such; the rest it recognises by class.
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

_KNOWN_ANONYMOUS: Final = frozenset(["isnotnull", "isnull", "pmod", "regexp"])
_CHANGING: Final = ("Current", "Localtime", "Rand", "Session", "Unix", "Utc", "Uuid", "Version", "Generate")


def is_deterministic_function(node: exp.Expr) -> bool:
    """Whether ``node`` is no function, or one that gives the same answer for the same arguments at any time."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _KNOWN_ANONYMOUS
    if isinstance(node, exp.AnonymousAggFunc):
        return False
    return not (isinstance(node, exp.Func) and type(node).__name__.startswith(_CHANGING))
