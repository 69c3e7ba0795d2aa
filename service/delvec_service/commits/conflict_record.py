"""The record of a lost race: the two transactions, and the files and rows they conflict over."""

from datetime import UTC, datetime
from typing import Final

from delvec_kernel.transaction.conflict_checker import Conflict
from delvec_service.commits.pending_commit import PendingCommit
from delvec_service.store.commit_record import CommitConflict

__all__ = ["conflict_record"]

_FILES_NAMED: Final = 20
_LONGEST_PATH: Final = 1000
_LONGEST_REASON: Final = 2000
_LONG: Final = 2**63 - 1


def conflict_record(member: PendingCommit, conflict: Conflict) -> CommitConflict:
    """Return the record of a conflict. Texts come from requests and logs, and are cut to the size of their columns."""
    winner = conflict.winner
    engine = winner.info.engine_info if winner.info else None
    overlapping = sum(each.count for each in conflict.overlaps) if conflict.overlaps else None
    return CommitConflict(
        found_at=datetime.now(UTC),
        type=conflict.kind.type,
        operation=conflict.changes.operation[:64],
        read_version=conflict.changes.read_version,
        transaction_id=member.key[:128],
        principal=None if member.principal is None else member.principal[:256],
        winning_version=winner.version,
        winning_operation=winner.operation[:64],
        winning_engine=None if engine is None else engine[:256],
        winning_transaction_id=None if winner.txn_id is None else winner.txn_id[:128],
        num_files=len(conflict.files),
        files=tuple(path[:_LONGEST_PATH] for path in conflict.files[:_FILES_NAMED]),
        overlapping_rows=None if overlapping is None else min(overlapping, _LONG),
        reason=f"Version {winner.version} ({winner.operation[:64]}) {conflict.what.rstrip(',')}."[
            :_LONGEST_REASON
        ],
    )
