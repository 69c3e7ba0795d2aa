"""The invariants between a file's deletion vector and its statistics (PROTOCOL.md, "Per-file Statistics")."""

import json
from collections.abc import Iterator

from delvec.protocol import statistics
from delvec.protocol.deletion_vector import Descriptor
from delvec.protocol.errors import CorruptLog, CorruptTable
from delvec_service.delta.invariants.finding import Finding

__all__ = ["vector_findings"]

_BOUNDS = ("minValues", "maxValues")


def vector_findings(version: int, path: str, stats: str | None, vector: Descriptor) -> Iterator[Finding]:
    """Say what is wrong with the statistics of a file that has a deletion vector."""
    where = f"File '{path}' of version {version}"
    try:
        count = None if stats is None else statistics.num_records(stats)
    except (CorruptLog, CorruptTable):
        count = None
    if count is None:
        yield Finding(
            "vector-needs-count",
            "error",
            version,
            path,
            f"{where} has a deletion vector and no numRecords in its statistics; rewrite it with OPTIMIZE.",
        )
    elif vector.cardinality > count:
        yield Finding(
            "vector-within-file",
            "error",
            version,
            path,
            f"{where} has {count} rows, and a deletion vector of {vector.cardinality}; restore the table to a "
            "version before.",
        )
    if stats is not None and _claims_tight_bounds(stats):
        yield Finding(
            "vector-loosens-bounds",
            "warning",
            version,
            path,
            f"{where} has a deletion vector, and statistics that do not say tightBounds=false: an engine that "
            "answers MIN and MAX from them may be wrong; rewrite the file with OPTIMIZE.",
        )


def _claims_tight_bounds(stats: str) -> bool:
    try:
        document = json.loads(stats)
    except (ValueError, RecursionError):
        return False
    if not isinstance(document, dict) or document.get("tightBounds") is False:
        return False
    return any(document.get(name) for name in _BOUNDS)
