"""The routes of a resource: declared when its module is imported, and built when they are first requested.

FastAPI uses pydantic to work out the parameters and answers of a route when the route is built, once for a router and
again for the application that includes it. For all routes together that was a quarter of the startup time.

Tested in `tests/architecture/test_start.py`.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from fastapi.params import Depends
from fastapi.routing import APIRoute
from starlette._utils import get_route_path
from starlette.routing import BaseRoute, Match, compile_path
from starlette.types import Receive, Scope, Send

__all__ = ["DeferredRoute", "Resource"]

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])
_MAKING: Final = threading.RLock()
"""One at a time per process: FastAPI turns a process-wide warning off and on again while it builds a route."""


class DeferredRoute(BaseRoute):
    """A route that FastAPI builds when a request first matches it. Safe to share between applications and threads.

    Attributes:
        path: its pattern, as ``/v1/tables/{table}``.
        methods: its HTTP methods.
        name: the name of its function.
        is_described: whether the OpenAPI document includes it.
    """

    def __init__(
        self, route_class: type[APIRoute], path: str, endpoint: Callable[..., Any], options: Mapping[str, Any]
    ) -> None:
        self.path = path
        self.methods: set[str] = set(options["methods"])
        self.name = endpoint.__name__
        self.is_described: bool = options["include_in_schema"]
        self._route_class = route_class
        self._endpoint = endpoint
        self._options = options
        self._pattern, self.path_format, _ = compile_path(path)
        self._made: APIRoute | None = None

    @property
    def is_made(self) -> bool:
        """Whether FastAPI has built it."""
        return self._made is not None

    @property
    def made(self) -> APIRoute:
        """FastAPI's route."""
        made = self._made
        if made is None:
            with _MAKING:
                made = self._made
                if made is None:
                    made = self._made = self._route_class(self.path, self._endpoint, **self._options)
        return made

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match a request to this route."""
        if scope["type"] != "http" or not self._pattern.match(get_route_path(scope)):
            return Match.NONE, {}
        return self.made.matches(scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a matching request."""
        await self.made.handle(scope, receive, send)

    def url_path_for(self, name: str, /, **path_params: Any) -> Any:
        """Return the path of the route with this name."""
        return self.made.url_path_for(name, **path_params)


class Resource:
    """The declared routes of a resource; each method is a decorator for a handler.

    Args:
        parts: resources whose routes to include.
        tags: for the OpenAPI document.
        route_class: the class of its routes.
        described: whether the OpenAPI document includes them.
    """

    def __init__(
        self,
        *parts: "Resource",
        tags: Sequence[str] = (),
        route_class: type[APIRoute] = APIRoute,
        described: bool = True,
    ) -> None:
        self._parts = parts
        self._tags = tags
        self._route_class = route_class
        self._described = described
        self._declared: list[tuple[str, Callable[..., Any], dict[str, Any]]] = []

    def get(self, path: str, **options: Any) -> Callable[[_Endpoint], _Endpoint]:
        """Declare a GET route; ``options`` are those of ``fastapi.routing.APIRoute``."""
        return self._declare("GET", path, options)

    def head(self, path: str, **options: Any) -> Callable[[_Endpoint], _Endpoint]:
        """Declare a HEAD route; ``options`` are those of ``fastapi.routing.APIRoute``."""
        return self._declare("HEAD", path, options)

    def post(self, path: str, **options: Any) -> Callable[[_Endpoint], _Endpoint]:
        """Declare a POST route; ``options`` are those of ``fastapi.routing.APIRoute``."""
        return self._declare("POST", path, options)

    def delete(self, path: str, **options: Any) -> Callable[[_Endpoint], _Endpoint]:
        """Declare a DELETE route; ``options`` are those of ``fastapi.routing.APIRoute``."""
        return self._declare("DELETE", path, options)

    def routes(self, prefix: str = "", *, guard: Depends | None = None) -> Iterator[DeferredRoute]:
        """Return the routes.

        Args:
            prefix: the start of their paths.
            guard: a dependency of each route.
        """
        for path, endpoint, options in self._declared:
            given = {
                **options,
                "tags": list(self._tags),
                "include_in_schema": self._described,
                "generate_unique_id_function": _operation_id,
                "dependencies": [] if guard is None else [guard],
            }
            yield DeferredRoute(self._route_class, prefix + path, endpoint, given)
        for part in self._parts:
            yield from part.routes(prefix, guard=guard)

    def _declare(
        self, method: str, path: str, options: Mapping[str, Any]
    ) -> Callable[[_Endpoint], _Endpoint]:
        def declare(endpoint: _Endpoint) -> _Endpoint:
            self._declared.append((path, endpoint, {**options, "methods": [method]}))
            return endpoint

        return declare


def _operation_id(route: APIRoute) -> str:
    return route.name
