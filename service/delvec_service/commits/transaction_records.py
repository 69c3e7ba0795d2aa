"""Outcomes of transactions over several tables: one file each in the warehouse, created once.

Creating the file is the commit point of the transaction. Nothing else decides, so a lost database changes nothing, and any
service that has the warehouse can finish or undo what another left behind.

Tested in `tests/integration/service/commits/test_multi_table_commit.py`.
"""

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from delvec_errors import BadRequest, CorruptLog, StorageError
from delvec_service.store.lru_cache import LruCache
from delvec_service.store.objects import ObjectStore

__all__ = ["Decision", "StagedVersion", "TransactionRecords", "record_name"]

_FOLDER: Final = "_delvec/transactions"
_COMMIT: Final = "commit"
_ABORT: Final = "abort"
_MAX: Final = 10_000


@dataclass(frozen=True)
class StagedVersion:
    """A version that a transaction creates.

    Attributes:
        table_id: the id of the table.
        location: the location of the table, canonical.
        version: that the staged commit becomes.
        staged: the name of the staged commit.
        digest: SHA-256 of its bytes.
    """

    table_id: str
    location: str
    version: int
    staged: str
    digest: str


@dataclass(frozen=True)
class Decision:
    """The outcome of one attempt of a transaction; it never changes.

    Attributes:
        is_commit: whether it is committed; otherwise it never will be.
        transaction_id: the id of the transaction.
        request_hash: the hash of the request.
        versions: what it creates.
        answers: what the client is told about each table, in the order of its request.
        reason: why it is undone.
    """

    is_commit: bool
    transaction_id: str
    request_hash: str = ""
    versions: Sequence[StagedVersion] = ()
    answers: Sequence[Mapping[str, Any]] = ()
    reason: str = ""

    def version_of(self, location: str) -> StagedVersion | None:
        """Return what it creates of the table at a location."""
        return next((each for each in self.versions if each.location == location), None)


def record_name(transaction_id: str, attempt: int) -> str:
    """Return the name of the record of an attempt: the next one begins only after the one before was undone."""
    return f"{hashlib.sha256(transaction_id.encode()).hexdigest()[:32]}-{attempt}.json"


class TransactionRecords:
    """Reads and creates records. Safe to share between threads.

    Args:
        warehouse: the canonical location that the records belong to; None: there is none.
    """

    def __init__(self, warehouse: str | None) -> None:
        self._warehouse = warehouse
        self._objects = None if warehouse is None else ObjectStore(warehouse)
        self._decisions: LruCache[str, Decision] = LruCache(_MAX)

    @property
    def warehouse(self) -> str:
        """The location that the records belong to.

        Raises:
            BadRequest: there is none.
        """
        if self._warehouse is None:
            raise BadRequest(
                "A transaction over several tables records its outcome in the warehouse, and this service has none; set "
                "DELVEC_WAREHOUSE.",
                setting="DELVEC_WAREHOUSE",
            )
        return self._warehouse

    def is_here(self, warehouse: str) -> bool:
        """Whether the records of a warehouse are these."""
        return warehouse == self._warehouse

    def find(self, name: str) -> Decision | None:
        """Return the outcome of an attempt, or None if nothing is decided yet.

        Raises:
            CorruptLog: the record is damaged.
            StorageError: storage does not answer.
        """
        known = self._decisions.get(name)
        if known is not None:
            return known
        try:
            data = self._store.get(f"{_FOLDER}/{name}")
        except FileNotFoundError:
            return None
        return self._known(name, _parsed(data, f"{self.warehouse}/{_FOLDER}/{name}"))

    def decide(self, name: str, decision: Decision) -> Decision:
        """Decide on an attempt, unless that is done; return what was decided.

        Raises:
            StorageError: storage failed, and nothing may be decided, or this may be.
        """
        record = {
            "transactionId": decision.transaction_id,
            "outcome": _COMMIT if decision.is_commit else _ABORT,
            "requestHash": decision.request_hash,
            "participants": [asdict(each) for each in decision.versions],
            "answers": list(decision.answers),
            "reason": decision.reason,
            "writer": str(uuid.uuid4()),  # a record with the same bytes is this one
        }
        path = f"{_FOLDER}/{name}"
        try:
            is_created = self._store.put_if_absent(path, json.dumps(record).encode())
        except StorageError:
            known_decision = self.find(name)
            if known_decision is None:
                raise
            return known_decision
        if is_created:
            return self._known(name, decision)
        known_decision = self.find(name)
        if known_decision is None:
            raise StorageError(
                f"The record {self.warehouse}/{path} exists, and cannot be read yet; try again."
            )
        return known_decision

    def _known(self, name: str, decision: Decision) -> Decision:
        self._decisions.put(name, decision)
        return decision

    @property
    def _store(self) -> ObjectStore:
        return self._objects or ObjectStore(self.warehouse)


def _parsed(data: bytes, place: str) -> Decision:
    try:
        record = json.loads(data)
        versions = tuple(StagedVersion(**each) for each in record["participants"])
        is_commit = {_COMMIT: True, _ABORT: False}[record["outcome"]]
        return Decision(
            is_commit,
            record["transactionId"],
            record["requestHash"],
            versions,
            tuple(record["answers"]),
            record["reason"],
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptLog(
            f"The record of a transaction, {place}, cannot be read ({type(error).__name__}); restore it from a backup: it "
            "says whether the transaction's tables have its changes.",
            file=place,
        ) from error
