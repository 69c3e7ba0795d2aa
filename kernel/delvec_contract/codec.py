"""Frozen dataclasses of the kernel as JSON objects of requests.

The kernel's class says what fields there are, with which types and defaults; the contract adds only what the outside
needs: limits, descriptions, and how names are spelled. Pydantic then reads JSON straight into the kernel's class, and
writes it, so that nothing is copied from one class to another. Only a class that has another form on the wire, as
:class:`~delvec_kernel.transaction.transaction_changes.Changes`, is made from a model there.
"""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from functools import cache
from hashlib import sha256
from operator import attrgetter, itemgetter
from typing import Annotated, Any, Final, Generic, Literal, TypeVar, get_type_hints

from pydantic import BaseModel, GetCoreSchemaHandler, TypeAdapter, create_model
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema
from pyroaring import BitMap64

from delvec_kernel.deletion_vectors.deletion_vector import serialize_bitmap

__all__ = ["Body", "WireForm", "as_json", "canonical_json", "checked", "from_json"]

_VALUES: Final = itemgetter(0, 1)
"""Of what pydantic makes of a model's fields, what it expects of those of a dataclass."""

_BODIES: Final[dict[type, "Body"]] = {}
_FORMS: Final[dict[type, "WireForm[Any, Any]"]] = {}
_Class = TypeVar("_Class")
_Model = TypeVar("_Model", bound=BaseModel)


class Body:
    """Makes pydantic read and write a frozen dataclass: ``Annotated[AddColumns, Body(Envelope, columns=Field(...))]``.

    A ``tag`` of the class, its class variable ``change``, becomes the field that tells it from others.

    Args:
        base: the model whose configuration and checks the object gets.
        title: name of the object in OpenAPI, if it is not that of the class.
        doc: its description there, if it is not the docstring of the class.
        only: the fields of the class that requests have, if not all.
        known_as: per field a ``Field`` with limits and a description, or a type in place of that of the class.

    Attributes:
        model: has the fields of the object; None until it is used.
    """

    def __init__(
        self,
        base: type[BaseModel],
        *,
        title: str | None = None,
        doc: str | None = None,
        only: Sequence[str] | None = None,
        **known_as: Any,
    ) -> None:
        self._base = base
        self._title = title
        self._doc = doc
        self._only = only
        self._known_as = known_as
        self.model: type[BaseModel] | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if self.model is None:
            self.model = self._model_of(source)
            _BODIES[source] = self
        made: CoreSchema = _into(handler.resolve_ref_schema(handler(self.model)), source)
        return made

    def _model_of(self, cls: type) -> type[BaseModel]:
        """Return a model with the fields of the class, which pydantic makes the schema of."""
        hints = get_type_hints(cls, include_extras=True)
        field_definitions: dict[str, Any] = {}
        tag = getattr(cls, "change", None)
        if tag is not None:
            field_definitions["change"] = Literal[tag]
        for each in fields(cls):
            if self._only is not None and each.name not in self._only:
                continue
            form = self._known_as.get(each.name, hints[each.name])
            kind = Annotated[hints[each.name], form] if isinstance(form, FieldInfo) else form
            if each.default is not MISSING:
                field_definitions[each.name] = (kind, each.default)
            elif each.default_factory is not MISSING:
                field_definitions[each.name] = (kind, FieldInfo(default_factory=each.default_factory))
            else:
                field_definitions[each.name] = kind
        if unknown := self._known_as.keys() - field_definitions.keys():
            raise TypeError(f"{cls.__name__} has no fields {sorted(unknown)}.")
        doc = self._doc or inspect.cleandoc(cls.__doc__ or "").partition("\n\nAttributes:")[0]
        return create_model(
            self._title or cls.__name__,
            __base__=self._base,
            __doc__=doc,
            __module__=cls.__module__,
            **field_definitions,
        )


