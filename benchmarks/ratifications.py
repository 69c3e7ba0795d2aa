"""Staged commits of one action that Delvec ratifies as a catalog, beside the same append by ``POST …/commits``.

    python -m benchmarks.ratifications [--clients N] [--commits N]

Prints a table for ``docs/benchmarks.md``. Each client has a managed table and a path table of its own and commits to them in turn,
so that load on the machine meets both alike. Only the request that commits is timed: a client of the catalog also writes the
staged file, and a client of a path table does not. The tables are on local disk, each commit is synced.
"""

import argparse
import sys
import tempfile
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import httpx
from tests.support.catalog_client import ManagedTable

import delvec
from benchmarks.measure import Figure
from benchmarks.service import Service

_UNTIMED: Final = 5
"""Commits of each client before the first that counts."""


def main() -> None:
    """Measure with one client and with several, and print a row for each."""
    parser = argparse.ArgumentParser(description="Measure ratifications beside commits to path tables.")
    parser.add_argument("--clients", type=int, default=8, help="clients at once (8)")
    parser.add_argument("--commits", type=int, default=60, help="commits of a client to each table (60)")
    arguments = parser.parse_args()
    sys.stdout.write(
        "| clients | ratification, p50, p99 | `POST …/commits`, p50, p99 | ratio of p50 |\n|---|---|---|---|\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        warehouse = Path(folder) / "lake"
        warehouse.mkdir()
        settings = {"DELVEC_WAREHOUSE": str(warehouse)}
        with Service(warehouse, Path(folder) / "store.db", settings) as service:
            for clients in (1, arguments.clients):
                sys.stdout.write(_row(service.url, warehouse, clients, arguments.commits))
                sys.stdout.flush()


def _row(url: str, warehouse: Path, clients: int, commits: int) -> str:
    start = threading.Barrier(clients)
    with ThreadPoolExecutor(clients) as pool:
        runs = [pool.submit(_client, url, warehouse, start, commits) for _ in range(clients)]
        ratified, committed = ([second for run in runs for second in run.result()[kind]] for kind in (0, 1))
    ratification, commit = Figure("ratification", "Delvec", ratified), Figure("commit", "Delvec", committed)
    ratio = ratification.median / commit.median
    return f"| {clients} | {_cell(ratification)} | {_cell(commit)} | {ratio:.2f} |\n"


def _cell(figure: Figure) -> str:
    return f"{figure.median * 1000:.1f} ms, {figure.percentile(99) * 1000:.1f} ms"


def _client(
    url: str, warehouse: Path, start: threading.Barrier, commits: int
) -> tuple[list[float], list[float]]:
    name = f"t{uuid.uuid4().hex[:12]}"
    ratified, committed = [], []
    with httpx.Client(base_url=url, timeout=60) as http, delvec.connect(url) as lake:
        managed = ManagedTable(http, name).create()
        path = lake.create_table(warehouse / f"path_{name}", "id long")
        add = managed.file([1, 2, 3])
        (warehouse / f"path_{name}" / add["add"]["path"]).write_bytes(
            (Path(str(managed.folder)) / add["add"]["path"]).read_bytes()
        )
        start.wait(60)
        for number in range(commits + _UNTIMED):
            for folder in (Path(str(managed.folder)), warehouse / f"path_{name}"):
                (folder / f"{number}.parquet").hardlink_to(folder / add["add"]["path"])
            fresh = {**add["add"], "path": f"{number}.parquet"}
            staged = managed.staged([{"add": fresh}], version=number + 1)
            body = {"read-version": number, "operation": "WRITE", "adds": [fresh]}
            ratified.append(_seconds(http, managed.url, staged))
            committed.append(_seconds(http, f"/v1/tables/{path.id}/commits", body))
    return ratified[_UNTIMED:], committed[_UNTIMED:]


def _seconds(http: httpx.Client, path: str, body: dict[str, object]) -> float:
    began = time.perf_counter()
    answer = http.post(path, json=body)
    seconds = time.perf_counter() - began
    answer.raise_for_status()
    return seconds


if __name__ == "__main__":
    main()
