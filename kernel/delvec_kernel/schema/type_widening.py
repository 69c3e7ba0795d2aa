"""Wider types for columns that have values already (PROTOCOL.md, "Type Widening")."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from delvec_kernel.schema.types import StructField

__all__ = ["TYPE_CHANGES", "widens", "with_type_change"]

TYPE_CHANGES: Final = "delta.typeChanges"
_WIDER: Final[Mapping[str, frozenset[str]]] = {
    "byte": frozenset({"short", "integer", "long", "double"}),
    "short": frozenset({"integer", "long", "double"}),
    "integer": frozenset({"long", "double"}),
    "float": frozenset({"double"}),
    "date": frozenset({"timestamp_ntz"}),
}
_DIGITS: Final[Mapping[str, int]] = {"byte": 3, "short": 5, "integer": 10, "long": 20}
_STORED_DIGITS: Final = 10
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(\d+)\)")


def widens(before: str, after: str, *, legally: bool = True) -> bool:
    """Whether a column of one primitive type may become one of another; names as in Delta's schema.

    Args:
        before: the old type.
        after: the new type.
        legally: as the protocol lets a writer; else whether every value fits, which is enough to read.
    """
    old, new = _DECIMAL.fullmatch(before), _DECIMAL.fullmatch(after)
    if not new:
        return after in _WIDER.get(before, ())
    scale = int(new[2])
    whole = int(new[1]) - scale
    if old:
        return scale >= int(old[2]) and whole >= int(old[1]) - int(old[2])
    if before not in _DIGITS:
        return False
    # What Parquet stores in 32 bits becomes a decimal of ten digits, whatever the type.
    return whole >= (max(_STORED_DIGITS, _DIGITS[before]) if legally else _DIGITS[before])


def with_type_change(field: StructField, before: str, after: str, inside: Sequence[str] = ()) -> StructField:
    """Return a field that remembers one more change of its type.

    Args:
        field: which one.
        before: Delta's name of the type until now.
        after: Delta's name of the type from now on.
        inside: where within the field's arrays and maps: ``element``, ``key``, ``value``.
    """
    change: dict[str, Any] = {"fromType": before, "toType": after}
    if inside:
        change["fieldPath"] = ".".join(inside)
    earlier = list(field.metadata.get(TYPE_CHANGES) or ())
    return replace(field, metadata={**field.metadata, TYPE_CHANGES: [*earlier, change]})
