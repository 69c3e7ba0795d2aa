"""Constants that cannot be cast to a type: exactly those that ANSI SQL rejects."""

import pytest

from delvec_kernel.constraints.constant_casts import is_impossible
from delvec_kernel.expressions.predicate import parse
from delvec_kernel.schema.types import StructType, data_type_from_json

ARRAY = {"type": "array", "elementType": "long", "containsNull": True}


def impossible(text, kind):
    return is_impossible(
        parse(f"({text}) IS NULL", StructType(())).expression.this, data_type_from_json(kind)
    )


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("'abc'", "integer"),
        ("''", "long"),
        ("'1.5'", "integer"),
        ("'3000000000'", "integer"),
        ("300", "byte"),
        ("-129", "byte"),
        ("1e300", "long"),
        ("1e400", "integer"),
        ("123456", "decimal(5,2)"),
        ("999.999", "decimal(5,2)"),
        ("'1e99'", "decimal(38,0)"),
        ("'1e999999999'", "decimal(38,0)"),
        ("'many'", "double"),
        ("'perhaps'", "boolean"),
        ("'2024-13-01'", "date"),
        ("'yesterday'", "timestamp"),
        ("'12:30'", "date"),
        ("DATE '2024-02-30'", "date"),
        ("DATE '2024-01-01'", "integer"),
        ("current_date()", "long"),
        ("1", "date"),
        ("1.5", "timestamp_ntz"),
        ("TRUE", "timestamp"),
        ("TIMESTAMP '2024-01-01 00:00:00'", "boolean"),
        ("X'00'", "integer"),
        ("5", "binary"),
        ("'x'", ARRAY),
        ("CAST('abc' AS INT)", "integer"),
        ("CAST('abc' AS INT)", "string"),
    ],
)
def test_impossible_casts_are_detected(text, kind):
    assert impossible(text, kind)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("NULL", "integer"),
        ("NULL", ARRAY),
        ("'42'", "integer"),
        ("' 42\t'", "long"),
        ("'-128'", "byte"),
        ("-128", "byte"),
        ("127.9", "byte"),
        ("1e3", "long"),
        ("2147483647", "integer"),
        ("999.994", "decimal(5,2)"),
        ("99999999999999999999.999999999999999999", "decimal(38,18)"),
        ("-99999999999999999999.999999999999999999", "decimal(38,18)"),
        ("'1e2'", "decimal(5,2)"),
        ("'NaN'", "double"),
        ("'-Infinity'", "float"),
        ("'1.5f'", "double"),
        ("1e400", "double"),
        ("'Yes'", "boolean"),
        ("0", "boolean"),
        ("'2024'", "date"),
        ("'2024-2-29'", "date"),
        ("'2024-02-29T10:00:00Z'", "date"),
        ("'+12345-01-01'", "timestamp"),
        ("'2024-02-29 10:00:00 Europe/Berlin'", "timestamp"),
        ("'12:30'", "timestamp"),
        ("DATE '2024-02-29'", "timestamp"),
        ("DATE 'epoch'", "date"),
        ("TIMESTAMP ' Now '", "timestamp"),
        ("current_timestamp()", "date"),
        ("1", "timestamp"),
        ("5", "string"),
        ("'x'", "binary"),
        ("X'00'", "string"),
        ("concat('a', 'b')", "integer"),
        ("array(1, 2)", ARRAY),
        ("concat(array(1), array(2))", ARRAY),
        ("1 + 1", "byte"),
        ("TRY_CAST('abc' AS INT)", "integer"),
        ("CAST('7' AS INT)", "string"),
    ],
)
def test_possible_and_unknown_casts_pass(text, kind):
    assert not impossible(text, kind)
