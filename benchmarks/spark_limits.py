"""What the same work costs Spark without a table format: ``python -m benchmarks.spark_limits [--rows N] [--runs N] [--out FILE]``.

A format that lets Spark write or read the rows cannot be faster than Spark alone on the same Parquet files.
"""

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.contenders import CODEC, read_all
from benchmarks.dml_contenders import PEER, DeltaSpark, DelvecOnSpark
from benchmarks.dml_report import replaced
from benchmarks.dml_tables import variant, write_sources
from benchmarks.measure import timed
from benchmarks.provenance import section_head
from benchmarks.tables import clone, write_people

_ALONE = "Spark alone"
_WARM = 3
_HOW = """\
How much of the time is Spark's own: the same rows without a table format.

- **Spark alone** writes or reads Parquet files of the same rows, and nothing else: no log, no statistics, no deletion vectors. For the
  change feed it reads the files with the changed rows; for the scan the table's file with all rows, since it knows none that are deleted.
- **Runs.** All contenders share one Spark session and take turns. The median is given, then the fastest and the slowest run.

Run it with `make bench PART=limits`."""


def main() -> None:
    """Measure, print, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks.md"))
    arguments = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="delvec-bench-"))
    os.environ["XDG_STATE_HOME"] = str(scratch)
    try:
        lines = section_head("## Limits on Spark", _HOW)
        lines += ["| job | contender | seconds | runs | times delta-spark |", "|---|---|---:|---|---:|"]
        for job, contenders in _jobs(scratch, arguments.rows).items():
            lines += _measured(job, contenders, arguments.runs)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    arguments.out.write_text(replaced(arguments.out.read_text(), lines))


def _jobs(scratch: Path, rows: int) -> Mapping[str, Mapping[str, Callable[[], Any]]]:
    """Return the jobs: by contender, what to measure."""
    delvec, peer = DelvecOnSpark(scratch), DeltaSpark(scratch)
    spark = delvec.spark
    made, source = scratch / "people", scratch / "people.parquet"
    write_people(source, rows)
    spark.read.parquet(str(source)).coalesce(1).write.format("delta").save(str(made))
    sources = write_sources(scratch / "sources", rows)
    ours, theirs = (variant(made, scratch / name, "dv") for name in ("ours", "theirs"))
    plain = scratch / "plain"

    def append_alone() -> None:
        appended = spark.read.parquet(str(sources["appended"]))
        appended.write.mode("append").option("compression", CODEC).parquet(str(plain))

    feeds = {}
    for contender, name in ((delvec, "our-feed"), (peer, "their-feed")):
        feeds[name] = variant(made, scratch / name, "dv-feed")
        contender.update(feeds[name], "id % 100 = 42")
    changed = [str(file) for file in (feeds["our-feed"] / "_change_data").rglob("*.parquet")]
    worn = variant(made, scratch / "worn", "dv")
    for number in range(10):
        delvec.delete(worn, f"id % 100 = {number}")
    whole = [str(file) for file in made.glob("*.parquet")]
    scanned = clone(worn, scratch / "scanned")
    return {
        "append of 10 %": {
            DelvecOnSpark.name: lambda: delvec.append(ours, sources["appended"]),
            _ALONE: append_alone,
            PEER: lambda: peer.append(theirs, sources["appended"]),
        },
        "change feed of UPDATE 1 %": {
            DelvecOnSpark.name: lambda: delvec.changes(feeds["our-feed"], 1),
            _ALONE: lambda: read_all(spark.read.parquet(*changed)),
            PEER: lambda: peer.changes(feeds["their-feed"], 1),
        },
        "scan after ten DELETE 1 %": {
            DelvecOnSpark.name: lambda: delvec.scan(worn),
            _ALONE: lambda: read_all(spark.read.parquet(*whole)),
            PEER: lambda: peer.scan(scanned),
        },
    }


def _measured(job: str, contenders: Mapping[str, Callable[[], Any]], runs: int) -> list[str]:
    """Return the lines of one job; contenders take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(_WARM + runs):
        for name, work in contenders.items():
            took = timed(work)
            if turn >= _WARM:
                seconds[name].append(took)
    theirs = median(seconds[PEER])
    lines = []
    for name, found in seconds.items():
        middle = median(found)
        span = f"{min(found):.2f}-{max(found):.2f} ({len(found)})"
        lines.append(f"| {job} | {name} | {middle:.2f} | {span} | {theirs / middle:.2f} |")
        print(lines[-1], flush=True)
    return lines


if __name__ == "__main__":
    main()
