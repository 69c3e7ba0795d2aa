"""A table's health as the service reports it."""

from dataclasses import asdict

from delvec.protocol.wire import HealthResponse
from delvec_service.delta.health import examine
from delvec_service.delta.snapshot import Snapshot

__all__ = ["health"]


def health(snapshot: Snapshot, table: str) -> HealthResponse:
    """Return the health of a version of the table of that name."""
    report = asdict(examine(snapshot))
    advice = report.pop("advice")
    return HealthResponse.model_validate(
        {"table": table, "version": snapshot.version, **report, "recommendations": advice}
    )
