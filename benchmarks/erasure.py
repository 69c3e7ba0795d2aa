"""Erasure of some rows in each file of a table, from the request until no data file has a byte of them."""

import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.contenders import CODEC
from benchmarks.dml_contenders import PEER, Contender
from benchmarks.dml_tables import FEATURES, listing, put_since, variant
from benchmarks.dml_worker import Worker
from benchmarks.measure import timed
from benchmarks.process_tree import ProcessTree
from benchmarks.small_writers import SmallWriter
from benchmarks.tables import clone, made_once

__all__ = ["Erasure", "Subjects", "erased", "marks_left", "subjects"]

STEPS = ("erase", "purge", "vacuum")


@dataclass
class Erasure:
    """The erasure by one contender.

    Attributes:
        contender: its name.
        seconds: of each step.
        written: bytes that each step wrote.
        read: bytes that its processes have read by system calls, of all steps.
        left: number of erased texts that are still in a data file.
        failure: why there is no more.
        run: the run that measured it; see ``provenance.this_run``.
    """

    contender: str
    seconds: dict[str, float] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    read: int = 0
    left: int | None = None
    failure: str | None = None
    run: str = ""

    @property
    def total(self) -> float | None:
        """Seconds of all steps, or None if it failed or bytes are left."""
        return sum(self.seconds.values()) if self.left == 0 and self.failure is None else None


@dataclass(frozen=True)
class Subjects:
    """Tables of persons, each with a text that no other row has, and the keys of some of them.

    Attributes:
        tables: the same rows by kind of table: ``dv`` or ``plain``.
        keys: a Parquet file of ids.
        marks: the texts of these rows.
    """

    tables: dict[str, Path]
    keys: Path
    marks: pa.Array


def subjects(kept: Path, scratch: Path, files: int, file_rows: int, keys: int) -> Subjects:
    """Return tables of as many files; delta-spark writes them, once."""

    def make(folder: Path) -> None:
        with Worker(PEER, scratch / "maker") as maker:
            maker.call(_write, (folder / "table").absolute(), files, file_rows)

    made = made_once(kept / f"subjects-{files}-{file_rows}-{CODEC}", make)
    tables = {
        kind: variant(made / "table", scratch / f"subjects-{files}-{kind}", kind)
        for kind in FEATURES
        if "feed" not in kind
    }
    ids = _erased_ids(files * file_rows, keys)
    path = scratch / f"keys-{files}.parquet"
    pq.write_table(pa.table({"id": ids}), path)
    return Subjects(tables, path, _marks(ids))


def _erased_ids(rows: int, keys: int) -> np.ndarray:
    """Return ids that are spread over the whole table, in no order."""
    draw = np.random.default_rng(13)
    ids = np.arange(keys) * (rows // keys) + draw.integers(0, rows // keys, keys)
    return draw.permutation(ids)


def _marks(ids: np.ndarray) -> pa.Array:
    """Return a text for each id that no other has."""
    return pa.array([f"person-{each:09}-{each * 2654435761 % 2**32:08x}" for each in ids.tolist()])


def _rows(files: int, file_rows: int) -> Iterator[pa.Table]:
    draw, step = np.random.default_rng(12), 100 * file_rows
    for start in range(0, files * file_rows, step):
        ids = np.arange(start, min(start + step, files * file_rows))
        columns = {
            "id": ids,
            "mark": _marks(ids),
            "country": pa.array(["CH", "DE", "FR", "NZ"]).take(pa.array(draw.integers(0, 4, len(ids)))),
            "amount": draw.normal(size=len(ids)),
            "visits": draw.integers(0, 10_000, len(ids)).astype(np.int32),
        }
        yield pa.table(columns)


def _write(contender: Contender, scratch: Path, table: Path, files: int, file_rows: int) -> None:
    """Write the table, ordered by id; runs in a worker."""
    source, writer = scratch / "subjects.parquet", None
    for rows in _rows(files, file_rows):
        writer = writer or pq.ParquetWriter(source, rows.schema)
        writer.write_table(rows)
    if writer is not None:
        writer.close()
    frame = contender.spark.read.parquet(str(source)).coalesce(1)
    frame.write.format("delta").option("maxRecordsPerFile", file_rows).save(str(table))
    source.unlink()


def erased(
    contender: SmallWriter, scratch: Path, template: Path, keys: Path, warm: tuple[Path, Path]
) -> tuple[Erasure, Path]:
    """Erase the rows with these keys; runs in the worker.

    Args:
        contender: what erases.
        scratch: for the copies of tables.
        template: the table.
        keys: a Parquet file of ids.
        warm: a small table and keys, for a run that is not measured.

    Returns:
        What it took, and the table afterwards.
    """
    _run(contender, scratch, *warm)
    contender.settle()
    tree = ProcessTree(os.getpid())
    before = tree.read()
    measured, table = _run(contender, scratch, template, keys)
    measured.read = tree.read() - before
    return measured, table


def _run(contender: SmallWriter, scratch: Path, template: Path, keys: Path) -> tuple[Erasure, Path]:
    # Contenders cache by path.
    table = clone(template, scratch / f"table-{uuid.uuid4()}")
    contender.touch(table)
    measured = Erasure(contender.name)
    for step in contender.steps:
        if step == "vacuum":
            # Retention of nothing is of files that are older than now, by a clock that counts milliseconds.
            time.sleep(0.01)
        before = listing(table)
        measured.seconds[step] = timed(partial(getattr(contender, step), table, keys))
        measured.written[step] = put_since(before, listing(table))[1]
    return measured, table


def marks_left(table: Path, marks: pa.Array) -> int:
    """Return how many of the texts are still in a data file, of those that no version names too."""
    left = 0
    for file in table.rglob("*.parquet"):
        if "_delta_log" not in file.parts:
            found = pq.read_table(file, columns=["mark"])["mark"].cast(pa.string())
            left += int(pc.sum(pc.is_in(found, marks)).as_py() or 0)
    return left
