"""How much care a table needs: arithmetic over one snapshot, without reading any file."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delvec_kernel.compaction import deleted_ratios
from delvec_kernel.deletion_vectors.deletion_vector import FRAME_OVERHEAD
from delvec_kernel.snapshot.snapshot import Snapshot

__all__ = ["Advice", "HealthReport", "examine"]

SMALL_FILE: Final = 16 * 1024 * 1024
_TARGET_FILE: Final = 128 * 1024 * 1024
_MANY_DELETED: Final = 0.05
_WORTHWHILE_FILES: Final = 10
_DEFAULT_INTERVAL: Final = 10
_EDGES: Final = (0.0, 0.01, 0.05, 0.1, 0.3, 0.5, 1.0)
_BINS: Final = ("0 %", "up to 1 %", "1-5 %", "5-10 %", "10-30 %", "30-50 %", "over 50 %")
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")
_STEP: Final = 1024


@dataclass(frozen=True)
class Advice:
    """What to do, why, and what it would bring."""

    action: str
    reason: str
    expected_gain: str


@dataclass(frozen=True)
class HealthReport:
    """The state of one version's files.

    Attributes:
        num_physical_rows: deleted ones included; None where a file has no statistics.
        deleted_ratio: of physical rows; None likewise.
        num_deletion_vector_files: files that hold live deletion vectors; many may share one.
        live_deletion_vector_bytes: that live deletion vectors take in those files.
        small_files: under 16 MiB.
        median_file_size: bytes; None without files.
        deleted_ratio_histogram: files by the share of their rows that are deleted.
    """

    num_files: int
    size_in_bytes: int
    num_physical_rows: int | None
    num_deleted_rows: int
    deleted_ratio: float | None
    num_files_with_deletion_vectors: int
    num_deletion_vector_files: int
    live_deletion_vector_bytes: int
    small_files: int
    median_file_size: int | None
    commits_since_checkpoint: int
    deleted_ratio_histogram: Mapping[str, int]
    advice: tuple[Advice, ...]


def examine(snapshot: Snapshot) -> HealthReport:
    """Return the health of a version."""
    files = snapshot.live.columns(["size", "num_records", "deletion_vector"])
    sizes = files["size"].to_numpy()
    ratios = deleted_ratios(files)
    stored = files["deletion_vector"].combine_chunks() if files.num_rows else None
    names, dv_bytes = (0, 0) if stored is None else _deletion_vector_files(stored)
    rows, deleted = snapshot.num_records, snapshot.num_deleted_rows
    advice = (_compaction(snapshot, sizes), _purge(sizes, ratios, files), _checkpoint(snapshot))
    return HealthReport(
        num_files=snapshot.num_files,
        size_in_bytes=snapshot.size_in_bytes,
        num_physical_rows=rows,
        num_deleted_rows=deleted,
        deleted_ratio=None if rows is None else deleted / rows if rows else 0.0,
        num_files_with_deletion_vectors=snapshot.num_deletion_vectors,
        num_deletion_vector_files=names,
        live_deletion_vector_bytes=dv_bytes,
        small_files=int((sizes < SMALL_FILE).sum()),
        median_file_size=int(np.median(sizes)) if len(sizes) else None,
        commits_since_checkpoint=snapshot.commits_since_checkpoint,
        deleted_ratio_histogram=_histogram(ratios),
        advice=tuple(item for item in advice if item is not None),
    )


def _histogram(ratios: npt.NDArray[np.float64]) -> dict[str, int]:
    known = ratios[~np.isnan(ratios)]
    places = np.searchsorted(_EDGES, known, side="left")
    counts = np.bincount(places, minlength=len(_BINS))
    histogram = {name: int(count) for name, count in zip(_BINS, counts, strict=True)}
    unknown = len(ratios) - len(known)
    return histogram | ({"unknown": unknown} if unknown else {})


def _deletion_vector_files(stored: pa.StructArray) -> tuple[int, int]:
    """Return how many files hold the deletion vectors, and how many bytes of them."""
    stored = stored.filter(pc.is_in(pc.struct_field(stored, "storageType"), value_set=pa.array(["u", "p"])))
    files = pc.count_distinct(pc.struct_field(stored, "pathOrInlineDv")).as_py()
    size = pc.sum(pc.struct_field(stored, "sizeInBytes")).as_py() or 0
    return int(files), int(size) + FRAME_OVERHEAD * len(stored)


def _compaction(snapshot: Snapshot, sizes: npt.NDArray[np.int64]) -> Advice | None:
    small = sizes < SMALL_FILE
    before = int(small.sum())
    if before < _WORTHWHILE_FILES:
        return None
    after = _compacted_files(snapshot, small)
    if before - after < _WORTHWHILE_FILES:
        return None
    return Advice(
        "OPTIMIZE",
        f"{before} of {len(sizes)} files are smaller than {_size(SMALL_FILE)}.",
        f"About {after} files in place of {before}: {before - after} fewer to plan and to open per scan.",
    )


def _compacted_files(snapshot: Snapshot, small: npt.NDArray[np.bool_]) -> int:
    """Return how many files the small ones would become: files of different partitions stay apart."""
    files = snapshot.live.columns(["partition_values", "size"]).filter(pa.array(small))
    values = files["partition_values"].combine_chunks()
    keys = {
        f"partition_{place}": pc.map_lookup(values, snapshot.schema.field(name).physical_name, "first")
        for place, name in enumerate(snapshot.partition_columns)
    }
    grouped = pa.table({**keys, "size": files["size"]}).group_by(list(keys)).aggregate([("size", "sum")])
    return int(np.ceil(grouped["size_sum"].to_numpy() / _TARGET_FILE).clip(1).sum())


def _purge(sizes: npt.NDArray[np.int64], ratios: npt.NDArray[np.float64], files: pa.Table) -> Advice | None:
    many = ratios > _MANY_DELETED
    if not many.any():
        return None
    dead = pc.struct_field(files["deletion_vector"], "cardinality").filter(pa.array(many))
    wasted = int((sizes * np.nan_to_num(ratios))[many].sum())
    return Advice(
        "PURGE",
        f"In {int(many.sum())} files more than {_MANY_DELETED * 100:.0f} % of the rows are deleted.",
        f"Rewriting {_size(int(sizes[many].sum()))} saves every full scan {pc.sum(dead).as_py():,} rows "
        f"(about {_size(wasted)}).",
    )


def _checkpoint(snapshot: Snapshot) -> Advice | None:
    text = snapshot.configuration.get("delta.checkpointInterval", "")
    interval = int(text) if text.isdecimal() and int(text) else _DEFAULT_INTERVAL
    commits = snapshot.commits_since_checkpoint
    if commits <= 2 * interval:
        return None
    return Advice(
        "CHECKPOINT",
        f"There are {commits} commits since the newest checkpoint; the table asks for one every {interval}.",
        f"A reader that starts fresh opens 1 file in place of {commits}.",
    )


def _size(count: int) -> str:
    value, unit = float(count), 0
    while value >= _STEP and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    return f"{value:.1f}".removesuffix(".0") + f" {_UNITS[unit]}"
