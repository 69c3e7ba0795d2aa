"""The audit log: who changed what, and which requests were denied.

Each entry is logged at once. The database gets entries in batches, off the path of requests.
"""

import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final

from delvec_contract.access import AuditOutcome
from delvec_errors import ServiceUnavailable
from delvec_service.auth.request_access import Access
from delvec_service.auth.rules import only_reads, rule_of
from delvec_service.logs import audit_logger, log_context, logger
from delvec_service.store.audit_store import AuditRecord, AuditStore

__all__ = ["AuditLog"]

_BATCH_SECONDS: Final = 0.5
"""How long entries wait to be written together."""
_AWAY_SECONDS: Final = 5.0
"""How long to wait for a database that does not answer."""
_BATCH: Final = 500
_STOP_SECONDS: Final = 10.0
_MAX_WAITING: Final = 20_000
_MAX_ANONYMOUS: Final = 100
"""How many entries per minute to keep of requests without a known token: anybody can send any number of those."""
_EXPIRY_SECONDS: Final = 3600.0
_ERRORS, _SERVER_ERRORS, _LATE, _NOBODY, _LIMITED = 400, 500, 504, 0, 429
_DENIED_STATUSES: Final = (401, 403)


class AuditLog:
    """Records requests that change something; safe to share between threads.

    Args:
        store: where entries are stored.
        days: how long to keep entries; 0: none are stored, only logged.

    Attributes:
        store: the same, for readers.
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
        self._strangers = _Allowance(_MAX_ANONYMOUS, 60.0)
        self._expired = -float("inf")

    def answered(
        self, method: str, path: str, status: int, access: Access | None, *, is_admitted: bool
    ) -> None:
        """Record an answered request, with the facts from its log line. Returns at once.

        Args:
            method: the method of the request.
            path: the path of the request.
            status: the status of the answer; 0 if there is none.
            access: what it was allowed to do; None if unknown.
            is_admitted: whether it was authorized.
        """
        rule_match = None if only_reads(method, path) else rule_of(method, path)
        if rule_match is None or rule_match[0].operation is None or status == _LIMITED:
            return  # a flood of rate-limited requests must not become one of rows
        log_fields = log_context()
        outcome = _outcome(status, was_denied=access is not None and access.was_denied)
        if rule_match[0].only_denied and outcome != "denied":
            return
        principal = log_fields.get("principal")
        if principal is None and access is not None and is_admitted:
            principal = access.name
        if principal is None and not self._strangers.take():
            return  # its log line remains
        record = AuditRecord(
            answered_at=datetime.now(UTC),
            principal=_cut(principal, 256),
            request_id=log_fields.get("request_id", ""),
            operation=rule_match[0].operation,
            table_id=log_fields.get("table_id"),
            table_name=_cut(log_fields.get("table"), 200),
            change=log_fields.get("change"),
            transaction_id=_cut(log_fields.get("transaction"), 128),
            version=log_fields.get("version"),
            outcome=outcome,
            status=status,
            error_code=log_fields.get("error_code"),
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
        """Write the entries so far to the database.

        Raises:
            ServiceUnavailable: the database does not answer; the entries remain queued.
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
                    logger.exception("audit entries not stored", entries=len(batch))
                with self._changed:
                    for _ in batch:
                        self._waiting.popleft()
                    dropped, self._dropped = self._dropped, 0
                if dropped:
                    logger.error(
                        "audit entries not stored: too many were waiting for the database", entries=dropped
                    )

    def close(self) -> None:
        """Write the remaining entries, if the database accepts them in time, and stop."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)
        if self._waiting:
            logger.error("audit entries not stored: the database does not answer", entries=len(self._waiting))

    def _add(self, record: AuditRecord) -> None:
        with self._changed:
            if len(self._waiting) >= _MAX_WAITING:
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
                    "audit entries are waiting for the database",
                    entries=len(self._waiting),
                    error=error.message,
                )
                pause = _AWAY_SECONDS

    def _expire(self) -> None:
        """Delete expired entries from time to time."""
        if time.monotonic() - self._expired < _EXPIRY_SECONDS:
            return
        self._expired = time.monotonic()
        with suppress(OverflowError):  # before the first date that a datetime can have
            self.store.expire(datetime.now(UTC) - timedelta(days=self._days))


@dataclass
class _Allowance:
    """A budget per period."""

    most: int
    seconds: float
    taken: int = 0
    since: float = -float("inf")

    def take(self) -> bool:
        """Whether any of it is left."""
        now = time.monotonic()
        if now - self.since >= self.seconds:
            self.since, self.taken = now, 0
        self.taken += 1
        if self.taken == self.most + 1:
            logger.warning(
                "audit: too many requests without a known token; the rest of this minute is not recorded"
            )
        return self.taken <= self.most


def _outcome(status: int, *, was_denied: bool) -> AuditOutcome:
    if status in _DENIED_STATUSES or (was_denied and status >= _ERRORS):
        return "denied"
    if status in (_NOBODY, _LATE):
        return "unknown"
    if status < _ERRORS:
        return "done"
    return "failed" if status >= _SERVER_ERRORS else "refused"


def _cut(text: str | None, most: int) -> str | None:
    return None if text is None else text[:most]
