"""Spark's ``sequence()`` in DuckDB's SQL, whose series of numbers go only up, and whose series of dates are of times.

Tested in `tests/integration/engines/test_spark_values.py`.
"""

from typing import Final

from sqlglot import exp

__all__ = ["dates", "whole_numbers"]

_ERROR: Final = "error('a sequence cannot lead from its first value to its last by its step')"
_DAYS: Final = {"DAY": 1, "DAYS": 1, "WEEK": 7, "WEEKS": 7}
_MONTHS: Final = {"MONTH": 1, "MONTHS": 1, "YEAR": 12, "YEARS": 12}


def whole_numbers(start: str, end: str, step: str | None, to: str) -> str:
    """Return the SQL of the numbers from ``start`` to ``end``, of which ``to`` is the type."""
    by = step or f"(CASE WHEN {start} <= {end} THEN 1 ELSE -1 END)"
    is_wrong = (
        f"{by} > 0 AND {start} > {end} OR {by} < 0 AND {start} < {end} OR {by} = 0 AND {start} <> {end}"
    )
    numbers = f"CASE WHEN {by} = 0 THEN [{start}] ELSE generate_series({start}, {end}, {by}) END"
    return _checked(f"{start} + {end} + {by} IS NULL", is_wrong, f"CAST({numbers} AS {to}[])")


def dates(start: str, end: str, step: exp.Expr | None) -> str | None:
    """Return the SQL of the dates from ``start`` to ``end``; None for steps that are no literal days, weeks, months or years."""
    is_null = f"{start} IS NULL OR {end} IS NULL"
    if step is None:
        by = f"(CASE WHEN {start} <= {end} THEN 1 ELSE -1 END)"
        days = f"generate_series(0, abs({end} - {start}))"
        return _checked(
            is_null,
            "FALSE",
            f"list_transform({days}, lambda delvec_n : {start} + CAST(delvec_n * {by} AS INTEGER))",
        )
    unit = step.text("unit").upper() if isinstance(step, exp.Interval) else ""
    count = step.this.name if isinstance(step, exp.Interval) and isinstance(step.this, exp.Literal) else ""
    if not count.isdecimal() or int(count) == 0 or unit not in {*_DAYS, *_MONTHS}:
        return None
    if unit in _DAYS:
        step_days = int(count) * _DAYS[unit]
        series = f"generate_series(0, ({end} - {start}) // {step_days})"
        sequence = (
            f"list_transform({series}, lambda delvec_n : {start} + CAST(delvec_n * {step_days} AS INTEGER))"
        )
    else:
        # Each date is counted from the first, whose day may be the 31st.
        months = int(count) * _MONTHS[unit]
        series = f"generate_series(0, date_diff('month', {start}, {end}) // {months})"
        moved = f"CAST({start} + to_months(CAST(delvec_n * {months} AS INTEGER)) AS DATE)"
        sequence = f"list_filter(list_transform({series}, lambda delvec_n : {moved}), lambda delvec_date : delvec_date <= {end})"
    return _checked(is_null, f"{start} > {end}", sequence)


def _checked(is_null: str, is_wrong: str, found: str) -> str:
    return f"(CASE WHEN {is_null} THEN NULL WHEN {is_wrong} THEN {_ERROR} ELSE {found} END)"
