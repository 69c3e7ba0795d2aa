"""Health findings: each has an action, its gain, its cost, and the files affected.

A finding is reported exactly if its command, by that command's own rules, would do something worthwhile.

Tested in `tests/integration/service/scans/test_history_detail_health.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delvec_errors import CorruptDeletionVector
from delvec_errors.texts import counted
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.table_properties import byte_size_text
from delvec_maintenance.checks.findings import Finding
from delvec_maintenance.compaction import (
    DEFAULT_TARGET_SIZE,
    MAX_DELETED_RATIO,
    CompactionRules,
    Packing,
    RepackedVectors,
    deleted_ratios,
    is_small,
    new_files,
    packed,
    repack,
    target_file_size,
)
from delvec_maintenance.health.removed_files import RemovedFiles
from delvec_maintenance.policies import DvCompactionConfig

__all__ = [
    "SCORE_BANDS",
    "WORTHWHILE_FILES",
    "FileTable",
    "FindingFile",
    "HealthFinding",
    "RecommendedAction",
    "checkpoint",
    "damaged_files",
    "deleted_rows",
    "removed_files",
    "score_band",
    "small_files",
    "vector_files",
]

SCORE_BANDS: Final = (("good", 80.0), ("fair", 50.0), ("poor", -1.0e9))
"""Names of score bands and their minimum scores, best first."""

RecommendedAction: TypeAlias = Literal[
    "OPTIMIZE", "OPTIMIZE FULL", "PURGE", "DV COMPACTION", "CHECKPOINT", "VACUUM", "CHECK"
]

SMALL_FILES_POINTS: Final = 40.0
CHECKPOINT_POINTS: Final = 20.0
DAMAGE_POINTS: Final = 100.0
VECTOR_FILES_POINTS: Final = 20.0
WORTHWHILE_FILES: Final = 10
_DEFAULT_INTERVAL: Final = 10


@dataclass(frozen=True)
class FindingFile:
    """A file affected by a finding.

    Attributes:
        points: its share of the finding's points.
        gain_bytes: estimated bytes that the action saves in reads or storage.
    """

    path: str
    size: int
    points: float
    gain_bytes: int


@dataclass(frozen=True)
class HealthFinding:
    """A maintenance action that a table needs.

    Attributes:
        name: ``small-files``, ``deleted-rows``, ``deletion-vector-files``, ``overlapping-files``, ``old-checkpoint``,
            ``removed-files``, ``damaged-files``.
        points: deducted from the score of 100.
        expected_gain: human-readable.
        gain_bytes: estimated bytes that a full scan no longer reads, or that storage frees; None if not applicable.
        gain_files: reduction in the number of files to open.
        cost_bytes: bytes that the action rewrites; None if not known in advance.
        num_files: files affected.
        files: those with the most points, as many as requested.
        per_file: points per live file, in file order; None if the finding is not about live files.
    """

    name: str
    action: RecommendedAction
    points: float
    reason: str
    expected_gain: str
    gain_bytes: int | None
    gain_files: int
    cost_bytes: int | None
    num_files: int
    files: tuple[FindingFile, ...] = ()
    per_file: npt.NDArray[np.float64] | None = field(default=None, compare=False, repr=False)


class FileTable:
    """The live files of a version, with the columns that several findings share.

    Args:
        snapshot: the version.
        traced: the number of files that each finding names; paths are not read if 0.
        clustering: whether to read the tags that describe clustering.

    Attributes:
        files: with ``path`` only if files are traced.
        dead: estimated bytes of deleted rows per file.
    """

    def __init__(self, snapshot: Snapshot, num_traced: int, *, clustering: bool = False) -> None:
        names = ["size", "modification_time", "num_records", "deletion_vector"]
        self.snapshot = snapshot
        self.traced = num_traced
        self.keys = [snapshot.schema.field(name).physical_name for name in snapshot.partition_columns]
        names += ["partition_values"] if self.keys else []
        names += ["path"] if num_traced else []
        names += ["tags", "clustering_provider"] if clustering else []
        self.files: pa.Table = snapshot.live.columns(names)
        self.sizes: npt.NDArray[np.int64] = self.files["size"].to_numpy()
        self.ratios = deleted_ratios(self.files)
        self.dead = self.sizes * np.nan_to_num(self.ratios)
        self.target_size = target_file_size(snapshot.configuration) or DEFAULT_TARGET_SIZE

    def __len__(self) -> int:
        return len(self.sizes)

    def packed(self, rules: CompactionRules) -> Packing:
        """Return the files that a command with these rules rewrites."""
        return packed(self.files, self.keys, rules)

    def trace(
        self, points: npt.NDArray[np.float64], chosen: npt.NDArray[np.int64]
    ) -> tuple[FindingFile, ...]:
        """Return the chosen files with the most points."""
        if not self.traced:
            return ()
        order = chosen[np.lexsort((-self.dead[chosen], -points[chosen]))][: self.traced]
        paths = self.files["path"].take(pa.array(order)).to_pylist()
        return tuple(
            FindingFile(path, int(self.sizes[place]), float(points[place]), int(self.dead[place]))
            for path, place in zip(paths, order.tolist(), strict=True)
        )


def small_files(table: FileTable) -> HealthFinding | None:
    """Return the effect of OPTIMIZE if it saves at least ten files."""
    rules = CompactionRules(table.target_size)
    packing = table.packed(rules)
    after, places = new_files(packing, rules), packing.files
    left = int(after.sum())
    files_saved = len(places) - left
    if files_saved < WORTHWHILE_FILES:
        return None
    points = np.zeros(len(table))
    points[places] = np.repeat(
        SMALL_FILES_POINTS * (packing.counts - after) / packing.counts / len(table), packing.counts
    )
    small = int(is_small(table.sizes[places] - table.dead[places], rules).sum())
    cost, gain = _sizes(packing)
    return HealthFinding(
        "small-files",
        "OPTIMIZE",
        float(points.sum()),
        f"{small} of {counted(len(table), 'file')} {'is' if small == 1 else 'are'} small (the target file size is "
        f"{byte_size_text(table.target_size)}).",
        f"About {counted(left, 'file')} instead of {len(places)}: {files_saved} fewer to plan and open per scan. OPTIMIZE "
        f"rewrites {byte_size_text(cost)}.",
        gain_bytes=gain,
        gain_files=files_saved,
        cost_bytes=cost,
        num_files=len(places),
        files=table.trace(points, places),
        per_file=points,
    )


def deleted_rows(table: FileTable) -> HealthFinding | None:
    """Return the effect of PURGE on files with more than 5 % deleted rows."""
    rules = CompactionRules(table.target_size, purge=True, min_deleted_ratio=MAX_DELETED_RATIO)
    packing = table.packed(rules)
    places = packing.files
    files_with_ratio = places[~np.isnan(table.ratios[places])]
    if not len(files_with_ratio):
        return None
    points = np.zeros(len(table))
    points[files_with_ratio] = 100.0 * table.dead[files_with_ratio] / max(1, int(table.sizes.sum()))
    rows = pc.struct_field(table.files["deletion_vector"], "cardinality").take(pa.array(files_with_ratio))
    cost, gain = _sizes(packing)
    return HealthFinding(
        "deleted-rows",
        "PURGE",
        float(points.sum()),
        f"In {counted(len(files_with_ratio), 'file')}, more than {MAX_DELETED_RATIO * 100:.0f} % of the rows are deleted.",
        f"Rewriting {byte_size_text(cost)} saves each full scan {counted(pc.sum(rows).as_py(), 'row')} (about "
        f"{byte_size_text(gain)}).",
        gain_bytes=gain,
        gain_files=len(places) - int(new_files(packing, rules).sum()),
        cost_bytes=cost,
        num_files=len(places),
        files=table.trace(points, places),
        per_file=points,
    )


def vector_files(table: FileTable, target_size: int) -> HealthFinding | None:
    """Return the effect of deletion vector compaction if it saves ten files or frees 64 MiB.

    These are the thresholds of the policy ``system.dv-compaction``. Points are only for files to open, since dead
    deletion vectors use storage but do not slow readers.

    Args:
        table: the live files.
        target_size: bytes per deletion vector file.
    """
    if not table.snapshot.dv_enabled:
        return None
    repacking, worthwhile = repack(table.files, target_size), DvCompactionConfig()
    files_saved, freed_bytes = repacking.files_saved, repacking.gain_bytes
    if files_saved < worthwhile.min_files_saved and freed_bytes < worthwhile.min_gain_bytes:
        return None
    points = VECTOR_FILES_POINTS * max(0, files_saved) / len(table)
    per_file = np.zeros(len(table))
    per_file[repacking.files] = points / len(repacking.files)
    return HealthFinding(
        "deletion-vector-files",
        "DV COMPACTION",
        points,
        f"{counted(len(repacking.files), 'deletion vector')} {'is' if len(repacking.files) == 1 else 'are'} spread over "
        f"{counted(repacking.num_vector_files, 'file')}; "
        f"{byte_size_text(repacking.size)} of these are in use, about {byte_size_text(freed_bytes)} are not.",
        f"A scan would open {repacking.new_vector_files} of these files instead of {repacking.num_vector_files}. "
        f"Compaction rewrites {byte_size_text(repacking.size)} and no data files; VACUUM then frees about "
        f"{byte_size_text(freed_bytes)}.",
        gain_bytes=freed_bytes,
        gain_files=max(0, files_saved),
        cost_bytes=repacking.size,
        num_files=repacking.num_vector_files,
        files=_vector_files_named(table, repacking, points),
        per_file=per_file,
    )


def _vector_files_named(
    table: FileTable, repacking: RepackedVectors, points: float
) -> tuple[FindingFile, ...]:
    """Return the deletion vector files with the most unused bytes."""
    dead = np.maximum(0, repacking.vector_file_sizes - repacking.needed_sizes)
    order = np.argsort(-dead, kind="stable")[: table.traced]
    descriptors = table.files["deletion_vector"].take(pa.array(repacking.examples[order])).to_pylist()
    return tuple(
        FindingFile(
            _path(vector),
            int(repacking.vector_file_sizes[place]),
            points / repacking.num_vector_files,
            int(dead[place]),
        )
        for vector, place in zip(descriptors, order.tolist(), strict=True)
    )


def _path(vector: Mapping[str, Any]) -> str:
    try:
        return Descriptor.from_json(vector).relative_path() or ""
    except CorruptDeletionVector:
        # Readers of the deletion vector report the error; only a file name is needed here.
        return str(vector["pathOrInlineDv"])


def checkpoint(snapshot: Snapshot, num_traced: int) -> HealthFinding | None:
    """Return the effect of a checkpoint if the last one is more than two intervals old."""
    text = snapshot.configuration.get("delta.checkpointInterval", "")
    interval = int(text) if text.isdecimal() and int(text) else _DEFAULT_INTERVAL
    commits = snapshot.commits_since_checkpoint
    if commits <= 2 * interval:
        return None
    points = CHECKPOINT_POINTS * (1 - 2 * interval / commits)
    since = "and no checkpoint yet" if snapshot.checkpoint_version is None else "since the newest checkpoint"
    names = [f"_delta_log/{snapshot.version - back:020}.json" for back in range(min(num_traced, commits))]
    return HealthFinding(
        "old-checkpoint",
        "CHECKPOINT",
        points,
        f"There are {commits} commits {since}; the table wants a checkpoint every {interval}.",
        f"A reader with nothing cached opens 1 file instead of {commits}.",
        gain_bytes=None,
        gain_files=commits - 1,
        cost_bytes=None,
        num_files=commits,
        files=tuple(FindingFile(name, 0, points / commits, 0) for name in names),
    )


def damaged_files(problems: Sequence[Finding], num_traced: int) -> HealthFinding:
    """Return the finding for what is wrong with a table's log or files; it costs all points.

    Args:
        problems: the errors, as ``check`` reports them; at least one.
        num_traced: the number of files to name.
    """
    files = list(dict.fromkeys(each.file for each in problems if each.file))
    share = DAMAGE_POINTS / max(1, len(files))
    return HealthFinding(
        "damaged-files",
        "CHECK",
        DAMAGE_POINTS,
        f"{counted(len(problems), 'error')} in the log or in live files; the first: {problems[0].message}",
        "Until this is put right, reads and maintenance of these files fail, so nothing else is recommended.",
        gain_bytes=None,
        gain_files=0,
        cost_bytes=None,
        num_files=len(files),
        files=tuple(FindingFile(path, 0, share, 0) for path in files[:num_traced]),
    )


def removed_files(summary: RemovedFiles) -> HealthFinding | None:
    """Return what VACUUM would delete according to the log's tombstones; no points, since readers are not affected."""
    if not summary.num_expired:
        return None
    return HealthFinding(
        "removed-files",
        "VACUUM",
        0.0,
        f"{counted(summary.num_expired, 'removed file')} {'is' if summary.num_expired == 1 else 'are'} older than the table's retention period.",
        f"Frees up to {byte_size_text(summary.expired_bytes)} of storage, unless a VACUUM has already deleted "
        "them.",
        gain_bytes=summary.expired_bytes,
        gain_files=summary.num_expired,
        cost_bytes=0,
        num_files=summary.num_expired,
        files=tuple(FindingFile(path, size, 0.0, size) for path, size in summary.expired),
    )


def _sizes(found: Packing) -> tuple[int, int]:
    """Return the bytes that are rewritten, and how many of them are deleted rows."""
    cost = int(found.sizes.sum())
    return cost, cost - int(found.live_sizes.sum())


def score_band(score: float) -> str:
    """Return the name of a score's band."""
    return next(name for name, least in SCORE_BANDS if score >= least)
