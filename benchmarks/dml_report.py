"""The report's section about row changes: goals, figures compared with peers, and the method."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contenders import CODEC
from benchmarks.dml_contenders import NAMES, PEER
from benchmarks.dml_figures import DmlFigure, Figures
from benchmarks.dml_goals import FRESH, SCANS, WORN, goals
from benchmarks.dml_jobs import DmlEffort
from benchmarks.dml_plots import JOBS_PLOT, SWEEP_PLOT, draw_jobs, draw_sweep
from benchmarks.provenance import unwrapped
from benchmarks.sweep import FILES, Cell

__all__ = ["TITLE", "replaced", "with_section_of", "write_page"]

TITLE = "## Row changes"
_MIB = 2**20
_HOW = """\
DELETE, UPDATE, MERGE, appends, change feeds, scans and streams on a table of {rows:,} rows.

- **Contenders.** Each runs in its own process, with its own Spark session if it needs one. Each job runs on one contender after
  the other. delta-spark ran with `snapshotPartitions` and shuffle partitions set to the number of cores. All write Parquet with {codec}.
- **With DVs, without DVs**: with deletion vectors, and without them (files are rewritten).
- **As jobs**: the execution in Spark's driver is switched off, so that Spark jobs do the work.
- **Table**: {rows:,} rows like people10m, 8 columns, ids in order, in one file and in 32, written by delta-spark. Except in jobs of
  one row, the affected rows are spread over the whole table.
- **Runs.** Each uses a fresh copy at its own path, which the contender has opened before. Untimed runs come first: {warm} for
  commands of one row, one for merges, {untimed} for the others; contenders that rewrite files have them on a table of {small:,} rows.
  Up to {runs} measured runs follow, as many as start within {limit:.0f} seconds, and at least one.
- **Figures** are the median, then the fastest and the slowest run, and the number of runs. `x` is the speedup over delta-spark with
  DVs in the same run; it is left out if the two were measured in different runs.
- **Check.** After each job the tables of all contenders held the same rows: equal counts, and equal sums of a hash over all columns
  of each row.
- **Objects** are the files that a run added to the table's storage, found by listing it before and after. On an object store each
  takes at least one PUT.
- **Memory** is the peak of all of a contender's processes together during a job, sampled ten times a second: for Spark the JVM, Python
  and its workers (heap limit 6 GiB, collected before each job).
- **MERGE** updates all columns, or inserts.
- **Stream into a table**: a Spark query with `availableNow` that reads one Parquet file of {batch:,} rows per batch; in one process a
  loop of appends with `txn`. **Stream out of a table**: one file per batch.

Run it with `make bench PART=dml`; `--quick` takes a minute or two with small tables."""
_SWEEP = """\
Does a deletion vector ever cost more than rewriting the file? Delvec on DuckDB, on tables of {files} files that differ only in
`delta.enableDeletionVectors`:

