"""Where rows of a command go: to a person, as JSON to a program, or into a file."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import pyarrow as pa
import typer

from delvec.cli import files
from delvec.cli.output import print_json, print_table, rows_of, say

__all__ = ["Destination", "Limit", "Out"]

Limit: TypeAlias = Annotated[int | None, typer.Option(min=0, help="At most so many rows.")]
Out: TypeAlias = Annotated[
    Path | None, typer.Option(help="Write a file instead: .parquet, .csv, .arrow, .json or .jsonl.")
]

_SHOWN: Final = 100
"""Rows printed for a person who did not say how many."""


class Destination:
    """A place for rows; made before they are read, so that a file that cannot be is told at once.

    Args:
        out: the file, or None.
        limit: of rows, or None.
        as_json: whether what is printed is for a program.

    Raises:
        typer.BadParameter: the file's name does not say a format, or there is no such directory.
    """

    def __init__(self, out: Path | None, limit: int | None, *, as_json: bool) -> None:
        self._out = out
        self._limit = limit
        self._as_json = as_json
        self._write: Callable[[pa.RecordBatchReader], int] | None = None if out is None else files.writer(out)

    def take(self, rows: pa.RecordBatchReader) -> None:
        """Read and hand over rows, and no more of them than are wanted."""
        found = files.head(rows, self._limit)
        if self._write is not None:
            count = self._write(found)
            if self._as_json:
                print_json({"rows": count, "out": str(self._out)})
            else:
                say(f"wrote {rows_of(count)} to {self._out}")
        elif self._as_json:
            files.print_rows(found)
        else:
            self._show(files.head(found, _SHOWN + 1 if self._limit is None else self._limit))

    def _show(self, found: pa.RecordBatchReader) -> None:
        rows = found.read_all()
        shown = rows.slice(0, _SHOWN if self._limit is None else self._limit)
        print_table(
            shown.column_names,
            zip(*(column.to_pylist() for column in shown.columns), strict=True),
            right=[field.name for field in shown.schema if files.is_number(field.type)],
        )
        if shown.num_rows < rows.num_rows:
            say(f"the first {_SHOWN} rows; --limit or --out gives more")
