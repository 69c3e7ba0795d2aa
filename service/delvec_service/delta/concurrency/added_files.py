"""Whether files that a winner added can hold rows of our predicate."""

from collections.abc import Sequence

import pyarrow as pa

from delvec.protocol.errors import CorruptLog
from delvec_service.delta.actions import AddFile
from delvec_service.delta.concurrency.ours import Ours
from delvec_service.delta.segments.files import TEXT_MAP, num_records_from_stats
from delvec_service.delta.skipping.truth import prune

__all__ = ["that_may_match"]


def that_may_match(ours: Ours, files: Sequence[AddFile]) -> list[AddFile]:
    """Return those of ``files`` that may hold rows of our predicate, by partition values and statistics.

    All of them, where there is no predicate that tells: none was given, or not one that can be understood, or what
    the files say of themselves cannot be.
    """
    predicate = ours.predicate
    if predicate is None or not files:
        return list(files)
    stats = pa.array([file.stats for file in files], pa.string())
    table = pa.table(
        {
            "partition_values": pa.array([list(file.partition_values.items()) for file in files], TEXT_MAP),
            "stats": stats,
            "num_records": num_records_from_stats(stats),
        }
    )
    try:
        pruned = prune(table, predicate, ours.facts.schema, ours.facts.metadata.partition_columns)
    except CorruptLog:
        return list(files)
    return [file for file, may in zip(files, pruned.may_match.to_pylist(), strict=True) if may]
