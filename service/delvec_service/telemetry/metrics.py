"""Prometheus metrics, and traces alongside them.

A process has its own registry. If PROMETHEUS_MULTIPROC_DIR names a directory, the processes of a service share their
counts through files in it, and whichever one is scraped answers for all: prometheus_client decides this when it is
imported.

Tested in `tests/integration/service/test_metrics.py`.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, Self

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector

from delvec_service import VERSION
from delvec_service.telemetry.observer import (
    CacheSource,
    CommitOutcome,
    Gauges,
    Observer,
    RequestObserver,
    StorageKind,
)
from delvec_service.telemetry.tracing import Span, Tracing

__all__ = ["PrometheusMetrics"]

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 100.0)
_MEMBERS: Final = (1, 2, 4, 8, 16, 32, 64)
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_EOF: Final = b"# EOF\n"
_REFRESH_SECONDS: Final = 5.0
_GAUGES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "cache_bytes": ("Approximate memory used by caches, in bytes.", ("cache",)),
    "database_connections": ("Connections to the database.", ("state",)),
    "database_connections_limit": ("Maximum number of connections to the database.", ()),
    "lane_requests": ("Requests running or waiting, by kind.", ("lane", "state")),
    "background_task_backlog": ("Tables waiting for a background task.", ("task",)),
}


@dataclass(frozen=True)
class _Http:
    """Metrics of requests.

    Attributes:
        exemplars: whether they carry exemplars with trace ids: those of several processes cannot be merged.
    """

    requests: Counter
    seconds: Histogram
    running: Gauge
    exemplars: bool


class PrometheusMetrics(Observer):
    """Counts what the service does, and traces it if requested.

    Args:
        tracing: traces requests; None to disable traces.
    """

    def __init__(self, tracing: Tracing | None = None) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # as many lines again, that say when the service began
        self._tracing = tracing
        self._shared = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        self._registry = registry = CollectorRegistry()
        self._refresher: threading.Thread | None = None
        self._closing = threading.Event()
        if not self._shared:
            ProcessCollector(registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"delvec_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, *labels: str, buckets: Any = _SECONDS) -> Histogram:
            return Histogram(f"delvec_{name}", text, labels, buckets=buckets, registry=registry)

        self._http = _Http(
            counter("http_requests", "Requests by method, route and status.", "method", "route", "status"),
            histogram("http_request_seconds", "Duration of requests.", "method", "route"),
            self._gauge("http_requests_in_progress", "Requests in progress.", (), "livesum"),
            exemplars=not self._shared,
        )
        self._commits = counter("commits", "Commits by outcome.", "outcome")
        self._conflicts = counter("commit_conflicts", "Conflicts by type of error.", "error")
        self._commit_seconds = histogram(
            "commit_seconds", "Duration of commits, including the time they waited."
        )
        self._retries = counter("commit_retries", "Versions that another commit created first.")
        self._group_size = histogram(
            "commit_group_size", "Commits that were written as one group.", buckets=_MEMBERS
        )
        self._rows_saved = counter(
            "commit_rebased_rows", "Rows changed by rebased commits, which did not have to be searched again."
        )
        self._plan_seconds = histogram("plan_seconds", "Duration of planning a scan.")
        self._plan_files = counter("plan_files", "Files of planned scans, read or skipped.", "result")
        self._loads = counter(
            "snapshot_loads", "Sources of newest versions of tables, apart from new commits.", "source"
        )
        self._vectors = counter(
            "deletion_vector_reads", "Deletion vectors found in memory, or read from storage.", "source"
        )
        self._storage_seconds = histogram(
            "storage_request_seconds", "Duration of requests to storage.", "kind"
        )
        self._storage_errors = counter("storage_errors", "Failed requests to storage.", "kind")
        self._background_task_seconds = histogram(
            "background_task_seconds", "Duration of background tasks.", "task"
        )
        self._background_task_errors = counter("background_task_errors", "Failed background tasks.", "task")
        self._turned_away = counter(
            "requests_turned_away", "Requests answered with 503 or 504, by kind and reason.", "lane", "reason"
        )
        self._limited = counter(
            "requests_limited",
            "Requests answered with 429, by limit and by whose limit it is.",
            "limit",
            "of",
        )
        self._runs = counter("maintenance_runs", "Runs of maintenance policies.", "type", "state")
        self._gauges = {
            name: self._gauge(name, text, labels, "livesum") for name, (text, labels) in _GAUGES.items()
        }
        self._gauge(
            "build_info", "Version of the running service; always 1.", ("version",), "livemax"
        ).labels(VERSION).set(1)

    def expose(self, accept: str, gauges: Gauges, more: bytes = b"") -> tuple[bytes, str]:
        """Return all metrics in an accepted format, and its media type.

        Args:
            accept: the request's Accept header.
            gauges: current gauges of this process.
            more: lines to append.
        """
        self._set_gauges(gauges)
        registry = self._registry
        if self._shared:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        encode, media_type = choose_encoder(accept)
        found = encode(registry)
        if found.endswith(_EOF):
            return found[: -len(_EOF)] + more + _EOF, media_type
        return found + more, media_type

    def _set_gauges(self, gauges: Gauges) -> None:
        """Update the gauges that a process only measures on request."""
        for name, values in gauges.items():
            for labels, value in values.items():
                gauge = self._gauges[name]
                (gauge.labels(*labels) if labels else gauge).set(value)

    def keep_fresh(self, look: Callable[[], Gauges]) -> None:
        """Measure gauges every few seconds if other processes answer for this one; otherwise only on request."""
        if self._shared and self._refresher is None:
            self._refresher = threading.Thread(
                target=self._refresh, args=(look,), name="delvec-metrics", daemon=True
            )
            self._refresher.start()

    def close(self) -> None:
        """Stop measuring, and export the remaining traces."""
        self._closing.set()
        if self._shared:
            from prometheus_client.multiprocess import mark_process_dead

            mark_process_dead(os.getpid(), self._shared)  # type: ignore[no-untyped-call]
        if self._tracing is not None:
            self._tracing.close()

    def storage(self, kind: StorageKind) -> AbstractContextManager[None]:
        """Observe a request to storage."""
        return _Timed(
            self._storage_seconds.labels(kind), self._span(f"storage {kind}"), self._storage_errors, kind
        )

    def commit(self, table: str, transaction_id: str) -> AbstractContextManager[None]:
        """Observe a commit, from the request to its answer."""
        span = self._span("commit", table=table, transaction=transaction_id)
        return _Timed(self._commit_seconds, span)

    def plan(self, table: str) -> AbstractContextManager[None]:
        """Observe the planning of a scan."""
        return _Timed(self._plan_seconds, self._span("plan", table=table))

    def background_task(self, task: str, table: str) -> AbstractContextManager[None]:
        """Observe a background task."""
        span = self._span(f"background task {task}", table=table)
        return _Timed(self._background_task_seconds.labels(task), span, self._background_task_errors, task)

    def request(self, scope: Any) -> AbstractContextManager[RequestObserver]:
        """Observe an HTTP request with this ASGI scope."""
        span = None if self._tracing is None else self._tracing.request(scope)
        return _Request(self._http, scope["method"], span)

    def committed(self, outcome: CommitOutcome, rows_saved: int = 0) -> None:
        """Count the outcome of a commit."""
        self._commits.labels(outcome).inc()
        if rows_saved > 0:
            self._rows_saved.inc(rows_saved)

    def conflicted(self, error: str) -> None:
        """Count the type of a conflict."""
        self._conflicts.labels(error).inc()

    def tried(self, members: int, attempts: int) -> None:
        """Record the size of a group of commits, and how many versions it tried to create."""
        self._group_size.observe(members)
        if attempts > 1:
            self._retries.inc(attempts - 1)

    def planned(self, files: int, files_total: int) -> None:
        """Record how many files of a scan's version have to be read, and how many are skipped."""
        self._plan_files.labels("read").inc(files)
        self._plan_files.labels("skipped").inc(max(0, files_total - files))

    def loaded(self, source: CacheSource) -> None:
        """Count the source of a table's newest version."""
        self._loads.labels(source).inc()

    def vectors_found(self, held: int, read: int) -> None:
        """Count how many deletion vectors were in memory, and how many were read."""
        self._vectors.labels("memory").inc(held)
        self._vectors.labels("storage").inc(read)

    def turned_away(self, lane: str, reason: Literal["busy", "late", "shed"]) -> None:
        """Count a request that was rejected for lack of capacity, or timed out."""
        self._turned_away.labels(lane, reason).inc()

    def limited(self, limit: str, of: str) -> None:
        """Count a request that exceeded a limit."""
        self._limited.labels(limit, of).inc()

    def maintained(self, kind: str, state: str) -> None:
        """Count a run of a maintenance policy."""
        self._runs.labels(kind, state).inc()

    def _span(self, name: str, **attributes: str) -> Span | None:
        return None if self._tracing is None else self._tracing.span(name, attributes)

    def _gauge(
        self, name: str, text: str, labels: tuple[str, ...], mode: Literal["livesum", "livemax"]
    ) -> Gauge:
        return Gauge(f"delvec_{name}", text, labels, registry=self._registry, multiprocess_mode=mode)

    def _refresh(self, look: Callable[[], Gauges]) -> None:
        while not self._closing.wait(_REFRESH_SECONDS):
            self._set_gauges(look())


