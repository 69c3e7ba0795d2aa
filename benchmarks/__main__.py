"""Run everything: ``python -m benchmarks [--rows N] [--warm N] [--runs N] [--only PART] [--out FILE]``."""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

import delvec
from benchmarks.contenders import Contender, DeltaSpark, DelvecOnDuckDB, DelvecOnSpark, spark_session
from benchmarks.deletes import measure_deletes, measure_scans
from benchmarks.measure import Figure, load, save
from benchmarks.planning import measure_planning
from benchmarks.report import markdown
from benchmarks.tables import write_people

PARTS = ("deletes", "scans", "planning")
KEPT = Path(".build/benchmarks")


def say(message: str) -> None:
    """Print at once, so that a long run can be followed."""
    print(message, flush=True)


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--warm", type=int, default=10)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--only", choices=PARTS, help="measure one part again and keep the figures of the others"
    )
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks.md"))
    arguments = parser.parse_args()
    jars = os.environ.get("DELVEC_TEST_JARS")
    if jars is None:
        sys.exit("the JARs of delta-spark are missing: install Maven and run `make bench` again")
    scratch = Path(tempfile.mkdtemp(prefix="delvec-bench-"))
    os.environ["DELVEC_DATABASE_URL"] = f"sqlite:///{scratch / 'delvec.db'}"
    spark = spark_session(Path(jars), scratch, os.cpu_count() or 1)
    try:
        source = scratch / "people.parquet"
        write_people(source, arguments.rows)
        templates = {}
        for name, enabled in (("dv", "true"), ("plain", "false")):
            templates[name] = scratch / f"template-{name}"
            frame = spark.read.parquet(str(source)).coalesce(1)
            writer = frame.write.format("delta").option("delta.enableDeletionVectors", enabled)
            writer.save(str(templates[name]))
        say(f"the table has {sum(f.stat().st_size for f in templates['dv'].glob('*.parquet')):,} bytes")
        with delvec.connect() as lake:
            contenders: list[Contender] = [
                DelvecOnSpark(lake, spark),
                DelvecOnDuckDB(lake, spark),
                DeltaSpark(spark, deletion_vectors=True),
                DeltaSpark(spark, deletion_vectors=False),
            ]
            warm, runs = arguments.warm, arguments.runs
            rows = arguments.rows
            measured: dict[str, list[Figure]] = {}
            if arguments.only in (None, "deletes"):
                measured["deletes"] = measure_deletes(
                    contenders, templates, scratch, rows=rows, warm=warm, runs=runs, say=say
                )
            if arguments.only in (None, "scans"):
                measured["scans"] = measure_scans(
                    contenders, templates, scratch, warm=max(1, warm // 3), runs=runs, say=say
                )
            if arguments.only in (None, "planning"):
                measured["planning"] = measure_planning(
                    lake, spark, contenders[:3], scratch, files=arguments.files, runs=runs, say=say
                )
        figures: list[Figure] = []
        for part in PARTS:
            kept = KEPT / f"{part}.json"
            if part in measured:
                save(kept, measured[part])
            figures += load(kept)
        arguments.out.write_text(markdown(figures, rows=rows, warm=warm, runs=runs))
        say(f"written to {arguments.out}")
    finally:
        spark.stop()
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
