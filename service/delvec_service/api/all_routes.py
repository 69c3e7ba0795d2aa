"""All routes of the service, and their handlers by name."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from delvec_service.api import (
    access_routes,
    additions_routes,
    alter_routes,
    audit_routes,
    changes_routes,
    check_routes,
    checkpoint_routes,
    clone_routes,
    commits_routes,
    conflicts_routes,
    convert_routes,
    credentials_routes,
    deletion_vectors_routes,
    dml_routes,
    dropped_tables_routes,
    events_routes,
    fleet_routes,
    generate_routes,
    health_routes,
    history_routes,
    iceberg_catalog_routes,
    iceberg_routes,
    metrics_routes,
    outcomes_routes,
    plan_routes,
    policies_routes,
    probes_routes,
    repair_routes,
    restore_routes,
    snapshot_routes,
    tables_routes,
    transactions_routes,
    uc_classic_routes,
    uc_delta_routes,
    uc_preview_routes,
    vacuum_routes,
    vector_compaction_routes,
)
from delvec_service.api.routes import Route

__all__ = ["HANDLERS", "ROUTES"]

_ROUTERS: Final = (
    probes_routes.router,
    metrics_routes.router,
    tables_routes.router,
    *dropped_tables_routes.routers,
    snapshot_routes.router,
    plan_routes.router,
    changes_routes.router,
    additions_routes.router,
    *commits_routes.routers,
    outcomes_routes.router,
    *transactions_routes.routers,
    alter_routes.router,
    dml_routes.router,
    deletion_vectors_routes.router,
    history_routes.router,
    health_routes.router,
    fleet_routes.router,
    conflicts_routes.router,
    events_routes.router,
    policies_routes.router,
    checkpoint_routes.router,
    vacuum_routes.router,
    check_routes.router,
    restore_routes.router,
    repair_routes.router,
    generate_routes.router,
    iceberg_routes.router,
    clone_routes.router,
    vector_compaction_routes.router,
    convert_routes.router,
    *access_routes.routers,
    credentials_routes.router,
    audit_routes.router,
    probes_routes.config_router,
    *iceberg_catalog_routes.routers,
    *uc_delta_routes.routers,
    *uc_preview_routes.routers,
    *uc_classic_routes.routers,
)
ROUTES: Final = tuple(route for router in _ROUTERS for route in router.routes)
"""All services of a process share them: include_router() would make each of them again for every application."""

HANDLERS: Final[Mapping[str, Callable[..., Any]]] = {
    route.name: route.operation
    for route in ROUTES
    if isinstance(route, Route) and route.path.startswith("/v1/")
}
"""What the operations of the service call, by their names."""
