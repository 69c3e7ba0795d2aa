"""The engine protocol: find rows, write files, read rows. Everything else is shared by all engines."""

import datetime as dt
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Protocol, runtime_checkable

import pyarrow as pa
from pyroaring import BitMap64

from delvec_engines.compacted_files import Compacted
from delvec_engines.copy_jobs import RowGroupCopier
from delvec_engines.dv_files import DeletionVectorFiles
from delvec_engines.identity_values import IdentityColumn
from delvec_engines.operation import Execution
from delvec_engines.row_changes import ChangedRows, MergeSource, RowChange
from delvec_engines.scan import Scan
from delvec_kernel.actions.actions import AddFile
from delvec_kernel.constraints.declared import REPLACE_WHERE, Check, Constraints, constraints_of, mentioned
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.schema.column_paths import ColumnPath
from delvec_kernel.schema.types import StructType

__all__ = ["ROW_GROUP_BYTES", "Engine", "WriteTarget", "mark", "marked"]

ROW_GROUP_BYTES: Final = 64 << 20
"""In-memory size of a row group, unless rows are short and many."""


@dataclass(frozen=True)
class WriteTarget:
    """Where and how data files are written: the table after the commit.

    Attributes:
        location: the table's canonical location, without a trailing slash.
        schema: the table's schema, including partition columns.
        partition_columns: in the table's order; they are not stored in the files.
        configuration: table properties (``delta.*``).
        transaction_id: a UUID in every file's name, by which files of failed jobs are found.
        generated_columns: whether the protocol requires writers to enforce generated columns.
        empty_texts: partition columns in which an empty string or binary is stored as it is, because files to rewrite have
            it; in the others it is stored as NULL, as by Spark.
        identity: identity columns, whose NULLs in new rows are replaced by generated values.
        writers: maximum number of tasks, numbered from 0; determines the identity values of each.
        numbers_at_once: size of a task's blocks of consecutive identity values.
        replace_where: predicate that each row must satisfy besides the table's constraints.
        row_group_bytes: approximate in-memory size of a row group; a writer holds at most eight.
        advance: called with the number of rows read for rewriting, or written after a sort, by any thread; None if
            nobody watches.
        moment: the value of current_timestamp for all rows and tasks.
    """

    location: str
    schema: StructType
    partition_columns: Sequence[str]
    configuration: Mapping[str, str]
    transaction_id: str
    generated_columns: bool = True
    empty_texts: Collection[str] = ()
    identity: Sequence[IdentityColumn] = ()
    writers: int = 1
    numbers_at_once: int = 1
    replace_where: str | None = None
    row_group_bytes: int = ROW_GROUP_BYTES
    advance: Callable[[int], None] | None = field(default=None, compare=False)
    moment: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC), compare=False)

    def __getstate__(self) -> dict[str, Any]:
        # Tasks of a cluster run elsewhere.
        return {**self.__dict__, "advance": None}

    @cached_property
    def constraints(self) -> Constraints:
        """The constraints on new rows.

        Raises:
            UnsupportedWriterFeature: one cannot be parsed.
        """
        found = constraints_of(self.schema, self.configuration, generates_columns=self.generated_columns)
        if self.replace_where is None:
            return found
        columns = mentioned(self.replace_where, self.schema)
        asked = Check(REPLACE_WHERE, self.replace_where, columns, is_of_user=True)
        return replace(found, checks=(*found.checks, asked))


