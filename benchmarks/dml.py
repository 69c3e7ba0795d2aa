"""Row changes side by side: ``python -m benchmarks.dml [--only PART ...] [--quick] [--out FILE]``.

Every contender has its own process, and jobs alternate between them, so that other load on the
machine affects all of them.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import delvec
from benchmarks.command_line import KEPT, parsed
from benchmarks.contenders import CODEC
from benchmarks.dml_contenders import CLASSES, NAMES, PEER, Contender, Merge
from benchmarks.dml_figures import DmlFigure, Figures
from benchmarks.dml_goals import FRESH, REWRITER, SCANS, STREAM_READ, STREAM_WRITE, WORN
from benchmarks.dml_jobs import EFFORT, LAYOUTS, QUICK, DmlEffort, Job, jobs
from benchmarks.dml_report import write_page
from benchmarks.dml_tables import FEATURES, row_state, variant, write_sources
from benchmarks.dml_worker import Failed, Order, Runs, Worker, measured
from benchmarks.measure import say, timed
from benchmarks.streaming import read_stream, write_batches, write_stream
from benchmarks.sweep import sweep
from benchmarks.tables import PEOPLE, clone, made_once, write_people

PARTS = ("jobs", "reading", "sweep", "streams")
DUCKDB = "Delvec on DuckDB"
_DELETES = 10
_CHANGES = ("delete", "update", "merge")
_SWEEP_RUNS, _SWEEP_LIMIT = 3, 6.0


@dataclass(frozen=True)
class Bench:
    """The shared state of all parts.

    Attributes:
        workers: worker processes by contender.
        templates: tables by layout and kind, such as ``1 file/dv``.
        sources: rows to merge and append.
        small: small tables and sources for warm-ups of contenders that rewrite files.
        figures: the results.
        effort: the size of the measurement.
        scratch: an empty directory.
        hurry: time.monotonic() after which each job runs only once.
        wrong: jobs after which the contenders' rows differ.
    """

    workers: Mapping[str, Worker]
    templates: Mapping[str, Path]
    sources: Mapping[str, Path]
    small: Mapping[str, Path]
    figures: Figures
    effort: DmlEffort
    scratch: Path
    hurry: float
    wrong: list[str] = field(default_factory=list)


def main() -> None:
    """Measure and write the section of the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", choices=PARTS, nargs="+", default=PARTS, help="keep the figures of the others"
    )
    parser.add_argument(
        "--contenders", nargs="+", choices=NAMES, default=NAMES, help="keep the figures of the others"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=24.0,
        help="after as many, each job that is left has one run for each contender",
    )
    arguments, kept = parsed(parser, "dml")
    effort = QUICK if arguments.quick else EFFORT
    scratch = Path(tempfile.mkdtemp(prefix="delvec-bench-"))
    os.environ["XDG_STATE_HOME"] = str(scratch)
    figures = Figures(kept / "dml.json")
    try:
        wrong = _measure(arguments, effort, figures, scratch, kept)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if wrong:
        sys.exit("contenders had different rows: " + "; ".join(wrong))


def _write(out: Path, figures: Figures, kept: Path, effort: DmlEffort) -> None:
    """Write the section from all results so far, including those of earlier runs."""
    cells = kept / "sweep.json"
    write_page(out, figures, json.loads(cells.read_text()) if cells.exists() else [], effort)
    say(f"written to {out}")


def _measure(
    arguments: argparse.Namespace, effort: DmlEffort, figures: Figures, scratch: Path, kept: Path
) -> list[str]:
    """Measure; return the jobs after which the contenders' rows differ."""
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(Worker(name, scratch / name.replace(" ", "-")))
            for name in arguments.contenders
        }
        templates, sources, small = {}, {}, {}
        if {"jobs", "reading"} & set(arguments.only):
            templates = people_tables(KEPT, scratch, effort.rows)
            sources = write_sources(scratch / "sources", effort.rows)
            small = people_tables(KEPT, scratch / "small", effort.small) | write_sources(
                scratch / "small-sources", effort.small
            )
            say("tables are made")
        bench = Bench(
            workers,
            templates,
            sources,
            small,
            figures,
            effort,
            scratch,
            time.monotonic() + 60 * arguments.minutes,
        )
        parts = {"jobs": _jobs, "reading": _reading, "sweep": partial(_sweep, kept=kept), "streams": _streams}
        for name, measure in parts.items():
            if name in arguments.only:
                started = time.monotonic()
                measure(bench)
                say(f"{name}: {(time.monotonic() - started) / 60:.1f} minutes")
                _write(arguments.out, figures, kept, effort)
    return bench.wrong


