"""The router of a resource."""

from typing import Final

from fastapi import APIRouter, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

__all__ = ["operation_id", "resource_router"]

_BEARER: Final = Security(HTTPBearer(auto_error=False))
"""Declares the security scheme; the middleware enforces it before a body is read."""


def operation_id(route: APIRoute) -> str:
    """Return a route's ``operationId`` in the OpenAPI document: the name of its function."""
    return route.name


def resource_router(tag: str, route_class: type[APIRoute] = APIRoute, *, prefix: str = "/v1") -> APIRouter:
    """Return a router for the routes of a resource, which need a token if the service does.

    Args:
        tag: for the OpenAPI document.
        route_class: the class of its routes.
        prefix: the start of their paths.
    """
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        route_class=route_class,
        dependencies=[_BEARER],
        generate_unique_id_function=operation_id,
    )
