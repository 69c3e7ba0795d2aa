"""Converted tables in use: ``python -m benchmarks.iceberg_readers [--rows N] [--rate N] [--seconds N] [--only scan|lag]``.

One part scans a table in one Spark session, by delta-spark and by Iceberg for Spark, in turn. The other commits at a steady
rate to tables that the service converts in the background, and samples how far the conversions lag behind.
"""

import argparse
import itertools
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import delvec
from benchmarks.contenders import spark_session
from benchmarks.measure import timed
from benchmarks.provenance import machine, measured_in, this_run
from benchmarks.service import Service
from benchmarks.tables import people_batches

_FILES = 32
_WARM, _RUNS = 2, 5
_EVERY = 0.25
_CATCH_UP = 60.0


def main() -> None:
    """Measure, and print tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rate", type=float, default=20.0, help="commits a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", choices=["scan", "lag"])
    arguments = parser.parse_args()
    print(f"{machine()}. {measured_in([this_run()])}\n")
    with tempfile.TemporaryDirectory() as folder:
        if arguments.only != "lag":
            print("".join(_scans(Path(folder), arguments.rows)), flush=True)
        if arguments.only != "scan":
            print("".join(_lags(Path(folder), arguments.rate, arguments.seconds)))


# --- scans --------------------------------------------------------------------------------------------------


def _scans(folder: Path, rows: int) -> Iterator[str]:
    spark = spark_session(Path(os.environ["DELVEC_TEST_JARS"]), folder, 2, more=("iceberg-spark-runtime",))
    with delvec.connect(warehouse=folder) as lake:
        batches = people_batches(rows, step=-(-rows // _FILES))
        first = next(batches)
        table = lake.create_table(folder / "people", first.schema, properties={"delta.targetFileSize": "1gb"})
        for batch in itertools.chain([first], batches):
            table.append(batch)
        # A tenth of the rows of three files in ten.
        table.delete(f"id % 10 = 7 AND id < {rows * 3 // 10}")
        found = {version: table.to_iceberg(format_version=version)["metadata-location"] for version in (2, 3)}
    iceberg = spark.read.format("iceberg")
    jobs: dict[str, Callable[[], Any]] = {
        "Delta, by delta-spark": lambda: spark.read.format("delta").load(str(folder / "people")),
        "Iceberg, format version 2": lambda: iceberg.load(found[2]),
        "Iceberg, format version 3": lambda: iceberg.load(found[3]),
    }
    sums = {name: _sum(frame()) for name, frame in jobs.items() for _ in range(_WARM)}
    if len(set(sums.values())) != 1:
        raise SystemExit(f"the formats have different rows: {sums}")
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(_RUNS):
        for name, frame in jobs.items():
            seconds[name].append(timed(lambda frame=frame: _sum(frame())))  # type: ignore[misc] # bound now
    spark.stop()
    base = median(seconds["Delta, by delta-spark"])
    yield f"{rows:,} rows in {_FILES} files, 30 % of them with deletion vectors of a tenth of their rows.\n\n"
    yield "| scan of all columns | median | fastest, slowest | times Delta |\n|---|---:|---:|---:|\n"
    for name, taken in seconds.items():
        yield f"| {name} | {median(taken):.2f} s | {min(taken):.2f} s, {max(taken):.2f} s | {median(taken) / base:.2f} |\n"


def _sum(frame: Any) -> tuple[int, ...]:
    """Return the count, and a sum of hashes over all columns."""
    from pyspark.sql import functions

    columns = [functions.xxhash64(name) % 1_000_003 for name in frame.columns]
    return tuple(frame.select(functions.count("*"), *(functions.sum(column) for column in columns)).first())


# --- lag ----------------------------------------------------------------------------------------------------


def _lags(folder: Path, rate: float, seconds: float) -> Iterator[str]:
    yield f"A row deleted or appended {rate:g} times a second for {seconds:g} seconds; the lag was sampled four times a second.\n\n"
    yield "| converted to | commits | versions behind: median, most | seconds behind: median, most | caught up after |\n"
    yield "|---|---:|---:|---:|---:|\n"
    for versions in ("2", "3", "2,3"):
        place = folder / f"lag-{versions[-1]}-{len(versions)}"
        place.mkdir()
        with Service(place, place / "store.db") as service, delvec.connect(service.url) as lake:
            yield _lag(lake, str(place / "table"), versions, rate, seconds)


def _lag(lake: delvec.Connection, location: str, versions: str, rate: float, seconds: float) -> str:
    table = lake.create_table(location, "id long", properties={"delvec.iceberg.formatVersions": versions})
    table.append([{"id": number} for number in range(100_000)])
    samples: list[tuple[int, float]] = []
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(_EVERY):
            samples.append(_behind(table))

    sampler = threading.Thread(target=sample)
    sampler.start()
    began = time.monotonic()
    done = 0
    while (now := time.monotonic() - began) < seconds:
        if done >= now * rate:
            time.sleep(done / rate - now)
        if done % 2:
            table.append([{"id": 100_000 + done}])
        else:
            table.delete(f"id = {done}")
        done += 1
    last = time.monotonic()
    ended.set()
    sampler.join()
    while _behind(table)[0] and time.monotonic() - last < _CATCH_UP:
        time.sleep(0.05)
    caught_up = time.monotonic() - last
    behind, waiting = zip(*samples, strict=True)
    return (
        f"| {versions} | {done:,} in {last - began:.0f} s | {median(behind):g}, {max(behind)} | "
        f"{median(waiting):.2f} s, {max(waiting):.2f} s | {caught_up:.1f} s |\n"
    )


def _behind(table: delvec.DeltaTable) -> tuple[int, float]:
    """Return how many versions and seconds the last conversion is behind, for the format version that is most."""
    found = table.health()["iceberg"]
    return max(each["lag-versions"] for each in found), max(each["lag-seconds"] or 0.0 for each in found)


if __name__ == "__main__":
    main()
