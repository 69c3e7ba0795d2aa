"""Routes that answer with the functions of operations, which this process calls, too.

Tested in `tests/integration/contract/test_operations.py` and `tests/integration/service/test_http.py`.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Annotated, Any, Final

from fastapi import Path, Query, Request
from fastapi.routing import APIRoute

from delvec_contract.operations import Operation
from delvec_contract.parameters import PathParameters
from delvec_errors import DelvecError
from delvec_service.api.authorizer import ACCESS, TABLE
from delvec_service.api.problems import responses
from delvec_service.api.resource import resource_router
from delvec_service.api.routes import Route
from delvec_service.operations.call import Call, function_of

__all__ = ["served"]

_ANYTHING: Final = inspect.Parameter.KEYWORD_ONLY


def served(
    operation: Operation[Any],
    tag: str,
    route_class: type[Route],
    *errors: type[DelvecError],
    status: int | None = None,
    needs_body: bool | None = None,
    answer: Callable[[Any], Any] = lambda answer: answer,
    documented: Mapping[int | str, dict[str, Any]] | None = None,
) -> APIRoute:
    """Return the route of an operation.

    Args:
        operation: the operation.
        tag: for the OpenAPI document.
        route_class: says in which lane it runs, and whether it has an idempotency key.
        errors: that it may return.
        status: the status of its answer, if that is not 200, or 204 for none.
        needs_body: whether a body must be sent; by default if one without fields would be invalid.
        answer: turns the function's result into the answer.
        documented: further answers for the OpenAPI document, by status.
    """
    router = resource_router(tag, route_class, prefix="")
    router.add_api_route(
        operation.path,
        _endpoint(operation, answer, needs_body=needs_body),
        methods=[operation.method],
        status_code=204 if operation.answer is NoneType else status,
        response_model=None if operation.answer is NoneType else operation.answer,
        responses={**(documented or {}), **responses(*errors)},
    )
    (route,) = router.routes
    assert isinstance(route, APIRoute)  # noqa: S101 - what was just added
    return route


def _endpoint(
    operation: Operation[Any], answer: Callable[[Any], Any], *, needs_body: bool | None
) -> Callable[..., Any]:
    """Return what FastAPI calls: it takes the parameters of the path, and what is asked."""
    function = function_of(operation.name)

    def endpoint(request: Request, **values: Any) -> Any:
        body_or_query = values.pop("query", None) or values.pop("body", None)
        if body_or_query is None and operation.request is not None:
            body_or_query = operation.request()
        scope = request.scope
        key = request.headers.get("idempotency-key")
        service = request.app.state.service
        return answer(function(Call(service, scope[ACCESS], body_or_query, values, key, scope.get(TABLE))))

    parameters = [inspect.Parameter("request", _ANYTHING, annotation=Request)]
    for name in reversed(re.findall(r"{(\w+)}", operation.path)):
        field = PathParameters.model_fields[name]
        described = Annotated[str, *field.metadata, Path(description=field.description)]
        parameters.append(inspect.Parameter(name, _ANYTHING, annotation=described))
    model = operation.request
    if model is not None and operation.method != "POST":
        parameters.append(inspect.Parameter("query", _ANYTHING, annotation=Annotated[model, Query()]))
    elif model is not None:
        if needs_body is None:
            needs_body = any(each.is_required() for each in model.model_fields.values())
        parameters.append(
            inspect.Parameter("body", _ANYTHING, annotation=model)
            if needs_body
            else inspect.Parameter("body", _ANYTHING, annotation=model | None, default=None)
        )
    endpoint.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    endpoint.__name__ = operation.name
    endpoint.__doc__ = function.__doc__
    return endpoint
