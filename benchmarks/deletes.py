"""DELETE of one row, one per cent and half of a ten-million-row file, then scans of what is left."""

import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.contenders import Contender
from benchmarks.measure import Figure, timed
from benchmarks.tables import clone, disk_usage

__all__ = ["measure_deletes", "measure_scans"]

Say = Callable[[str], None]
REWRITES = 3


def predicates(rows: int) -> dict[str, str]:
    """Return the condition of each job; the matching rows are spread over the file."""
    return {
        "DELETE 1 row": f"id = {rows // 2 + 17}",
        "DELETE 1 %": "id % 100 = 42",
        "DELETE 50 %": "id % 2 = 1",
    }


def _delete_once(contender: Contender, template: Path, scratch: Path, predicate: str) -> tuple[float, int]:
    # A path is used once: systems remember what they saw at it.
    table = clone(template, scratch / f"deleted-{uuid.uuid4()}")
    contender.touch(table)
    before = disk_usage(table)
    seconds = timed(lambda: contender.delete(table, predicate))
    written = disk_usage(table) - before
    shutil.rmtree(table)
    return seconds, written


def measure_deletes(
    contenders: Sequence[Contender],
    templates: dict[str, Path],
    scratch: Path,
    *,
    rows: int,
    warm: int,
    runs: int,
    say: Say,
) -> list[Figure]:
    """Return a figure per job and contender.

    Contenders that rewrite take tens of seconds each time: they get a fifth of the untimed runs, and REWRITES runs.
    """
    figures = []
    for job, predicate in predicates(rows).items():
        found = {contender.name: Figure(job, contender.name) for contender in contenders}
        for contender in contenders:
            rewrites = contender.template == "plain"
            for _ in range(max(1, warm // 5) if rewrites else warm):
                _delete_once(contender, templates[contender.template], scratch, predicate)
        for number in range(runs):
            for contender in contenders:
                if contender.template == "plain" and number >= REWRITES:
                    continue
                template = templates[contender.template]
                seconds, written = _delete_once(contender, template, scratch, predicate)
                found[contender.name].seconds.append(seconds)
                found[contender.name].written.append(written)
        for figure in found.values():
            say(
                f"{figure.job}, {figure.contender}: {figure.median:.2f} s ({figure.spread}), {figure.bytes:,} B"
            )
        figures += found.values()
    return figures


def measure_scans(
    contenders: Sequence[Contender],
    templates: dict[str, Path],
    scratch: Path,
    *,
    warm: int,
    runs: int,
    say: Say,
) -> list[Figure]:
    """Return a figure per deleted share and contender for a scan of all columns.

    Each contender scans the table that it deleted from itself.
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
        counts = {contender.name: contender.count(tables[contender.name]) for contender in contenders}
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
