"""One-row UPDATE and MERGE of a table of two rows, by its number of columns: ``python -m benchmarks.wide_tables [COLUMNS ...]``.

Prints a table for ``docs/benchmarks.md``. CPU seconds of the process with all its threads, the least of three runs: other load
on the machine hardly affects them.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import delvec

_COLUMNS = (500, 2000)
_RUNS = 3


def main() -> None:
    """Measure, and print a row for each number of columns."""
    sys.stdout.write("| columns | UPDATE | MERGE |\n|---|---|---|\n")
    for columns in map(int, sys.argv[1:] or _COLUMNS):
        with tempfile.TemporaryDirectory() as folder, delvec.connect() as lake:
            rows = _rows(columns)
            table = lake.create_table(Path(folder) / "wide", rows.schema)
            table.append(rows)
            update = _seconds(lambda table=table: table.update({"c0": "c0 + 1"}, "id = 1"))
            merge = _seconds(lambda table=table, rows=rows: _merge(table, rows))
        sys.stdout.write(f"| {columns:,} | {update:.2f} s | {merge:.2f} s |\n")
        sys.stdout.flush()


def _rows(columns: int) -> pa.Table:
    numbers, texts = pa.array([1, 2], pa.int64()), pa.array(["a", "b"])
    named = {f"c{number}": (numbers, texts)[number % 2] for number in range(columns - 1)}
    return pa.table({"id": numbers, **named})


def _merge(table: delvec.DeltaTable, rows: pa.Table) -> None:
    merge = table.merge(rows, "source.id = target.id").when_matched_update_all()
    merge.when_not_matched_insert_all().execute()


def _seconds(command: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(_RUNS):
        start = time.process_time()
        command()
        best = min(best, time.process_time() - start)
    return best


if __name__ == "__main__":
    main()