class WireForm(Generic[_Class, _Model]):
    """Makes pydantic read and write a class of the kernel that has another form on the wire.

    Args:
        cls: the class.
        model: the form.
        read: makes an instance of the class.
        write: makes the form of one.
    """

    def __init__(
        self,
        cls: type[_Class],
        model: type[_Model],
        read: Callable[[_Model], _Class],
        write: Callable[[_Class], _Model],
    ) -> None:
        self._model = model
        self._write = write
        self._read = read
        _FORMS[cls] = self

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler.generate_schema(self._model)
        return core_schema.no_info_wrap_validator_function(
            lambda value, read: value if isinstance(value, source) else self._read(read(value)),
            schema,
            serialization=core_schema.plain_serializer_function_ser_schema(self._write, return_schema=schema),
        )


def checked(cls: type[_Class], **values: Any) -> _Class:
    """Return an instance of a class of the contract or the kernel, checked as if a request had it.

    Raises:
        pydantic.ValidationError: a value is invalid.
    """
    if issubclass(cls, BaseModel):
        return cls(**values)
    kind: Any = cls
    tag = {"change": kind.change} if hasattr(cls, "change") else {}
    made: _Class = _adapter(kind).validate_python({**tag, **values})
    return made


def as_json(value: Any, *, exclude_none: bool = False) -> str:
    """Return an instance of a class of the contract or the kernel as the JSON of requests."""
    if isinstance(value, BaseModel):
        return value.model_dump_json(by_alias=True, exclude_none=exclude_none)
    kind: Any = type(value)
    return _adapter(kind).dump_json(value, by_alias=True, exclude_none=exclude_none).decode()


def from_json(cls: type[_Class], text: str | bytes) -> _Class:
    """Read what :func:`as_json` returned.

    Raises:
        pydantic.ValidationError: it is something else.
    """
    kind: Any = cls
    made: _Class = _adapter(kind).validate_json(text)
    return made


def canonical_json(value: Any) -> str:
    """Return the JSON by which requests are compared: values that ask for the same have the same, however each was sent.

    It is in ASCII, with sorted maps, the defaults of absent fields, and a digest of rows.

    Raises:
        TypeError: it holds what no request does.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), check_circular=False, default=_plain)


def _plain(value: Any) -> Any:
    kind: Any = type(value)
    return _plain_form(kind)(value)


@cache
def _plain_form(cls: Any) -> Callable[[Any], Any]:
    """Return what makes values that JSON has types for of the instances of a class."""
    if issubclass(cls, BitMap64):
        return lambda rows: sha256(serialize_bitmap(rows)).hexdigest()
    if issubclass(cls, datetime):
        return datetime.isoformat
    if issubclass(cls, Mapping):
        return dict
    model = _BODIES[cls].model if cls in _BODIES else cls
    if model is not None and issubclass(model, BaseModel):
        names = {name: field.alias or name for name, field in model.model_fields.items()}
    elif is_dataclass(cls):
        names = {each.name: each.name.replace("_", "-") for each in fields(cls)}
    else:
        raise TypeError(f"{cls.__name__} is not part of a request.")
    values, known = attrgetter(*names, "__class__"), tuple(names.values())
    return lambda value: dict(zip(known, values(value), strict=False))


@cache
def _adapter(cls: Any) -> TypeAdapter[Any]:
    return TypeAdapter(Annotated[cls, _FORMS.get(cls) or _BODIES[cls]])


def _into(schema: Any, cls: type) -> Any:
    """Return the schema of a model as one that makes instances of the class."""
    if schema["type"] == "model-fields":
        # Not the arguments of a dataclass, whose errors differ from those of every other object.
        absent = {each.name: each.default for each in fields(cls) if each.name not in schema["fields"]}
        return core_schema.no_info_after_validator_function(
            (lambda values: (absent | values[0], None)) if absent else _VALUES, schema
        )
    if schema["type"] != "model":
        return {**schema, "schema": _into(schema["schema"], cls)}
    dataclass_schema = core_schema.dataclass_schema(
        cls,
        _into(schema["schema"], cls),
        list(schema["cls"].model_fields),
        slots="__slots__" in cls.__dict__,
        config=schema["config"],
        ref=schema["ref"],
        metadata={
            "pydantic_js_updates": {"title": schema["cls"].__name__, "description": schema["cls"].__doc__}
        },
    )
    if not hasattr(cls, "__post_init__"):
        return dataclass_schema
    return core_schema.no_info_after_validator_function(_checked, dataclass_schema)


def _checked(value: Any) -> Any:
    value.__post_init__()
    return value
