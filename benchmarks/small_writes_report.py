"""The report's section about small writes: goals, batches, reading after them, and the erasure."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks.contenders import CODEC
from benchmarks.dml_goals import Goal
from benchmarks.dml_plots import BATCHES_PLOT, draw_batches
from benchmarks.dml_report import replaced
from benchmarks.erasure import STEPS, Erasure
from benchmarks.provenance import section_head
from benchmarks.small_batches import DELETES, INSERTS, UPDATES, Batches
from benchmarks.small_writers import NAMES, OURS, PEERS

__all__ = ["TITLE", "Results", "SmallEffort", "goals", "write_page"]

TITLE = "## Small writes"
_STEADY = 1.1
_Figure = TypeVar("_Figure", Batches, Erasure)
_WHEN = ("before", "after", "optimized")
_HOW = """\
Two everyday jobs: small batches of changes, and the erasure of persons.

**Micro-batches.** Changes of a source database, each batch one MERGE:

- **Batch**: about {updates} updates, {deletes} deletes and {inserts} inserts with an operation column, read from a Parquet file: `WHEN MATCHED AND op = 'D' THEN
  DELETE`, `WHEN MATCHED THEN UPDATE SET *`, `WHEN NOT MATCHED AND op <> 'D' THEN INSERT *`.
- **Table**: that of the row changes above, {rows:,} rows in 32 files; the keys are spread over all of it. The rows come from our own generator, because
  data of a known benchmark could not be downloaded.
- **How many**: up to {batches:,} batches in the time given. Each of {rounds} turns begins with Delvec; the peers share the time that is left.
  The table says how many batches each applied.
- **Untimed**: {untimed} batches for each contender, on a table of {small:,} rows.
- **p99** of fewer than 100 batches is the slowest. **First** and **last** are the medians of the first and the last hundred batches, or of both halves if there are
  fewer than 200.
- **Check.** Contenders that applied equally many batches had equal rows at that point, by time travel: equal counts, and equal sums of a hash over all columns.
- **Reading**: a scan of all columns is one run, a look-up of a row by its id the median of five. "After" is after the batches that the contender applied.
- **Maintenance**: none in between, so each batch left one more small file, with ids of the whole table, for the next to open. OPTIMIZE ran once at the end, with each
  contender's defaults.

**Erasure.** {keys:,} persons are deleted from {files:,} files of {file_rows:,} rows, {per_file:g} from each file, until no byte of them is left in a data file:

