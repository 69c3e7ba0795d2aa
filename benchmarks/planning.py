"""Planning a scan of ten thousand files: in the client, and as seen by each engine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake

import delvec
from benchmarks.contenders import Contender
from benchmarks.measure import Figure, timed
from benchmarks.tables import many_files

__all__ = ["measure_planning"]


def measure_planning(
    lake: delvec.Connection,
    spark: Any,
    contenders: list[Contender],
    scratch: Path,
    *,
    files: int,
    runs: int,
    say: Callable[[str], None],
) -> list[Figure]:
    """Return figures for the plan alone and for counts of one row per file on each engine, read and by count()."""
    location = scratch / "many"
    many_files(location, files)
    figures = []
    first = Figure(f"first plan of {files:,} files", "Delvec client")
    first.seconds.append(timed(lambda: lake.table(str(location)).files()))
    warm = Figure(f"plan of {files:,} files, warm", "Delvec client")
    selective = Figure(f"plan of {files:,} files, selective predicate", "Delvec client")
    for _ in range(runs):
        warm.seconds.append(timed(lambda: lake.table(str(location)).files()))
        selective.seconds.append(timed(lambda: lake.table(str(location)).plan(None, "id < 0", None, None)))
    peer = Figure(f"plan of {files:,} files, warm", "deltalake (load and list)")
    for _ in range(runs):
        peer.seconds.append(timed(lambda: deltalake.DeltaTable(str(location)).file_uris()))
    figures += [first, warm, selective, peer]
    dataframe = Figure(f"DataFrame of {files:,} files made and planned", "Delvec on Spark")
    delta = Figure(f"DataFrame of {files:,} files made and planned", "delta-spark with DVs")
    for _ in range(runs):
        dataframe.seconds.append(timed(lambda: lake.table(str(location), engine=spark).to_df().explain()))
        delta.seconds.append(timed(lambda: spark.read.format("delta").load(str(location)).explain()))
    figures += [dataframe, delta]
    for contender in contenders:
        jobs = {
            f"count over {files:,} files": contender.read_count,
            f"count() of {files:,} files": contender.count,
        }
        for job, count in jobs.items():
            figure = Figure(job, contender.name)
            for number in range(runs + 1):
                seconds = timed(lambda c=count: c(location))
                if number:
                    figure.seconds.append(seconds)
            figures.append(figure)
    for figure in figures:
        say(f"{figure.job}, {figure.contender}: {figure.median:.2f} s ({figure.spread})")
    return figures
