"""OPTIMIZE without decoding: copies row groups byte for byte into one file where readers lose nothing by it.

Deleted rows are copied too; the new file's deletion vector is committed with it. Who copies is for the engine to say: this process,
or tasks (:mod:`~delvec_engines.copy_jobs`).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from delvec_contract.commands import Rewrite
from delvec_engines.compacted_files import Compacted
from delvec_engines.copy_jobs import CopiedFile, CopyJob, RowGroupCopier
from delvec_engines.protocol import WriteTarget
from delvec_engines.scan import Scan
from delvec_errors import BadRequest, CorruptTable, DelvecError, MissingDataFile, StorageError
from delvec_kernel.actions.actions import AddFile
from delvec_kernel.row_tracking import ENABLED as ROW_TRACKING
from delvec_kernel.schema.column_mapping import all_fields, is_mapped
from delvec_kernel.schema.type_widening import TYPE_CHANGES
from delvec_kernel.statistics.merged_statistics import merged
from delvec_kernel.table_properties import is_true
from delvec_kernel.transaction.row_runs import row_array
from delvec_kernel.transaction.transaction_changes import RowRun
from delvec_maintenance.compaction import Bin, CompactionRules, deleted_ratios, is_small
from delvec_parquet.footer import Footer, column_names, why_not_together
from delvec_parquet.row_group_copy import SourceFile

__all__ = ["MIN_GROUP_BYTES", "MIN_GROUP_ROWS", "CopyDecision", "CopyPlan", "Part", "check_rewrite"]

MIN_GROUP_ROWS: Final = 1 << 17
"""Mean rows per row group from which copies read as fast as rewritten files (measured in docs/optimize.md)."""
MIN_GROUP_BYTES: Final = 8 << 20
"""Or mean bytes: a large row group of wide rows has few of them."""
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
class CopyDecision:
    """Whether files are copied or rewritten.

    Attributes:
        why: the decision and its reason, for users.
        sources: the files, in order, if their row groups are copied; None if their rows are rewritten.
        is_rest: whether others of their bin are copied without them: alone they may not be worth rewriting.
    """

    why: str
    sources: Sequence[SourceFile] | None = None
    is_rest: bool = False


@dataclass(frozen=True)
class Part:
    """Files of a bin that become one file or are rewritten together.

    Attributes:
        bin: the files.
        decision: what becomes of them; None where nobody has looked.
    """

    bin: Bin
    decision: CopyDecision | None = None

    @property
    def sources(self) -> Sequence[SourceFile] | None:
        """The files, if their row groups are copied."""
        return None if self.decision is None else self.decision.sources

    @property
    def is_rest(self) -> bool:
        """Whether others of the bin are copied without these."""
        return self.decision is not None and self.decision.is_rest


class CopyPlan:
    """Decides which files of a plan are copied, and copies them.

    Args:
        scan: the plan.
        stats: reads the statistics of the plan's files, by path; called at most once.
        rewrite: "never" also copies small row groups.
        max_deleted_ratio: a file with a larger share of deleted rows is not copied.
        target_size: bytes of a file to come.
        copier: reads footers, and copies.
    """

    def __init__(
        self,
        scan: Scan,
        stats: Callable[[], Mapping[str, str | None]],
        rewrite: Rewrite,
        max_deleted_ratio: float,
        target_size: int,
        copier: RowGroupCopier,
    ) -> None:
        self._scan = scan
        self._read_stats = stats
        self._stats: Mapping[str, str | None] | None = None
        self._rewrite = rewrite
        self._max_deleted_ratio = max_deleted_ratio
        self._rules = CompactionRules(target_size)
        self._copier = copier
        self._ratios = deleted_ratios(scan.files)
        self._sizes = scan.files["size"].to_numpy()
        self._columns = _stored_columns(scan)
        self._why_none = _why_not_this_table(scan)

    def divide(self, compaction_bin: Bin, *, whole: bool = False) -> list[Part]:
        """Decide what becomes of the files of a bin: one group of alike files is copied, or several, and the rest is not.

        With "auto" a bin is divided only where each copy is large enough to stay as it is: small copies would be put together
        with the rest by the next run. Reads the footers of its files unless the log already rules a copy out.

        Args:
            compaction_bin: the bin.
            whole: do not divide it.

        Raises:
            CorruptTable: with "never": a footer is damaged.
            MissingDataFile: with "never": a file is not in storage.
            StorageError: storage did not answer.
        """
        if self._why_none is not None or len(compaction_bin.files) == 1:
            return [_rewritten(compaction_bin, self._why_none or "a file alone gains nothing by a copy")]
        odd, why = self._odd_by_log(compaction_bin.files)
        alike = compaction_bin.files[~odd]
        if len(alike) == 1 or not len(alike) or (whole and odd.any()):
            return [_rewritten(compaction_bin, why or "no two files are alike")]
        why_none = self._why_not_by_log(alike)
        if why_none is not None:
            return [_rewritten(compaction_bin, why_none)]
        try:
            sources = self._copier.footers(self._taken(alike))
        except (DelvecError, OSError) as error:
            if self._rewrite == "never" or isinstance(error, StorageError):
                raise
            # Left to the engine, which may still read an unusual file, and reports a damaged one better.
            return [_rewritten(compaction_bin, "the footer of a file cannot be copied")]
        groups, why_not = self._groups(alike, sources)
        why = why or why_not
        of_file = dict(zip(alike.tolist(), sources, strict=True))
        if self._rewrite != "never" and not all(len(each) == len(compaction_bin.files) for each in groups):
            groups = [] if whole else [each for each in groups if self._stays_as_it_is(each, of_file)]
        if not groups:
            return [_rewritten(compaction_bin, why or "no two files are alike")]
        parts = [
            Part(self._bin(each), _copied([of_file[place] for place in each.tolist()])) for each in groups
        ]
        rest = compaction_bin.files[~np.isin(compaction_bin.files, np.concatenate(groups))]
        if len(rest):
            parts.append(_rewritten(self._bin(rest), why or "they are not alike", is_rest=True))
        return parts

    def copy(
        self, decisions: Sequence[tuple[int, Sequence[SourceFile]]], target: WriteTarget
    ) -> dict[int, Compacted | None]:
        """Copy bins.

        Args:
            decisions: number and files of each bin.
            target: the table.

        Returns:
            The new file of each bin; None if a source contradicts its footer, so that the bin must be rewritten.

        Raises:
            CorruptTable: with "never": a source contradicts its footer. No file of that bin is left.
            StorageError: storage did not answer.
        """
        scan = self._scan.only(source.path for _, sources in decisions for source in sources)
        jobs = [self._job(sources, target, number) for number, sources in decisions]
        deletion_vectors = [_gone_in_copy(sources, scan) for _, sources in decisions]
        copied_bins: dict[int, Compacted | None] = {}
        copy_results = self._copier.copy(scan, jobs)
        for (number, sources), job, deletion_vector, copy_result in zip(
            decisions, jobs, deletion_vectors, copy_results, strict=True
        ):
            if not isinstance(copy_result, DelvecError):
                compacted = copied_bins[number] = self._compacted(copy_result, sources, job, deletion_vector)
                if target.advance is not None:
                    target.advance(_live_rows(compacted))
            elif self._rewrite == "never" or not isinstance(copy_result, CorruptTable | MissingDataFile):
                raise copy_result
            else:
                copied_bins[number] = None
        return copied_bins

    # --- what the log says ---------------------------------------------------------------------------------

    def _odd_by_log(self, places: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.bool_], str | None]:
        """Return which files the log rules out, and why it does the first of them."""
        ratios = self._ratios[places]
        counts = self._scan.files["num_records"].take(pa.array(places))
        unknown = pc.is_null(counts).to_numpy(zero_copy_only=False) | np.isnan(ratios)
        dirty = ratios > self._max_deleted_ratio
        stuck = (ratios > 0) & (not self._scan.deletes_by_vector)
        said = (
            (unknown, "the log does not say how many rows a file has"),
            (dirty, f"more than {self._max_deleted_ratio:.1%} of the rows of a file are deleted"),
            (stuck, "the table takes no new deletion vectors"),
        )
        return unknown | dirty | stuck, next((why for odd, why in said if odd.any()), None)

    def _why_not_by_log(self, places: npt.NDArray[np.int64]) -> str | None:
        facts = self._scan.files.select(["num_records", "deletion_vector"]).take(pa.array(places))
        vectors = pc.struct_field(facts["deletion_vector"], "sizeInBytes")
        if (pc.sum(vectors).as_py() or 0) > _VECTOR_BYTES:
            return "the deletion vectors are large"
        # A row group is no larger than its file, so small files need no look at their footers.
        rows = pc.sum(facts["num_records"]).as_py()
        return self._why_too_small(float(self._sizes[places].mean()), rows / len(places))

    def _why_too_small(self, mean_bytes: float, mean_rows: float) -> str | None:
        if self._rewrite == "never" or mean_bytes >= MIN_GROUP_BYTES or mean_rows >= MIN_GROUP_ROWS:
            return None
        return "the row groups are small, and readers gain by larger ones"

    # --- what footers say ----------------------------------------------------------------------------------

    def _groups(
        self, places: npt.NDArray[np.int64], sources: Sequence[SourceFile]
    ) -> tuple[list[npt.NDArray[np.int64]], str | None]:
        """Return files that may be copied together, and why others may not."""
        counts = self._scan.files["num_records"].take(pa.array(places)).to_pylist()
        by_footer: dict[Any, list[tuple[int, SourceFile]]] = {}
        why: str | None = None
        for place, source, count in zip(places.tolist(), sources, counts, strict=True):
            if source.footer.num_rows != count:
                why = "the log and a footer disagree on how many rows a file has"
            else:
                by_footer.setdefault(source.footer.same, []).append((place, source))
        if len(by_footer) > 1:
            why = why or why_not_together([group[0][1].footer for group in by_footer.values()])
        copy_groups = []
        for group in by_footer.values():
            why_not = self._why_not_by_footers([source for _, source in group])
            if why_not is None and any(not self._known_stats.get(source.path) for _, source in group):
                why_not = "a file has no statistics"
                group = [each for each in group if self._known_stats.get(each[1].path)]  # noqa: PLW2901
            why = why or why_not
            if len(group) > 1 and why_not in (None, "a file has no statistics"):
                copy_groups.append(np.array([place for place, _ in group], np.int64))
        return copy_groups, why

    def _why_not_by_footers(self, sources: Sequence[SourceFile]) -> str | None:
        footers = [source.footer for source in sources]
        groups = [group for footer in footers for group in footer.row_groups]
        if not groups:
            return "they have no rows"
        why = why_not_together(footers) or self._why_too_small(
            sum(group.size for group in groups) / len(groups),
            sum(footer.num_rows for footer in footers) / len(groups),
        )
        if why is None and not self._knows_columns(footers[0]):
            return "the files have columns that the table does not have"
        return why

    def _stays_as_it_is(self, group: npt.NDArray[np.int64], sources: Mapping[int, SourceFile]) -> bool:
        """Whether the copy of these files is too large for the next run to join it with others."""
        kept = 1.0 - np.nan_to_num(self._ratios[group], nan=0.0)
        # Not the sizes of the files: there will be one footer.
        sizes = [sum(each.size for each in sources[place].footer.row_groups) for place in group.tolist()]
        return not is_small(np.array([np.dot(sizes, kept)]), self._rules)[0]

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

    def _taken(self, places: npt.NDArray[np.int64]) -> Scan:
        return replace(self._scan, files=self._scan.files.take(pa.array(places)))

    def _bin(self, places: npt.NDArray[np.int64]) -> Bin:
        sizes = self._sizes[places]
        live = sizes * (1.0 - np.nan_to_num(self._ratios[places], nan=0.0))
        return Bin(places, int(sizes.sum()), int(live.sum()))

    def _job(self, sources: Sequence[SourceFile], target: WriteTarget, number: int) -> CopyJob:
        codec = _CODEC.search(sources[0].path)
        return CopyJob(
            self._scan.location,
            self._scan.roots,
            sources,
            self._partition(sources[0].path),
            target.transaction_id,
            number,
            codec[1] if codec else "copied",
        )

    def _compacted(
        self, copied_file: CopiedFile, sources: Sequence[SourceFile], job: CopyJob, deletion_vector: BitMap64
    ) -> Compacted:
        runs, first = [], 0
        for source in sources:
            count = source.footer.num_rows
            if count:
                runs.append(RowRun(source=source.path, first_rank=0, count=count, first_output_row=first))
            first += count
        stats = merged(
            [self._known_stats[source.path] or "{}" for source in sources],
            [source.footer.num_rows for source in sources],
            self._scan.schema,
        )
        add = AddFile(
            path=copied_file.path,
            partition_values=dict(job.partition),
            size=copied_file.size,
            modification_time=copied_file.modified,
            stats=stats,
        )
        return Compacted(
            [add],
            {copied_file.path: runs},
            deleted={copied_file.path: deletion_vector} if deletion_vector else {},
        )

    def _partition(self, path: str) -> dict[str, str | None]:
        """Return a file's partition values, in the table's order."""
        place = self._scan.files["path"].index(path).as_py()
        values = dict(self._scan.files["partition_values"][place].as_py() or ())
        return {name: values.get(name) for name in self._scan.partition_keys}


def _rewritten(source_bin: Bin, why: str, *, is_rest: bool = False) -> Part:
    return Part(source_bin, CopyDecision(f"rewritten: {why}", is_rest=is_rest))


def _copied(sources: Sequence[SourceFile]) -> CopyDecision:
    groups = [group for source in sources for group in source.footer.row_groups]
    mean = sum(group.size for group in groups) / max(1, len(groups))
    return CopyDecision(f"{len(groups)} row groups of {mean / 2**20:,.1f} MiB on average are copied", sources)


def _live_rows(copied: Compacted) -> int:
    rows = sum(run.count for runs in copied.rewritten.values() for run in runs)
    return rows - sum(len(deleted) for deleted in copied.deleted.values())


def _gone_in_copy(sources: Sequence[SourceFile], scan: Scan) -> BitMap64:
    """Return the rows of the new file that are deleted in the old ones.

    Raises:
        CorruptTable: a deletion vector marks a row that its file does not have.
    """
    deletion_vectors, deletion_vector, first = (
        scan.deletion_vectors if scan.has_deletion_vectors else {},
        BitMap64(),
        0,
    )
    for source in sources:
        rows, count = deletion_vectors.get(source.path), source.footer.num_rows
        if rows:
            if rows.max() >= count:
                raise CorruptTable(
                    f"Files of table '{scan.name}' (version {scan.version}) cannot be copied: the deletion vector of "
                    f"'{source.path}' marks rows that it does not have. Nothing was committed; run `delvec check`, and "
                    "optimize with rewrite='always'.",
                    table=scan.name,
                    version=scan.version,
                    file=source.path,
                )
            deletion_vector |= BitMap64((row_array(rows) + first).astype(np.uint64))
        first += count
    return deletion_vector


def _why_not_this_table(scan: Scan) -> str | None:
    """Return why no file of this table may be copied, or None."""
    if is_true(scan.configuration, ROW_TRACKING):
        return "the table tracks rows, whose ids are written down"
    if any(is_true(scan.configuration, name) for name in _OTHER_FORMATS):
        return "the table is kept readable as Iceberg"
    if any(TYPE_CHANGES in field.metadata for field in all_fields(scan.schema)):
        return "types of the table were widened"
    return None


def _stored_columns(scan: Scan) -> frozenset[str]:
    """Return the names that columns have in files."""
    mapped = is_mapped(scan.configuration)
    fields = scan.schema.without(scan.partition_columns).fields
    return frozenset(item.physical_name if mapped else item.name for item in fields)
