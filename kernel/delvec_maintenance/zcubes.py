"""Selects the files that Z-order and clustering sort, without reading data files.

Files sorted together form a ZCube, marked by delta-spark's tags. delta-spark re-sorts the whole table for each Z-order, and
for clustering a ZCube of up to 100 GiB. Here a ZCube is only re-sorted together with at least as many bytes of new
files. Each row is thus rewritten about as often as the table doubles in size, and nothing is rewritten without new
files.
"""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delvec_errors import InvalidTableChange
from delvec_errors.texts import counted
from delvec_kernel.schema.column_paths import ColumnPath, as_in_schema, field_at, logical_path, path_text
from delvec_kernel.schema.types import DecimalType, PrimitiveType, StructType, has_geospatial
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.statistics.file_statistics import columns_with_statistics
from delvec_kernel.statistics.outer_bounds import as_mask
from delvec_maintenance.compaction import (
    MAX_DELETED_RATIO,
    Bin,
    cube_numbers,
    cut,
    deleted_ratios,
    partition_numbers,
)

__all__ = [
    "CLUSTERING_PROVIDER",
    "MAX_CUBE_SIZE",
    "ZCubeRules",
    "check_columns",
    "choose",
    "clustering_columns",
    "files_to_come",
    "reasons",
]

CLUSTERING_PROVIDER: Final = "liquid"
"""The ``add.clusteringProvider`` of delta-spark's clustering."""
MAX_CUBE_SIZE: Final = 64 << 30
"""Maximum bytes sorted at once."""

_CURVE: Final = "hilbert"
_WITHOUT_ORDER: Final = frozenset({"variant", "void"})

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ZCubeRules:
    """What to sort, and how.

    Attributes:
        columns: paths by logical name.
        is_clustering: whether they are the table's clustering columns, not those of a ZORDER BY.
        full: whether to also sort files clustered by other columns or providers, and to merge all ZCubes into one.
        max_deleted_ratio: a file of a ZCube with a larger share of deleted rows is sorted again.
        max_cube_size: bytes.
    """

    columns: Sequence[ColumnPath]
    is_clustering: bool = False
    full: bool = False
    max_deleted_ratio: float = MAX_DELETED_RATIO
    max_cube_size: int = MAX_CUBE_SIZE

    @property
    def names(self) -> list[str]:
        """The column names for history and tags."""
        return [path_text(path) for path in self.columns]

    def new_tags(self) -> Mapping[str, str]:
        """Return the tags for files of a new ZCube."""
        return {
            "ZCUBE_ID": str(uuid.uuid4()),
            "ZCUBE_ZORDER_BY": json.dumps(self.names, ensure_ascii=False, separators=(",", ":")),
            "ZCUBE_ZORDER_CURVE": _CURVE,
        }


def clustering_columns(snapshot: Snapshot) -> list[ColumnPath]:
    """Return the clustering columns (PROTOCOL.md, "Clustered Table") by logical name; empty if the metadata is invalid."""
    domain = snapshot.domain_metadata.get("delta.clustering")
    try:
        document = json.loads(domain.configuration) if domain is not None else {}
        columns = document.get("clusteringColumns") or []
        paths = [[str(part) for part in ([path] if isinstance(path, str) else path)] for path in columns]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return []
    return [logical_path(snapshot.schema, path) for path in paths]


def choose(files: pa.Table, partition_keys: Sequence[str], rules: ZCubeRules) -> list[Bin]:
    """Return the files to sort, one bin per new ZCube; empty if there is nothing new.

    Args:
        files: as for :func:`delvec_maintenance.compaction.pack`, with ``tags`` and ``clustering_provider``.
        partition_keys: the physical names of the partition columns.
        rules: what to sort.
    """
    if not files.num_rows:
        return []
    sizes = files["size"].to_numpy()
    ratios = deleted_ratios(files)
    live = sizes * (1.0 - np.nan_to_num(ratios, nan=0.0))
    is_sorted, is_foreign, cubes = _cubes(files, rules)
    # CLUSTER BY leaves files sorted by other columns unchanged until OPTIMIZE ... FULL.
    candidates = np.ones(len(sizes), np.bool_) if rules.full else ~is_foreign
    is_new = candidates & (~is_sorted | np.isnan(ratios) | (ratios > rules.max_deleted_ratio))
    partitions = partition_numbers(files, partition_keys)
    positions = np.flatnonzero(candidates)
    # New files first, oldest first, then ZCube by ZCube.
    groups = np.where(is_new, -1, cubes)[positions]
    order = np.lexsort((files["modification_time"].to_numpy()[positions], groups, partitions[positions]))
    positions, groups, partitions = positions[order], groups[order], partitions[positions][order]
    new_cubes: list[Places] = []
    for first, last in _runs(partitions):
        cuts = [(first + start, first + end) for start, end in _runs(groups[first:last])]
        is_first_new = bool(groups[first] == -1)
        new = positions[slice(*cuts[0])] if is_first_new else positions[:0]
        old = [positions[start:end] for start, end in cuts[is_first_new:]]
        new_cubes += _in_partition(new, old, live, rules)
    return [Bin(places, int(sizes[places].sum()), int(live[places].sum())) for places in new_cubes]


