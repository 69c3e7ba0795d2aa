"""Run everything: ``python -m benchmarks [--only PART ...] [--quick] [--rows N] [--warm N] [--runs N] [--out FILE]``."""

import argparse
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import delvec
from benchmarks.command_line import KEPT, parsed
from benchmarks.commits import QUICK_COMMITS, CommitEffort, measure_commits
from benchmarks.contenders import Contender, DeltaSpark, DelvecOnDuckDB, DelvecOnSpark, spark_session
from benchmarks.curves import draw
from benchmarks.dml_report import with_section_of
from benchmarks.large import QUICK, Effort, measure_large
from benchmarks.measure import Figure, load, save, say
from benchmarks.planning import measure_planning
from benchmarks.reading_report import PLOT
from benchmarks.report import markdown
from benchmarks.scans import measure_scans
from benchmarks.tables import write_people
from benchmarks.vectors import measure_vectors

PARTS = ("scans", "planning", "vectors", "commits", "large")
SECTIONS = ("large", "commits")


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--warm", type=int, default=10)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--only",
        choices=PARTS,
        nargs="+",
        default=PARTS,
        help="measure these parts again and keep the figures of the others",
    )
    arguments, kept = parsed(parser)
    if arguments.quick:
        arguments.rows, arguments.files, arguments.warm, arguments.runs = 100_000, 500, 1, 2
    scratch = Path(tempfile.mkdtemp(prefix="delvec-bench-"))
    os.environ["XDG_STATE_HOME"] = str(scratch)
    try:
        if "large" in arguments.only:
            effort = QUICK if arguments.quick else Effort()
            save(kept / "large.json", measure_large(KEPT, scratch, effort, say))
        if set(arguments.only) - {"large"}:
            _with_spark(arguments, scratch, kept)
        figures = {part: load(kept / f"{part}.json") for part in PARTS}
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        if figures["large"]:
            draw(figures["large"], arguments.out.parent / PLOT)
        others = [figure for part in PARTS if part not in SECTIONS for figure in figures[part]]
        earlier = arguments.out.read_text() if arguments.out.exists() else ""
        page = markdown(
            others,
            figures["large"],
            figures["commits"],
            earlier,
            rows=arguments.rows,
            warm=arguments.warm,
            runs=arguments.runs,
        )
        arguments.out.write_text(with_section_of(page, earlier))
        say(f"written to {arguments.out}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _with_spark(arguments: argparse.Namespace, scratch: Path, kept: Path) -> None:
    """Measure the parts that compare engines in one Spark session."""
    spark = spark_session(Path(os.environ["DELVEC_TEST_JARS"]), scratch, os.cpu_count() or 1)
    warm, runs = arguments.warm, arguments.runs
    scans_warm = max(1, warm // 3)
    try:
        with delvec.connect() as lake:
            contenders: list[Contender] = [
                DelvecOnSpark(lake, spark),
                DelvecOnDuckDB(lake, spark),
                DeltaSpark(spark, deletion_vectors=True),
                DeltaSpark(spark, deletion_vectors=False),
            ]
            measured: dict[str, list[Figure]] = {}
            if "scans" in arguments.only:
                templates = _templates(spark, scratch, arguments.rows)
                measured["scans"] = measure_scans(
                    contenders, templates, scratch, warm=scans_warm, runs=runs, say=say
                )
            if "planning" in arguments.only:
                measured["planning"] = measure_planning(
                    lake, spark, contenders[:3], scratch, files=arguments.files, runs=runs, say=say
                )
            if "vectors" in arguments.only:
                measured["vectors"] = measure_vectors(
                    lake, spark, KEPT, files=arguments.files, warm=scans_warm, runs=runs, say=say
                )
            if "commits" in arguments.only:
                effort = QUICK_COMMITS if arguments.quick else CommitEffort()
                measured["commits"] = measure_commits(spark, KEPT, scratch, effort, say)
    finally:
        spark.stop()
    for part, figures in measured.items():
        save(kept / f"{part}.json", figures)


def _templates(spark: Any, scratch: Path, rows: int) -> dict[str, Path]:
    """Return the tables for scans, with and without deletion vectors."""
    source = scratch / "people.parquet"
    write_people(source, rows)
    templates = {}
    for name, enabled in (("dv", "true"), ("plain", "false")):
        templates[name] = scratch / f"template-{name}"
        frame = spark.read.parquet(str(source)).coalesce(1)
        writer = frame.write.format("delta").option("delta.enableDeletionVectors", enabled)
        writer.save(str(templates[name]))
    say(f"the table has {sum(f.stat().st_size for f in templates['dv'].glob('*.parquet')):,} bytes")
    return templates


if __name__ == "__main__":
    main()
