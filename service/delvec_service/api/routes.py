"""How a request becomes a call of its handler: validated, in its lane, with a deadline.

Tested in `tests/integration/service/test_http.py` and `tests/integration/service/api/test_lanes.py`.
"""

import difflib
import functools
import inspect
import json
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, ClassVar, Final

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from delvec_errors import BadRequest, DeadlineExceeded, DelvecError
from delvec_service.api.authorizer import ACCESS
from delvec_service.api.bodies import CheckedRequest
from delvec_service.api.lanes import Kind, Lanes, in_thread
from delvec_service.auth.request_access import Access
from delvec_service.bad_requests import check_text
from delvec_service.service import Service

__all__ = ["LenientRoute", "Route"]

_LONGEST_QUERY: Final = 64


class Route(APIRoute):
    """A route of the service.

    Handlers that are not coroutines run in threads of the route's kind, as does the conversion of results to JSON.
    """

    kind: ClassVar[Kind] = "reading"
    large: ClassVar[bool] = False
    """Whether bodies may be as large as those of commits."""
    lenient: ClassVar[bool] = False
    """Whether unknown query parameters are ignored."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        handler = endpoint
        if not inspect.iscoroutinefunction(endpoint):
            handler = _in_thread(endpoint, options.get("status_code") or 200)
        super().__init__(path, handler, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler, wrapped in the checks that apply to every request."""
        handle = self.handler()
        parameter_names = _query_parameters(self.dependant)
        field = self.body_field
        model: TypeAdapter[Any] | None = None if field is None else _adapter(field.field_info)
        required = field is not None and field.field_info.is_required()

        async def run(raw_request: Request) -> Response:
            service: Service = raw_request.app.state.service
            request = CheckedRequest(raw_request.scope, raw_request.receive)
            _check_address(request, None if self.lenient else parameter_names)
            if model is not None:
                settings = service.settings
                small = min(settings.max_document_bytes, settings.max_request_bytes)
                await request.load(
                    model,
                    limit=settings.max_request_bytes if self.large else small,
                    setting="DELVEC_MAX_REQUEST_BYTES" if self.large else "DELVEC_MAX_DOCUMENT_BYTES",
                    is_required=required,
                )
            access: Access | None = raw_request.scope.get(ACCESS)
            principal = "" if access is None else access.name
            lanes: Lanes = raw_request.app.state.lanes
            return await lanes.of(self.kind).run(lambda: handle(request), self.timeout_error, principal)

        return run

    def handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the coroutine to run in the lane."""
        return super().get_route_handler()

    @staticmethod
    def timeout_error(seconds: float) -> DelvecError:
        """Return the error for a request that takes too long."""
        return DeadlineExceeded(
            f"The request took longer than {seconds:g} seconds: storage or the database is slow or does not answer. "
            "It may still complete. If you send it again with the same Idempotency-Key, it is not done twice.",
            seconds=seconds,
        )


class LenientRoute(Route):
    """A route of another project's protocol: its newer clients may send parameters that the service does not know."""

    lenient = True


def _adapter(body: FieldInfo) -> TypeAdapter[Any]:
    form: Any = Annotated[body.annotation, *body.metadata] if body.metadata else body.annotation
    return TypeAdapter(form)


def _query_parameters(dependant: Dependant) -> set[str]:
    names: set[str] = set()
    for parameter in dependant.query_params:
        kind = parameter.field_info.annotation
        if inspect.isclass(kind) and issubclass(kind, BaseModel):  # all parameters of an operation
            names.update(each.alias or name for name, each in kind.model_fields.items())
        else:
            names.add(parameter.alias)
    return names.union(*(_query_parameters(each) for each in dependant.dependencies))


def _in_thread(endpoint: Callable[..., Any], status: int) -> Callable[..., Coroutine[Any, Any, Any]]:
    @functools.wraps(endpoint)
    async def call(**values: Any) -> Any:
        return await in_thread(_answered, endpoint, values, status)

    return call


def _answered(endpoint: Callable[..., Any], values: dict[str, Any], status: int) -> Any:
    raw_response = endpoint(**values)
    response = values.get("response")
    if isinstance(response, Response) and response.status_code:
        status = response.status_code
    if isinstance(raw_response, BaseModel):
        return Response(raw_response.model_dump_json(by_alias=True), status, media_type="application/json")
    if isinstance(raw_response, dict):
        # JSON in ASCII: a log may contain a lone surrogate, which UTF-8 cannot encode.
        return Response(json.dumps(raw_response), status, media_type="application/json")
    return raw_response


def _check_address(request: Request, parameter_names: set[str] | None) -> None:
    """Reject characters that no address may have, and unknown parameters."""
    check_text(request.url.path, "path")
    for value in request.path_params.values():
        check_text(str(value), "path")
    query = request.scope["query_string"]
    if not query:
        return
    given = [name for name, _ in request.query_params.multi_items()]
    for name, value in request.query_params.multi_items():
        check_text(name, "query: the name of a parameter")
        check_text(value, f"query field '{name[:100]}'")
    for name in given:
        if parameter_names is None or name in parameter_names:
            continue
        near = difflib.get_close_matches(name[:_LONGEST_QUERY], parameter_names, n=1, cutoff=0.6)
        taken = ", ".join(sorted(parameter_names))
        hint = (
            f"did you mean '{near[0]}'?"
            if near
            else f"the parameters are {taken}."
            if parameter_names
            else "it has no parameters."
        )
        raise BadRequest(
            f"The request has an unknown query parameter {name[:_LONGEST_QUERY]!r}; {hint}",
            parameter=name[:_LONGEST_QUERY],
        )