class _Timed:
    """Observes a duration, counts failures, and is a span of a trace."""

    def __init__(
        self, seconds: Histogram, span: Span | None, errors: Counter | None = None, label: str = ""
    ) -> None:
        self._seconds, self._span, self._errors, self._label = seconds, span, errors, label

    def __enter__(self) -> None:
        if self._span is not None:
            self._span.begin()
        self._began = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self._seconds.observe(time.perf_counter() - self._began)
        # A missing file is a valid answer, not a failure of storage.
        failed = error is not None and not isinstance(error, FileNotFoundError)
        if failed and self._errors is not None:
            self._errors.labels(self._label).inc()
        if self._span is not None:
            self._span.end(error if failed else None)


class _Request(RequestObserver):
    """An HTTP request."""

    def __init__(self, http: _Http, method: str, span: Span | None) -> None:
        self._http, self._span = http, span
        self._method = method if method in _METHODS else "other"

    def __enter__(self) -> Self:
        self._http.running.inc()
        if self._span is not None:
            self._span.begin()
            self.trace_id = self._span.trace_id
        self._began = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._http.running.dec()
        if self._span is not None:
            self._span.end(error)

    def answered(self, status: int, route: str) -> None:
        """Record the status, 0 if there was no answer, and the route's path template."""
        seconds = time.perf_counter() - self._began
        self._http.requests.labels(self._method, route, str(status)).inc()
        exemplar = None
        if self.trace_id is not None and self._http.exemplars:
            exemplar = {"trace_id": self.trace_id}
        self._http.seconds.labels(self._method, route).observe(seconds, exemplar)
        if self._span is not None:
            self._span.answered(self._method, route, status)
