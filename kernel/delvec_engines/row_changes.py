"""Row changes of UPDATE and MERGE: input and result of an engine.

The command resolves names, defaults and clauses once for all engines; the engine evaluates and writes. In all
expressions, ``t`` is the table and ``s`` the source.

Tested in `tests/integration/client/engines/duckdb/test_row_changes.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, runtime_checkable

import pyarrow as pa
from pyroaring import BitMap64

from delvec_engines.scan import Scan
from delvec_kernel.actions.actions import AddFile, Cdc
from delvec_kernel.expressions.expression import Expression
from delvec_kernel.schema.types import StructType

__all__ = ["SOURCE", "TARGET", "ChangedRows", "Clause", "MergeSource", "RowChange", "SourceTable"]

TARGET: Final = "t"
SOURCE: Final = "s"


@dataclass(frozen=True)
class MergeSource:
    """The source of a MERGE or a DELETE by keys.

    Attributes:
        schema: its Delta schema.
        data: the engine's representation; read once.
        is_repeatable: whether it returns the same rows on each read, so that the command can be retried.
        bounds: returns the least and greatest Python value of each of the given columns, without columns that
            have none (NaN, only NULLs), to skip files without matches. None if expensive.
    """

    schema: StructType
    data: Any
    is_repeatable: bool
    bounds: Callable[[Sequence[str]], Mapping[str, tuple[Any, Any]]] | None = field(
        default=None, compare=False
    )


@dataclass(frozen=True)
class Clause:
    """One WHEN of a MERGE; an UPDATE is one ``matched`` clause.

    Attributes:
        match: which rows it applies to.
        action: update, delete or insert.
        condition: restricts the rows; None for all rows to which no earlier clause applied.
        values: the values of an update or insert, one per column of the target's schema, in order. None: a generated
            or identity column without a value, which the engine computes from the new row.
    """

    match: Literal["matched", "not-matched", "not-matched-by-source"]
    action: Literal["update", "delete", "insert"]
    condition: Expression | None = None
    values: Sequence[Expression | None] = ()


@dataclass(frozen=True)
class RowChange:
    """Clauses over the rows of a scan; only the first that applies to a row is executed.

    Attributes:
        clauses: at least one.
        on: the condition that joins the source; None for an UPDATE, whose rows are all "matched".
        source: None for an UPDATE.
        change_feed: whether change files (``_change_data``) are written, with ``_change_type`` among their columns:
            update_preimage, update_postimage, insert, delete.
        dry_run: write no file; the bitmaps and the counts are the same.
    """

    clauses: Sequence[Clause]
    on: Expression | None = None
    source: MergeSource | None = None
    change_feed: bool = False
    dry_run: bool = False

    @property
    def may_match_twice(self) -> bool:
        """Whether several source rows may match one row: true if the only ``matched`` clause deletes unconditionally."""
        matched = [clause for clause in self.clauses if clause.match == "matched"]
        return len(matched) == 1 and matched[0].action == "delete" and matched[0].condition is None

    @property
    def refuses_several(self) -> bool:
        """Whether several matches are an error regardless of clause conditions, as in delta-spark."""
        touches = any(clause.match != "not-matched" for clause in self.clauses)
        return self.on is not None and touches and not self.may_match_twice

    @property
    def inserts(self) -> bool:
        """Whether there are ``not-matched`` clauses, which need the unmatched source rows."""
        return any(clause.match == "not-matched" for clause in self.clauses)

    @property
    def covers_matches(self) -> bool:
        """Whether some clause applies to each matched row."""
        return any(clause.match == "matched" and clause.condition is None for clause in self.clauses)

    @property
    def marks(self) -> bool:
        """Whether matching rows must be reported even if no clause applies to them."""
        return self.inserts or (self.refuses_several and not self.covers_matches)

    def expressions(self, clauses: Sequence[Clause] | None = None) -> list[Expression]:
        """Return the condition that joins, and the conditions and values of clauses, by default of all."""
        parts = [self.on]
        for clause in self.clauses if clauses is None else clauses:
            parts += [clause.condition, *clause.values]
        return [each for each in parts if each is not None]

    def columns_read(self, relation: str, clauses: Sequence[Clause] | None = None) -> set[str]:
        """Return the columns of a relation that :meth:`expressions` read."""
        return {name for each in self.expressions(clauses) for name in each.columns.get(relation, ())}


@dataclass(frozen=True)
class ChangedRows:
    """The result of an engine, before the commit.

    Attributes:
        row_deletes: physical row indexes of the live rows that were updated or deleted, by path of the scan.
        matched: of a MERGE with a ``not-matched`` clause, the rows that matched, changed or not, by path.
        adds: new files with updated and inserted rows.
        change_files: for the change data feed.
        rows_updated: rows.
        rows_deleted: rows.
        rows_inserted: rows.
        source_rows: rows of the source.
    """

    row_deletes: Mapping[str, BitMap64]
    adds: Sequence[AddFile] = ()
    change_files: Sequence[Cdc] = ()
    matched: Mapping[str, BitMap64] = field(default_factory=dict)
    rows_updated: int = 0
    rows_deleted: int = 0
    rows_inserted: int = 0
    source_rows: int = 0


@runtime_checkable
class SourceTable(Protocol):
    """A Delvec table; a protocol, because engines must not import its class."""

    def plan(self) -> tuple[Scan, Any]:
        """Return the scan of the newest version."""

    def to_batches(self, *, version: int) -> pa.RecordBatchReader:
        """Return the rows of a version."""
