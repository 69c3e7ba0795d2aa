"""Selects and groups the files that OPTIMIZE and PURGE rewrite, without reading data files.

Each file costs readers a request, and the rows that its deletion vector skips. It is worth rewriting if it is small, so
that several can be combined, or if a large share of its rows is deleted. Delta and Trino never rewrite a file alone,
however many of its rows are deleted; Delvec does.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delvec_kernel.deletion_vectors.deletion_vector import FILE_VERSION, FRAME_OVERHEAD
from delvec_kernel.table_properties import parse_byte_size

__all__ = [
    "DEFAULT_TARGET_SIZE",
    "MAX_DELETED_RATIO",
    "Bin",
    "CompactionRules",
    "Packing",
    "RepackedVectors",
    "cube_numbers",
    "cut",
    "deleted_ratios",
    "is_small",
    "new_files",
    "pack",
    "packed",
    "partition_numbers",
    "reasons",
    "repack",
    "rolling_size",
    "target_file_size",
    "within",
]

DEFAULT_TARGET_SIZE: Final = 256 << 20
"""Target size in bytes of compacted files, unless the table sets ``delta.targetFileSize``."""
MAX_DELETED_RATIO: Final = 0.05
"""Same default as delta-spark's ``spark.databricks.delta.optimize.maxDeletedRowsRatio``."""
_FULL_SHARE: Final = 0.75
"""Files of at least this share of the target size are left alone, or each run would rewrite nearly full files."""

_MIN_LIVE_SHARE: Final = 0.5
"""Deletion vector files with a smaller share of live bytes are repacked."""


@dataclass(frozen=True)
class CompactionRules:
    """Criteria for rewriting files.

    Attributes:
        target_size: bytes of new files.
        max_deleted_ratio: a file with a larger share of deleted rows is rewritten, whatever its size.
        purge: rewrite only files with a deletion vector, whatever its cardinality: REORG TABLE ... APPLY (PURGE).
        min_deleted_ratio: with ``purge``, only files with a larger share of deleted rows; 0 for all.
    """

    target_size: int = DEFAULT_TARGET_SIZE
    max_deleted_ratio: float = MAX_DELETED_RATIO
    purge: bool = False
    min_deleted_ratio: float = 0.0

    @property
    def tolerated_ratio(self) -> float:
        """The share of deleted rows above which a file is rewritten."""
        return self.min_deleted_ratio if self.purge else self.max_deleted_ratio


@dataclass(frozen=True)
class Bin:
    """Files of one partition that are rewritten together.

    Attributes:
        files: row numbers in the table of files, oldest first.
        size: current bytes of the files.
        live_size: estimated bytes of their live rows.
    """

    files: npt.NDArray[np.int64]
    size: int
    live_size: int


@dataclass(frozen=True)
class Packing:
    """Bins in columnar form, for a million files.

    Attributes:
        files: the files of all bins, bin by bin.
        counts: number of files per bin.
        sizes: current bytes per bin.
        live_sizes: estimated bytes of live rows per bin.
    """

    files: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    live_sizes: npt.NDArray[np.int64]

    @classmethod
    def of(cls, bins: Sequence[Bin]) -> "Packing":
        """Convert bins to columns."""
        counts, sizes, live = (
            np.array(column, np.int64)
            for column in (
                [len(each.files) for each in bins],
                [each.size for each in bins],
                [each.live_size for each in bins],
            )
        )
        files = np.concatenate([np.zeros(0, np.int64), *(each.files for each in bins)])
        return cls(files, counts, sizes, live)

    def bins(self) -> list[Bin]:
        """Convert to a list of bins."""
        ends = np.cumsum(self.counts).tolist()
        starts = [0, *ends[:-1]]
        sizes = zip(self.sizes.tolist(), self.live_sizes.tolist(), strict=True)
        return [
            Bin(self.files[start:end], size, live)
            for start, end, (size, live) in zip(starts, ends, sizes, strict=False)
        ]


def pack(files: pa.Table, partition_keys: Sequence[str], rules: CompactionRules) -> list[Bin]:
    """Return the result of :func:`packed` as a list of bins."""
    return packed(files, partition_keys, rules).bins()


