"""Plots of row changes: seconds by job and by batch, and deletion vectors compared with rewriting."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.dml_figures import Figures
from benchmarks.dml_jobs import LAYOUTS
from benchmarks.sweep import OPERATIONS, Cell

__all__ = [
    "BATCHES_PLOT",
    "JOBS_PLOT",
    "MERGE_GRID_PLOT",
    "SWEEP_PLOT",
    "draw_batches",
    "draw_jobs",
    "draw_merge_grid",
    "draw_sweep",
    "figure",
]

JOBS_PLOT, SWEEP_PLOT = "images/row-changes.svg", "images/sweep.svg"
MERGE_GRID_PLOT, BATCHES_PLOT = "images/merge-grid.svg", "images/small-writes.svg"
_COLOURS = {
    "Delvec on Spark": "#0b6e4f",
    "Delvec on Spark, as jobs": "#2f9470",
    "Delvec on DuckDB": "#8fd0b6",
    "delta-spark with DVs": "#3d4f8f",
    "delta-spark without DVs": "#a9b3d9",
    "deltalake": "#b5532a",
}
_LOOKS = {"svg.hashsalt": "delvec", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9}
_ONE_ROW = 0.0005
"""Position of a single row on an axis of shares."""
_WINDOW = 21
"""Batches whose median is one point."""


@contextmanager
def figure(path: Path, panels: int, size: tuple[float, float]) -> Iterator[Any]:
    """Yield axes to draw on, then write an SVG that is reproducible byte for byte."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    with mpl.rc_context(_LOOKS):
        picture, axes = plt.subplots(
            1, panels, figsize=size, layout="constrained", squeeze=False, sharex=True
        )
        yield list(axes.flat)
        for panel in axes.flat:
            panel.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
            panel.set_axisbelow(True)
            panel.spines[["top", "right"]].set_visible(False)
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.savefig(path, metadata={"Date": None, "Creator": None})
        plt.close(picture)


def draw_jobs(figures: Figures, path: Path) -> None:
    """Draw bars of seconds on a logarithmic axis, with a panel per layout."""
    by_layout = {layout: [job for job, on in figures.pairs() if on == layout] for layout in LAYOUTS}
    with figure(path, len(by_layout), (10, 6.4)) as panels:
        for panel, (layout, jobs) in zip(panels, by_layout.items(), strict=True):
            height = 0.8 / len(_COLOURS)
            for place, (name, colour) in enumerate(_COLOURS.items()):
                found = [(row, figures.get(job, layout, name)) for row, job in enumerate(jobs)]
                bars = [(row, each.median) for row, each in found if each is not None]
                if bars:
                    panel.barh(
                        [row + (place - (len(_COLOURS) - 1) / 2) * height for row, _ in bars],
                        [seconds for _, seconds in bars],
                        height,
                        color=colour,
                        label=name,
                    )
            panel.set_yticks(range(len(jobs)), jobs)
            panel.invert_yaxis()
            panel.set_xscale("log")
            panel.set_title(f"{layout}: seconds", loc="left", fontsize=10)
        panels[0].legend(frameon=False, fontsize=8)


def draw_merge_grid(
    figures: Figures, titles: Sequence[str], ours: Sequence[str], peer: str, path: Path
) -> None:
    """Draw how many times faster than a peer each contender of ours is in each case, with a panel per layout."""
    layouts = list(dict.fromkeys(layout for _, layout in figures.pairs()))
    with figure(path, len(layouts), (10, 6.4)) as panels:
        for panel, layout in zip(panels, layouts, strict=True):
            for name in ours:
                points = [
                    (theirs.median / own.median, row)
                    for row, title in enumerate(titles)
                    if (own := figures.get(title, layout, name))
                    and (theirs := figures.get(title, layout, peer))
                    if own.median and theirs.median
                ]
                if points:
                    panel.plot(*zip(*points, strict=True), "o", color=_COLOURS[name], label=name)
            panel.axvline(1.0, color="#444444", linewidth=0.8)
            panel.set_yticks(range(len(titles)), titles)
            panel.invert_yaxis()
            panel.set_xscale("log")
            panel.set_title(f"{layout}: times {peer}", loc="left", fontsize=10)
        panels[0].legend(frameon=False, fontsize=8)


def draw_sweep(cells: Sequence[Cell], path: Path) -> None:
    """Draw the time of deletion vectors relative to rewriting by share of rows, with a panel per operation."""
    sizes = sorted({cell.rows for cell in cells})
    with figure(path, len(OPERATIONS), (10, 3.6)) as panels:
        for panel, operation in zip(panels, OPERATIONS, strict=True):
            for size, colour in zip(sizes, _COLOURS.values(), strict=False):
                points = sorted(
                    (cell.share or _ONE_ROW, cell.ratio)
                    for cell in cells
                    if cell.operation == operation and cell.rows == size
                )
                if points:
                    panel.plot(
                        *zip(*points, strict=True),
                        color=colour,
                        marker="o",
                        markersize=3,
                        label=f"{size:,} rows",
                    )
            panel.axhline(1.0, color="#444444", linewidth=0.8)
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.set_title(f"{operation}: vectors / rewriting", loc="left", fontsize=10)
            panel.set_xlabel("share of rows (leftmost: one row)")
        panels[0].legend(frameon=False, fontsize=8)


def draw_batches(seconds: Mapping[str, Sequence[float]], path: Path) -> None:
    """Draw the rolling median of seconds by the number of the batch, with a line per contender."""
    with figure(path, 1, (8, 4)) as (panel,):
        for name, colour in _COLOURS.items():
            found = seconds.get(name, ())
            if found:
                medians = [
                    statistics.median(found[max(0, place - _WINDOW // 2) : place + _WINDOW // 2 + 1])
                    for place in range(len(found))
                ]
                panel.plot(range(1, len(found) + 1), medians, color=colour, linewidth=1.4, label=name)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_title(f"seconds per batch, median of {_WINDOW}", loc="left", fontsize=10)
        panel.set_xlabel("number of the batch")
        panel.legend(frameon=False, fontsize=8)
