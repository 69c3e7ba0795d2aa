"""Scans of a ten-million-row file with deleted rows."""

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.contenders import Contender
from benchmarks.measure import Figure, timed
from benchmarks.tables import clone

__all__ = ["measure_scans"]

Say = Callable[[str], None]


def measure_scans(
    contenders: Sequence[Contender],
    templates: dict[str, Path],
    scratch: Path,
    *,
    warm: int,
    runs: int,
    say: Say,
) -> list[Figure]:
    """Return a figure per share of deleted rows and contender for a scan of all columns.

    Each contender scans the table from which it deleted rows.
    """
    figures = []
    for job, predicate in {
        "scan, 0 % deleted": None,
        "scan, 1 % deleted": "id % 100 = 42",
        "scan, 30 % deleted": "id % 10 < 3",
    }.items():
        found = {contender.name: Figure(job, contender.name) for contender in contenders}
        tables = {}
        for contender in contenders:
            table = clone(templates[contender.template], scratch / f"scanned-{uuid.uuid4()}")
            if predicate is not None:
                contender.delete(table, predicate)
            tables[contender.name] = table
        counts = {contender.name: contender.read_count(tables[contender.name]) for contender in contenders}
        if len(set(counts.values())) != 1:
            raise SystemExit(f"{job}: the contenders disagree on the rows that are left: {counts}")
        for contender in contenders:
            for _ in range(warm):
                contender.scan(tables[contender.name])
        for _ in range(runs):
            for contender in contenders:
                table = tables[contender.name]
                found[contender.name].seconds.append(timed(lambda c=contender, t=table: c.scan(t)))
        for figure in found.values():
            say(f"{figure.job}, {figure.contender}: {figure.median:.2f} s ({figure.spread})")
        figures += found.values()
    return figures
