"""What an engine has to do: find rows, write files, read rows. Everything else is shared."""

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Protocol, runtime_checkable

import pyarrow as pa
from pyroaring import BitMap64

from delvec.dv_files import DeletionVectorFiles
from delvec.engines.compaction import Compacted
from delvec.engines.identity import IdentityColumn
from delvec.engines.row_changes import ChangedRows, MergeSource, RowChange
from delvec.scan import Scan
from delvec_kernel.constraints.declared import REPLACE_WHERE, Check, Constraints, constraints_of, mentioned
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.schema.column_paths import ColumnPath
from delvec_kernel.schema.types import StructType
from delvec_kernel.wire import AddFile

__all__ = ["ROW_GROUP_BYTES", "Engine", "WriteTarget", "mark", "marked"]

ROW_GROUP_BYTES: Final = 64 << 20
"""Of rows in memory: what becomes a row group, unless there are many short rows."""


@dataclass(frozen=True)
class WriteTarget:
    """Where and how data files are written.

    Attributes:
        location: the table's canonical location, without a trailing slash.
        schema: the table's schema, partition columns included.
        partition_columns: in the table's order; they are not stored in the files.
        configuration: table properties (``delta.*``).
        transaction_id: a UUID that goes into every file's name, so that a failed job's files are found.
        generated_columns: whether the table's protocol makes writers keep generated columns.
        identity: columns that get a number in each row that has none, of rows that are new.
        writers: how many tasks write at once, at most, numbered from 0; what numbers they give depends on it.
        numbers_at_once: how many numbers that follow each other a task gives before it leaves others their turn.
        replace_where: what the user asks of each row beside the table's constraints.
        row_group_bytes: rows of about so many bytes are encoded together; a writer holds at most eight times as many.
        moment: what the current timestamp is for all rows, whichever task writes them, and when.
    """

    location: str
    schema: StructType
    partition_columns: Sequence[str]
    configuration: Mapping[str, str]
    transaction_id: str
    generated_columns: bool = True
    identity: Sequence[IdentityColumn] = ()
    writers: int = 1
    numbers_at_once: int = 1
    replace_where: str | None = None
    row_group_bytes: int = ROW_GROUP_BYTES
    moment: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC), compare=False)

    @cached_property
    def constraints(self) -> Constraints:
        """What new rows must satisfy.

        Raises:
            UnsupportedWriterFeature: it is not written as Delta writes it.
        """
        found = constraints_of(self.schema, self.configuration, generated=self.generated_columns)
        if self.replace_where is None:
            return found
        columns = mentioned(self.replace_where, self.schema)
        asked = Check(REPLACE_WHERE, self.replace_where, columns, is_of_user=True)
        return replace(found, checks=(*found.checks, asked))


@runtime_checkable
class Engine(Protocol):
    """The small set of things that differ between a cluster and one process."""

    @property
    def name(self) -> str:
        """``delvec-<engine>/<version>``, recorded in the log as engineInfo."""
        ...

    def bounded(self, max_memory: int) -> AbstractContextManager["Engine"]:
        """Lend an engine of the same kind that holds rows of about so many bytes at most, and spills the others to disk.

        Args:
            max_memory: bytes.

        Raises:
            BadRequest: it cannot do with so little, or memory is not its to choose.
        """
        ...

    def find_rows(
        self, scan: Scan, predicate: Predicate, places: DeletionVectorFiles | None = None
    ) -> Mapping[str, BitMap64]:
        """Return, per path of the scan, the physical indexes of the live rows that satisfy ``predicate``.

        Files without such a row are absent. Indexes that the file's deletion vector already holds may be
        included: the service ignores them. With ``places``, rows that are too many to be held may come as deletion
        vectors that are written there; see :class:`~delvec.engines.found_rows.FoundRows`.
        """
        ...

    def merge_source(self, data: Any) -> MergeSource:
        """Take rows for the other side of a MERGE: what :meth:`write` takes, or another table's rows.

        Raises:
            InvalidSchema: columns that have no Delta type, or two of one name.
        """
        ...

    def change_rows(self, scan: Scan, change: RowChange, target: WriteTarget) -> ChangedRows:
        """Update, delete and insert rows: new files for new rows, bitmaps for the old ones, in one pass.

        Args:
            scan: the files whose rows may be touched; for a ``not-matched`` clause all that may hold a match.
            change: the clauses. Values are cast to the columns' types as an assignment, never silently truncated.
            target: the table as it will be, with columns that schema evolution adds; the scan has the old schema.

        Raises:
            MultipleMatches: several source rows would change one row.
            InvalidPredicate: an expression that the engine cannot evaluate, or that fails for a row.
            ConstraintViolation: a new row does not satisfy the target's constraints.
            SchemaMismatch: a value does not fit its column.
        """
        ...

    def copy_rows(self, scan: Scan, gone: Mapping[str, BitMap64], target: WriteTarget) -> Sequence[AddFile]:
        """Write the live rows of the scan's files again, without those in ``gone``.

        Raises:
            CorruptTable: the rows read and those in ``gone`` are not the rows that the statistics promise.
        """
        ...

    def compact(self, scan: Scan, bins: Sequence[Sequence[str]], target: WriteTarget) -> Compacted:
        """Write the live rows of each bin's files, in the order of each file, as few files, and tell where each row went.

        Args:
            scan: the files of all bins, and no others.
            bins: paths of files of one partition that are written together.
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

    def count(self, scan: Scan, predicate: Predicate | None) -> int:
        """Return the number of live rows that satisfy ``predicate``."""
        ...


_MARK: Final = re.compile(r"delvec-reads-([\w-]+?)-v(\d+)(?![\w-])")


def mark(scan: Scan) -> str:
    """Return the name for a read of the newest version; empty for one that somebody chose, and keeps on purpose."""
    return f"delvec-reads-{scan.table_id}-v{scan.version}" if scan.is_newest else ""


def marked(text: str) -> frozenset[tuple[str, int]]:
    """Return the ids of tables, and versions, that are named in a text."""
    return frozenset((found[1], int(found[2])) for found in _MARK.finditer(text))
