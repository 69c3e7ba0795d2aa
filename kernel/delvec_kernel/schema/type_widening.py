"""Type widening of columns with existing values (PROTOCOL.md, "Type Widening")."""

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
    """Whether one primitive type can be widened to another; names as in Delta's schema JSON.

    Args:
        before: the old type.
        after: the new type.
        legally: True for changes that the protocol allows writers; False if every value just needs to fit, for reading.
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
    # Parquet stores small integers in 32 bits, so the protocol requires ten digits for all of them.
    return whole >= (max(_STORED_DIGITS, _DIGITS[before]) if legally else _DIGITS[before])


def with_type_change(field: StructField, before: str, after: str, inside: Sequence[str] = ()) -> StructField:
    """Return a field with one more type change in its metadata.

    Args:
        field: the field.
        before: the old type's name.
        after: the new type's name.
        inside: the path inside the field's arrays and maps: ``element``, ``key``, ``value``.
    """
    change: dict[str, Any] = {"fromType": before, "toType": after}
    if inside:
        change["fieldPath"] = ".".join(inside)
    earlier = list(field.metadata.get(TYPE_CHANGES) or ())
    return replace(field, metadata={**field.metadata, TYPE_CHANGES: [*earlier, change]})
