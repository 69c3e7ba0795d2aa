"""Auto compaction: when and what to compact right after a commit (``delta.autoOptimize.autoCompact``).

As in delta-spark, it compacts partitions with new files once they have enough small files. New files are at most 128 MiB;
a manual OPTIMIZE makes larger ones.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delvec_kernel.table_properties import AUTO_COMPACT_MIN_FILES
from delvec_maintenance.compaction import Bin, CompactionRules, pack, partition_numbers, target_file_size

__all__ = ["MAX_PARTITIONS", "choose", "is_asked_for", "touched_partitions"]

MAX_PARTITIONS: Final = 128
"""Maximum partitions considered by one compaction, like delta-spark's ``maxNumModifiedPartitions``."""

_ENABLED_VALUES: Final = ("true", "auto", "legacy")
_FILE_SIZE: Final = 128 << 20

Partition = Mapping[str, str | None]
"""Partition values as in the log, by physical name; empty for an unpartitioned table."""


def is_asked_for(configuration: Mapping[str, str]) -> bool:
    """Whether table properties enable auto compaction."""
    return configuration.get("delta.autoOptimize.autoCompact", "").strip().lower() in _ENABLED_VALUES


def touched_partitions(partitions: Iterable[Partition]) -> list[dict[str, str | None]]:
    """Return the distinct partitions of new files, up to MAX_PARTITIONS."""
    found: dict[tuple[tuple[str, str | None], ...], dict[str, str | None]] = {}
    for each in partitions:
        found.setdefault(tuple(sorted(each.items())), dict(each))
        if len(found) == MAX_PARTITIONS:
            break
    return list(found.values())


def choose(
    files: pa.Table,
    partition_keys: Sequence[str],
    configuration: Mapping[str, str],
    partitions: Sequence[Partition],
) -> tuple[CompactionRules, list[Bin]]:
    """Return the files of these partitions to compact; no bins if there are too few small files.

    Args:
        files: live files, as for :func:`~delvec_maintenance.compaction.pack`, with ``tags``.
        partition_keys: the physical names of the partition columns.
        configuration: table properties.
        partitions: those with new files.
    """
    size = min(target_file_size(configuration) or _FILE_SIZE, _FILE_SIZE)
    # Leave deleted rows to a manual or policy-driven OPTIMIZE, or each DELETE could rewrite a large file.
    rules = CompactionRules(size, max_deleted_ratio=1.0)
    if not files.num_rows or not partitions:
        return rules, []
    small = np.asarray(pc.less(files["size"], size // 2))
    here = np.flatnonzero(small & _in_partitions(files, partition_keys, partitions))
    if not len(here):
        return rules, []
    numbers = partition_numbers(files.take(pa.array(here)), partition_keys)
    _, places, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    here = here[counts[places] >= AUTO_COMPACT_MIN_FILES.of(configuration)]
    bins = pack(files.take(pa.array(here)), partition_keys, rules)
    return rules, [Bin(here[each.files], each.size, each.live_size) for each in bins]


def _in_partitions(
    files: pa.Table, partition_keys: Sequence[str], partitions: Sequence[Partition]
) -> npt.NDArray[np.bool_]:
    values = {
        key: pc.map_lookup(files["partition_values"], key, "first").combine_chunks() for key in partition_keys
    }
    is_in_partition = np.zeros(files.num_rows, np.bool_)
    for partition in partitions:
        same = np.ones(files.num_rows, np.bool_)
        for key, column in values.items():
            partition_value = partition.get(key)
            is_it = (
                pc.is_null(column)
                if partition_value is None
                else pc.fill_null(pc.equal(column, partition_value), False)
            )
            same &= np.asarray(is_it)
        is_in_partition |= same
    return is_in_partition