@runtime_checkable
class Engine(Protocol):
    """The operations that differ between a cluster and a single process."""

    @property
    def name(self) -> str:
        """``delvec-<engine>/<version>``, recorded in the log as engineInfo."""
        ...

    @property
    def copier(self) -> RowGroupCopier | None:
        """What copies row groups for OPTIMIZE; None if this engine always rewrites rows."""
        ...

    @property
    def compacts_in_process(self) -> bool:
        """Whether :meth:`compact` runs in this process, so that a sample of its work tells the size of new files."""
        ...

    def execution(
        self, scan: Scan, work: Predicate | RowChange | None = None, target: WriteTarget | None = None
    ) -> Execution:
        """Return what would execute a command on this engine now, without executing it.

        An engine that chooses notes its choice for each command, too: :func:`~delvec_engines.operation.note_execution`.

        Args:
            scan: the files that would be read.
            work: the condition of rows to find, or the change of rows; None for files whose rows are copied.
            target: the target of a change.
        """
        ...

    def progress(self) -> float | None:
        """Return the progress of the running statement from 0 to 1, for another thread; None if it is not known."""
        ...

    def close(self) -> None:
        """Release what the engine has opened itself; what it was given stays open."""
        ...

    def bounded(self, max_memory: int) -> AbstractContextManager["Engine"]:
        """Lend an engine that holds at most about ``max_memory`` bytes of rows, and spills the rest to disk.

        Args:
            max_memory: bytes.

        Raises:
            BadRequest: that is too little, or the engine cannot limit memory.
        """
        ...

    def find_rows(
        self, scan: Scan, predicate: Predicate, dv_files: DeletionVectorFiles | None = None
    ) -> Mapping[str, BitMap64]:
        """Return, per path of the scan, the physical indexes of the live rows that satisfy ``predicate``.

        Files without such a row are absent. Indexes that the file's deletion vector already holds may be
        included: the service ignores them. With ``dv_files``, if there are too many rows for memory, they are returned as
        deletion vectors written there; see :class:`~delvec_engines.found_rows.FoundRows`.
        """
        ...

    def merge_source(self, data: Any) -> MergeSource:
        """Take the source of a MERGE: anything that :meth:`write` takes, or another table's rows.

        Raises:
            InvalidSchema: columns that have no Delta type, or two of one name.
        """
        ...

    def change_rows(self, scan: Scan, change: RowChange, target: WriteTarget) -> ChangedRows:
        """Update, delete and insert rows: new files for new rows, bitmaps for the old ones, in one pass.

        Args:
            scan: the files whose rows may change; for ``not-matched`` clauses, all files that may have a match.
            change: the clauses. Values are cast by ANSI store assignment, never silently truncated.
            target: the table with columns that schema evolution adds; the scan has the old schema.

        Raises:
            MultipleMatches: several source rows would change one row.
            InvalidPredicate: an expression that the engine cannot evaluate, or that fails for a row.
            ConstraintViolation: a new row does not satisfy the target's constraints.
            SchemaMismatch: a value does not fit its column.
        """
        ...

    def copy_rows(
        self, scan: Scan, deleted_rows: Mapping[str, BitMap64], target: WriteTarget
    ) -> Sequence[AddFile]:
        """Copy the live rows of the scan's files, without those in ``deleted_rows``, to new files.

        Raises:
            CorruptTable: the rows read plus those in ``deleted_rows`` differ from numRecords.
        """
        ...

    def compact(self, scan: Scan, bins: Sequence[Sequence[str]], target: WriteTarget) -> Compacted:
        """Copy the live rows of each bin's files to few files, keeping the order of each file, and map where each row went.

        Args:
            scan: the files of all bins, and no others.
            bins: paths of files of one partition to write together.
            target: the table; the size of new files is in its configuration.

        Raises:
            CorruptTable: not every row was read that the statistics promise; what was written is not to be committed.
        """
        ...

    def cluster(
        self, scan: Scan, bins: Sequence[Sequence[str]], columns: Sequence[ColumnPath], target: WriteTarget
    ) -> Sequence[Compacted]:
        """Write the live rows of each bin's files in the order of a curve through these columns.

        Args:
            scan: the files of all bins, and no others.
            bins: paths of files of one partition that are sorted together.
            columns: paths by logical name.
            target: the table; the size of new files is in its configuration.

        Returns:
            The new files of each bin, with a row map.

        Raises:
            CorruptTable: not every row was read that the statistics promise; what was written is not to be committed.
        """
        ...

    def write(self, data: Any, target: WriteTarget) -> Sequence[AddFile]:
        """Write ``data`` as new files of the table; a generated column that is absent is computed.

        Raises:
            SchemaMismatch: ``data`` has unknown columns or incompatible types.
            ConstraintViolation: a row does not satisfy the target's constraints.
            UnsupportedWriterFeature: a constraint that this engine cannot evaluate exactly; nothing was written.
        """
        ...

    def read(self, scan: Scan, columns: Sequence[str] | None, predicate: Predicate | None) -> pa.Table:
        """Return the live rows, deletion vectors applied, in the schema's column order."""
        ...

    def read_batches(
        self, scan: Scan, columns: Sequence[str] | None = None, predicate: Predicate | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of :meth:`read` batch by batch, with as few of them in memory as the engine can."""
        ...

    def to_df(
        self,
        scan: Scan,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        num_rows: int | None = None,
    ) -> Any:
        """Return the live rows as a lazy Spark DataFrame; it keeps reading the scan's version.

        Args:
            scan: what to read.
            columns: the columns, in this order; all by default.
            predicate: only rows for which it is true.
            num_rows: the number of these rows, if the log tells it: the answer of the frame's ``count()``.

        Raises:
            EngineUnavailable: the engine is not Spark.
        """
        ...

    def count(self, scan: Scan, predicate: Predicate | None) -> int:
        """Return the number of live rows that satisfy ``predicate``."""
        ...


_MARK: Final = re.compile(r"delvec-reads-([\w-]+?)-v(\d+)(?![\w-])")


def mark(scan: Scan) -> str:
    """Return the marker for a read of the newest version; empty for a version chosen by the user."""
    return f"delvec-reads-{scan.table_id}-v{scan.version}" if scan.is_newest else ""


def marked(text: str) -> frozenset[tuple[str, int]]:
    """Return (table id, version) of each marker in a text."""
    return frozenset((found[1], int(found[2])) for found in _MARK.finditer(text))
