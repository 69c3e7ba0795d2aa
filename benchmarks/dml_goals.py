"""Goals for the cost of row changes, and whether they are met."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.dml_figures import DmlFigure, Figures
from benchmarks.sweep import Cell

__all__ = ["FRESH", "REWRITER", "SCANS", "STREAM_READ", "STREAM_WRITE", "WORN", "Goal", "goals"]

SPARK, SPARK_JOBS, DUCKDB = "Delvec on Spark", "Delvec on Spark, as jobs", "Delvec on DuckDB"
PEER, REWRITER = "delta-spark with DVs", "delta-spark without DVs"
SCANS, WORN, FRESH = "scan after ten DELETE 1 %", "after ten deletes", "the same rows afresh"
STREAM_WRITE, STREAM_READ = "stream into a table", "stream out of a table"
_ONE_ROW, _PERCENT = 3.0, 3.0
_DUCKDB = 3.0
_SWEEP = 0.99
_READING = 1.3


@dataclass(frozen=True)
class Goal:
    """A goal and its result.

    Attributes:
        text: the goal.
        misses: descriptions of what misses the goal; None if it was not measured.
        found: the decisive figure.
    """

    text: str
    misses: Sequence[str] | None
    found: str

    @property
    def verdict(self) -> str:
        """Met, or not met."""
        if self.misses is None:
            return "not measured"
        return "met" if not self.misses else "**not met**"


def goals(figures: Figures, cells: Sequence[Cell]) -> Iterator[Goal]:
    """Yield all goals."""
    changing = [
        pair
        for pair in figures.pairs()
        if pair[0].startswith(("DELETE", "UPDATE", "MERGE", "append", STREAM_WRITE))
    ]
    one = [pair for pair in changing if pair[0].endswith(" 1 row")]
    percent = [pair for pair in changing if pair[0].endswith(" 1 %") or pair[0].startswith("MERGE")]
    everything = list(figures.pairs())
    yield _faster(
        f"Spark, 1 row: {_ONE_ROW:g} times faster than {PEER}", figures, one, SPARK, (PEER,), _ONE_ROW
    )
    yield _faster(
        f"Spark, 1 % and MERGE: {_PERCENT:g} times faster than {PEER}",
        figures,
        percent,
        SPARK,
        (PEER,),
        _PERCENT,
    )
    yield _faster(f"Spark: never slower than {PEER}", figures, everything, SPARK, (PEER,), 1.0)
    yield _faster(
        f"DuckDB: {_DUCKDB:g} times faster than the faster of both as Spark jobs",
        figures,
        everything,
        DUCKDB,
        (PEER, SPARK_JOBS),
        _DUCKDB,
    )
    for name in (SPARK, DUCKDB):
        yield _at_most(
            f"{name}: bytes written at most those of {PEER}",
            figures,
            changing,
            name,
            PEER,
            lambda each: each.bytes,
            0,
        )
    for name in (SPARK, DUCKDB):
        deletes = [pair for pair in changing if pair[0].startswith("DELETE")]
        yield _at_most(
            f"{name}, DELETE: no more objects than {REWRITER}",
            figures,
            deletes,
            name,
            REWRITER,
            lambda each: each.puts,
            0,
        )
        others = [pair for pair in changing if pair[0].startswith(("UPDATE", "MERGE"))]
        yield _at_most(
            f"{name}, UPDATE and MERGE: at most one object more than {REWRITER}",
            figures,
            others,
            name,
            REWRITER,
            lambda each: each.puts,
            1,
        )
    yield _swept(cells)
    for name in (SPARK, DUCKDB):
        yield _reading(figures, name)


def _faster(
    text: str,
    figures: Figures,
    pairs: Sequence[tuple[str, str]],
    name: str,
    peers: Sequence[str],
    times: float,
) -> Goal:
    found = {}
    for job, layout in pairs:
        ours = figures.get(job, layout, name)
        beside = [figures.get(job, layout, peer) for peer in peers]
        theirs = [each.median for each in beside if each and each.median and ours and each.run == ours.run]
        if ours and ours.median and theirs:
            found[f"{job} ({layout})"] = min(theirs) / ours.median
    if not found:
        return Goal(text, None, "")
    least = min(found, key=lambda each: found[each])
    misses = [f"{each} {ratio:.2f}" for each, ratio in found.items() if ratio < times]
    return Goal(text, misses, "; ".join(misses) if misses else f"least: {found[least]:.2f}, {least}")


def _at_most(
    text: str,
    figures: Figures,
    pairs: Sequence[tuple[str, str]],
    name: str,
    peer: str,
    of: Callable[[DmlFigure], int | None],
    more: int,
) -> Goal:
    misses, seen = [], 0
    for job, layout in pairs:
        ours, theirs = figures.get(job, layout, name), figures.get(job, layout, peer)
        if not ours or not theirs or ours.run != theirs.run:
            continue
        mine, limit = of(ours), of(theirs)
        if mine is None or limit is None:
            continue
        seen += 1
        if mine > limit + more:
            misses.append(f"{job} ({layout}) {mine:,} against {limit:,}")
    if not seen:
        return Goal(text, None, "")
    return Goal(text, misses, "; ".join(misses) if misses else f"all {seen} jobs")


def _swept(cells: Sequence[Cell]) -> Goal:
    text = f"Vectors no slower than rewriting and no more objects, in {_SWEEP:.0%} of the cells"
    if not cells:
        return Goal(text, None, "")
    bad = [cell for cell in cells if not (cell.is_no_slower and cell.is_no_costlier)]
    share = 1 - len(bad) / len(cells)
    misses = [] if share >= _SWEEP else [f"{cell.operation} {cell.rows}" for cell in bad]
    return Goal(text, misses, f"{share:.1%} of {len(cells)}")


def _reading(figures: Figures, name: str) -> Goal:
    text = f"{name}: reading after ten DELETE 1 % at most {_READING:g} times a fresh table"
    worn, fresh = (figures.get(SCANS, layout, name) for layout in (WORN, FRESH))
    if not worn or not fresh or not worn.median or not fresh.median:
        return Goal(text, None, "")
    ratio = worn.median / fresh.median
    return Goal(text, [] if ratio <= _READING else [f"{ratio:.2f}"], f"{ratio:.2f}")