def packed(files: pa.Table, partition_keys: Sequence[str], rules: CompactionRules) -> Packing:
    """Return the files to rewrite; empty if no file gains by it.

    Args:
        files: ``path``, ``partition_values`` (a map), ``size``, ``modification_time``, ``num_records`` and
            ``deletion_vector`` of live files.
        partition_keys: the physical names of the partition columns.
        rules: criteria for rewriting.
    """
    nothing = np.zeros(0, np.int64)
    if not files.num_rows:
        return Packing(nothing, nothing, nothing, nothing)
    sizes = files["size"].to_numpy()
    ratios = deleted_ratios(files)
    live = sizes * (1.0 - np.nan_to_num(ratios, nan=0.0))
    has_vector = pc.is_valid(files["deletion_vector"]).to_numpy()
    # Without a row count, the deleted share is unknown; rewriting also adds statistics.
    every = rules.purge and rules.min_deleted_ratio == 0
    dirty = has_vector & (every | np.isnan(ratios) | (ratios > rules.tolerated_ratio))
    positions = np.flatnonzero(dirty if rules.purge else dirty | is_small(live, rules))
    if not len(positions):
        return Packing(nothing, nothing, nothing, nothing)
    partitions = partition_numbers(files, partition_keys)
    if rules.purge and "tags" in files.column_names:
        # Do not mix ZCubes with other files, so that sorted rows stay sorted and their files keep the tags.
        partitions = _pair_numbers(partitions, cube_numbers(files))
    partitions = partitions[positions]
    # Files of similar age hold rows that were written together.
    order = np.lexsort((files["modification_time"].to_numpy()[positions], partitions))
    positions, partitions = positions[order], partitions[order]
    starts = np.array([first for first, _ in cut(partitions, live[positions], rules.target_size)], np.int64)
    counts = np.diff(np.append(starts, len(positions)))
    kept = (counts > 1) | dirty[positions[starts]]
    return Packing(
        positions[np.repeat(kept, counts)],
        counts[kept],
        np.add.reduceat(sizes[positions], starts)[kept],
        np.add.reduceat(live[positions], starts)[kept].astype(np.int64),
    )


def reasons(files: pa.Table, bins: Sequence[Bin], rules: CompactionRules) -> list[str]:
    """Return the reason for rewriting each bin of :func:`pack`."""
    if not bins:
        return []
    ratios = deleted_ratios(files)
    small = is_small(files["size"].to_numpy() * (1.0 - np.nan_to_num(ratios, nan=0.0)), rules)
    has_vector = pc.is_valid(files["deletion_vector"]).to_numpy()
    dirty = has_vector & (np.isnan(ratios) | (ratios > rules.tolerated_ratio))
    bin_reasons = []
    for each in bins:
        if rules.purge:
            bin_reasons.append(f"{_files(int(has_vector[each.files].sum()))} with deletion vectors")
            continue
        alone, much = int((small & ~dirty)[each.files].sum()), int(dirty[each.files].sum())
        said = [f"{_files(alone, 'small ')}"] if alone else []
        share = f"with more than {rules.tolerated_ratio:.1%} of the rows deleted"
        bin_reasons.append(" and ".join([*said, *([f"{_files(much)} {share}"] if much else [])]))
    return bin_reasons


def _files(count: int, kind: str = "") -> str:
    return f"{count} {kind}file{'' if count == 1 else 's'}"


def deleted_ratios(files: pa.Table) -> npt.NDArray[np.float64]:
    """Return each file's share of deleted rows; NaN for a file with a deletion vector but no row count."""
    deleted = pc.fill_null(pc.struct_field(files["deletion_vector"], "cardinality"), 0).to_numpy()
    rows = pc.fill_null(files["num_records"], 0).to_numpy().astype(np.float64)
    known = np.minimum(deleted / np.where(rows > 0, rows, 1.0), 1.0)
    return np.where(deleted == 0, 0.0, np.where(rows > 0, known, np.nan))


def within(bins: Sequence[Bin], max_bytes: int | None) -> list[Bin]:
    """Return the bins that fit a budget of bytes to rewrite, highest gain per byte first.

    A bin larger than the remaining budget is skipped; smaller ones after it are not.
    """
    if max_bytes is None:
        return list(bins)
    left, places = max_bytes, set()
    worth = [((each.size - each.live_size) / max(1, each.size), len(each.files)) for each in bins]
    for place in sorted(range(len(bins)), key=lambda one: worth[one], reverse=True):
        if bins[place].size <= left:
            left -= bins[place].size
            places.add(place)
    return [each for place, each in enumerate(bins) if place in places]


def is_small(live_sizes: npt.NDArray[Any], rules: CompactionRules) -> npt.NDArray[np.bool_]:
    """Return a mask of the files worth combining with others, given the bytes of their live rows."""
    return live_sizes < _FULL_SHARE * rules.target_size


def rolling_size(target_size: int) -> int:
    """Return the size at which to close a new file: above the target, so that estimation errors leave no tiny file."""
    return target_size + target_size // 4


def new_files(found: Packing, rules: CompactionRules) -> npt.NDArray[np.int64]:
    """Return the approximate number of new files per bin."""
    made = np.ceil(found.live_sizes / rolling_size(rules.target_size)).astype(np.int64)
    return np.minimum(made, found.counts)


def target_file_size(configuration: Mapping[str, str]) -> int | None:
    """Return ``delta.targetFileSize`` in bytes; None if not set or invalid."""
    size = parse_byte_size(configuration.get("delta.targetFileSize", ""))
    return None if size is None else max(1, size)


