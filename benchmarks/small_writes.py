"""Small writes side by side: ``python -m benchmarks.small_writes [--only PART ...] [--quick] [--out FILE]``.

Micro-batches of a hundred changes each, and an erasure of rows in every file of a table. Contenders take turns, each
in a process of its own, so that other load on the machine affects all of them.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.command_line import KEPT, parsed
from benchmarks.dml import people_tables
from benchmarks.dml_tables import row_state
from benchmarks.dml_worker import Failed, Worker
from benchmarks.erasure import Erasure, Subjects, erased, marks_left, subjects
from benchmarks.measure import say
from benchmarks.provenance import this_run
from benchmarks.small_batches import Batches, applied, compacted, read, write_changes
from benchmarks.small_writers import CLASSES, NAMES, OURS, make
from benchmarks.small_writes_report import Results, SmallEffort, write_page
from benchmarks.tables import clone

PARTS = ("erasure", "batches")
EFFORT = SmallEffort()
QUICK = SmallEffort(rows=100_000, small=10_000, batches=20, rounds=2, files=20, file_rows=100, keys=200)
_RESERVE = 0.2
"""The share of all time that is for reading and OPTIMIZE after the batches."""
_ENDLESS = 1e9


@dataclass
class Bench:
    """The shared state of both parts.

    Attributes:
        workers: worker processes by contender.
        effort: the size of the measurement.
        scratch: an empty directory.
        end: time.monotonic() at which the batches have to end.
        wrong: what was not as it has to be.
    """

    workers: Mapping[str, Worker]
    effort: SmallEffort
    scratch: Path
    end: float
    wrong: list[str] = field(default_factory=list)


def main() -> None:
    """Measure and write the section of the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", choices=PARTS, nargs="+", default=PARTS, help="keep the figures of the other part"
    )
    parser.add_argument(
        "--contenders", nargs="+", choices=NAMES, default=NAMES, help="keep the figures of the others"
    )
    parser.add_argument("--minutes", type=float, default=15.0, help="peers run as many batches as fit")
    arguments, kept = parsed(parser, "small-writes")
    effort = EFFORT
    if arguments.quick:
        effort, arguments.minutes = QUICK, min(arguments.minutes, 3.0)
    kept.mkdir(parents=True, exist_ok=True)
    # Beside the tables that are kept, because copies are hard links.
    scratch = Path(tempfile.mkdtemp(prefix="small-writes-", dir=KEPT)).absolute()
    os.environ["XDG_STATE_HOME"] = str(scratch)
    results = Results(kept / "small-writes.json")
    try:
        with ExitStack() as stack:
            workers = {
                name: stack.enter_context(Worker(name, scratch / name.replace(" ", "-"), make))
                for name in arguments.contenders
            }
            bench = Bench(
                workers, effort, scratch, time.monotonic() + 60 * (1 - _RESERVE) * arguments.minutes
            )
            for part, measure in {"erasure": _erasures, "batches": _batches}.items():
                if part in arguments.only:
                    started = time.monotonic()
                    measure(bench, results)
                    say(f"{part}: {(time.monotonic() - started) / 60:.1f} minutes")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    write_page(arguments.out, results, effort)
    say(f"written to {arguments.out}")
    if bench.wrong:
        sys.exit("; ".join(bench.wrong))


def _erasures(bench: Bench, results: Results) -> None:
    """Let every contender erase the same rows, and look for their bytes."""
    effort, states = bench.effort, {}
    tables = subjects(KEPT, bench.scratch, effort.files, effort.file_rows, effort.keys)
    small = subjects(KEPT, bench.scratch, effort.warm_files, effort.file_rows, effort.warm_files)
    say("tables for the erasure are made")
    for name, worker in bench.workers.items():
        results.put_erasure(_erasure(bench, worker, tables, small, states))
        say(f"erasure, {name}: {results.erasures[name]}")
    if len(set(states.values())) > 1:
        bench.wrong.append(f"contenders had different rows after the erasure: {states}")


def _erasure(
    bench: Bench, worker: Worker, tables: Subjects, small: Subjects, states: dict[str, tuple[int, int]]
) -> Erasure:
    kind = CLASSES[worker.name].template
    try:
        (measured, table), _ = worker.call(
            erased, tables.tables[kind], tables.keys, (small.tables[kind], small.keys)
        )
    except Failed as error:
        return Erasure(worker.name, failure=str(error), run=this_run())
    measured.left, measured.run = marks_left(table, tables.marks), this_run()
    if measured.left:
        bench.wrong.append(f"{worker.name}: {measured.left} erased texts are still in data files")
    states[worker.name] = row_state(table)
    return measured


