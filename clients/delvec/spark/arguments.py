"""Arguments of the wrong type raise ``TypeError`` and ``ValueError``, as in delta-spark.

Arguments with an invalid meaning raise Delvec's own errors.
"""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column

__all__ = ["check_condition", "check_kind", "check_source", "check_value", "check_values"]


def check_kind(given: Any, kind: type | tuple[type, ...], what: str, wanted: str) -> None:
    """Raise TypeError if an argument has the wrong type; ``wanted`` describes the right one."""
    if not isinstance(given, kind):
        raise TypeError(f"{what} must be {wanted}, not {_shown(given)}")


def check_condition(given: Any, name: str = "condition") -> None:
    """Raise TypeError if a condition is neither a string nor a Column; None means no condition."""
    if given is not None and not _is_expression(given):
        raise TypeError(f"{name} must be a Spark SQL Column or a string, not {_shown(given)}")


def check_values(values: Any, name: str) -> None:
    """Check a dict of columns and their new values.

    Raises:
        ValueError: they are not given.
        TypeError: it is not a dict from names to strings or Columns.
    """
    if values is None:
        raise ValueError(f"{name} cannot be None: give a dict such as {{'age': 'age + 1'}}")
    if not isinstance(values, Mapping):
        raise TypeError(f"{name} must be a dict, such as {{'age': 'age + 1'}}, not {_shown(values)}")
    for column, value in values.items():
        if not isinstance(column, str):
            raise TypeError(
                f"Keys of dict in {name} must contain only names of columns, not {_shown(column)}"
            )
        if not _is_expression(value):
            raise TypeError(
                f"Values of dict in {name} must contain only Spark SQL Columns and strings, not {_shown(value)} for "
                f"{column}; give numbers as strings, too"
            )


def check_source(source: Any) -> None:
    """Check the source of a MERGE: a DataFrame, or what else Delvec accepts.

    Raises:
        ValueError: it is None.
        TypeError: it is not tabular.
    """
    if source is None:
        raise ValueError("source cannot be None")
    has_rows = any(
        hasattr(source, name) for name in ("schema", "columns", "__arrow_c_stream__", "__arrow_c_array__")
    )
    if not has_rows and not isinstance(source, list):
        raise TypeError(
            "source must be DataFrame, an Arrow table, a pandas or polars DataFrame or a list of dictionaries, not "
            f"{_shown(source)}"
        )


def check_value(given: Any, kind: type, name: str, wanted: str) -> None:
    """Raise ValueError, as delta-spark does for some arguments, if the type is wrong; see :func:`check_kind`."""
    # bool is a subclass of int.
    if not isinstance(given, kind) or (kind is int and isinstance(given, bool)):
        # Programs look for delta-spark's words.
        raise ValueError(f"{name} needs to be {wanted} but got '{type(given)}': {repr(given)[:80]}")


def _is_expression(given: Any) -> bool:
    # Connect has its own class Column.
    return isinstance(given, str | Column) or hasattr(given, "_expr")


def _shown(given: Any) -> str:
    return f"{repr(given)[:80]} ({type(given).__name__})"
