"""Clients that commit in a loop over HTTP, each in its own process."""

import base64
import json
import multiprocessing
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from pyroaring import BitMap64

from delvec_kernel.deletion_vectors.deletion_vector import serialize_bitmap

__all__ = ["Load", "Measured", "Target", "run_load"]

_PATIENCE = 120.0


@dataclass(frozen=True)
class Target:
    """A table to commit to.

    Attributes:
        table: its id.
        version: the newest version when the load begins.
        paths: live files to delete rows from, in turn; or files to add.
        size: bytes of each file to add.
        rows: of each file.
        partition_values: of the added files.
    """

    table: str
    version: int
    paths: Sequence[str]
    rows: int
    size: int | None = None
    partition_values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Load:
    """The work of the clients: one-row deletes with known row indexes, or appends of one existing file.

    Attributes:
        targets: tables, which each client uses in turn. Clients never delete the same row or add the same file.
        seconds: duration of the load.
        most: maximum requests per client.
    """

    url: str
    targets: Sequence[Target]
    clients: int
    seconds: float
    most: int = 10**9
    first: int = 0


@dataclass
class Measured:
    """The result of a load.

    Attributes:
        latencies: seconds of each successful request.
        elapsed: seconds from the first request to the last response.
        answers: number of responses by kind.
        done: maximum requests of a client, where the next load on the same tables continues.
    """

    latencies: list[float] = field(default_factory=list)
    elapsed: float = 0.0
    answers: Counter[str] = field(default_factory=Counter)
    done: int = 0


def run_load(load: Load) -> Measured:
    """Start all clients at the same time; return their combined results."""
    spawn = multiprocessing.get_context("spawn")
    barrier, answers = spawn.Barrier(load.clients), spawn.SimpleQueue()
    processes = [
        spawn.Process(target=_client, args=(load, number, barrier, answers)) for number in range(load.clients)
    ]
    for process in processes:
        process.start()
    found: list[tuple[list[float], Counter[str], float, float]] = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    measured = Measured()
    for latencies, kinds, _, _ in found:
        measured.latencies += latencies
        measured.answers += kinds
        measured.done = max(measured.done, load.first + kinds.total())
    measured.elapsed = max(end for _, _, _, end in found) - min(start for _, _, start, _ in found)
    return measured


def _client(load: Load, number: int, barrier: Any, answers: Any) -> None:
    latencies: list[float] = []
    kinds: Counter[str] = Counter()
    started = ended = time.monotonic()
    try:
        # Only the transport: httpx.Client would spend most time on redirects, cookies and encodings.
        with httpx.HTTPTransport() as transport:
            requests = _requests(load, number)
            _send(transport, httpx.Request("GET", f"{load.url}/livez"))
            barrier.wait(_PATIENCE)
            started = time.monotonic()
            versions = {target.table: target.version for target in load.targets}
            for table, body in requests:
                request = _commit(load.url, table, {"read-version": versions[table], **body})
                began = time.monotonic()
                if began - started > load.seconds:
                    break
                status, answer = _send(transport, request)
                ended = time.monotonic()
                if status == httpx.codes.OK:
                    latencies.append(ended - began)
                    versions[table] = max(versions[table], answer.get("version") or 0)
                kinds[answer.get("result") or str(answer.get("error", {}).get("type", status))] += 1
    finally:
        answers.put((latencies, kinds, started, ended))


def _requests(load: Load, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for turn in range(load.first, load.first + load.most):
        target = load.targets[(turn * load.clients + number) % len(load.targets)]
        place = (turn * load.clients + number) // len(load.targets)
        if target.size is None:
            row = place // len(target.paths)
            if row >= target.rows:
                return
            rows = base64.b64encode(serialize_bitmap(BitMap64([row]))).decode()
            body = {
                "operation": "DELETE",
                "predicate": f"id = {row}",
                "row-deletes": [{"path": target.paths[place % len(target.paths)], "rows": rows}],
            }
        else:
            if place >= len(target.paths):
                return
            stats = {"numRecords": target.rows, "minValues": {"id": 0}, "maxValues": {"id": target.rows - 1}}
            add = {
                "path": target.paths[place],
                "partitionValues": dict(target.partition_values),
                "size": target.size,
                "modificationTime": int(time.time() * 1000),
                "dataChange": True,
                "stats": json.dumps(stats | {"nullCount": {"id": 0}}),
            }
            body = {"operation": "WRITE", "adds": [add]}
        yield target.table, body


def _commit(url: str, table: str, body: dict[str, Any]) -> httpx.Request:
    headers = {"Content-Type": "application/json", "Idempotency-Key": str(uuid.uuid4())}
    return httpx.Request(
        "POST", f"{url}/v1/tables/{table}/commits", content=json.dumps(body), headers=headers
    )


def _send(transport: httpx.HTTPTransport, request: httpx.Request) -> tuple[int, dict[str, Any]]:
    response = transport.handle_request(request)
    content = response.read()
    answer = json.loads(content) if content.startswith(b"{") else {}
    return response.status_code, answer if isinstance(answer, dict) else {}
