"""Micro-batches: MERGEs of a hundred changes each into a large table, one after the other."""

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.dml_tables import listing, put_since
from benchmarks.measure import timed
from benchmarks.small_writers import SmallWriter
from benchmarks.tables import PEOPLE, people_batches

__all__ = ["ROWS", "Batches", "Readings", "applied", "compacted", "read", "write_changes"]

UPDATES, DELETES, INSERTS = 80, 10, 10
ROWS = UPDATES + DELETES + INSERTS
_OF_INSERTED = 10
_ENDS = 100
_LOOK_UPS = 5
_STEP = 7919
"""A prime, so that its multiples visit every group of a hundred ids once, far from each other."""


@dataclass
class Readings:
    """What reading a table takes.

    Attributes:
        scan: seconds of a scan of all columns.
        look_up: the median seconds of reading one row by its id.
    """

    scan: float
    look_up: float


@dataclass
class Batches:
    """The batches of one contender.

    Attributes:
        contender: its name.
        seconds: of each batch.
        versions: of the table after each batch.
        objects: that all batches wrote.
        written: their bytes.
        readings: before and after all batches, and after OPTIMIZE.
        optimize: seconds of OPTIMIZE.
        failure: why there is no more.
        run: the run that measured it; see ``provenance.this_run``.
    """

    contender: str
    seconds: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    objects: int = 0
    written: int = 0
    readings: dict[str, Readings] = field(default_factory=dict)
    optimize: float | None = None
    failure: str | None = None
    run: str = ""

    def __post_init__(self) -> None:
        for when, each in self.readings.items():
            if isinstance(each, Mapping):
                self.readings[when] = Readings(**each)

    def percentile(self, percent: int) -> float:
        """The ``percent``-th percentile of the batches, in seconds; of few batches the slowest."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]

    @property
    def ends(self) -> tuple[float, float]:
        """The medians of the first and of the last hundred batches, or of both halves."""
        several = min(_ENDS, max(1, len(self.seconds) // 2))
        return statistics.median(self.seconds[:several]), statistics.median(self.seconds[-several:])

    def add(self, more: tuple[list[float], list[int], tuple[int, int]]) -> None:
        """Add what :func:`applied` returned."""
        seconds, versions, (objects, written) = more
        self.seconds += seconds
        self.versions += versions
        self.objects += objects
        self.written += written


def write_changes(folder: Path, rows: int, count: int) -> list[Path]:
    """Write batches of changes of a table with ids from 0 to ``rows``, a Parquet file each; reproducible.

    A batch updates rows all over the table, some of them inserted by earlier batches, deletes rows that no batch
    updates, and inserts new ones.
    """
    folder.mkdir(parents=True, exist_ok=True)
    people = pa.concat_tables(people_batches(count * ROWS))
    paths = []
    for number, (ids, kinds) in enumerate(_changes(rows, count)):
        changes = people.slice(number * ROWS, len(ids)).set_column(0, PEOPLE.field(0), pa.array(ids))
        paths.append(folder / f"batch-{number:05}.parquet")
        pq.write_table(changes.append_column("op", pa.array(kinds)), paths[-1])
    return paths


def _changes(rows: int, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the ids and the operations of each batch."""
    draw = np.random.default_rng(11)
    hundreds = rows // 100
    for number in range(count):
        again = min(_OF_INSERTED, number * INSERTS)
        several = UPDATES - again
        updated = (np.arange(several) + draw.random(several)) * (rows / several)
        updated = updated.astype(np.int64)
        # Ids that end with 03 are for DELETE only: each is deleted once.
        updated = np.unique(np.where(updated % 100 == 3, updated + 1, updated))
        inserted = rows + draw.choice(number * INSERTS, again, replace=False) if again else np.arange(0)
        deleted = (np.arange(number * DELETES, (number + 1) * DELETES) * _STEP % hundreds) * 100 + 3
        new = rows + np.arange(number * INSERTS, (number + 1) * INSERTS)
        ids = np.concatenate([updated, inserted, deleted, new])
        kinds = np.repeat(["U", "D", "I"], [len(updated) + again, DELETES, INSERTS])
        order = draw.permutation(len(ids))
        yield ids[order], kinds[order]


def applied(
    contender: SmallWriter,
    scratch: Path,  # noqa: ARG001 - a worker passes it
    table: Path,
    batches: Sequence[Path],
    limit: float,
) -> tuple[list[float], list[int], tuple[int, int]]:
    """Apply batches until ``limit`` seconds are over, at least one; runs in the worker.

    Returns:
        The seconds of each, the table's version after each, and the objects and bytes that all wrote.
    """
    before = listing(table)
    seconds: list[float] = []
    versions: list[int] = []
    started = time.perf_counter()
    for batch in batches:
        seconds.append(timed(partial(contender.apply, table, batch)))
        versions.append(max(int(file.stem) for file in (table / "_delta_log").glob("*.json")))
        if time.perf_counter() - started > limit:
            break
    return seconds, versions, put_since(before, listing(table))


def read(
    contender: SmallWriter,
    scratch: Path,  # noqa: ARG001 - a worker passes it
    table: Path,
    rows: int,
    untimed: int,
) -> Readings:
    """Scan the table, and look up rows; runs in the worker.

    Raises:
        ValueError: a row is not there exactly once.
    """
    for _ in range(untimed):
        contender.scan(table)
        contender.look_up(table, 0)
    scan = timed(partial(contender.scan, table))
    seconds = []
    # No batch deletes an id that ends with 17.
    for key in (np.arange(_LOOK_UPS) * (rows // 100 // _LOOK_UPS) * 100 + 17).tolist():
        started = time.perf_counter()
        count = contender.look_up(table, key)
        seconds.append(time.perf_counter() - started)
        if count != 1:
            raise ValueError(f"{count} rows have id {key}")
    return Readings(scan, statistics.median(seconds))


def compacted(contender: SmallWriter, scratch: Path, table: Path) -> float:  # noqa: ARG001
    """Run OPTIMIZE; return its seconds; runs in the worker."""
    return timed(partial(contender.compact, table))