def _batches(bench: Bench, results: Results) -> None:
    """Let every contender apply as many batches as fit, in turns, and read its table before and after."""
    effort, scratch = bench.effort, bench.scratch
    templates = people_tables(KEPT, scratch, effort.rows)
    small = people_tables(KEPT, scratch / "small", effort.small)
    changes = write_changes(scratch / "changes", effort.rows, effort.batches)
    few = write_changes(scratch / "few", effort.small, effort.untimed)
    say("tables and batches are made")
    tables, figures = {}, {}
    for name, worker in bench.workers.items():
        layout = f"32 files/{CLASSES[name].template}"
        tables[name] = clone(templates[layout], scratch / f"{worker.name} table".replace(" ", "-"))
        warm = clone(small[layout], scratch / f"{worker.name} warm".replace(" ", "-"))
        figures[name] = Batches(name, run=this_run())
        with _failing(figures[name]):
            worker.call(applied, warm, few, _ENDLESS)
            figures[name].readings["before"], _ = worker.call(read, tables[name], effort.rows, 1)
    _apply_in_turns(bench, figures, tables, changes)
    _compare(bench, figures, tables)
    for name, worker in bench.workers.items():
        figure, table = figures[name], tables[name]
        with _failing(figure):
            figure.readings["after"], _ = worker.call(read, table, effort.rows, 0)
            figure.optimize, _ = worker.call(compacted, table)
            figure.readings["optimized"], _ = worker.call(read, table, effort.rows, 0)
        results.put_batches(figure)
        say(f"{name}: {figure.readings}, OPTIMIZE {figure.optimize}")


@contextmanager
def _failing(figure: Batches) -> Iterator[None]:
    """Note in the figure why the contender cannot go on."""
    try:
        yield
    except Failed as error:
        figure.failure = str(error)
        say(figure.failure)


def _apply_in_turns(
    bench: Bench, figures: Mapping[str, Batches], tables: Mapping[str, Path], changes: Sequence[Path]
) -> None:
    """Apply all batches by Delvec; peers share what time it leaves."""
    rounds, ours = bench.effort.rounds, [name for name in figures if name in OURS]
    peers = [name for name in figures if name not in OURS]
    credit = dict.fromkeys(peers, 0.0)
    spent = 0.0
    for turn in range(rounds):
        started = time.monotonic()
        for name in ours:
            until = len(changes) * (turn + 1) // rounds
            _apply(bench, figures[name], tables[name], changes[:until], bench.end - time.monotonic())
        spent += time.monotonic() - started
        left = bench.end - time.monotonic() - spent / (turn + 1) * (rounds - turn - 1)
        for name in peers:
            # A batch of a peer may take longer than its share of a turn: it waits then for the turns that it took.
            credit[name] += left / (rounds - turn) / len(peers)
            if credit[name] > 0 or turn == 0:
                started = time.monotonic()
                _apply(bench, figures[name], tables[name], changes, credit[name])
                credit[name] -= time.monotonic() - started
        done = ", ".join(f"{name} {len(each.seconds)}" for name, each in figures.items())
        say(f"batches after turn {turn + 1} of {rounds}: {done}")


def _apply(bench: Bench, figure: Batches, table: Path, changes: Sequence[Path], limit: float) -> None:
    """Apply batches that are left, within this many seconds."""
    left = changes[len(figure.seconds) :]
    if left and figure.failure is None:
        with _failing(figure):
            more, _ = bench.workers[figure.contender].call(applied, table, left, limit)
            figure.add(more)


def _compare(bench: Bench, figures: Mapping[str, Batches], tables: Mapping[str, Path]) -> None:
    """Compare the rows after as many batches as some contender has applied, with all that have applied as many."""
    for count in sorted({len(each.seconds) for each in figures.values()} - {0}):
        states = {
            name: row_state(tables[name], each.versions[count - 1])
            for name, each in figures.items()
            if len(each.seconds) >= count
        }
        say(f"rows after {count} batches: {states}")
        if len(set(states.values())) > 1:
            bench.wrong.append(f"contenders had different rows after {count} batches: {states}")


if __name__ == "__main__":
    main()
