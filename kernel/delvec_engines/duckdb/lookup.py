"""Lookup of values that differ by file or row: a one-row table of lists, used by the SQL of a scan.

DuckDB evaluates the entry at a file's position once per vector of rows, and compares the file's name with the planned
name at that position each time.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa

from delvec_engines.internal_names import INTERNAL
from delvec_engines.repeated_rows import RepeatedRows

__all__ = [
    "FILENAME",
    "LOOKUP",
    "add_occurrences",
    "as_row",
    "joined",
    "looked_up",
    "quoted",
    "string_literal",
]

LOOKUP: Final = INTERNAL("lookup")
FILENAME: Final = INTERNAL("filename")

_KEY: Final = INTERNAL("key")
_VALUES: Final = INTERNAL("value") + "_"


def _at_file(column: str) -> str:
    """Return the SQL of the lookup's entry for the row's file."""
    return f"l.{column}[CAST(f.file_index AS BIGINT) + 1]"


def looked_up(column: str) -> str:
    """Return the same entry, with an error at run time if the file is not the one planned at its position."""
    message = string_literal("delvec: DuckDB read a file that is not the one planned at this position: ")
    return (
        f"CASE WHEN {_at_file('names')} = f.{FILENAME} THEN {_at_file(column)} "
        f"ELSE error({message} || f.{FILENAME}) END"
    )


def add_occurrences(files: pa.Table, lookup: dict[str, pa.Array]) -> str:
    """Add the occurrences of rows to the lookup; return the column that a scan needs for :func:`joined`."""
    positions = range(files.num_rows)
    found = RepeatedRows.of(files, positions)
    lookup["place"] = pa.array(positions, pa.int64())
    lookup[_KEY] = pa.array(found.keys)
    lookup.update({f"{_VALUES}{name}": values for name, values in found.columns.items()})
    return f"{RepeatedRows.key(looked_up('place'), 'f.file_row_number')} AS {_KEY}"


def joined(scan: str, columns: Iterable[str]) -> str:
    """Return a SELECT that repeats each row of ``scan`` per occurrence, and adds these columns."""
    values = "".join(f", unnest({quoted(_VALUES + name)}) AS {quoted(name)}" for name in columns)
    occurrences = f"SELECT unnest({_KEY}) AS {_KEY}{values} FROM {LOOKUP}"  # noqa: S608 - made of quoted parts
    return f"SELECT * FROM ({scan}) AS s JOIN ({occurrences}) AS o USING ({_KEY})"  # noqa: S608


def as_row(lookup: Mapping[str, pa.Array]) -> pa.Table:
    """Return columns as one row of lists."""
    return pa.table({name: _as_one_list(each) for name, each in lookup.items()})


def _as_one_list(column: pa.Array) -> pa.Array:
    """Return the column as one row that holds a list."""
    kind = pa.large_list(column.type)
    return pa.LargeListArray.from_arrays(pa.array([0, len(column)], pa.int64()), column, type=kind)


def quoted(name: str) -> str:
    """Return an identifier for SQL."""
    return '"' + name.replace('"', '""') + '"'


def string_literal(text: str) -> str:
    """Return a string for SQL."""
    return "'" + text.replace("'", "''") + "'"
