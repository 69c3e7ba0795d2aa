"""Identity columns: how far their numbers have got (PROTOCOL.md, "Identity Columns")."""

from dataclasses import replace
from typing import Final

from delvec.protocol.errors import InvalidTableChange
from delvec.protocol.types import StructField
from delvec.protocol.wire import AdvanceIdentity
from delvec_service.delta.table_changes.column_paths import field_at, parse_path, path_text, with_field
from delvec_service.delta.table_changes.draft import Draft, Recorded

__all__ = ["advance_identity"]

_START: Final = "delta.identity.start"
_STEP: Final = "delta.identity.step"
_MARK: Final = "delta.identity.highWaterMark"


def advance_identity(draft: Draft, change: AdvanceIdentity) -> Recorded:
    """Raise the high-water mark of an identity column; in the direction of its step.

    Raises:
        InvalidTableChange: it is no identity column, or the mark is not one of its numbers, or behind the one before.
        UnknownColumn: there is none of that name.
    """
    path = parse_path(change.column)
    field = field_at(draft.schema, path)
    name, mark = path_text(path), change.high_water_mark
    start, step, before = (_number(field, key) for key in (_START, _STEP, _MARK))
    if start is None or not step:
        raise InvalidTableChange(f"Column '{name}' is no identity column.", column=name)
    least = start if before is None else before
    if (mark - start) % step or (mark - least) * step < 0:
        raise InvalidTableChange(
            f"Identity column '{name}' has got to {least} in steps of {step}, so that its next high-water mark cannot be "
            f"{mark}.",
            column=name,
        )
    draft.schema = with_field(
        draft.schema, path, lambda found: replace(found, metadata={**found.metadata, _MARK: mark})
    )
    return Recorded("SYNC IDENTITY", {"columnName": name})


def _number(field: StructField, key: str) -> int | None:
    found = field.metadata.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) else None