def people_tables(kept: Path, scratch: Path, rows: int) -> dict[str, Path]:
    """Return tables of ``rows`` people by layout and kind, such as ``1 file/dv``; delta-spark writes their files."""

    def make(folder: Path) -> None:
        with Worker(PEER, scratch / "maker") as maker:
            maker.call(_write_people, folder.absolute(), rows)

    made = made_once(kept / f"people-{rows}-{CODEC}", make)
    found = {}
    for layout, files in LAYOUTS.items():
        for kind in FEATURES:
            found[f"{layout}/{kind}"] = variant(made / str(files), scratch / f"{files}-{rows}-{kind}", kind)
    return found


def _write_people(contender: Contender, scratch: Path, made: Path, rows: int) -> None:
    """Write the tables of all layouts, ordered by id; runs in a worker."""
    source = scratch / "people.parquet"
    write_people(source, rows)
    for files in LAYOUTS.values():
        frame = contender.spark.read.parquet(str(source)).coalesce(1)
        writer = frame.write.format("delta").option("maxRecordsPerFile", -(-rows // files))
        writer.save(str(made / str(files)))
    source.unlink()


def _jobs(bench: Bench) -> None:
    for job in jobs(bench.effort):
        for layout in job.layouts:
            _job(bench, job, layout)


def _sweep(bench: Bench, *, kept: Path) -> None:
    if DUCKDB not in bench.workers:
        return
    asked = bench.effort.sweep_rows, _SWEEP_RUNS, _SWEEP_LIMIT
    try:
        cells, _ = bench.workers[DUCKDB].call(sweep, *asked)
    except Failed as error:
        say(f"sweep: {error}")
        return
    kept.mkdir(parents=True, exist_ok=True)
    (kept / "sweep.json").write_text(json.dumps([cell.to_json() for cell in cells], indent=1))


def _job(bench: Bench, job: Job, layout: str) -> None:
    """Measure a job with all contenders, and check that their tables have the same rows afterwards."""
    states = {}
    for name, worker in bench.workers.items():
        if CLASSES[name].only_changes and job.kind not in _CHANGES:
            continue
        try:
            runs, runs.peak = worker.call(measured, _order(bench, job, layout, name))
        except Failed as error:
            _keep(bench, DmlFigure(job.title, layout, name, failure=str(error)))
            continue
        if job.kind == "changes":
            # This job only reads; the objects are from the UPDATE that prepared the table.
            runs.puts = []
        _keep(bench, DmlFigure.of(job.title, layout, name, runs))
        states[name] = row_state(runs.table)
        shutil.rmtree(runs.table, ignore_errors=True)
    _compare(bench, job.title, layout, states)


def _order(bench: Bench, job: Job, layout: str, name: str) -> Order:
    contender, effort = CLASSES[name], bench.effort
    kind = f"{layout}/{contender.template}{'-feed' if job.feed else ''}"
    rewrites = contender.rewrites
    feed = job.kind == "changes"
    argument: Any = 1 if feed else bench.sources.get(job.argument, job.argument)
    # Contenders that rewrite would take minutes to warm up on the large table.
    small = bench.small.get(job.argument, argument)
    if job.kind == "merge":
        argument, small = Merge(argument), Merge(small)
    return Order(
        method=job.kind,
        template=bench.templates[kind],
        argument=argument,
        warm_template=bench.small[kind] if rewrites else bench.templates[kind],
        warm_argument=small if rewrites else argument,
        prepare=job.argument if feed else None,
        untimed=job.untimed,
        runs=effort.runs,
        limit=effort.limit if time.monotonic() < bench.hurry else 0.0,
    )


def _compare(bench: Bench, title: str, layout: str, states: Mapping[str, tuple[int, int]]) -> None:
    """Discard results of contenders whose rows differ from the majority's."""
    if len(set(states.values())) > 1:
        counts = Counter(states.values())
        for name, state in states.items():
            if counts[state] < max(counts.values()) or len(counts) == len(states):
                bench.wrong.append(f"{title}, {layout}: {states}")
                _keep(bench, DmlFigure(title, layout, name, failure=f"its rows differ: {state}"))


def _keep(bench: Bench, figure: DmlFigure) -> None:
    bench.figures.put(figure)
    head = f"{figure.job}, {figure.layout}, {figure.contender}:"
    if figure.median is None:
        say(f"{head} {figure.failure}")
        return
    runs = f"{min(figure.seconds):.2f}-{max(figure.seconds):.2f}, {len(figure.seconds)} runs"
    say(f"{head} {figure.median:.2f} s ({runs}), {figure.puts} objects, {figure.peak / 2**20:,.0f} MiB")


def _streams(bench: Bench) -> None:
    """Measure streams of small batches to and from a table."""
    effort = bench.effort
    batches = write_batches(bench.scratch / "batches", effort.batches, effort.batch)
    few = write_batches(bench.scratch / "few-batches", 3, effort.batch)
    rows = effort.batches * effort.batch
    with delvec.connect() as lake:
        made = lake.create_table(bench.scratch / "empty", PEOPLE)
        templates = {
            kind: variant(bench.scratch / "empty", bench.scratch / f"empty-{kind}", kind)
            for kind in ("dv", "plain")
        }
        del made
    layout = f"{effort.batches} batches"
    states = {}
    for name, worker in bench.workers.items():
        if name == REWRITER or CLASSES[name].only_changes:
            # A stream only adds rows, so this contender would do the same as another one.
            continue
        template = templates[CLASSES[name].template]
        try:
            runs, runs.peak = worker.call(write_stream, template, batches, few)
        except Failed as error:
            _keep(bench, DmlFigure(STREAM_WRITE, layout, name, failure=str(error)))
            continue
        _keep(bench, DmlFigure.of(STREAM_WRITE, layout, name, runs))
        states[name] = row_state(runs.table)
        if not CLASSES[name].on_spark:
            continue
        try:
            runs, runs.peak = worker.call(read_stream, runs.table, rows)
            _keep(bench, DmlFigure.of(STREAM_READ, layout, name, runs))
        except Failed as error:
            _keep(bench, DmlFigure(STREAM_READ, layout, name, failure=str(error)))
    _compare(bench, STREAM_WRITE, layout, states)


def _reading(bench: Bench) -> None:
    """Measure scans after ten deletes, compared with scans of the same rows rewritten."""
    if not {DUCKDB, PEER} <= bench.workers.keys():
        return
    template = bench.templates["1 file/dv"]
    worn = clone(template, bench.scratch / "worn")
    for number in range(_DELETES):
        bench.workers[DUCKDB].call(_delete, worn, f"id % 100 = {number}")
    fresh = bench.scratch / "fresh"
    bench.workers[PEER].call(_write_fresh, template, fresh)
    for name, worker in bench.workers.items():
        if CLASSES[name].template != "dv" or CLASSES[name].only_changes:
            continue
        for layout, table in ((FRESH, fresh), (WORN, worn)):
            runs, runs.peak = worker.call(_scans, table, bench.effort)
            _keep(bench, DmlFigure.of(SCANS, layout, name, runs))


def _delete(contender: Contender, scratch: Path, table: Path, predicate: str) -> None:  # noqa: ARG001
    contender.delete(table, predicate)


def _write_fresh(contender: Contender, scratch: Path, template: Path, fresh: Path) -> None:  # noqa: ARG001
    rows = contender.spark.read.format("delta").load(str(template)).where(f"id % 100 >= {_DELETES}")
    rows.coalesce(1).write.format("delta").save(str(fresh))


def _scans(contender: Contender, scratch: Path, table: Path, effort: DmlEffort) -> Runs:  # noqa: ARG001
    for _ in range(effort.untimed):
        contender.scan(table)
    return Runs([timed(lambda: contender.scan(table)) for _ in range(effort.runs)])


if __name__ == "__main__":
    main()
