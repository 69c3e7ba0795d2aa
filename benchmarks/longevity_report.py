"""The report's section about a table that lives: goals, totals, seconds by round, and a chart."""

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.contenders import CODEC
from benchmarks.dml_plots import figure
from benchmarks.dml_report import replaced
from benchmarks.longevity_contenders import LIVING
from benchmarks.longevity_figures import Life, Lives, goals, total
from benchmarks.provenance import measured_in, section_head, this_run, unwrapped
from benchmarks.sales import QUERIES

__all__ = ["PLOT", "TITLE", "write_page"]

TITLE = "## A table that lives"
PLOT = "images/longevity.svg"
_MIB = 2**20
_COLOURS = dict(zip(LIVING, ("#0b6e4f", "#8fd0b6", "#2f9470", "#3d4f8f", "#b5532a"), strict=True))
_HOW = """\
How a table ages under daily changes, after [LST-Bench](https://github.com/microsoft/lst-bench)'s package on longevity, in which TPC-DS's queries take
turns with its data maintenance.

- **Table**: one fact table like `store_sales`, {rows:,} rows in {files} files, without partitions, and `item` as a dimension. The rows come from
  our own generator (`benchmarks/sales.py`) with TPC-DS's columns, keys and ranges of values, not from TPC-DS's, so compare these figures with each other only.
- **Round**: a refresh, the contender's maintenance, and {queries} queries.
- **Refresh**: an INSERT of 0.75 % new sales, a DELETE of a range of days (0.75 %), a DELETE of returned tickets scattered over the table (0.25 %), and a
  MERGE by ticket and item of corrections of 0.5 % of the rows and 0.25 % late sales.
- **Contenders** begin with the same files, written by deltalake. Each has its own process, and they take turns in each round. All write Parquet with {codec}.
- **Check.** After each round the tables of all contenders held the same rows: equal counts, and equal sums of a hash over all columns of each row.
- **Queries** are run once untimed in each round ({warm} times before round 0), then up to {runs} times. A round's seconds are the sum of the queries' medians.
- **Slower** compares the table after the last round with a copy of the table of round 0. Both are queried in turns in the same process, so that a warmer JVM
  or other load does not count.
- **Rate** is LST-Bench's: the mean change of seconds from one round to the next.
- **Objects and bytes written** are found by listing the table before and after, log and deletion vectors included. On an object store each object takes at
  least one PUT.

Run it with `make bench PART=longevity`; `--scale` sizes the table, `--contenders` measures some again, and `--quick` takes a minute or two with a small table."""
_CANNOT = """\
What to know about these figures:

- deltalake has no deletion vectors, so each DELETE and MERGE rewrites the files that it touches.
- delta-spark's auto-compaction is part of the commit that triggers it, so its seconds and bytes are in the refresh. The versions above say how often it ran.
- `lake.sql` runs each query in a DuckDB database of its own that can only open the table's files. This is a fixed cost, which weighs most where one ticket is looked up.
- Sizes of files are each contender's default.
- VACUUM deletes nothing in this time, with any contender: the retention is a week."""


def write_page(out: Path, lives: Lives, effort: object, rows: int) -> None:
    """Replace the section in the page at ``out``, and write its chart next to it.

    Args:
        out: the page.
        lives: the figures.
        effort: the size of the measurement.
        rows: number of rows in round 0.
    """
    measured = [life for name in LIVING if (life := lives.get(name)) is not None]
    out.parent.mkdir(parents=True, exist_ok=True)
    _draw(measured, out.parent / PLOT)
    earlier = out.read_text() if out.exists() else "# Benchmarks\n"
    out.write_text(replaced(earlier, list(_section(lives, measured, effort, rows))))


