"""Whether a clustered table is worth optimizing: files that a lookup opens now, and estimated files afterwards."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from delvec_errors.texts import counted
from delvec_kernel.schema.column_paths import ColumnPath, path_text
from delvec_kernel.table_properties import byte_size_text
from delvec_maintenance.compaction import Bin, cube_numbers
from delvec_maintenance.health.health_findings import WORTHWHILE_FILES, FileTable, HealthFinding
from delvec_maintenance.health.overlap import Depths
from delvec_maintenance.zcubes import ZCubeRules, choose, files_to_come

__all__ = ["overlapping_files"]

OVERLAP_POINTS: Final = 20.0
_FULL_SHARE: Final = 0.5
"""The minimum share of opened files that OPTIMIZE FULL must save."""


def overlapping_files(
    table: FileTable, columns: Sequence[ColumnPath], column_depths: Sequence[Depths]
) -> HealthFinding | None:
    """Return the effect of OPTIMIZE on a clustered table if a lookup then opens at least ten files fewer.

    Considers plain OPTIMIZE (new files and small ZCubes) first. If that gains too little and there are many ZCubes,
    considers ``FULL``, if that halves the files that lookups open.

    Args:
        table: the live files.
        columns: the clustering columns.
        column_depths: the depths of the files in each column.
    """
    known_depths = [each for each in column_depths if each.average is not None]
    if not known_depths or table.keys:
        return None
    now = float(np.mean([each.average for each in known_depths]))
    if now < WORTHWHILE_FILES:
        return None
    rules = ZCubeRules(columns, is_clustering=True)
    for each in (rules, replace(rules, full=True)):
        bins = choose(table.files, table.keys, each)
        saved = now - _estimated_files_opened(table, bins, len(columns))
        if bins and saved >= max(WORTHWHILE_FILES, _FULL_SHARE * now if each.full else 0):
            return _finding(table, each, bins, known_depths, now, saved)
    return None


def _finding(
    table: FileTable,
    rules: ZCubeRules,
    bins: Sequence[Bin],
    known: Sequence[Depths],
    now: float,
    files_saved: float,
) -> HealthFinding:
    depth: npt.NDArray[np.float64] = np.mean([each.depth for each in known], axis=0)
    points = OVERLAP_POINTS * min(files_saved, len(table)) / len(table) * depth / max(depth.sum(), 1.0)
    cost, files = sum(each.size for each in bins), sum(len(each.files) for each in bins)
    names = ", ".join(path_text(path) for path in rules.columns)
    return HealthFinding(
        "overlapping-files",
        "OPTIMIZE FULL" if rules.full else "OPTIMIZE",
        float(points.sum()),
        f"A lookup by one of the clustering columns ({names}) opens {now:.1f} of {counted(len(table), 'file')} on "
        "average, because their ranges overlap.",
        f"A lookup would open about {max(1.0, now - files_saved):.0f} files instead of {now:.0f}. OPTIMIZE sorts "
        f"{counted(files, 'file')} and rewrites {byte_size_text(cost)}.",
        gain_bytes=None,
        gain_files=round(files_saved),
        cost_bytes=cost,
        num_files=files,
        files=table.trace(points, np.flatnonzero(points > 0)),
        per_file=points,
    )


def _estimated_files_opened(table: FileTable, bins: Sequence[Bin], columns: int) -> float:
    """Return the estimated number of files that a lookup by one column opens afterwards.

    A curve through k columns divides n files into a grid of n ** (1/k) ranges per column, so that a value of one column
    occurs in n ** ((k - 1)/k) files. Each ZCube is a separate grid.
    """
    left = np.ones(len(table), np.bool_)
    sizes: list[int] = []
    for each in bins:
        left[each.files] = False
        facts = table.files.select(["size", "num_records", "deletion_vector"])
        sizes.append(files_to_come(facts.take(pa.array(each.files)), table.target_size))
    cubes = np.bincount(cube_numbers(table.files)[left])
    counts = np.concatenate([cubes[cubes > 0], np.array(sizes, np.int64)])
    return float((counts ** ((columns - 1) / columns)).sum())
