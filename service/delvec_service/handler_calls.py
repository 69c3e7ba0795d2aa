"""Calls an HTTP handler as a function: its arguments are found by their names, and validated as FastAPI would.

Tested in `tests/integration/contract/test_table_service.py`.
"""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import cache
from inspect import Parameter, signature
from typing import Annotated, Any, get_args, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from delvec_service.auth.request_access import Access
from delvec_service.bad_requests import check_text, invalid
from delvec_service.service import Service
from delvec_service.store.open_table import OpenTable

__all__ = ["call_handler"]


@dataclass(frozen=True)
class _Argument:
    """One argument of a handler.

    Attributes:
        name: in the handler's signature.
        type: without what FastAPI adds.
        alias: its name on the wire.
        adapter: validates a parameter of the query or path; None for what is not a value.
        maker: the function that makes it from parameters.
    """

    name: str
    type: Any
    alias: str
    adapter: TypeAdapter[Any] | None = None
    maker: Callable[..., Any] | None = None


def call_handler(
    service: Service,
    handler: Callable[..., Any],
    table: Callable[[str], OpenTable],
    body: BaseModel | None,
    values: Mapping[str, Any],
    key: str | None,
) -> Any:
    """Call a handler.

    Args:
        service: for handlers that take it.
        handler: the handler.
        table: opens the table of the path.
        body: the request's body.
        values: parameters of the path and query, by their names on the wire.
        key: the request's idempotency key.

    Raises:
        BadRequest: a parameter is invalid.
        DelvecError: the handler's.
    """
    context = {"service": service, "access": Access(), "idempotency_key": key}
    arguments: dict[str, Any] = {}
    for each in _arguments(handler):
        if each.name in context:
            arguments[each.name] = context[each.name]
        elif each.name == "body":
            if body is not None:
                arguments["body"] = body
        elif each.name == "table" and each.adapter is None:
            arguments["table"] = table(values["table"]) if each.type is OpenTable else values["table"]
        elif each.maker is not None:
            arguments[each.name] = _made(call_handler(service, each.maker, table, None, values, None))
        elif each.alias in values:
            arguments[each.name] = _valid(each, values[each.alias])
    return handler(**arguments)


def _valid(argument: _Argument, value: Any) -> Any:
    assert argument.adapter is not None  # noqa: S101 - every other argument was found
    for text in value if isinstance(value, list | tuple) else [value]:
        if isinstance(text, str):
            check_text(text, f"query field '{argument.alias}'")
    try:
        return argument.adapter.validate_python(value)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
    raise invalid([{**each, "loc": ("query", argument.alias, *each["loc"])} for each in problems])


def _made(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return what a coroutine without I/O returns."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits for something")


@cache
def _arguments(handler: Callable[..., Any]) -> tuple[_Argument, ...]:
    hints = get_type_hints(handler, include_extras=True)
    return tuple(_argument(each, hints[each.name]) for each in signature(handler).parameters.values())


def _argument(parameter: Parameter, annotation: Any) -> _Argument:
    plain, *metadata = get_args(annotation) if hasattr(annotation, "__metadata__") else (annotation,)
    field = next((each for each in metadata if isinstance(each, FieldInfo)), None)
    if field is None:
        maker = next((each.dependency for each in metadata if hasattr(each, "dependency")), None)
        return _Argument(parameter.name, plain, parameter.name, maker=maker)
    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[plain, *field.metadata] if field.metadata else plain)
    return _Argument(parameter.name, plain, field.alias or parameter.name, adapter)
