"""Clients that commit without a pause, each in a process of its own, over HTTP."""

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
    """A table that is committed to.

    Attributes:
        table: its id.
        version: the newest when the load begins.
        paths: live files that rows are deleted from, in turn; or files that are to be added.
        size: bytes of each file that is to be added.
        rows: of each file.
        partition_values: of what is added.
    """

    table: str
    version: int
    paths: Sequence[str]
    rows: int
    size: int | None = None
    partition_values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Load:
    """What clients do: one-row deletes whose row indexes they hold, or appends of one file that is there already.

    Attributes:
        targets: tables; each client takes them in turn. Clients never delete the same row or add the same file.
        seconds: until no further request is sent.
        most: requests of each client.
    """

    url: str
    targets: Sequence[Target]
    clients: int
    seconds: float
    most: int = 10**9
    first: int = 0


@dataclass
class Measured:
    """What came of it.

    Attributes:
        latencies: seconds of each request that was acknowledged.
        elapsed: seconds from the first request to the last answer.
        answers: how many there were of each kind.
        done: requests of the client that made most of them; the next load on the same tables begins there.
    """

    latencies: list[float] = field(default_factory=list)
    elapsed: float = 0.0
    answers: Counter[str] = field(default_factory=Counter)
    done: int = 0


def run_load(load: Load) -> Measured:
    """Run the clients, all from the same moment on; return what all of them saw."""
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
        # The transport alone: a client's redirects, cookies and encodings would be most of its work.
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
