"""``char(n)`` and ``varchar(n)``, which Delta has as strings; Spark notes what they are in the metadata of their columns."""

import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["CHARACTERS", "CHARACTER_TYPE", "as_texts"]

CHARACTERS: Final = "__CHAR_VARCHAR_TYPE_STRING"
"""The key; its value is the type of the whole column as Spark writes it."""
CHARACTER_TYPE: Final = re.compile(r"\s*(?:var)?char\(\s*(\d{1,9})\s*\)", re.IGNORECASE)
_SPARKS: Final = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}


def as_texts(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of a struct with ``string`` in place of such types, and with what they were in its metadata."""
    return {**schema, "fields": [_noted(item) for item in schema["fields"]]}


def _noted(item: Mapping[str, Any]) -> dict[str, Any]:
    kind = _text(item["type"])
    if kind == item["type"]:
        return dict(item)
    return {
        **item,
        "type": kind,
        "metadata": {**(item.get("metadata") or {}), CHARACTERS: _name(item["type"])},
    }


def _text(kind: Any) -> Any:
    """Return a type without lengths."""
    match kind:
        case {"type": "struct"}:
            return {**kind, "fields": [{**item, "type": _text(item["type"])} for item in kind["fields"]]}
        case {"type": "array"}:
            return {**kind, "elementType": _text(kind["elementType"])}
        case {"type": "map"}:
            return {**kind, "keyType": _text(kind["keyType"]), "valueType": _text(kind["valueType"])}
        case str() if CHARACTER_TYPE.fullmatch(kind):
            return "string"
    return kind


def _name(kind: Any) -> str:
    match kind:
        case {"type": "struct"}:
            fields = (f"{item['name']}:{_name(item['type'])}" for item in kind["fields"])
            return f"struct<{','.join(fields)}>"
        case {"type": "array"}:
            return f"array<{_name(kind['elementType'])}>"
        case {"type": "map"}:
            return f"map<{_name(kind['keyType'])},{_name(kind['valueType'])}>"
    return _SPARKS.get(str(kind), str(kind))
