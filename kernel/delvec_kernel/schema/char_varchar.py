"""``char(n)`` and ``varchar(n)``, which are strings in Delta; Spark records them in the column's metadata."""

import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["CHARACTERS", "CHARACTER_TYPE", "as_texts", "is_char"]

CHARACTERS: Final = "__CHAR_VARCHAR_TYPE_STRING"
"""The metadata key; its value is the whole column's type in Spark's format."""
CHARACTER_TYPE: Final = re.compile(r"\s*(?:var)?char\(\s*(\d{1,10})\s*\)", re.IGNORECASE)
_SPARK_NAMES: Final = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}


def as_texts(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a struct's JSON with ``string`` in place of these types, and the original types in metadata.

    JSON that is not a schema is returned unchanged.
    """
    fields = schema.get("fields")
    return (
        {**schema, "fields": [_noted(item) for item in fields]} if isinstance(fields, list) else dict(schema)
    )


def is_char(metadata: Mapping[str, Any]) -> bool:
    """Whether a column with this metadata is a ``char(n)``."""
    return str(metadata.get(CHARACTERS, "")).strip().lower().startswith("char")


def _noted(item: Any) -> Any:
    match item:
        case {"type": kind} if (text := _text(kind)) != kind:
            return {
                **item,
                "type": text,
                "metadata": {**(item.get("metadata") or {}), CHARACTERS: _name(kind)},
            }
    return item


def _text(kind: Any) -> Any:
    """Return a type with char and varchar replaced by string."""
    match kind:
        case {"type": "struct", "fields": list(fields)}:
            return {**kind, "fields": [_inside(item) for item in fields]}
        case {"type": "array", "elementType": element}:
            return {**kind, "elementType": _text(element)}
        case {"type": "map", "keyType": key, "valueType": value}:
            return {**kind, "keyType": _text(key), "valueType": _text(value)}
        case str() if CHARACTER_TYPE.fullmatch(kind):
            return "string"
    return kind


def _inside(item: Any) -> Any:
    match item:
        case {"type": kind}:
            return {**item, "type": _text(kind)}
    return item


def _name(kind: Any) -> str:
    match kind:
        case {"type": "struct"}:
            fields = (f"{item.get('name')}:{_name(item.get('type'))}" for item in kind["fields"])
            return f"struct<{','.join(fields)}>"
        case {"type": "array"}:
            return f"array<{_name(kind['elementType'])}>"
        case {"type": "map"}:
            return f"map<{_name(kind['keyType'])},{_name(kind['valueType'])}>"
    return _SPARK_NAMES.get(str(kind), str(kind))
