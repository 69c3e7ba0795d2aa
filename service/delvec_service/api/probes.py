"""``/livez``, ``/readyz`` and ``/v1/config``."""

from importlib.metadata import version

from fastapi import APIRouter, Request

from delvec.protocol.errors import ServiceUnavailable
from delvec.protocol.wire import ConfigResponse
from delvec_service.api.dependencies import ServiceState
from delvec_service.api.plan import ARROW_STREAM
from delvec_service.api.problems import COMMON, responses

__all__ = ["config_router", "router"]

router = APIRouter(tags=["probes"])
config_router = APIRouter(tags=["config"])


@router.get("/livez", responses=responses())
def livez() -> dict[str, str]:
    """Whether the process answers. Touches neither database nor storage."""
    return {"status": "ok"}


@router.get("/readyz", responses=responses(ServiceUnavailable))
def readyz(service: ServiceState) -> dict[str, str]:
    """Whether requests can be served: the database answers."""
    service.database.check()
    return {"status": "ok"}


@config_router.get("/config", responses=responses(*COMMON))
def config(request: Request, service: ServiceState) -> ConfigResponse:
    """Say what this service is and can do."""
    paths = request.app.openapi()["paths"]
    return ConfigResponse(
        version=version("delvec"),
        endpoints=sorted(
            f"{method.upper()} {path}" for path in paths for method in paths[path] if path.startswith("/v1/")
        ),
        max_request_bytes=service.settings.max_request_bytes,
        arrow_media_type=ARROW_STREAM,
    )
