"""Types of decimal sums, differences and products, compared with Spark 4.1's ``typeof``."""

import pytest

from delvec_engines.duckdb.dialect_functions import rounded
from delvec_kernel.expressions import predicate
from delvec_kernel.schema.types import DecimalType, PrimitiveType, StructField, StructType

SCHEMA = StructType(
    (
        StructField("small", DecimalType(10, 2)),
        StructField("long", DecimalType(38, 10)),
        StructField("wide", DecimalType(38, 18)),
        StructField("whole", DecimalType(38, 0)),
        StructField("n", PrimitiveType("integer")),
        StructField("b", PrimitiveType("long")),
        StructField("x", PrimitiveType("double")),
    )
)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("small * small", None),
        ("small + b", None),
        ("small * long", (38, 6)),
        ("long * long", (38, 6)),
        ("small + long", (38, 9)),
        ("long - 0.00000000001", (38, 9)),
        ("wide * 1.1", (38, 16)),
        ("wide + 1", (38, 17)),
        ("wide * n", (38, 7)),
        ("wide + wide", (38, 17)),
        ("whole * 100", (38, 0)),
        ("cast(x as decimal(38, 18)) * 0.05", (38, 17)),
        ("(wide + 1) * small", (38, 8)),
        ("wide * x", None),
        ("coalesce(wide, 1.0) * 2", None),
    ],
)
def test_results_of_more_than_38_digits_lose_places(expression, expected):
    value = predicate.parse(f"{expression} IS NULL", SCHEMA).expression.this
    found = rounded(value, SCHEMA)
    assert (found and (found.precision, found.scale)) == expected
