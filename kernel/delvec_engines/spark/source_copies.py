"""Source rows of a MERGE that the driver inserts as they are, so that Spark only reads the columns that it compares.

A pass over the source would send each row to an executor and to its Python, only to copy it.

Tested in `tests/integration/spark/test_spark_row_changes.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from delvec_engines.protocol import WriteTarget
from delvec_engines.row_changes import SOURCE, Clause, RowChange
from delvec_engines.row_checks import RowChecks
from delvec_kernel.schema.types import StructType

__all__ = ["SourceCopies", "copied_columns"]

Columns = Sequence[str | None]
"""The source's column for each of the table's; None for NULL."""


def copied_columns(change: RowChange, target: WriteTarget) -> Columns | None:
    """Return which columns of the source new rows have; None if they need more than a copy.

    They do if a clause inserts only some rows or computes a value, and where the table has rules or a change feed.
    """
    inserts = [clause for clause in change.clauses if clause.match == "not-matched"]
    if change.source is None or not inserts or inserts[-1].condition is not None:
        return None
    if change.change_feed or target.identity or target.partition_columns or RowChecks(target).is_needed:
        return None
    by_clause = [_sources(clause, change.source.schema, target.schema) for clause in inserts]
    # Whichever of several clauses applies, the row is the same.
    return by_clause[0] if all(each == by_clause[0] for each in by_clause) else None


def _sources(clause: Clause, source: StructType, target: StructType) -> Columns | None:
    columns: list[str | None] = []
    for value, field in zip(clause.values, target.fields, strict=True):
        if value is None:
            columns.append(None)
            continue
        path = value.path
        if path is None or path[:-1] != (SOURCE,) or source.field(path[-1]).type != field.type:
            return None
        columns.append(source.field(path[-1]).name)
    return columns


@dataclass(frozen=True)
class SourceCopies:
    """The rows that a MERGE can insert.

    Attributes:
        rows: the rows of the source; their numbers are their positions.
        columns: see :func:`copied_columns`.
        schema: the schema of the table.
    """

    rows: pa.Table
    columns: Columns
    schema: StructType

    @classmethod
    def of(cls, change: RowChange, target: WriteTarget) -> "SourceCopies | None":
        """Return the rows if the driver has them and can insert them as they are."""
        columns = copied_columns(change, target)
        if columns is None or change.source is None or change.source.data.brought is None:
            return None
        return cls(change.source.data.brought, columns, target.schema)

    def without(self, matched: BitMap64) -> pa.Table:
        """Return the new rows: those whose numbers are not in ``matched``."""
        is_new = np.ones(self.rows.num_rows, bool)
        is_new[np.frombuffer(matched.to_array(), np.uint64).astype(np.int64)] = False
        rows = self.rows if is_new.all() else self.rows.filter(pa.array(is_new))
        schema = self.schema.to_arrow()
        arrays = [
            pa.nulls(rows.num_rows, field.type) if name is None else rows[name].cast(field.type)
            for name, field in zip(self.columns, schema, strict=True)
        ]
        return pa.Table.from_arrays(arrays, names=schema.names)
