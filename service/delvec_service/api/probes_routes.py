"""``/livez``, ``/readyz`` and ``/v1/config``.

The handlers are coroutines without a lane, so they never wait behind other requests.

Tested in `tests/integration/service/api/test_probes.py`.
"""

import asyncio
from typing import Final

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import APIRouter, Request
from fastapi.routing import APIRoute

from delvec_contract.maintenance import ConfigResponse
from delvec_errors import ServiceUnavailable
from delvec_service import VERSION
from delvec_service.api.dependencies import Caller, ServiceState
from delvec_service.api.plan_routes import ARROW_STREAM
from delvec_service.api.problems import COMMON, responses
from delvec_service.api.resource import operation_id, resource_router
from delvec_service.store.database import Database

__all__ = ["Readiness", "config_router", "router"]

_READY_SECONDS: Final = 5.0

router = APIRouter(tags=["probes"], generate_unique_id_function=operation_id)
config_router = resource_router("config")


class Readiness:
    """Whether the database answers. One thread asks, for any number of callers.

    Attributes:
        draining: this process is shutting down and wants no new clients.
    """

    draining = False

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asked: asyncio.Future[None] | None = None

    def drain(self) -> None:
        """Report not ready from now on."""
        self.draining = True

    async def check(self) -> None:
        """Wait for the answer, but not long.

        Raises:
            ServiceUnavailable: the database does not answer in time or fails, or this process is shutting down.
        """
        if self.draining:
            raise ServiceUnavailable("This process is shutting down; send requests to another replica.")
        loop = asyncio.get_running_loop()
        if self._asked is None or self._asked.done() or self._asked.get_loop() is not loop:
            work = anyio.to_thread.run_sync(self._database.check, limiter=CapacityLimiter(1))
            self._asked = asyncio.ensure_future(work)
            # Retrieve the exception even if every caller has timed out, or asyncio logs "exception was never retrieved".
            self._asked.add_done_callback(lambda done: done.cancelled() or done.exception())
        finished, _ = await asyncio.wait((self._asked,), timeout=_READY_SECONDS)
        if not finished:
            raise ServiceUnavailable(
                f"The database has not answered for {_READY_SECONDS:g} seconds; try again."
            )
        self._asked.result()


@router.head("/livez", include_in_schema=False)
@router.get("/livez", responses=responses())
async def livez() -> dict[str, str]:
    """Whether the process answers. Uses neither database nor storage."""
    return {"status": "ok"}


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", responses=responses(ServiceUnavailable))
async def readyz(request: Request) -> dict[str, str]:
    """Whether the service can handle requests: the database answers, and the process is not shutting down."""
    await request.app.state.readiness.check()
    return {"status": "ok"}


@config_router.get("/config", responses=responses(*COMMON))
async def config(request: Request, service: ServiceState, access: Caller) -> ConfigResponse:
    """Return the version, endpoints and limits of this service."""
    routes = (
        route for route in request.app.routes if isinstance(route, APIRoute) and route.include_in_schema
    )
    return ConfigResponse(
        version=VERSION,
        endpoints=sorted(
            f"{method} {route.path}"
            for route in routes
            for method in route.methods or ()
            if route.path.startswith("/v1/")
        ),
        max_request_bytes=service.settings.max_request_bytes,
        arrow_media_type=ARROW_STREAM,
        namespace_roots={
            namespace: list(roots)
            for namespace, roots in service.tables.roots.namespaces.items()
            if access.covers("namespace", namespace, "reader")
        },
    )
