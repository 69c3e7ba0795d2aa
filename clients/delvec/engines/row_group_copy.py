"""OPTIMIZE without decoding: copies row groups byte for byte into one file where readers lose nothing by it.

Deleted rows are copied too; the new file's deletion vector is committed with it. Copies run in this process, without an engine.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from delvec.engines.compaction import Compacted
from delvec.engines.parquet_writer import data_file_path
from delvec.engines.protocol import WriteTarget
from delvec.scan import Scan
from delvec_kernel.compaction import Bin, deleted_ratios
from delvec_kernel.errors import BadRequest, CorruptTable, DelvecError, MissingDataFile, StorageError
from delvec_kernel.parquet.footer import Footer, column_names, why_not_together
from delvec_kernel.row_tracking import ENABLED as ROW_TRACKING
from delvec_kernel.schema.column_mapping import is_mapped
from delvec_kernel.schema.type_widening import TYPE_CHANGES
from delvec_kernel.schema.types import ArrayType, DataType, MapType, StructType
from delvec_kernel.statistics.merged_statistics import merged
from delvec_kernel.storage import files as storage
from delvec_kernel.storage.row_groups import SourceFile, copy_row_groups, read_footers
from delvec_kernel.table_properties import is_true
from delvec_kernel.transaction.row_runs import row_array
from delvec_kernel.wire import AddFile, Rewrite, RowRun

__all__ = ["LEAST_GROUP_BYTES", "LEAST_GROUP_ROWS", "CopyPlan", "Decision", "check_rewrite"]

LEAST_GROUP_ROWS: Final = 1 << 17
"""Mean rows per row group from which copies read as fast as rewritten files (measured in docs/optimize.md)."""
LEAST_GROUP_BYTES: Final = 8 << 20
"""Or mean bytes: a large row group of wide rows has few of them."""
_COPIES_AT_ONCE: Final = 4
_VECTOR_BYTES: Final = 8 << 20
"""Most bytes of deletion vectors carried over by one commit, whose request holds them."""
_CODEC: Final = re.compile(r"\.([a-z0-9_]{1,20})\.parquet$")
_OTHER_FORMATS: Final = ("delta.enableIcebergCompatV1", "delta.enableIcebergCompatV2", "delta.enableIcebergCompatV3")  # fmt: skip


def check_rewrite(rewrite: str) -> None:
    """Check that a value is a :data:`Rewrite`.

    Raises:
        BadRequest: it is not.
    """
    if rewrite not in get_args(Rewrite):
        raise BadRequest(f"rewrite must be 'auto', 'always' or 'never' (given: {rewrite!r})")


@dataclass(frozen=True)
class Decision:
    """Whether a bin is copied or rewritten.

    Attributes:
        why: the decision and its reason, for users.
        sources: the bin's files, in order, if their row groups are copied; None if their rows are rewritten.
    """

    why: str
    sources: Sequence[SourceFile] | None = None

    @property
    def is_copy(self) -> bool:
        """Whether row groups are copied."""
        return self.sources is not None


class CopyPlan:
    """Decides which bins of a plan are copied, and copies them.

    Args:
        scan: the plan.
        stats: reads the statistics of the plan's files, by path; called at most once.
        rewrite: "never" also copies small row groups.
        max_deleted_ratio: a file with a larger share of deleted rows is not copied.
    """

    def __init__(
        self,
        scan: Scan,
        stats: Callable[[], Mapping[str, str | None]],
        rewrite: Rewrite,
        max_deleted_ratio: float,
    ) -> None:
        self._scan = scan
        self._read_stats = stats
        self._stats: Mapping[str, str | None] | None = None
        self._rewrite = rewrite
        self._max_deleted_ratio = max_deleted_ratio
        self._ratios = deleted_ratios(scan.files)
        self._columns = _stored_columns(scan)
        self._why_none = _why_not_this_table(scan)

    def decide(self, found: Bin) -> Decision:
        """Decide whether a bin is copied. Reads the footers of its files unless the log already rules a copy out.

        Raises:
            CorruptTable: with "never": a footer is damaged.
            MissingDataFile: likewise: a file is not in storage.
            StorageError: storage did not answer.
        """
        why = self._why_none or self._why_not_by_log(found)
        if why is not None:
            return Decision(f"rewritten: {why}")
        facts = self._scan.files.select(["path", "size", "num_records"]).take(pa.array(found.files))
        paths, sizes, counts = (facts[name].to_pylist() for name in ("path", "size", "num_records"))
        try:
            sources = read_footers(
                self._scan.location,
                list(zip(paths, sizes, strict=True)),
                allowed=self._scan.roots.allows,
            )
        except (DelvecError, OSError) as error:
            if self._rewrite == "never" or isinstance(error, StorageError):
                raise
            # Left to the engine, which may still read an unusual file, and reports a damaged one better.
            return Decision("rewritten: the footer of a file cannot be copied")
        why = self._why_not_by_footers(sources, counts)
        if why is not None:
            return Decision(f"rewritten: {why}")
        groups = [group for source in sources for group in source.footer.row_groups]
        mean = sum(group.size for group in groups) / max(1, len(groups))
        return Decision(f"{len(groups)} row groups of {mean / 2**20:,.1f} MiB on average are copied", sources)

    def copy(
        self, decisions: Sequence[tuple[int, Sequence[SourceFile]]], target: WriteTarget
    ) -> dict[int, Compacted | None]:
        """Copy bins, four at a time.

        Args:
            decisions: number and files of each bin.
            target: the table.

        Returns:
            The new file of each bin; None if a source contradicts its footer, so that the bin must be rewritten.

        Raises:
            CorruptTable: with "never": a source contradicts its footer. No file of that bin is left.
            StorageError: storage did not answer.
        """
        paths = [source.path for _, sources in decisions for source in sources]
        deleted = self._scan.only(paths).deletion_vectors
        found: dict[int, Compacted | None] = {}
        with ThreadPoolExecutor(_COPIES_AT_ONCE, "delvec-copy") as pool:
            jobs = {
                number: pool.submit(self._copy, sources, deleted, target, number)
                for number, sources in decisions
            }
            try:
                for number, job in jobs.items():
                    try:
                        found[number] = job.result()
                    except (CorruptTable, MissingDataFile):
                        if self._rewrite == "never":
                            raise
                        found[number] = None
            finally:
                for job in jobs.values():
                    job.cancel()
        return found

    def _why_not_by_log(self, found: Bin) -> str | None:
        facts = self._scan.files
        if len(found.files) == 1:
            return "a file alone gains nothing by a copy"
        counts = facts["num_records"].take(pa.array(found.files))
        ratios = self._ratios[found.files]
        if counts.null_count or np.isnan(ratios).any():
            return "the log does not say how many rows a file has"
        if (ratios > self._max_deleted_ratio).any():
            return f"more than {self._max_deleted_ratio:.1%} of the rows of a file are deleted"
        if ratios.any() and not self._scan.deletes_by_vector:
            return "the table takes no new deletion vectors"
        vectors = pc.struct_field(facts["deletion_vector"].take(pa.array(found.files)), "sizeInBytes")
        if (pc.sum(vectors).as_py() or 0) > _VECTOR_BYTES:
            return "the deletion vectors are large"
        files = len(found.files)
        # A row group is no larger than its file, so small files need no look at their footers.
        return self._why_too_small(found.size / files, pc.sum(counts).as_py() / files)

    def _why_too_small(self, mean_bytes: float, mean_rows: float) -> str | None:
        if self._rewrite == "never" or mean_bytes >= LEAST_GROUP_BYTES or mean_rows >= LEAST_GROUP_ROWS:
            return None
        return "the row groups are small, and readers gain by larger ones"

    def _why_not_by_footers(self, sources: Sequence[SourceFile], counts: Sequence[int]) -> str | None:
        footers = [source.footer for source in sources]
        groups = [group for footer in footers for group in footer.row_groups]
        if [footer.num_rows for footer in footers] != counts:
            return "the log and a footer disagree on how many rows a file has"
        if not groups:
            return "they have no rows"
        why = why_not_together(footers) or self._why_too_small(
            sum(group.size for group in groups) / len(groups), sum(counts) / len(groups)
        )
        if why is None and not self._knows_columns(footers[0]):
            return "the files have columns that the table does not have"
        if why is None and any(not self._known_stats.get(source.path) for source in sources):
            return "a file has no statistics"
        return why

    def _knows_columns(self, footer: Footer) -> bool:
        """Whether the table has every column of a file; dropped columns would be copied for nothing."""
        try:
            return set(column_names(footer)) <= self._columns
        except (IndexError, ValueError):
            return False

    @property
    def _known_stats(self) -> Mapping[str, str | None]:
        if self._stats is None:
            self._stats = self._read_stats()
        return self._stats

    def _copy(
        self,
        sources: Sequence[SourceFile],
        deleted: Mapping[str, BitMap64],
        target: WriteTarget,
        number: int,
    ) -> Compacted:
        scan = self._scan
        runs, gone, first = [], BitMap64(), 0
        for source in sources:
            rows, count = deleted.get(source.path), source.footer.num_rows
            if rows:
                if rows.max() >= count:
                    raise self._corrupt(
                        f"the deletion vector of '{source.path}' marks rows that it does not have"
                    )
                gone |= BitMap64((row_array(rows) + first).astype(np.uint64))
            if count:
                runs.append(RowRun(source=source.path, first_rank=0, count=count, first_output_row=first))
            first += count
        stats = merged(
            [self._known_stats[source.path] or "{}" for source in sources],
            [source.footer.num_rows for source in sources],
            scan.schema,
        )
        partition = self._partition(sources[0].path)
        codec = _CODEC.search(sources[0].path)
        path = data_file_path(
            partition,
            target.transaction_id,
            task=number,
            number=0,
            codec=codec[1] if codec else "copied",
        )
        size = copy_row_groups(scan.location, sources, path, allowed=scan.roots.allows)
        try:
            modified = self._check(path, size, first, sources)
        except DelvecError:
            # Best effort: VACUUM removes a file that no commit refers to.
            with suppress(StorageError, OSError):
                storage.delete_file(scan.location, path)
            raise
        add = AddFile(
            path=path,
            partition_values=partition,
            size=size,
            modification_time=modified,
            stats=stats,
        )
        return Compacted([add], {path: runs}, deleted={path: gone} if gone else {})

    def _check(self, path: str, size: int, rows: int, sources: Sequence[SourceFile]) -> int:
        """Check size and footer of the new file; return its modification time in milliseconds."""
        found = storage.stat(self._scan.location, path)
        if found is None or found.size != size:
            raise StorageError(
                f"The file {path} was written with {size} bytes, which storage does not have; try again."
            )
        try:
            with storage.open_input(self._scan.location, path) as opened:
                footer = pq.read_metadata(opened)
            groups = sum(len(source.footer.row_groups) for source in sources)
            is_right = footer.num_rows == rows and footer.num_row_groups == groups
        except (pa.ArrowException, OSError) as error:
            raise self._corrupt(f"the copy cannot be read: {error}") from error
        if not is_right:
            raise self._corrupt("the copy does not have the rows of its files")
        return found.last_modified_ms

    def _partition(self, path: str) -> dict[str, str | None]:
        """Return a file's partition values, in the table's order."""
        place = self._scan.files["path"].index(path).as_py()
        values = dict(self._scan.files["partition_values"][place].as_py() or ())
        return {name: values.get(name) for name in self._scan.partition_keys}

    def _corrupt(self, what: str) -> CorruptTable:
        scan = self._scan
        return CorruptTable(
            f"Files of table '{scan.name}' (version {scan.version}) cannot be copied: {what}. Nothing was committed; run "
            "`delvec check`, and optimize with rewrite='always'.",
            table=scan.name,
            version=scan.version,
        )


def _why_not_this_table(scan: Scan) -> str | None:
    """Return why no file of this table may be copied, or None."""
    if is_true(scan.configuration, ROW_TRACKING):
        return "the table tracks rows, whose ids are written down"
    if any(is_true(scan.configuration, name) for name in _OTHER_FORMATS):
        return "the table is kept readable as Iceberg"
    if _was_widened(scan.schema):
        return "types of the table were widened"
    return None


def _was_widened(kind: DataType) -> bool:
    match kind:
        case StructType(fields):
            return any(TYPE_CHANGES in item.metadata or _was_widened(item.type) for item in fields)
        case ArrayType(element):
            return _was_widened(element)
        case MapType(key, value):
            return _was_widened(key) or _was_widened(value)
        case _:
            return False


def _stored_columns(scan: Scan) -> frozenset[str]:
    """Return the names that columns have in files."""
    mapped = is_mapped(scan.configuration)
    fields = scan.schema.without(scan.partition_columns).fields
    return frozenset(item.physical_name if mapped else item.name for item in fields)