def _section(lives: Lives, measured: Sequence[Life], effort: object, rows: int) -> Iterator[str]:
    how = _HOW.format(rows=rows, codec=CODEC, queries=len(QUERIES), **vars(effort))
    yield from section_head(TITLE, how, [life.run for life in measured])
    yield from ["| goal | | found |", "|---|---|---|"]
    last = max((len(life.rounds) for life in measured), default=1) - 1
    for goal in goals(lives, last):
        yield f"| {goal.text} | {goal.verdict} | {goal.found} |"
    yield from ["", f"![Seconds of the queries, relative to round 0]({PLOT})", ""]
    yield "| contender | round 0 | last round | slower | rate | refreshes | maintenance | written by refreshes | by maintenance | objects | live files | live bytes | peak memory |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for life in measured:
        yield f"| {life.contender} | {' | '.join(_cells(life))} |"
    yield from ["", "Seconds of the queries by round:", ""]
    yield f"| contender | {' | '.join(map(str, range(last + 1)))} |"
    yield f"|---|{'---:|' * (last + 1)}"
    for life in measured:
        yield f"| {life.contender} | {' | '.join(_by_round(life, last))} |"
    yield from [
        "",
        "Milliseconds of each query, on the table of round 0 → after the last round, in turns:",
        "",
    ]
    yield f"| contender | {' | '.join(QUERIES)} |"
    yield f"|---|{'---:|' * len(QUERIES)}"
    for life in measured:
        yield f"| {life.contender} | {' | '.join(_by_query(life))} |"
    absent = [name for name in LIVING if lives.get(name) is None]
    if absent:
        yield from [
            "",
            (
                f"Not measured in this run: {', '.join(absent)}. With all contenders ten rounds take about half an hour on this "
                "machine (`--minutes 30`)."
            ),
        ]
    yield from ["", "Settings, all of them, and what maintenance did:", ""]
    for life in measured:
        yield _told(life)
    yield from ["", *unwrapped(_CANNOT)]


def _cells(life: Life) -> list[str]:
    if len(life.rounds) < 2 or not life.rounds[-1].queries:
        return [f"failed: {(life.failure or '').splitlines()[0][:160].replace('|', '/')}", *[""] * 11]
    seconds = [total(each.queries) for each in life.rounds]
    refreshes = sum(sum(each.refresh.values()) for each in life.rounds)
    slower, rate = life.degradation, life.rate
    return [
        f"{seconds[0]:.2f} s",
        f"{seconds[-1]:.2f} s",
        "" if slower is None else f"{slower:+.1%}",
        "" if rate is None else f"{rate:+.1%}",
        f"{refreshes:.1f} s",
        f"{sum(each.upkeep for each in life.rounds):.1f} s",
        f"{sum(each.put[1] for each in life.rounds) / _MIB:,.1f} MiB",
        f"{sum(each.upkeep_put[1] for each in life.rounds) / _MIB:,.1f} MiB",
        f"{life.objects:,}",
        f"{life.files:,}",
        f"{life.size / _MIB:,.1f} MiB",
        f"{life.peak / _MIB:,.0f} MiB",
    ]


def _by_round(life: Life, last: int) -> list[str]:
    cells = [f"{total(each.queries):.2f}" if each.queries else "" for each in life.rounds]
    return cells + [""] * (last + 1 - len(cells))


def _by_query(life: Life) -> list[str]:
    if not life.aged:
        return [""] * len(QUERIES)
    pairs = ((life.fresh[name], life.aged[name]) for name in QUERIES)
    return [
        f"{1000 * statistics.median(fresh):.0f} → {1000 * statistics.median(aged):.0f}"
        for fresh, aged in pairs
    ]


def _told(life: Life) -> str:
    contender = LIVING[life.contender]
    versions = ", ".join(f"{count} {name}" for name, count in life.operations.items())
    text = f"- {life.contender}: {contender.settings}. Queries through {contender.reads}. Versions: {versions or 'none'}."
    rounds = [
        f"after round {number}: {'; '.join(each.did)}" for number, each in enumerate(life.rounds) if each.did
    ]
    if rounds:
        text += f" Maintenance {'. '.join(rounds)}."
    if life.run != this_run():
        text += f" {measured_in([life.run])}"
    if life.failure:
        text += f" **Failed**: {life.failure.splitlines()[0]}"
    return text


def _draw(measured: Sequence[Life], path: Path) -> None:
    """Draw each round's seconds relative to round 0, and bytes written so far, a line for each contender."""
    with figure(path, 2, (10, 3.8)) as (slower, written):
        for life in measured:
            points = [total(each.queries) for each in life.rounds if each.queries]
            if not points:
                continue
            look = {
                "color": _COLOURS[life.contender],
                "marker": "o",
                "markersize": 3,
                "label": life.contender,
            }
            slower.plot(range(len(points)), [each / points[0] for each in points], **look)
            sums, so_far = [], 0
            for each in life.rounds[: len(points)]:
                so_far += each.put[1] + each.upkeep_put[1]
                sums.append(so_far / _MIB)
            written.plot(range(len(sums)), sums, **look)
        slower.axhline(1.0, color="#444444", linewidth=0.8)
        slower.set_title("seconds of the queries / round 0", loc="left", fontsize=10)
        written.set_title("MiB written since round 0", loc="left", fontsize=10)
        for panel in (slower, written):
            panel.set_xlabel("round")
        written.legend(frameon=False, fontsize=8)
