"""Delta's MERGE benchmark, and deletes of the same table: ``python -m benchmarks.merge_grid [--rows N ...] [--quick] [--out FILE]``.

The 16 cases are those of ``benchmarks/`` in Delta's repository. Every contender has a process of its own, and takes its turn in
each case.
"""

import argparse
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.command_line import KEPT, parsed
from benchmarks.contenders import CODEC
from benchmarks.dml_contenders import CLASSES, NAMES, PEER, Contender, Merge, Sail
from benchmarks.dml_figures import DmlFigure, Figures
from benchmarks.dml_plots import MERGE_GRID_PLOT, draw_merge_grid
from benchmarks.dml_report import replaced
from benchmarks.dml_tables import row_state, variant
from benchmarks.dml_worker import Failed, Order, Worker, measured
from benchmarks.measure import say
from benchmarks.merge_grid_tables import Share, write_source, write_web_returns
from benchmarks.provenance import section_head
from benchmarks.tables import made_once

__all__ = ["CASES", "Case", "behind", "section", "speedup"]

TITLE = "## Delta's MERGE benchmark"
_ON = "t.wr_order_number = s.wr_order_number AND t.wr_item_sk = s.wr_item_sk"
_ROWS, _QUICK_ROWS, _FILES = (200_000, 2_000_000), (20_000,), 32
_RUNS, _LIMIT = 3, 3.0
_TOLERANCE = 0.02
"""How much slower than a peer a median may be before it counts as behind: what two runs of one contender differ by at least."""
OURS = ("Delvec on Spark", "Delvec on Spark, as jobs", "Delvec on DuckDB")
_GOALS: Mapping[str, float] = {OURS[0]: 8, OURS[1]: 3, OURS[2]: 20}
_HOW = """\
The benchmark that Delta's repository has for MERGE (`benchmarks/`), and four DELETEs by a predicate, which were added here and in which Sail takes part.

- **Cases**: 16, over `web_returns` of TPC-DS, joined by order number and item. A source samples some of the table's files ("files"), a share of their rows under
  their own keys ("matched"), and another share under keys that the table does not have ("new"). Six cases only insert ("insert2" by two clauses with a condition), one
  only deletes, nine update and insert.
- **First difference from the original**: the rows come from `benchmarks/merge_grid_tables.py`, because DuckDB's generator of TPC-DS is an extension that could not be
  had. It has the 24 columns and their ranges as in TPC-DS, NULLs in 4.5 % of values, in the order of the order numbers.
- **Second difference**: new rows have other items of the table's range under the order numbers of sampled rows, in the columns' own types. The original draws both keys
  as fractions between 0 and 1, so that no file's range of keys overlaps the source's, and an engine may skip the whole table.
- **Table**: {files} files, written by delta-spark with {codec}.
- **Runs.** Each has a fresh copy, which the contender has opened before. One is untimed, then come up to {runs}, as many as start within {limit:g} seconds.
- **Check.** After each case the tables of all contenders had the same rows: equal counts, and equal sums of a hash of each row.
- **Sources** are Parquet files. On DuckDB and in deltalake they are read with pyarrow within the measured time, except deltalake's predicates on DELETE, which need none.
- **Delvec** uses its default settings in all three forms. "As jobs" switches off the execution in the driver, so that Spark's tasks do the work, with DuckDB, as they do for
  commands that are too large for the driver. Commands that DuckDB cannot run alike are left to Spark's own expressions, which
  [take longer](engines.md#spark-row-changes-in-tasks-with-duckdb).
- **Bold**: behind the fastest peer by more than {tolerance:.0%}.

Run it with `make bench PART=merge-grid`; `--quick` takes two minutes with a small table."""


@dataclass(frozen=True)
class Case:
    """A case of the grid.

    Attributes:
        clauses: how the title names it.
        share: what the source samples; None for a DELETE.
        merge: the clauses, with no source yet; None for a DELETE.
        predicate: what a DELETE deletes; ``{half}`` and ``{twentieth}`` are shares of the number of rows.
    """

    clauses: str
    share: Share | None = None
    merge: Merge | None = None
    predicate: str = ""

    @property
    def title(self) -> str:
        """Its name in the report."""
        if self.share is None:
            return self.clauses
        shares = {"files": self.share.files, "matched": self.share.matched, "new": self.share.new}
        return f"{self.clauses}, " + ", ".join(f"{name} {100 * share:g} %" for name, share in shares.items())


