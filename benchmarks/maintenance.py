"""OPTIMIZE, Z-order and VACUUM beside deltalake's: ``python -m benchmarks.maintenance``; prints a table for docs/optimize.md.

Each run has a process and a copy of the table of its own. CPU seconds are of all threads; memory is the most that the process
had, with Python and its libraries.
"""

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import delvec
from benchmarks.provenance import machine, measured_in, this_run

_FILES, _ROWS = 200, 20_000
_TARGET = 4 << 20
_OLD_FILES = 20_000
_FILTERS = 50
JOBS = ("compact", "z-order", "z-order again", "vacuum")


def write_source(location: Path) -> None:
    """Write 4 M rows into 200 files, in an order by which no file can be skipped."""
    table = delvec.connect().create_table(
        location,
        "id long, a long, b double, s string, c int",
        properties={"delta.enableDeletionVectors": "false", "delta.targetFileSize": str(_TARGET)},
    )
    draw = np.random.default_rng(0)
    for number in range(_FILES):
        table.append(
            pa.table(
                {
                    "id": np.arange(number * _ROWS, (number + 1) * _ROWS),
                    "a": draw.integers(0, 10**9, _ROWS),
                    "b": draw.normal(size=_ROWS),
                    "s": [f"v{each}" for each in draw.integers(0, 10**6, _ROWS)],
                    "c": draw.integers(0, 1000, _ROWS).astype(np.int32),
                }
            )
        )


def _calls(contender: str, location: Path) -> dict[str, Callable[[], Any]]:
    if contender == "Delvec":
        table = delvec.connect().table(location)
        return {
            "compact": lambda: table.optimize(target_size=1 << 30),
            "z-order": lambda: table.optimize.z_order(["a", "c"]),
            "vacuum": lambda: table.vacuum(200),
        }
    import deltalake

    peer = deltalake.DeltaTable(str(location))
    return {
        "compact": lambda: peer.optimize.compact(target_size=1 << 30),
        "z-order": lambda: peer.optimize.z_order(["a", "c"], target_size=_TARGET),
        "vacuum": lambda: peer.vacuum(200, dry_run=False, full=True),
    }


def measure(contender: str, job: str, location: Path) -> dict[str, float]:
    """Do a job in this process; return what it took."""
    calls = _calls(contender, location)
    if job == "z-order again":
        calls["z-order"]()
    if job == "vacuum":
        old = time.time() - 30 * 86400
        for number in range(_OLD_FILES):
            path = location / f"old-{number:06}.parquet"
            path.write_bytes(b"old")
            os.utime(path, (old, old))
    cpu, wall = time.process_time(), time.perf_counter()
    calls[job.removesuffix(" again")]()
    taken = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    read = _files_read(location) if job == "z-order" else 0.0
    return taken | {"memory": float(memory), "read": read}


def _files_read(location: Path) -> float:
    """Return the share of the files that 100 narrow filters over two columns read."""
    table, dice = delvec.connect().table(location), random.Random(5)
    read = 0
    for _ in range(_FILTERS):
        a, c = dice.randrange(10**9), dice.randrange(1000)
        for predicate in (f"a between {a} and {a + 10**7}", f"c between {c} and {c + 10}"):
            read += len(table.plan(predicate=predicate)[0])
    return read / (2 * _FILTERS * len(table.plan()[0]))


def main() -> None:
    """Run each job by each contender, in turn, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--one", nargs=3, metavar=("CONTENDER", "JOB", "LOCATION"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        contender, job, location = given.one
        print(json.dumps(measure(contender, job, Path(location))))
        return
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        write_source(Path(folder) / "source")
        for _ in range(given.runs):
            for job in JOBS:
                for contender in ("Delvec", "deltalake"):
                    copy = Path(folder) / "copy"
                    shutil.copytree(Path(folder) / "source", copy)
                    order = [
                        sys.executable,
                        "-m",
                        "benchmarks.maintenance",
                        "--one",
                        contender,
                        job,
                        str(copy),
                    ]
                    done = subprocess.run(order, check=True, capture_output=True, text=True)
                    found.setdefault((job, contender), []).append(json.loads(done.stdout.splitlines()[-1]))
                    shutil.rmtree(copy)
    print(
        "| job | | CPU seconds | seconds | most memory | files read by 100 filters |\n|---|---|---|---|---|---|"
    )
    for (job, contender), runs in found.items():
        middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        share = f"{middle['read']:.0%}" if middle["read"] else ""
        print(
            f"| {job} | {contender} | {middle['cpu']:.2f} | {middle['wall']:.2f} | {middle['memory'] / 2**20:.0f} MiB | {share} |"
        )
    print(f"\n{measured_in([this_run()])} {machine()}")


if __name__ == "__main__":
    main()
