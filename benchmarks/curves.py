"""Plots the cost of planning by the number of files."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import Figure

__all__ = ["draw"]

_PANELS = {
    "first": "first plan, nothing cached (s)",
    "selective": "warm plan of 3 files (s)",
    "partition": "warm plan of one partition (s)",
    "memory": "resident memory (MiB)",
}
_LOOKS = {
    "Delvec": ("#0b6e4f", "o", "-"),
    "deltalake": ("#b5532a", "s", "--"),
    "DuckDB delta": ("#8a6d00", "^", ":"),
    "delta-spark": ("#3d4f8f", "D", "-."),
}


def draw(figures: Sequence[Figure], path: Path) -> None:
    """Write an SVG with one panel per job, logarithmic axes and one line per contender; reproducible byte for byte."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    looks = {"svg.hashsalt": "delvec", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9}
    with mpl.rc_context(looks):
        picture, axes = plt.subplots(2, 2, figsize=(9, 6.4), layout="constrained")
        for panel, (job, title) in zip(axes.flat, _PANELS.items(), strict=True):
            for name, (colour, marker, line) in _LOOKS.items():
                points = sorted(
                    (figure.files, _height(figure))
                    for figure in figures
                    if figure.job == job and figure.contender == name and figure.files is not None
                )
                if points:
                    panel.plot(
                        *zip(*points, strict=True), color=colour, marker=marker, linestyle=line, label=name
                    )
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.set_title(title, loc="left", fontsize=10)
            panel.set_xlabel("files")
            panel.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
            panel.spines[["top", "right"]].set_visible(False)
        axes.flat[0].legend(frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.savefig(path, metadata={"Date": None, "Creator": None})
        plt.close(picture)


def _height(figure: Figure) -> float:
    return figure.median if figure.seconds else (figure.resident or 0) / 2**20