_INSERT = Merge(Path(), _ON, update=False)
_INSERT_TWICE = replace(_INSERT, inserts=("s.wr_item_sk % 2 = 0", ""))
_DELETE = replace(_INSERT, delete=True, inserts=())
_UPSERT = Merge(Path(), _ON)
CASES = (
    *(Case("insert", Share(0.05, 0, new), _INSERT) for new in (0.05, 0.5, 1.0)),
    *(Case("insert2", Share(0.05, 0, new), _INSERT_TWICE) for new in (0.05, 0.5, 1.0)),
    Case("delete", Share(0.05, 0.05, 0), _DELETE),
    *(
        Case("upsert", Share(*shares), _UPSERT)
        for shares in (
            (0.05, 0.1, 0.01),
            (0.05, 0, 0.1),
            (0.05, 0.01, 0.1),
            (0.05, 0.1, 0),
            (0.5, 0.01, 0.001),
            (1, 0.01, 0.001),
            (0.05, 0.5, 0.001),
            (0.05, 0.99, 0.001),
            (0.05, 1, 0.001),
        )
    ),
    Case(
        "DELETE a few orders in a row", predicate="wr_order_number >= {half} AND wr_order_number < {half} + 3"
    ),
    Case("DELETE the first 5 % of the orders", predicate="wr_order_number <= {twentieth}"),
    Case("DELETE 5 % of the items", predicate="wr_item_sk % 20 = 7"),
    Case("DELETE half of the items", predicate="wr_item_sk % 2 = 1"),
)


@dataclass(frozen=True)
class _Grid:
    """The tables and sources of one size.

    Attributes:
        rows: that the table was made of.
        templates: tables by kind, ``dv`` or ``plain``.
        sources: files by share.
    """

    rows: int
    templates: Mapping[str, Path]
    sources: Mapping[Share, Path]

    @property
    def layout(self) -> str:
        """Name in the report."""
        return f"{self.rows:,} rows"

    def argument(self, case: Case) -> Any:
        """Return what a contender is called with."""
        if case.share is None or case.merge is None:
            return case.predicate.format(half=self.rows // 2, twentieth=self.rows // 20)
        return replace(case.merge, source=self.sources[case.share])


def main() -> None:
    """Measure and write the section of the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=_ROWS)
    parser.add_argument("--contenders", nargs="+", choices=[*CLASSES], default=[*NAMES, Sail.name])
    parser.add_argument("--cases", default="", help="only cases whose titles contain this")
    arguments, kept = parsed(parser, "merge-grid")
    if arguments.quick:
        arguments.rows = _QUICK_ROWS
    if not Sail.folder.exists() and Sail.name in arguments.contenders:
        say(f"Sail takes no part: {Sail.folder} does not exist")
        arguments.contenders.remove(Sail.name)
    figures = Figures(kept / "merge_grid.json")
    with tempfile.TemporaryDirectory(prefix="delvec-bench-") as folder:
        scratch = Path(folder)
        os.environ["XDG_STATE_HOME"] = str(scratch)
        wrong = _measure(arguments, figures, scratch)
    out: Path = arguments.out
    out.parent.mkdir(parents=True, exist_ok=True)
    draw_merge_grid(figures, [case.title for case in CASES], OURS, PEER, out.parent / MERGE_GRID_PLOT)
    out.write_text(replaced(out.read_text() if out.exists() else "# Benchmarks\n", section(figures)))
    say(f"written to {out}")
    if wrong:
        sys.exit("contenders had different rows: " + "; ".join(wrong))


def _measure(arguments: argparse.Namespace, figures: Figures, scratch: Path) -> list[str]:
    """Measure; return the cases after which the contenders' rows differ."""
    wrong = []
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(Worker(name, scratch / name.replace(" ", "-")))
            for name in arguments.contenders
        }
        for rows in arguments.rows:
            grid = _grid(scratch, rows)
            wrong += [
                f"{case.title}, {grid.layout}"
                for case in CASES
                if arguments.cases in case.title and not _case(workers, grid, case, figures)
            ]
    return wrong


def _grid(scratch: Path, rows: int) -> _Grid:
    """Return the tables and sources; the files are made once, by delta-spark."""

    def make(folder: Path) -> None:
        with Worker(PEER, scratch / "maker") as maker:
            maker.call(_write_table, folder.absolute(), rows)
        for number, share in enumerate(_shares()):
            write_source(folder / "table", share, folder / f"source-{number}.parquet")

    made = made_once(KEPT / f"web-returns-{rows}-{CODEC}", make)
    return _Grid(
        rows,
        {kind: variant(made / "table", scratch / f"{rows}-{kind}", kind) for kind in ("dv", "plain")},
        {share: made.absolute() / f"source-{number}.parquet" for number, share in enumerate(_shares())},
    )


def _shares() -> Sequence[Share]:
    return [*dict.fromkeys(case.share for case in CASES if case.share is not None)]