- **Delvec** deletes by keys, **delta-spark** by MERGE with a source of keys, because its DELETE takes no subquery. Then both rewrite the files with deletion vectors
  (PURGE) and delete the old ones (VACUUM without retention; delta-spark's lists the table in a task per core, and not in its 10,000).
- **deltalake** rewrites the files in its MERGE, and deletes the old ones.
- **Texts left**: how many of the erased persons' texts were found in the Parquet files of the table's folder afterwards, whether a version names the file or not. Statistics
  in the log are not part of it: they stay until [its retention](erasure.md) is over.
- **Untimed**: an erasure of a small table for each contender.
- **Bytes read** are those of system calls of all its processes, including reads from the system's cache. **Bytes written** are of objects added to the table's storage.

All write Parquet with {codec}. Run it with `make bench PART=small-writes`; `--quick` takes a minute or two with small tables."""


@dataclass(frozen=True)
class SmallEffort:
    """The size of the measurement.

    Attributes:
        rows: of the table that takes batches.
        small: rows of the table for untimed batches.
        batches: as many as Delvec applies.
        untimed: untimed batches of each contender.
        rounds: in how many turns.
        files: of the table with persons to erase.
        file_rows: rows of each of its files.
        keys: number of persons to erase.
        warm_files: files of the table for the untimed erasure, and number of persons erased there.
    """

    rows: int = 10_000_000
    small: int = 100_000
    batches: int = 1000
    untimed: int = 3
    rounds: int = 10
    files: int = 1000
    file_rows: int = 2000
    keys: int = 10_000
    warm_files: int = 10


class Results:
    """Results by contender, kept between runs.

    Args:
        path: of the JSON file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        earlier = json.loads(path.read_text()) if path.exists() else {}
        self.batches = {each["contender"]: Batches(**each) for each in earlier.get("batches", [])}
        self.erasures = {each["contender"]: Erasure(**each) for each in earlier.get("erasures", [])}

    def put_batches(self, figure: Batches) -> None:
        """Keep the batches of a contender."""
        self.batches[figure.contender] = figure
        self._save()

    def put_erasure(self, figure: Erasure) -> None:
        """Keep the erasure by a contender."""
        self.erasures[figure.contender] = figure
        self._save()

    def runs(self) -> set[str]:
        """Return the labels of all runs."""
        return {each.run for each in (*self.batches.values(), *self.erasures.values())}

    def _save(self) -> None:
        figures = {"batches": self.batches, "erasures": self.erasures}
        text = json.dumps(
            {name: [asdict(each) for each in by.values()] for name, by in figures.items()}, indent=1
        )
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(text)


def write_page(out: Path, results: Results, effort: SmallEffort) -> None:
    """Replace the section in the page at ``out``, and write its plot next to it."""
    how = _HOW.format(
        **asdict(effort),
        updates=UPDATES,
        deletes=DELETES,
        inserts=INSERTS,
        per_file=effort.keys / effort.files,
        codec=CODEC,
    )
    lines = [*section_head(TITLE, how, results.runs()), "| goal | | found |", "|---|---|---|"]
    lines += [f"| {goal.text} | {goal.verdict} | {goal.found} |" for goal in goals(results)]
    lines += ["", *_batch_rows(results), "", f"![Seconds by batch]({BATCHES_PLOT})", ""]
    lines += [*_reading_rows(results), "", *_erasure_rows(results)]
    out.parent.mkdir(parents=True, exist_ok=True)
    draw_batches({name: each.seconds for name, each in results.batches.items()}, out.parent / BATCHES_PLOT)
    earlier = out.read_text() if out.exists() else "# Benchmarks\n"
    out.write_text(replaced(earlier, lines))


def goals(results: Results) -> Iterator[Goal]:
    """Yield all goals."""
    applied = {name: each for name, each in results.batches.items() if each.seconds}
    for name in OURS:
        for percent in (50, 99):
            found = {other: each.percentile(percent) for other, each in applied.items()}
            yield _below_peers(f"{name}: p{percent} of a batch below all peers", name, found)
        yield _steady(name, applied)
    for name in OURS:
        totals = {other: each.total for other, each in results.erasures.items()}
        found = {other: total for other, total in totals.items() if total is not None}
        yield _below_peers(f"{name}: erasure faster than all peers", name, found)


def _below_peers(text: str, name: str, found: Mapping[str, float]) -> Goal:
    theirs = {peer: found[peer] for peer in PEERS if peer in found}
    if name not in found or not theirs:
        return Goal(text, None, "")
    misses = [f"{seconds:.2f} s, {peer}" for peer, seconds in theirs.items() if seconds <= found[name]]
    best = min(theirs, key=lambda peer: theirs[peer])
    return Goal(text, misses, f"{found[name]:.2f} s; {best}: {theirs[best]:.2f} s")


def _steady(name: str, applied: Mapping[str, Batches]) -> Goal:
    text = f"{name}: last hundred batches at most {_STEADY:g} times the first"
    if name not in applied:
        return Goal(text, None, "")
    first, last = applied[name].ends
    return Goal(text, [] if last <= _STEADY * first else ["slower"], f"{first:.2f} s, {last:.2f} s")


def _ordered(by: Mapping[str, _Figure]) -> Iterable[_Figure]:
    return [by[name] for name in NAMES if name in by]


def _batch_rows(results: Results) -> Iterator[str]:
    yield "| contender | batches | p50 (s) | p99 (s) | first (s) | last (s) | batches per second | bytes per batch | objects per batch |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for each in _ordered(results.batches):
        count = len(each.seconds)
        if not count:
            yield f"| {each.contender} | {_failed(each)} | | | | | | | |"
            continue
        first, last = each.ends
        stopped = f", then {_failed(each)}" if each.failure else ""
        yield (
            f"| {each.contender} | {count:,}{stopped} | {each.percentile(50):.2f} | {each.percentile(99):.2f} | {first:.2f} | {last:.2f} "
            f"| {count / sum(each.seconds):.2f} | {each.written // count:,} | {each.objects / count:.1f} |"
        )


def _reading_rows(results: Results) -> Iterator[str]:
    yield (
        "| contender | batches | scan before (s) | after | after OPTIMIZE | look-up before (s) | after | after OPTIMIZE | OPTIMIZE (s) |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for each in _ordered(results.batches):
        found = [each.readings.get(when) for when in _WHEN]
        cells = [f"{of.scan:.2f}" if of else "" for of in found]
        cells += [f"{of.look_up:.3f}" if of else "" for of in found]
        cells.append("" if each.optimize is None else f"{each.optimize:.1f}")
        yield f"| {each.contender} | {len(each.seconds):,} | {' | '.join(cells)} |"


def _erasure_rows(results: Results) -> Iterator[str]:
    yield "| contender | DELETE (s) | PURGE (s) | VACUUM (s) | all (s) | bytes read | bytes written | texts left |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for each in _ordered(results.erasures):
        if each.failure is not None:
            yield f"| {each.contender} | {_failed(each)} | | | | | | |"
            continue
        steps = " | ".join(f"{each.seconds[step]:.2f}" if step in each.seconds else "" for step in STEPS)
        yield (
            f"| {each.contender} | {steps} | {sum(each.seconds.values()):.2f} | {each.read:,} "
            f"| {sum(each.written.values()):,} | {each.left} |"
        )


def _failed(figure: Batches | Erasure) -> str:
    return f"failed: {(figure.failure or '').splitlines()[0][:120].replace('|', '/')}"
