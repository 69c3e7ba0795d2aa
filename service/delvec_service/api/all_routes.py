"""All routes of the service, and their handlers by name."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from delvec_service.api import (
    access,
    additions,
    alter,
    audit,
    changes,
    check,
    checkpoint,
    clone,
    commits,
    conflicts,
    convert,
    credentials,
    deletion_vectors,
    dml,
    dropped_tables,
    events,
    fleet,
    generate,
    health,
    history,
    iceberg,
    iceberg_catalog,
    metrics,
    outcomes,
    plan,
    policies,
    probes,
    repair,
    restore,
    snapshot,
    tables,
    transactions,
    uc_classic,
    uc_delta,
    uc_preview,
    vacuum,
    vector_compaction,
)
from delvec_service.api.routes import Route

__all__ = ["HANDLERS", "ROUTES"]

_ROUTERS: Final = (
    probes.router,
    metrics.router,
    tables.router,
    *dropped_tables.routers,
    snapshot.router,
    plan.router,
    changes.router,
    additions.router,
    *commits.routers,
    outcomes.router,
    *transactions.routers,
    alter.router,
    dml.router,
    deletion_vectors.router,
    history.router,
    health.router,
    fleet.router,
    conflicts.router,
    events.router,
    policies.router,
    checkpoint.router,
    vacuum.router,
    check.router,
    restore.router,
    repair.router,
    generate.router,
    iceberg.router,
    clone.router,
    vector_compaction.router,
    convert.router,
    *access.routers,
    credentials.router,
    audit.router,
    probes.config_router,
    *iceberg_catalog.routers,
    *uc_delta.routers,
    *uc_preview.routers,
    *uc_classic.routers,
)
ROUTES: Final = tuple(route for router in _ROUTERS for route in router.routes)
"""All services of a process share them: include_router() would make each of them again for every application."""

HANDLERS: Final[Mapping[str, Callable[..., Any]]] = {
    route.name: route.operation
    for route in ROUTES
    if isinstance(route, Route) and route.path.startswith("/v1/")
}
"""What the operations of the service call, by their names."""