def reasons(files: pa.Table, bins: Sequence[Bin], rules: ZCubeRules) -> list[str]:
    """Return the reason for sorting each bin of :func:`choose`."""
    if not bins:
        return []
    is_sorted, _, cubes = _cubes(files, rules)
    ratios = deleted_ratios(files)
    is_old = is_sorted & ~(np.isnan(ratios) | (ratios > rules.max_deleted_ratio))
    names = ", ".join(rules.names)
    bin_reasons = []
    for each in bins:
        old = each.files[is_old[each.files]]
        new = len(each.files) - len(old)
        with_cubes = (
            f"{counted(len(old), 'file')} of {counted(len(np.unique(cubes[old])), 'ZCube')}"
            if len(old)
            else ""
        )
        text = (
            f"{counted(new, 'file')} to sort by {names}" if new else f"{with_cubes} to sort by {names} as one"
        )
        bin_reasons.append(f"{text}, with {with_cubes} that are not larger" if new and len(old) else text)
    return bin_reasons


def _runs(numbers: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return start and end of each run of equal numbers."""
    borders = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    return list(pairwise(borders)) if len(numbers) else []


def files_to_come(files: pa.Table, target_size: int) -> int:
    """Return the approximate number of new files of ``target_size`` bytes for the live rows of files, at least one."""
    sizes = files["size"].to_numpy() * (1.0 - np.nan_to_num(deleted_ratios(files), nan=0.0))
    return max(1, round(float(sizes.sum()) / target_size))


def _in_partition(
    new: Places, old: Sequence[Places], live: npt.NDArray[np.float64], rules: ZCubeRules
) -> Iterator[Places]:
    """Yield groups of files of one partition to sort together.

    Args:
        new: files to sort, oldest first.
        old: the files of each ZCube.
        live: bytes of live rows per file.
        rules: what to sort.
    """
    if rules.full and (len(new) or len(old) > 1):
        new, old = np.concatenate([new, *old]), []
    if not len(new):
        return
    parts = [
        new[first:last] for first, last in cut(np.zeros(len(new), np.int64), live[new], rules.max_cube_size)
    ]
    yield from parts[:-1]
    together, size = [parts[-1]], float(live[parts[-1]].sum())
    for more, cube in sorted(((float(live[cube].sum()), cube) for cube in old), key=lambda each: each[0]):
        if more > size or more + size > rules.max_cube_size:
            break
        together.append(cube)
        size += more
    yield np.concatenate(together)


def _cubes(
    files: pa.Table, rules: ZCubeRules
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Return per file: whether it is in a ZCube by these columns, whether it is clustered by others, and its ZCube number."""
    tags = files["tags"].combine_chunks()
    ids, columns = (pc.map_lookup(tags, pa.scalar(key), "last") for key in ("ZCUBE_ID", "ZCUBE_ZORDER_BY"))
    same = [
        text for text in pc.unique(columns).to_pylist() if text is not None and _names(text) == rules.names
    ]
    is_same = pc.and_(pc.is_valid(ids), pc.is_in(columns, value_set=pa.array(same, columns.type)))
    providers = files["clustering_provider"]
    if rules.is_clustering:
        is_ours = pc.fill_null(pc.equal(providers, CLUSTERING_PROVIDER), fill_value=False)
        is_sorted = pc.and_(is_same, is_ours)
        is_foreign = pc.and_(pc.is_valid(providers), pc.invert(is_sorted))
    else:
        is_sorted, is_foreign = is_same, pa.array(np.zeros(files.num_rows, np.bool_))
    return as_mask(is_sorted), as_mask(is_foreign), cube_numbers(files)


def _names(text: str) -> list[str] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) else None


def check_columns(
    columns: Sequence[ColumnPath],
    schema: StructType,
    partition_columns: Sequence[str],
    configuration: Mapping[str, str],
) -> list[ColumnPath]:
    """Return the columns of a ZORDER BY as spelled in the schema.

    Raises:
        UnknownColumn: no such column.
        InvalidTableChange: there are none, or one is repeated, is a partition column, has an unordered type, or has no
            statistics, without which readers cannot benefit.
    """
    if not columns:
        raise InvalidTableChange("ZORDER BY needs at least one column.")
    with_statistics = columns_with_statistics(schema, partition_columns, configuration)
    partition_names = {name.lower() for name in partition_columns}
    zorder_columns: list[ColumnPath] = []
    for path in columns:
        kind = field_at(schema, path).type
        column_path = as_in_schema(schema, path)
        name = path_text(column_path)
        if column_path[0].lower() in partition_names:
            raise InvalidTableChange(
                f"Column '{name}' is a partition column, so each file has only one value of it; leave it "
                "out of ZORDER BY.",
                column=name,
            )
        if (
            not isinstance(kind, PrimitiveType | DecimalType)
            or kind.to_json() in _WITHOUT_ORDER
            or has_geospatial(kind)
        ):
            raise InvalidTableChange(
                f"Column '{name}' of type {str(kind.to_json())[:80]} cannot be ordered; ZORDER BY needs "
                "columns of primitive types.",
                column=name,
            )
        if column_path not in with_statistics:
            raise InvalidTableChange(
                f"Column '{name}' has no statistics, so readers could not skip files by it; add it to "
                "delta.dataSkippingStatsColumns, or raise delta.dataSkippingNumIndexedCols.",
                column=name,
            )
        if column_path in zorder_columns:
            raise InvalidTableChange(
                f"Column '{name}' is listed twice in ZORDER BY; list it once.", column=name
            )
        zorder_columns.append(column_path)
    return zorder_columns
