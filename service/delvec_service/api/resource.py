"""The routes of a resource: declared when its module is imported, and made when they are first asked for.

FastAPI works out parameters and answers of a route with pydantic when the route is made, once for a router and once
more for the application that includes it: for all routes together that was a quarter of a start.
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
"""One at a time in the whole process: FastAPI turns off a warning of the process meanwhile, and turns it on again."""


class DeferredRoute(BaseRoute):
    """A route that FastAPI makes when a request first matches it. Safe to share between applications and threads.

    Attributes:
        path: its pattern, as ``/v1/tables/{table}``.
        methods: that it has.
        name: of its function.
        is_described: whether the description of the service has it.
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
        """Whether FastAPI has made it."""
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
        """Say whether a request is for this route."""
        if scope["type"] != "http" or not self._pattern.match(get_route_path(scope)):
            return Match.NONE, {}
        return self.made.matches(scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that matches."""
        await self.made.handle(scope, receive, send)

    def url_path_for(self, name: str, /, **path_params: Any) -> Any:
        """Return the path of a route by its name."""
        return self.made.url_path_for(name, **path_params)


class Resource:
    """What is declared of a resource; each of its methods is a decorator of the function that answers.

    Args:
        parts: whose routes are this resource's, too.
        tags: in the description of the service.
        route_class: of its routes.
        described: whether the description has them.
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
        """Declare a route for GET; ``options`` are those of ``fastapi.routing.APIRoute``."""
        return self._declare("GET", path, options)

    def head(self, path: str, **options: Any) -> Callable[[_Endpoint], _Endpoint]:
        """Declare a route for HEAD; ``options`` are those of ``fastapi.routing.APIRoute``."""
        return self._declare("HEAD", path, options)

    def post(self, path: str, **options: Any) -> Callable[[_Endpoint], _Endpoint]:
        """Declare a route for POST; ``options`` are those of ``fastapi.routing.APIRoute``."""
        return self._declare("POST", path, options)

    def delete(self, path: str, **options: Any) -> Callable[[_Endpoint], _Endpoint]:
        """Declare a route for DELETE; ``options`` are those of ``fastapi.routing.APIRoute``."""
        return self._declare("DELETE", path, options)

    def routes(self, prefix: str = "", *, guard: Depends | None = None) -> Iterator[DeferredRoute]:
        """Return the routes.

        Args:
            prefix: of their paths.
            guard: what each of them depends on.
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