def _write_table(contender: Contender, scratch: Path, made: Path, rows: int) -> None:
    """Write the table; runs in a worker."""
    source = scratch / "web_returns.parquet"
    write_web_returns(source, rows)
    frame = contender.spark.read.parquet(str(source)).coalesce(1)
    frame.write.format("delta").option("maxRecordsPerFile", -(-rows // _FILES)).save(str(made / "table"))
    source.unlink()


def _case(workers: Mapping[str, Worker], grid: _Grid, case: Case, figures: Figures) -> bool:
    """Measure a case with all contenders; return whether their tables have the same rows afterwards."""
    states = {}
    for name, worker in workers.items():
        if name == Sail.name and case.merge is not None:
            continue
        template, argument = grid.templates[CLASSES[name].template], grid.argument(case)
        method = "delete" if case.merge is None else "merge"
        order = Order(method, template, argument, template, argument, None, 1, _RUNS, _LIMIT)
        try:
            runs, runs.peak = worker.call(measured, order)
        except Failed as error:
            figures.put(DmlFigure(case.title, grid.layout, name, failure=str(error)))
            say(f"{case.title}, {grid.layout}: {error}")
            continue
        figure = DmlFigure.of(case.title, grid.layout, name, runs)
        figures.put(figure)
        say(f"{case.title}, {grid.layout}, {name}: {figure.median:.3f} s")
        if runs.table is not None:
            states[name] = row_state(runs.table)
            shutil.rmtree(runs.table, ignore_errors=True)
    if len(set(states.values())) > 1:
        say(f"{case.title}: the rows differ: {states}")
    return len(set(states.values())) <= 1


def speedup(figures: Figures, layout: str, name: str, peer: str, titles: Sequence[str]) -> float | None:
    """Return how many times faster than a peer a contender is: the geometric mean over the cases that both did."""
    logs = []
    for title in titles:
        ours, theirs = figures.get(title, layout, name), figures.get(title, layout, peer)
        if ours is not None and theirs is not None and ours.median and theirs.median:
            logs.append(math.log(theirs.median / ours.median))
    return math.exp(sum(logs) / len(logs)) if logs else None


def behind(figures: Figures, layout: str, name: str) -> Mapping[str, float]:
    """Return the cases in which the fastest peer is faster, with its speed over the contender's."""
    slower = {}
    for case in CASES:
        ours = figures.get(case.title, layout, name)
        peers = [figures.get(case.title, layout, peer) for peer in CLASSES if peer not in OURS]
        best = min((peer.median for peer in peers if peer is not None and peer.median), default=None)
        if ours is not None and ours.median and best is not None and ours.median > best * (1 + _TOLERANCE):
            slower[case.title] = ours.median / best
    return slower


def section(figures: Figures) -> list[str]:
    """Return the lines of the section."""
    how = _HOW.format(files=_FILES, codec=CODEC, runs=_RUNS, limit=_LIMIT, tolerance=_TOLERANCE)
    lines = section_head(TITLE, how, (figure.run for figure in figures.all()))
    layouts = dict.fromkeys(figure.layout for figure in figures.all())
    lines += ["| | goal | " + " | ".join(layouts) + " |", "|---|---:|" + "---:|" * len(layouts)]
    lines += _summary(figures, [*layouts])
    lines += ["", f"![Speed by case]({MERGE_GRID_PLOT})", ""]
    for layout in layouts:
        lines += [f"{layout}; the median in seconds, and for Delvec how many times faster than {PEER}:", ""]
        lines += [*_table(figures, layout), ""]
    return lines


def _summary(figures: Figures, layouts: Sequence[str]) -> Iterator[str]:
    titles = [case.title for case in CASES]
    for name in OURS:
        means = [speedup(figures, layout, name, PEER, titles) for layout in layouts]
        yield f"| {name}: times {PEER}, geometric mean | {_GOALS[name]:g} | {_cells(means)} |"
    means = [speedup(figures, layout, OURS[2], "deltalake", titles) for layout in layouts]
    yield f"| {OURS[2]}: times deltalake, geometric mean | | {_cells(means)} |"
    for name in OURS:
        counts = [str(len(behind(figures, layout, name))) for layout in layouts]
        yield f"| {name}: cases behind the fastest peer, of {len(CASES)} | 0 | {' | '.join(counts)} |"


def _cells(numbers: Sequence[float | None]) -> str:
    return " | ".join("" if number is None else f"{number:.1f}" for number in numbers)


def _table(figures: Figures, layout: str) -> Iterator[str]:
    yield "| case | " + " | ".join(CLASSES) + " |"
    yield "|---|" + "---:|" * len(CLASSES)
    late = {name: behind(figures, layout, name) for name in OURS}
    for case in CASES:
        peer = figures.get(case.title, layout, PEER)
        cells = []
        for name in CLASSES:
            figure = figures.get(case.title, layout, name)
            if figure is None or figure.median is None:
                cells.append("")
                continue
            cell = f"{figure.median:.2f}"
            if name in OURS and peer is not None and peer.median:
                cell += f" ({peer.median / figure.median:.1f})"
            cells.append(f"**{cell}**" if case.title in late.get(name, ()) else cell)
        yield f"| {case.title} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