def partition_numbers(files: pa.Table, keys: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return a partition number per file."""
    numbers = np.zeros(files.num_rows, np.int64)
    if not keys:
        return numbers
    values = files["partition_values"].combine_chunks()
    for key in keys:
        texts = pc.map_lookup(values, pa.scalar(key, values.type.key_type), "last")
        encoded = texts.dictionary_encode("encode")
        codes = np.asarray(encoded.indices).astype(np.int64)
        numbers = _pair_numbers(numbers, codes)
    return numbers


def cube_numbers(files: pa.Table) -> npt.NDArray[np.int64]:
    """Return a ZCube number per file; files outside ZCubes share one number."""
    ids = pc.map_lookup(files["tags"].combine_chunks(), pa.scalar("ZCUBE_ID"), "last")
    numbers: npt.NDArray[np.int64] = np.asarray(pc.fill_null(ids, "").dictionary_encode().indices, np.int64)
    return numbers


def _pair_numbers(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return a number for each pair of numbers, equal for equal pairs."""
    width = int(second.max(initial=0)) + 1
    numbers: npt.NDArray[np.int64] = np.unique(first * width + second, return_inverse=True)[1].astype(
        np.int64
    )
    return numbers


def cut(
    partitions: npt.NDArray[np.int64], sizes: npt.NDArray[np.float64], target: int
) -> list[tuple[int, int]]:
    """Split a list of files into bins of one partition and at most ``target`` bytes, or a single file."""
    # A Python list, where a bisection is ten times faster than in an array.
    ends = np.cumsum(sizes).tolist()
    borders = np.append(np.flatnonzero(np.diff(partitions)) + 1, len(partitions))
    bin_ranges = []
    first = 0
    for border in borders.tolist():
        while first < border:
            before = ends[first - 1] if first else 0.0
            last = max(bisect_right(ends, before + target, first, border), first + 1)
            bin_ranges.append((first, last))
            first = last
    return bin_ranges


@dataclass(frozen=True)
class RepackedVectors:
    """Deletion vectors worth repacking into fewer files.

    Attributes:
        files: row numbers, in the table of files, of their data files.
        num_vector_files: deletion vector files that would no longer be needed.
        new_vector_files: deletion vector files that would replace them.
        size: bytes of the deletion vectors.
        examples: row number of one data file per deletion vector file.
        vector_file_sizes: approximate bytes of each deletion vector file: up to its last live deletion vector.
        needed_sizes: live bytes in each.
    """

    files: npt.NDArray[np.int64]
    num_vector_files: int = 0
    new_vector_files: int = 0
    size: int = 0
    examples: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    vector_file_sizes: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    needed_sizes: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def files_saved(self) -> int:
        """The reduction in deletion vector files to open."""
        return self.num_vector_files - self.new_vector_files

    @property
    def gain_bytes(self) -> int:
        """Approximate bytes of storage that VACUUM frees afterwards."""
        return max(0, int((self.vector_file_sizes - self.needed_sizes).sum()))


def repack(files: pa.Table, target_size: int) -> RepackedVectors:
    """Return the deletion vectors to repack; empty if that neither reduces files nor frees storage.

    Repacks small files, so that scans open fewer, and files in which most deletion vectors are dead. A file's size is
    estimated from its last live deletion vector.

    Args:
        files: ``deletion_vector`` of live files.
        target_size: bytes per deletion vector file.
    """
    vectors = files["deletion_vector"].combine_chunks()
    # Inline deletion vectors have no file, and files with absolute paths belong to another table.
    stored = pc.and_(
        pc.fill_null(pc.equal(pc.struct_field(vectors, "storageType"), "u"), fill_value=False),
        pc.is_valid(pc.struct_field(vectors, "pathOrInlineDv")),
    )
    places = np.flatnonzero(stored.to_numpy(zero_copy_only=False))
    if not len(places):
        return RepackedVectors(places)
    chosen = vectors.take(pa.array(places))
    names = np.asarray(pc.struct_field(chosen, "pathOrInlineDv").dictionary_encode().indices)
    sizes = (
        pc.fill_null(pc.struct_field(chosen, "sizeInBytes"), 0).to_numpy().astype(np.int64) + FRAME_OVERHEAD
    )
    offsets = pc.fill_null(pc.struct_field(chosen, "offset"), 1).to_numpy().astype(np.int64)
    live_bytes = np.bincount(names, weights=sizes).astype(np.int64)
    ends = np.zeros(len(live_bytes), np.int64)
    np.maximum.at(ends, names, offsets + sizes)
    ends -= len(FILE_VERSION)
    is_dead = live_bytes < _MIN_LIVE_SHARE * ends
    again = is_dead | (live_bytes < target_size / 2)
    size, count = int(live_bytes[again].sum()), int(again.sum())
    new = -(-size // target_size)
    if count <= new and not is_dead.any():
        return RepackedVectors(np.zeros(0, np.int64))
    examples = places[np.unique(names, return_index=True)[1]]
    return RepackedVectors(
        places[again[names]], count, new, size, examples[again], ends[again], live_bytes[again]
    )
