"""Deletion vectors compared with rewriting: the same engine and tables, with and without deletion vectors."""

import shutil
import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import delvec
from benchmarks.dml_contenders import Contender
from benchmarks.dml_tables import Bin, Put, listing, listing_once_settled, put_since, variant
from benchmarks.measure import timed
from benchmarks.tables import PEOPLE, clone, people_batches

__all__ = ["FILES", "OPERATIONS", "SHARES", "Cell", "cells", "sweep"]

FILES = 4
OPERATIONS = ("DELETE", "UPDATE", "MERGE")
SHARES = (0.0, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.95)
"""Shares of the rows of each file; 0 is a single row of one file."""
_SLOWER = 1.05
_NOISE = 0.003
_MORE = {"DELETE": 0, "UPDATE": 1, "MERGE": 1}


@dataclass
class Cell:
    """One operation on one table, with and without deletion vectors.

    Attributes:
        rows: of each file.
        share: share of changed rows.
        operation: one of :data:`OPERATIONS`.
        seconds: of the runs by template, ``dv`` or ``plain``.
        puts: objects written by one run, by template.
        written: their bytes.
    """

    rows: int
    share: float
    operation: str
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"dv": [], "plain": []})
    puts: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """The time with deletion vectors relative to rewriting."""
        return statistics.median(self.seconds["dv"]) / statistics.median(self.seconds["plain"])

    @property
    def is_no_slower(self) -> bool:
        """Whether deletion vectors are no slower, within 5 % and 3 ms, the variation between runs."""
        fast, slow = (statistics.median(self.seconds[each]) for each in ("dv", "plain"))
        return fast <= slow * _SLOWER + _NOISE

    @property
    def is_no_costlier(self) -> bool:
        """Whether deletion vectors write no more objects; UPDATE and MERGE may write one more."""
        return self.puts["dv"] <= self.puts["plain"] + _MORE[self.operation]

    def to_json(self) -> dict[str, Any]:
        """Return the arguments of ``Cell(**...)``."""
        return asdict(self)


def cells(sizes: Sequence[int]) -> Iterator[Cell]:
    """Yield the cells to measure."""
    for rows in sizes:
        for operation in OPERATIONS:
            for share in SHARES:
                yield Cell(rows, share, operation)


def sweep(
    contender: Contender,
    scratch: Path,
    sizes: Sequence[int],
    runs: int,
    limit: float,
    say: Callable[[str], None] = print,
) -> list[Cell]:
    """Measure all cells on DuckDB; runs in the worker.

    Args:
        contender: Delvec on DuckDB.
        scratch: for tables.
        sizes: rows per file.
        runs: runs per cell and template, in turn, after one untimed run.
        limit: maximum seconds per cell; at least one run per template.
        say: reports progress.
    """
    lake: delvec.Connection = contender.lake  # type: ignore[attr-defined]
    found = []
    templates: dict[str, Path] = {}
    made, done = 0, Bin()
    for cell in cells(sizes):
        if cell.rows != made:
            made = cell.rows
            templates = _templates(lake, scratch / f"sweep-{made}", made)
        for name, template in templates.items():
            _, (cell.puts[name], cell.written[name]) = _once(lake, scratch, template, cell, done, look=True)
        started = time.perf_counter()
        while len(cell.seconds["dv"]) < runs and time.perf_counter() - started < limit:
            for name, template in templates.items():
                seconds, _ = _once(lake, scratch, template, cell, done)
                cell.seconds[name].append(seconds)
        say(f"sweep: {cell.operation} {cell.share:.1%} of {cell.rows:,} rows: {cell.ratio:.2f}")
        found.append(cell)
    return found


def _templates(lake: delvec.Connection, folder: Path, rows: int) -> dict[str, Path]:
    """Create a table of FILES files of ``rows`` rows each, with ids from 0, with and without deletion vectors."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    table = lake.create_table(folder / "made", PEOPLE)
    for part in people_batches(rows * FILES, rows):
        table.append(part)
    return {name: variant(folder / "made", folder / name, name) for name in ("dv", "plain")}


def _once(
    lake: delvec.Connection, scratch: Path, template: Path, cell: Cell, done: Bin, *, look: bool = False
) -> tuple[float, Put]:
    path = clone(template, scratch / f"cell-{uuid.uuid4()}")
    table = lake.table(str(path))
    table.version()
    job = _job(table, cell)
    before = listing(path) if look else {}
    seconds = timed(job)
    put = put_since(before, listing_once_settled(path)) if look else (0, 0)
    done.put(path)
    return seconds, put


def _job(table: delvec.DeltaTable, cell: Cell) -> Callable[[], object]:
    predicate = _predicate(cell)
    if cell.operation == "DELETE":
        return partial(table.delete, predicate)
    if cell.operation == "UPDATE":
        return partial(table.update, {"salary": "salary + 1"}, predicate)
    source = _source(cell)
    merge = table.merge(source, "target.id = source.id")
    return merge.when_matched_update({"salary": "source.salary"}).when_not_matched_insert_all().execute


def _predicate(cell: Cell) -> str:
    if not cell.share:
        return f"id = {cell.rows // 2}"
    # Matching rows are spread evenly over each file.
    return f"id % 1000 < {round(cell.share * 1000)}"


def _source(cell: Cell) -> pa.Table:
    ids = np.arange(cell.rows * FILES)
    ids = (
        ids[cell.rows // 2 : cell.rows // 2 + 1]
        if not cell.share
        else ids[ids % 1000 < round(cell.share * 1000)]
    )
    columns = {field.name: pa.nulls(len(ids), field.type) for field in PEOPLE}
    columns |= {"id": pa.array(ids), "salary": pc.cast(pa.array(ids % 1000), pa.int32())}
    return pa.table(columns, schema=PEOPLE)
