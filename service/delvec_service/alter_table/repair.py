"""FSCK REPAIR: commits the fixes for findings of a check that have one.

It is planned from the newest version, and again if another commit touched one of its files in the meantime: the right
fix for a file depends on everything that was done to it.

Tested in `tests/integration/client/test_repair.py`.
"""

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from delvec_contract.maintenance import RepairRequest
from delvec_kernel.actions.action_json import json_text
from delvec_kernel.features.table_features import check_writable
from delvec_kernel.transaction.conflict_checker import Conflict
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_service.commits.commit import Commits, Committed
from delvec_service.commits.idempotency import request_hash
from delvec_service.maintenance.repair_plan import Repair, RepairPlan, Unrepaired, plan_repair
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.open_table import OpenTable
from delvec_service.tables.new_table import ENGINE_INFO

__all__ = ["RepairResult", "Repaired", "repair"]

_ATTEMPTS: Final = 20
_OPERATION: Final = "FSCK REPAIR"


@dataclass
class Repaired:
    """What was done, or would be done.

    Attributes:
        read_version: the last version that was checked.
        versions: the versions that were created.
        repairs: findings that were repaired.
        left: findings of the last check that were not repaired.
        lost_rows: live rows of dropped files, None if unknown.
    """

    read_version: int
    versions: list[int] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)
    left: Sequence[Unrepaired] = ()
    metrics: Counter[str] = field(default_factory=Counter)
    lost_rows: int | None = 0

    def take(self, plan: RepairPlan) -> None:
        """Add the results of a plan; a fix that takes two versions counts once."""
        known = {(each.finding.invariant, each.finding.version, each.file) for each in self.repairs}
        self.repairs += [
            each
            for each in plan.repairs
            if (each.finding.invariant, each.finding.version, each.file) not in known
        ]
        lost = plan.lost_rows
        self.lost_rows = None if self.lost_rows is None or lost is None else self.lost_rows + lost


RepairResult: TypeAlias = Repaired | Conflict


def repair(
    table: OpenTable, loader: SnapshotLoader, commits: Commits, request: RepairRequest, transaction_id: str
) -> RepairResult:
    """Repair the findings that have exactly one right fix, in one commit.

    If a path is live twice and needs another deletion vector, or is live three times, a second commit follows: a
    version can remove only one logical file per path.

    Args:
        table: the table.
        loader: reads snapshots.
        commits: commits.
        request: what to do.
        transaction_id: the transaction id of the first commit.

    Returns:
        A conflict only if others changed the same files during every one of many attempts.

    Raises:
        AppendOnlyTable: missing files would be dropped from an append-only table.
        UnsupportedTable: or a subclass: Delvec cannot write the table.
        NotADeltaTable: there is no log.
        CommitOutcomeUnknown: storage failed during the commit, or the log no longer has the answer.
        StorageError: storage did not answer.
        ServiceUnavailable: the log is repeatedly cleaned up while it is read.
    """
    digest = request_hash("repair", table.record.id, request.model_dump(mode="json", by_alias=True))
    repair_result = Repaired(-1)
    conflict: Conflict | None = None
    for _ in range(_ATTEMPTS):
        plan = plan_repair(loader, table, drop_missing_files=request.drop_missing_files)
        repair_result.read_version, repair_result.left = plan.version, plan.left
        if not plan.does_something:
            return repair_result
        latest = loader.load(table.objects, table.name, version=plan.version)
        check_writable(latest.protocol, latest.metadata, table.name)
        if request.dry_run:
            repair_result.take(plan)
            return repair_result
        result = commits.commit(table, _changes(plan, request, transaction_id, digest))
        if isinstance(result, Conflict):
            conflict = result
            continue
        conflict = None
        if isinstance(result, Committed):
            repair_result.versions.append(result.version)
            repair_result.metrics.update(result.metrics)
            repair_result.take(plan)
        if not plan.goes_on:
            return repair_result
        transaction_id = str(uuid.uuid4())
    return conflict or repair_result


def _changes(plan: RepairPlan, request: RepairRequest, transaction_id: str, digest: str) -> Changes:
    actions = Counter(each.action for each in plan.repairs)
    return Changes(
        operation=_OPERATION,
        read_version=plan.version,
        transaction_id=transaction_id,
        engine_info=f"{request.engine_info} {ENGINE_INFO}" if request.engine_info else ENGINE_INFO,
        repairs=plan.files,
        protocol=plan.protocol,
        parameters={
            "dropMissingFiles": str(request.drop_missing_files).lower(),
            "repairs": json_text(dict(sorted(actions.items()))),
        },
        data_change=any(repair.loses_rows for repair in plan.files),
        user_metadata=request.user_metadata,
        request_hash=digest,
    )
