"""The names of Spark's built-in functions: they distinguish a misspelled function from one that Delvec does not run on DuckDB.

Scalar functions are those of :mod:`delvec_kernel.expressions.spark_dialect`; here are the others, of ``SHOW SYSTEM FUNCTIONS``
in Spark 4.1.

Tested in `tests/integration/client/sql/test_spark_values.py`.
"""

from typing import Final

from delvec_kernel.expressions.spark_dialect import STATEMENTS

__all__ = ["SPARK_FUNCTIONS"]

_OF_ROWS: Final = """
any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine
approx_top_k_estimate array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg bool_and bool_or
collect_list collect_set corr count count_if count_min_sketch covar_pop covar_samp cume_dist dense_rank every first first_value
grouping grouping_id histogram_numeric hll_sketch_agg hll_sketch_estimate hll_union hll_union_agg kurtosis lag last last_value
lead listagg max max_by mean median min min_by mode nth_value ntile percent_rank percentile percentile_approx percentile_cont
percentile_disc rank regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy row_number
schema_of_variant_agg skewness some std stddev stddev_pop stddev_samp string_agg sum theta_difference theta_intersection
theta_intersection_agg theta_sketch_agg theta_sketch_estimate theta_union theta_union_agg try_avg try_sum var_pop var_samp variance
"""
_OF_RELATIONS: Final = """
collations explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer range sql_keywords stack
variant_explode variant_explode_outer
"""
_OTHERS: Final = """
from_avro from_protobuf from_xml java_method reflect schema_of_avro schema_of_xml to_avro to_protobuf to_xml try_reflect xpath
xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short xpath_string
"""
_SKETCHES: Final = frozenset(
    f"kll_{name}_{kind}"
    for name in (
        "merge_agg",
        "sketch_agg",
        "sketch_get_n",
        "sketch_get_quantile",
        "sketch_get_rank",
        "sketch_merge",
        "sketch_to_string",
    )
    for kind in ("bigint", "double", "float")
)

SPARK_FUNCTIONS: Final = STATEMENTS | _SKETCHES | frozenset((_OF_ROWS + _OF_RELATIONS + _OTHERS).split())
