"""Random constant expressions, some of which overflow, round, divide by zero or fail."""

import random

_LEAVES = [
    *("0", "1", "2", "3", "7", "10", "-3", "-128", "127", "2147483647", "-2147483648", "2147483648"),
    *("9223372036854775807", "5L", "-5L", "3S", "100Y", "-128Y", "32767S"),
    *(
        "0.5",
        "1.5",
        "-2.50",
        "0.10",
        "99.99",
        "1234567890.123456789",
        "3.0",
        "0.05BD",
        "12345678901234567890.5",
    ),
    *("1.5D", "0.1D", "-0.0D", "1e1", "2.5e0", "1e-1", "9007199254740993D"),
    *("'5'", "'-17'", "'2.5'", "'0.10'", "'abc'", "' 5'", "'1e3'", "'+4'"),
]
_DATES = [
    "date '2026-01-31'",
    "date '2024-02-29'",
    "date '1582-10-04'",
    "date '0001-01-02'",
    "date '9999-12-30'",
    "date '1969-12-31'",
]
_LOCAL = [
    "timestamp_ntz '2026-03-29 02:30:00'",
    "timestamp_ntz '1969-12-31 23:59:59.999999'",
    "timestamp '2026-03-29 00:30:00Z'",
]
_LOCAL += ["timestamp '1969-12-31 23:59:59.999999+05:30'", "timestamp '2026-03-29 02:30:00'"]
_UNITS = ["day", "days", "month", "year", "hour", "minutes", "second"]
_TYPES = [
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "double",
    "decimal(10, 2)",
    "decimal(38, 6)",
    "decimal",
    "string",
    "float",
]


def _number(source, depth):
    if not depth or source.random() < 0.15:
        return source.choice(_LEAVES)
    shape = source.random()
    if shape < 0.6:
        left, right = _number(source, depth - 1), _number(source, depth - 1)
        return f"({left} {source.choice(['+', '-', '*', '/', '%', 'div'])} {right})"
    if shape < 0.75:
        return f"(-({_number(source, depth - 1)}))"
    word = source.choice(["cast", "try_cast"])
    return f"{word}({_number(source, depth - 1)} as {source.choice(_TYPES)})"


def _moment(source, depth):
    start = (
        source.choice(_DATES if source.random() < 0.6 else _LOCAL)
        if depth < 2
        else f"({_moment(source, depth - 1)})"
    )
    amount = source.choice([1, 2, 11, 31, 365, "'1'", "'-3'", 1_000_000])
    shape = source.random()
    if shape < 0.7:
        return f"{start} {source.choice('+-')} interval {amount} {source.choice(_UNITS)}"
    if shape < 0.85:
        return f"{start} {source.choice('+-')} {source.choice(['1', '5', '400', '3S', '2L'])}"
    return f"{source.choice(['date_add', 'date_sub'])}({start}, {source.choice(['1', '-5', '400', '1 + 1'])})"


def _expressions():
    source = random.Random(16)
    for _ in range(900):
        yield _number(source, source.randint(1, 3))
    for _ in range(300):
        yield _moment(source, source.randint(1, 2))
    for _ in range(100):
        yield f"{_number(source, 1)} {source.choice(['=', '<>', '<', '<=', '>', '>=', '<=>'])} {_number(source, 1)}"


CONSTANTS = sorted(set(_expressions()))
"""As SQL that Spark may read, of any type."""
