"""Identity columns: numbers for new rows, that no other task of the transaction gives (PROTOCOL.md, "Identity Columns").

Task t of n gives every n-th number of the sequence, from the t-th on, so that tasks need not know of each other. Where
nobody knows how many tasks there are, n is large, and blocks of numbers take the place of numbers, so that few are left
out. How far they got travels with the files, as a tag that the command takes off before it commits.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec_kernel.errors import ConstraintViolation
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import PrimitiveType, StructField, StructType
from delvec_kernel.wire import AddFile, AdvanceIdentity

__all__ = [
    "START",
    "STEP",
    "IdentityColumn",
    "IdentityNumbers",
    "advances",
    "fillable",
    "high_water_mark",
    "identity_columns",
    "without_marks",
]

START: Final = "delta.identity.start"
STEP: Final = "delta.identity.step"
_MARK: Final = "delta.identity.highWaterMark"
_EXPLICIT: Final = "delta.identity.allowExplicitInsert"
_TAG: Final = "delvec.identity."
_LONG: Final = range(-(2**63), 2**63)


@dataclass(frozen=True)
class IdentityColumn:
    """A column whose numbers writers give.

    Attributes:
        first: the next number.
        step: what is added for each that follows.
        explicit: whether users may give numbers themselves.
    """

    name: str
    first: int
    step: int
    explicit: bool


def identity_columns(schema: StructType) -> list[IdentityColumn]:
    """Return the identity columns of a table."""
    found = []
    for field in schema.fields:
        start, step = (field.metadata.get(key) for key in (START, STEP))
        if isinstance(start, int) and isinstance(step, int) and step and field.type == PrimitiveType("long"):
            mark = high_water_mark(field)
            first = start if mark is None else mark + step
            found.append(IdentityColumn(field.name, first, step, field.metadata.get(_EXPLICIT) is True))
    return found


def high_water_mark(field: StructField) -> int | None:
    """Return the last number that was given, None where none was."""
    found = field.metadata.get(_MARK)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


class IdentityNumbers:
    """Gives the numbers of one task.

    Args:
        columns: of the table.
        schema: of the rows, position by position.
        task: which of the writers this is.
        writers: how many there are, at most.
        at_once: how many numbers that follow each other a writer gives before it leaves others their turn.
    """

    def __init__(
        self, columns: Sequence[IdentityColumn], schema: StructType, task: int, writers: int, at_once: int = 1
    ) -> None:
        names = [field.name for field in schema.fields]
        self._columns = {names.index(column.name): column for column in columns}
        self._given = dict.fromkeys(self._columns, 0)
        self._task, self._writers, self._at_once = task, max(1, writers), at_once
        self._last: dict[str, int] = {}

    def fill(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of the schema with a number where there is none.

        Raises:
            ConstraintViolation: no 64-bit number is left.
        """
        for position, column in self._columns.items():
            found = batch.column(position)
            if found.null_count:
                numbers = self._numbers(position, column, found.null_count)
                batch = batch.set_column(
                    position,
                    batch.schema.field(position),
                    pc.replace_with_mask(found, pc.is_null(found), numbers),
                )
        return batch

    def tags(self) -> dict[str, str]:
        """Return how far the numbers got, as tags of a file."""
        return {f"{_TAG}{name}": str(last) for name, last in self._last.items()}

    def _numbers(self, position: int, column: IdentityColumn, count: int) -> pa.Array:
        given = self._given[position]
        self._given[position] = given + count
        last = column.first + column.step * self._place(given + count - 1)
        if column.first + column.step * self._place(given) not in _LONG or last not in _LONG:
            raise ConstraintViolation(
                f"Identity column '{column.name}' is exhausted: its next value {last} does not fit into 64 bits. "
                "Nothing was committed.",
                constraint="IDENTITY",
                column=column.name,
            )
        self._last[column.name] = last
        places = self._place(np.arange(given, given + count, dtype=np.int64))
        return pa.array(column.first + places * column.step, pa.int64())

    def _place(self, given: Any) -> Any:
        """Return the place in the sequence of the writer's n-th number, or of several."""
        block, rest = divmod(given, self._at_once)
        return (block * self._writers + self._task) * self._at_once + rest


def advances(columns: Iterable[IdentityColumn], adds: Iterable[AddFile]) -> list[AdvanceIdentity]:
    """Return how far each column got in files; nothing of those that gave no number."""
    changes = []
    tags = [add.tags for add in adds if add.tags]
    for column in columns:
        marks = [int(text) for each in tags if (text := each.get(f"{_TAG}{column.name}")) is not None]
        if marks:
            mark = max(marks) if column.step > 0 else min(marks)
            name = backticked(column.name)
            changes.append(AdvanceIdentity(change="advance-identity", column=name, high_water_mark=mark))
    return changes


def without_marks(adds: Iterable[AddFile]) -> list[AddFile]:
    """Return files as they are committed."""
    found = []
    for add in adds:
        tags = {key: value for key, value in (add.tags or {}).items() if not key.startswith(_TAG)}
        found.append(add.model_copy(update={"tags": tags or None}) if add.tags else add)
    return found


def fillable(schema: StructType) -> StructType:
    """Return a schema whose identity columns may be NULL, as they are until they have their numbers."""

    def freed(field: StructField) -> StructField:
        return replace(field, nullable=True) if START in field.metadata else field

    return StructType(tuple(freed(field) for field in schema.fields))
