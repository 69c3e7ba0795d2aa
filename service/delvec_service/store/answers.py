"""Answers stored under idempotency keys, in SQL.

A key is claimed before its request is processed, so that of two concurrent requests, on whatever replicas, one works
and the other waits for its answer. An expired claim belongs to a worker that died; the next one takes it over. Rows
are kept for a limited time, and may be lost: the table's log records what a commit did.

Tested in `tests/integration/contract/test_answer_store.py` and
`tests/integration/service/commits/test_idempotency.py`.
"""

import zlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import and_, bindparam, delete, or_, select

from delvec_service.store.database import Database, insert_into
from delvec_service.store.models import AnswerRow

__all__ = ["ANY_REQUEST", "AnswerStore", "Claim", "StoredAnswer", "Taken"]

ANY_REQUEST: Final = ""
"""Stands for a request's hash: the answer applies to any request with the key."""

_LARGEST_BODY: Final = 4 * 1024 * 1024
_COLUMNS: Final = (
    AnswerRow.request_hash,
    AnswerRow.status,
    AnswerRow.body,
    AnswerRow.claim,
    AnswerRow.claimed_at,
    AnswerRow.created_at,
)
_SELECT_KEY: Final = select(AnswerRow.key).where(AnswerRow.key == bindparam("named"))
"""Every commit asks it, and there hardly ever is."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """The first answer."""

    request_hash: str
    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Claim:
    """The key is ours."""

    key: str
    request_hash: str
    id: str


@dataclass(frozen=True, slots=True)
class Taken:
    """Another worker holds the key."""

    request_hash: str


class AnswerStore:
    """Answers by key; safe to share between threads.

    Args:
        database: where answers are stored.
        seconds: how long to keep an answer.
        claim_seconds: how long a claim without an answer is valid.

    Attributes:
        kept: how long an answer is kept.
    """

    def __init__(self, database: Database, *, seconds: float, claim_seconds: float) -> None:
        self._database = database
        self.kept = timedelta(seconds=seconds)
        self._term = timedelta(seconds=claim_seconds)

    def find(self, key: str) -> StoredAnswer | None:
        """Return the answer of a key, if there is one that has not expired.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        with self._database.connection() as connection:
            if connection.execute(_SELECT_KEY, {"named": key}).first() is None:
                return None
        with self._database.read() as session:
            row = session.execute(select(*_COLUMNS).where(AnswerRow.key == key)).first()
        if row is None or row.created_at < _now() - self.kept:
            return None
        return _answer(row)

    def claim(self, key: str, request_hash: str, claim: str) -> Claim | StoredAnswer | Taken:
        """Claim a key, or return that another worker holds it, or its answer.

        Args:
            key: the idempotency key.
            request_hash: the hash of its request; a claimed key keeps its own.
            claim: a new id, for this worker.

        Raises:
            ServiceUnavailable: the database does not answer; nothing was claimed.
        """
        now = _now()
        mine: dict[str, Any] = {
            "request_hash": request_hash,
            "claim": claim,
            "claimed_at": now,
            "status": None,
            "body": None,
            "created_at": now,
        }
        free = or_(
            AnswerRow.created_at < now - self.kept,
            and_(AnswerRow.status.is_(None), AnswerRow.claimed_at < now - self._term),
        )
        with self._database.write() as session:
            upsert = insert_into(session, AnswerRow).values(key=key, **mine)
            # One statement, so that two workers cannot both find the key free.
            claimed = session.execute(
                upsert.on_conflict_do_update(index_elements=["key"], set_=mine, where=free).returning(
                    AnswerRow.claim
                )
            ).first()
            if claimed is not None:
                return Claim(key, request_hash, claim)
            row = session.execute(select(*_COLUMNS).where(AnswerRow.key == key)).first()
        if row is None:
            return Taken(request_hash)  # just released: ask again
        return _answer(row) or Taken(row.request_hash)

    def keep(self, key: str, request_hash: str, status: int, body: bytes) -> None:
        """Store the answer of a key, claimed or not; the first one stays. Very large answers are not stored.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        now = _now()
        packed = zlib.compress(body, 1)
        if len(packed) > _LARGEST_BODY:
            return
        answered: dict[str, Any] = {
            "request_hash": request_hash,
            "claim": None,
            "claimed_at": None,
            "status": status,
            "body": packed,
            "created_at": now,
        }
        with self._database.write() as session:
            upsert = insert_into(session, AnswerRow).values(key=key, **answered)
            session.execute(
                upsert.on_conflict_do_update(
                    index_elements=["key"],
                    set_=answered,
                    where=or_(
                        and_(AnswerRow.status.is_(None), AnswerRow.request_hash == request_hash),
                        AnswerRow.created_at < now - self.kept,
                    ),
                )
            )

    def release(self, claim: Claim) -> None:
        """Release a key without an answer, if it is still ours.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        with self._database.write() as session:
            session.execute(delete(AnswerRow).where(AnswerRow.key == claim.key, AnswerRow.claim == claim.id))

    def sweep(self) -> None:
        """Delete expired rows.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        with self._database.write() as session:
            session.execute(delete(AnswerRow).where(AnswerRow.created_at < _now() - self.kept))


def _answer(row: Any) -> StoredAnswer | None:
    if row.status is None:
        return None
    return StoredAnswer(row.request_hash, row.status, zlib.decompress(row.body or b""))


def _now() -> datetime:
    return datetime.now(UTC)
