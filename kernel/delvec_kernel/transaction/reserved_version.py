"""Versions that change nothing, and reserve the next one for a transaction over several tables.

Creating such a version is a commit like any other, so exactly one writer gets it, and the next one to commit has read
it. A marker beside the log could not do that: a writer that looked just before the marker appeared would still create the
version that it was to reserve.

Tested in `tests/unit/kernel/transaction/test_reserved_version.py`.
"""

import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from delvec_kernel.actions.action_json import json_text
from delvec_kernel.actions.actions import Action, CommitInfo
from delvec_kernel.snapshot.snapshot import Snapshot

__all__ = ["OPERATION", "Reservation", "actions_of", "reservation_of", "with_group"]

OPERATION: Final = "RESERVE VERSION"
"""The operation of such a version."""
_TAG: Final = "delvec.reservation"
_GROUP: Final = "transactionGroup"
_RECORD: Final = re.compile(r"[0-9a-f]{32}-\d{1,4}\.json")


@dataclass(frozen=True)
class Reservation:
    """Whom the version after this one is reserved for.

    Attributes:
        transaction_id: the id of the transaction.
        warehouse: the location below which its outcome is recorded.
        record: the name of that record.
    """

    transaction_id: str
    warehouse: str
    record: str


def actions_of(reservation: Reservation, snapshot: Snapshot, engine_info: str, now: int) -> list[Action]:
    """Return the version after ``snapshot`` that reserves the one after it.

    Args:
        reservation: what to record.
        snapshot: the newest version of a table with in-commit timestamps.
        engine_info: recorded, too.
        now: milliseconds since the epoch.
    """
    now = max(now, (snapshot.in_commit_timestamp or 0) + 1)
    facts = {
        "transactionId": reservation.transaction_id,
        "warehouse": reservation.warehouse,
        "record": reservation.record,
    }
    return [
        CommitInfo(
            timestamp=now,
            in_commit_timestamp=now,
            operation=OPERATION,
            operation_parameters={"transactionId": reservation.transaction_id},
            read_version=snapshot.version,
            is_blind_append=True,
            operation_metrics={},
            tags={_TAG: json_text(facts)},
            engine_info=engine_info,
            # Not the transaction's: a search for that must find the version with its changes.
            txn_id=str(uuid.uuid4()),
        )
    ]


def reservation_of(actions: Sequence[Action]) -> Reservation | None:
    """Return the reservation that a version makes, if it does; a log may contain anything."""
    info = actions[0] if actions else None
    if not isinstance(info, CommitInfo) or info.operation != OPERATION or len(actions) > 1:
        return None
    try:
        facts = json.loads((info.tags or {})[_TAG])
        reservation = Reservation(facts["transactionId"], facts["warehouse"], facts["record"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    texts = (reservation.transaction_id, reservation.warehouse, reservation.record)
    is_valid = all(isinstance(text, str) for text in texts) and _RECORD.fullmatch(reservation.record)
    return reservation if is_valid else None


def with_group(
    actions: Iterable[Action], transaction_id: str, participants: Mapping[str, int]
) -> list[Action]:
    """Return a version with the group that it is committed with, as the RFC (delta#7437) names it.

    In the commitInfo, which every client skips over what it does not know of, and without the RFC's table feature: clients
    that do not know it would refuse to write the table.

    Args:
        actions: the actions of the version, the commitInfo first.
        transaction_id: the id of the transaction.
        participants: the versions that it creates, by table id.
    """
    info, *others = actions
    assert isinstance(info, CommitInfo)  # noqa: S101 - as every commit of Delvec begins
    group = {
        "transactionId": transaction_id,
        "participants": [
            {"tableId": table_id, "version": version} for table_id, version in sorted(participants.items())
        ],
    }
    return [replace(info, extra={**info.extra, _GROUP: group}), *others]
