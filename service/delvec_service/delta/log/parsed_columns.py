"""Struct columns of a checkpoint back into text: ``stats_parsed`` and ``partitionValues_parsed``.

Checkpoints may hold statistics as typed columns only (``delta.checkpoint.writeStatsAsJson=false``).
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec_service.delta.log.log_json import json_text
from delvec_service.delta.segments.files import TEXT_MAP

__all__ = ["partition_values", "stats_json"]

_ESCAPED: Final = r'[\x00-\x1f"\\]'


def stats_json(parsed: pa.StructArray) -> pa.Array:
    """Return statistics as JSON text, null where the struct is null; fields that are null are left out."""
    return _object(parsed)


def partition_values(parsed: pa.StructArray) -> pa.Array:
    """Return partition values as a map of text, as ``partitionValues`` would hold them."""
    names = [field.name for field in parsed.type]
    texts = [_text(child).to_pylist() for child in parsed.flatten()]
    rows = zip(*texts, strict=True) if texts else ([()] * len(parsed))
    return pa.array([list(zip(names, row, strict=True)) for row in rows], TEXT_MAP)


def _object(value: pa.StructArray) -> pa.Array:
    members = []
    for field, child in zip(value.type, value.flatten(), strict=True):
        text = _json(child)
        if text is not None:
            named = pc.binary_join_element_wise(f"{json_text(field.name)}:", text, ",", "")
            members.append(pc.fill_null(named, ""))
    if not members:
        body = pa.array([""] * len(value), pa.string())
    else:
        # Nothing but the last member's own comma can stand at the end.
        body = pc.utf8_rtrim(pc.binary_join_element_wise(*members, ""), ",")
    text = pc.binary_join_element_wise("{", body, "}", "")
    return pc.if_else(pc.is_valid(value), text, pa.scalar(None, pa.string()))


def _json(value: pa.Array) -> pa.Array | None:
    """Return each value as JSON text, null where it is null or not finite; None for a type without JSON."""
    kind = value.type
    if pa.types.is_struct(kind):
        return _object(value)
    if pa.types.is_floating(kind):
        finite = pc.is_finite(value)
        return pc.if_else(finite, value.cast(pa.string()), pa.scalar(None, pa.string()))
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind):
        return value.cast(pa.string())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _quoted(value.cast(pa.string()))
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pc.binary_join_element_wise('"', _text(value), '"', "")
    return None


def _text(value: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(value.type):
        value = value.cast(pa.timestamp("us", value.type.tz), safe=False)
    return value.cast(pa.string())


def _quoted(text: pa.Array) -> pa.Array:
    plain = pc.binary_join_element_wise('"', text, '"', "")
    special = pc.fill_null(pc.match_substring_regex(text, _ESCAPED), fill_value=False)
    if not pc.any(special).as_py():
        return plain
    escaped = [json_text(item) for item in text.filter(special).to_pylist()]
    return pc.replace_with_mask(plain, special, pa.array(escaped, pa.string()))
