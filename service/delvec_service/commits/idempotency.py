"""One answer per idempotency key: the first answer is repeated, and nothing is done twice."""

import hashlib
import json
import threading
import time
import uuid
from datetime import timedelta
from typing import Any, Final

from delvec_contract.codec import canonical_json
from delvec_errors import (
    ConcurrentModification,
    CorruptTable,
    DelvecError,
    FileNotInStorage,
    IdempotencyKeyReused,
    LocationNotAllowed,
    NotFound,
    PermissionDenied,
    ReadLimitExceeded,
    RequestTooLarge,
    ServiceUnavailable,
    Unauthorized,
    UnsupportedTable,
    VersionFromFuture,
)
from delvec_service.logs import logger
from delvec_service.store.answers import ANY_REQUEST, AnswerStore, Claim, StoredAnswer, Taken

__all__ = ["Answers", "commit_hash", "is_final", "key_reused", "request_hash"]

_SWEEP_SECONDS: Final = 600
_HALF_KEY_LENGTH: Final = 16
_PROCESSING: Final = 102
_PASSING: Final = (
    Unauthorized,
    LocationNotAllowed,
    NotFound,
    PermissionDenied,
    RequestTooLarge,
    ReadLimitExceeded,
    UnsupportedTable,
    CorruptTable,
    FileNotInStorage,
    VersionFromFuture,
    IdempotencyKeyReused,
)
"""Errors that a retry may not get again: settings and properties change, roles are granted, tables are registered,
restored and written, files appear.
"""


def request_hash(*parts: Any) -> str:
    """Return a hash of JSON values, and of typed requests, that does not depend on how they were sent."""
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()[:32]


def commit_hash(table_id: str, text: str) -> str:
    """Return the hash of a commit's request; its first half is the table's, by which a stored answer shows whose it is."""
    return (
        _table_half(table_id) + hashlib.sha256(f"{table_id} {text}".encode()).hexdigest()[:_HALF_KEY_LENGTH]
    )


def _table_half(table_id: str) -> str:
    return request_hash("commit", table_id)[:_HALF_KEY_LENGTH]


def is_final(error: DelvecError) -> bool:
    """Whether the same request would be rejected for the same reason, whenever it is sent again."""
    if isinstance(error, _PASSING) or not 400 <= error.status < 500:  # noqa: PLR2004
        return False
    # A lost race stays lost: the winner is in the log. Without a winner the commit gave up waiting.
    return bool(error.conflict) if isinstance(error, ConcurrentModification) else True


class Answers:
    """Answers by key.

    Args:
        store: where they are stored.
    """

    def __init__(self, store: AnswerStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._next_sweep = 0.0

    def find(self, key: str, hashed: str) -> StoredAnswer | None:
        """Return the stored answer, for requests that the log protects from being done twice.

        They are not rejected if the database does not answer.

        Raises:
            IdempotencyKeyReused: the key came with another request.
        """
        try:
            stored_answer = self._store.find(key)
        except ServiceUnavailable as error:
            logger.warning("answers not looked up", key=key, reason=error.message)
            return None
        if stored_answer is not None:
            _same(key, hashed, stored_answer.request_hash)
        return stored_answer

    def of_commit(self, key: str, table: str, table_id: str) -> StoredAnswer | None:
        """Return the answer to a commit to a table with this key, whatever the rest of its request was."""
        try:
            stored_answer = self._store.find(key)
        except ServiceUnavailable:
            return None
        if stored_answer is None or stored_answer.request_hash.startswith(_table_half(table_id)):
            return stored_answer
        try:
            body = json.loads(stored_answer.body)
        except ValueError:
            return None
        # The key may belong to another request, or to a commit to a table that the caller may not read.
        ours = body.get("error", {}).get("details", {}).get("table") == table
        return stored_answer if ours else None

    def claim(self, key: str, hashed: str) -> Claim | StoredAnswer | Taken:
        """Claim the key, or return its stored answer, or report that another request holds it; then ask again.

        Raises:
            IdempotencyKeyReused: the key was used with another request.
            ServiceUnavailable: the database does not answer; nothing was done.
        """
        found = self._store.claim(key, hashed, str(uuid.uuid4()))
        _same(key, hashed, found.request_hash)
        return found

    def keep(self, key: str, hashed: str, status: int, body: bytes) -> None:
        """Store an answer. If the database rejects it, the answer is still valid."""
        try:
            self._store.keep(key, hashed, status, body)
            self._sweep()
        except ServiceUnavailable as error:
            logger.warning("answer not stored", key=key, reason=error.message)

    @property
    def kept(self) -> timedelta:
        """How long answers are kept, and notes of :meth:`first_version`."""
        return self._store.kept

    def first_version(self, key: str, hashed: str, version: int) -> int:
        """Return the version that was first noted for a request with a key, which is this one if none was.

        Raises:
            ServiceUnavailable: the database does not store it; nothing was done.
        """
        name = request_hash("since", key, hashed)
        # A note is not an answer: 102 is the status of a request that is being processed.
        self._store.keep(name, name, _PROCESSING, str(version).encode())
        stored_answer = self._store.find(name)
        if stored_answer is None:
            raise ServiceUnavailable(
                "The database could not store that this request begins, so nothing was done. Try again."
            )
        return int(stored_answer.body)

    def release(self, claim: Claim) -> None:
        """Release a key, so that the next request with it runs at once."""
        try:
            self._store.release(claim)
        except ServiceUnavailable as error:
            logger.warning("claim not released", key=claim.key, reason=error.message)

    def _sweep(self) -> None:
        now = time.monotonic()
        with self._lock:
            if now < self._next_sweep:
                return
            self._next_sweep = now + _SWEEP_SECONDS
        self._store.sweep()


def _same(key: str, hashed: str, first: str) -> None:
    if first not in (hashed, ANY_REQUEST):
        raise key_reused(key)


def key_reused(key: str) -> IdempotencyKeyReused:
    """Return the error for a request that reuses another request's key."""
    return IdempotencyKeyReused(
        f"The idempotency key '{key}' was already used for a request with a different method, path or body, by "
        "another principal, or before your roles changed. Use a new key for each new request.",
        key=key,
    )
