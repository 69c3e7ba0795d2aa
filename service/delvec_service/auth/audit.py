"""The audit log: who changed what, and who was not allowed to.

Each entry is a line of the log at once. The database gets entries in batches, off the path of requests.
"""

import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final

from delvec_kernel.errors import ServiceUnavailable
from delvec_kernel.wire.access import AuditOutcome
from delvec_service.auth.access import Access
from delvec_service.auth.rules import only_reads, rule_of
from delvec_service.logs import audit_logger, facts, logger
from delvec_service.store.audit import AuditRecord, AuditStore

__all__ = ["AuditLog"]

_BATCH_SECONDS: Final = 0.5
"""How long entries wait for others to be written with."""
_AWAY_SECONDS: Final = 5.0
"""How long to wait for a database that does not answer."""
_BATCH: Final = 500
_STOP_SECONDS: Final = 10.0
_MOST_WAITING: Final = 20_000
_STRANGERS: Final = 100
"""Entries of requests without a known token that are kept a minute: anybody can send those, as many as they like."""
_EXPIRY_SECONDS: Final = 3600.0
_ERRORS, _SERVER_ERRORS, _LATE, _NOBODY, _LIMITED = 400, 500, 504, 0, 429
_DENIED: Final = (401, 403)


class AuditLog:
    """Takes note of requests that change something; safe to share between threads.

    Args:
        store: keeps entries.
        days: for how long; 0: none is kept, there is only the stream in the log.

    Attributes:
        store: the same, for those who read.
    """

    def __init__(self, store: AuditStore, *, days: int) -> None:
        self.store = store
        self._days = days
        self._changed = threading.Condition()
        self._waiting: deque[AuditRecord] = deque()
        self._writing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._dropped = 0
        self._strangers = _Allowance(_STRANGERS, 60.0)
        self._expired = -float("inf")

    def answered(
        self, method: str, path: str, status: int, access: Access | None, *, is_admitted: bool
    ) -> None:
        """Take note of a request that was answered, with the facts that its log lines have; returns at once.

        Args:
            method: of the request.
            path: of the request.
            status: of the answer; 0 where there is none.
            access: what it might do; None where that was not found out.
            is_admitted: whether the door let it in.
        """
        found = None if only_reads(method, path) else rule_of(method, path)
        if found is None or found[0].operation is None or status == _LIMITED:
            return  # a flood that limits hold off is not to become one of rows
        known = facts()
        outcome = _outcome(status, was_denied=access is not None and access.was_denied)
        if found[0].only_denied and outcome != "denied":
            return
        principal = known.get("principal")
        if principal is None and access is not None and is_admitted:
            principal = access.name
        if principal is None and not self._strangers.take():
            return  # its line in the log remains
        record = AuditRecord(
            answered_at=datetime.now(UTC),
            principal=_cut(principal, 256),
            request_id=known.get("request_id", ""),
            operation=found[0].operation,
            table_id=known.get("table_id"),
            table_name=_cut(known.get("table"), 200),
            change=known.get("change"),
            transaction_id=_cut(known.get("transaction"), 128),
            version=known.get("version"),
            outcome=outcome,
            status=status,
            error_code=known.get("error_code"),
        )
        audit_logger.info(
            "audit",
            id=record.id,
            operation=record.operation,
            outcome=outcome,
            principal=principal,
            status=status,
        )
        if self._days:
            self._add(record)

    def flush(self) -> None:
        """Write down the entries so far.

        Raises:
            ServiceUnavailable: the database does not answer; the entries wait for it.
        """
        with self._writing:
            for _ in range(0, len(self._waiting), _BATCH):
                with self._changed:
                    batch = list(islice(self._waiting, _BATCH))
                try:
                    self.store.add(batch)
                except ServiceUnavailable:
                    raise
                except Exception:  # noqa: BLE001 - those that come after them are kept
                    logger.exception("audit entries not kept", entries=len(batch))
                with self._changed:
                    for _ in batch:
                        self._waiting.popleft()
                    dropped, self._dropped = self._dropped, 0
                if dropped:
                    logger.error("audit entries not kept: too many waited for the database", entries=dropped)

    def close(self) -> None:
        """Write down what waits, if the database takes it within a time, and stop."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)
        if self._waiting:
            logger.error("audit entries not kept: the database does not answer", entries=len(self._waiting))

    def _add(self, record: AuditRecord) -> None:
        with self._changed:
            if len(self._waiting) >= _MOST_WAITING:
                self._dropped += 1
                return
            self._waiting.append(record)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="delvec-audit", daemon=True)
                self._thread.start()
            elif len(self._waiting) == 1:
                self._changed.notify_all()

    def _run(self) -> None:
        pause, is_last = _BATCH_SECONDS, False
        while not is_last:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                is_last = self._changed.wait_for(lambda: self._is_closed, pause)
            try:
                self.flush()
                self._expire()
                pause = _BATCH_SECONDS
            except ServiceUnavailable as error:
                logger.warning(
                    "audit entries wait for the database", entries=len(self._waiting), error=error.message
                )
                pause = _AWAY_SECONDS

    def _expire(self) -> None:
        """Delete what is too old, now and then."""
        if time.monotonic() - self._expired < _EXPIRY_SECONDS:
            return
        self._expired = time.monotonic()
        with suppress(OverflowError):  # from before there were calendars
            self.store.expire(datetime.now(UTC) - timedelta(days=self._days))


@dataclass
class _Allowance:
    """So many in so many seconds."""

    most: int
    seconds: float
    taken: int = 0
    since: float = -float("inf")

    def take(self) -> bool:
        """Whether there is one left."""
        now = time.monotonic()
        if now - self.since >= self.seconds:
            self.since, self.taken = now, 0
        self.taken += 1
        if self.taken == self.most + 1:
            logger.warning(
                "audit: too many requests without a known token; the rest of this minute is left out"
            )
        return self.taken <= self.most


def _outcome(status: int, *, was_denied: bool) -> AuditOutcome:
    if status in _DENIED or (was_denied and status >= _ERRORS):
        return "denied"
    if status in (_NOBODY, _LATE):
        return "unknown"
    if status < _ERRORS:
        return "done"
    return "failed" if status >= _SERVER_ERRORS else "refused"


def _cut(text: str | None, most: int) -> str | None:
    return None if text is None else text[:most]