- **{count} cells**: {sizes} rows per file; {operations}; {shares} of the rows of each file, or one row.
- **No slower**: at most 5 % plus 3 ms more than rewriting, comparing medians of up to three alternating runs.
- **No more objects**: one more is allowed for UPDATE and MERGE.
- **Found**: vectors were no slower in {fast} cells, added no more objects in {few}, and both in {both}."""


def write_page(out: Path, figures: Figures, cells: Sequence[Mapping[str, Any]], effort: DmlEffort) -> None:
    """Replace the section in the page at ``out``, and write its plots next to it."""
    found = [Cell(**cell) for cell in cells]
    section = _section(figures, found, effort)
    out.parent.mkdir(parents=True, exist_ok=True)
    draw_jobs(figures, out.parent / JOBS_PLOT)
    if found:
        draw_sweep(found, out.parent / SWEEP_PLOT)
    earlier = out.read_text() if out.exists() else "# Benchmarks\n"
    out.write_text(replaced(earlier, section))


def with_section_of(page: str, earlier: str) -> str:
    """Return a page with the sections that only an earlier page has, in their order at the end."""
    for section in earlier.split("\n## ")[1:]:
        title, *lines = section.splitlines()
        if f"\n## {title}\n" not in page:
            page = replaced(page, [f"## {title}", *lines])
    return page


def replaced(page: str, section: Sequence[str]) -> str:
    """Return the page with the section of this title replaced, or appended if missing; the title is the first line."""
    before, found, rest = page.partition(f"\n{section[0]}\n")
    after = rest.partition("\n## ")
    tail = f"\n## {after[2]}" if found and after[1] else ""
    return before.rstrip("\n") + "\n\n" + "\n".join(section).rstrip("\n") + "\n" + tail


def _section(figures: Figures, cells: Sequence[Cell], effort: DmlEffort) -> list[str]:
    how = _HOW.format(
        rows=effort.rows,
        warm=effort.warm,
        untimed=effort.untimed,
        runs=effort.runs,
        limit=effort.limit,
        small=effort.small,
        batch=effort.batch,
        codec=CODEC,
    )
    lines = [TITLE, "", *unwrapped(how), "", "| goal | | found |", "|---|---|---|"]
    lines += [f"| {goal.text} | {goal.verdict} | {goal.found} |" for goal in goals(figures, cells)]
    lines += ["", f"![Seconds by job]({JOBS_PLOT})", ""]
    lines += [
        "| job | table | contender | seconds | runs | x | bytes written | objects | peak memory | measured |"
    ]
    lines += ["|---|---|---|---:|---:|---:|---:|---:|---:|---|"]
    lines += _rows(figures)
    worn = [f"{name}: {_ratio(figures, name):.2f}" for name in NAMES if _ratio(figures, name) is not None]
    if worn:
        lines += [
            "",
            f"Reading after ten deletes of 1 %, relative to a freshly written table of the same rows: {', '.join(worn)}.",
        ]
    if cells:
        lines += ["", *unwrapped(_swept(cells)), "", f"![Vectors against rewriting]({SWEEP_PLOT})"]
    return lines


def _ratio(figures: Figures, name: str) -> float | None:
    worn, fresh = (figures.get(SCANS, layout, name) for layout in (WORN, FRESH))
    return worn.median / fresh.median if worn and fresh and worn.median and fresh.median else None


def _rows(figures: Figures) -> Iterator[str]:
    order = {name: place for place, name in enumerate(NAMES)}
    by_pair = {pair: [] for pair in figures.pairs()}
    for figure in figures.all():
        by_pair[figure.job, figure.layout].append(figure)
    for (job, layout), found in by_pair.items():
        peer = figures.get(job, layout, PEER)
        for figure in sorted(found, key=lambda each: order[each.contender]):
            yield f"| {job} | {layout} | {figure.contender} | {_cells(figure, peer)} |"


def _cells(figure: DmlFigure, peer: DmlFigure | None) -> str:
    if figure.median is None:
        return f"failed: {(figure.failure or '').splitlines()[0][:120].replace('|', '/')} | | | | | | {figure.run}"
    runs = f"{min(figure.seconds):.2f}-{max(figure.seconds):.2f} ({len(figure.seconds)})"
    if figure.batches is not None:
        runs += f", {figure.batches} batches"
    same_run = peer is not None and peer.run == figure.run
    ratio = f"{peer.median / figure.median:.2f}" if same_run and peer and peer.median else ""
    written = "" if figure.bytes is None else f"{figure.bytes:,}"
    puts = "" if figure.puts is None else f"{figure.puts:,}"
    return f"{figure.median:.2f} | {runs} | {ratio} | {written} | {puts} | {figure.peak / _MIB:,.0f} MiB | {figure.run}"


def _swept(cells: Sequence[Cell]) -> str:
    sizes, shares = sorted({cell.rows for cell in cells}), sorted({cell.share for cell in cells} - {0.0})
    return _SWEEP.format(
        files=FILES,
        count=len(cells),
        sizes=", ".join(f"{each:,}" for each in sizes),
        operations=", ".join(dict.fromkeys(cell.operation for cell in cells)),
        shares=", ".join(f"{each * 100:g} %" for each in shares),
        fast=sum(cell.is_no_slower for cell in cells),
        few=sum(cell.is_no_costlier for cell in cells),
        both=sum(cell.is_no_slower and cell.is_no_costlier for cell in cells),
    )
