"""A table's health as the service reports it."""

from collections.abc import Sequence
from dataclasses import asdict

from delvec_kernel.health.health import examine
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.wire import HealthResponse, OverwrittenCommit
from delvec_service.store.own_commits import Overwritten

__all__ = ["health"]


def health(snapshot: Snapshot, table: str, overwritten: Sequence[Overwritten] = ()) -> HealthResponse:
    """Return the health of a version of the table of that name, and which own commits others replaced."""
    report = asdict(examine(snapshot))
    advice = report.pop("advice")
    return HealthResponse.model_validate(
        {
            "table": table,
            "version": snapshot.version,
            **report,
            "recommendations": advice,
            "overwritten_commits": [
                OverwrittenCommit(
                    version=one.version,
                    transaction_id=one.key,
                    by_operation=one.by_operation,
                    by_engine=one.by_engine,
                    by_transaction_id=one.by_key,
                    found_at=one.found_at,
                )
                for one in overwritten
            ],
        }
    )
