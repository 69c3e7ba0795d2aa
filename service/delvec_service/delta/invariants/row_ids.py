"""The invariants of row tracking: each live file has ids of its own (PROTOCOL.md, "Row Tracking")."""

import json
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delvec_service.delta.features import writer_features
from delvec_service.delta.invariants.finding import Finding
from delvec_service.delta.snapshot import Snapshot

__all__ = ["row_id_findings"]

_MOST: Final = 20
_DOMAIN: Final = "delta.rowTracking"
_ADVICE: Final = "change feeds and incremental views that rest on row ids go wrong; rewrite both files"


def row_id_findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Say which live files share row ids, or have some above the high-water mark; 20 of each at most."""
    if "rowTracking" not in writer_features(snapshot.protocol):
        return
    files = snapshot.live.columns(["path", "num_records", "base_row_id"])
    files = files.filter(pc.and_(pc.is_valid(files["base_row_id"]), pc.is_valid(files["num_records"])))
    files = files.filter(pc.greater(files["num_records"], 0)).sort_by("base_row_id")
    if not files.num_rows:
        return
    first: npt.NDArray[np.int64] = files["base_row_id"].to_numpy()
    last = first + files["num_records"].to_numpy() - 1
    for place in np.flatnonzero(first[1:] <= last[:-1])[:_MOST].tolist():
        one, other = files["path"][place].as_py(), files["path"][place + 1].as_py()
        yield _finding(
            snapshot.version,
            other,
            f"File '{other}' of version {snapshot.version} has row ids from {first[place + 1]} on, and file "
            f"'{one}' has those up to {last[place]}: {_ADVICE}.",
        )
    mark = _high_water_mark(snapshot)
    if mark is None:
        yield _finding(
            snapshot.version,
            None,
            f"Version {snapshot.version} has files with row ids and no high-water mark in the domain {_DOMAIN}: the "
            "next writer may give ids twice; set it with the engine that enabled row tracking.",
        )
        return
    paths = files["path"].filter(pa.array(last > mark))
    for path in paths[:_MOST].to_pylist():
        yield _finding(
            snapshot.version,
            path,
            f"File '{path}' of version {snapshot.version} has row ids above the high-water mark {mark}: the next "
            "writer may give them again; raise the mark with the engine that enabled row tracking.",
        )


def _finding(version: int, path: str | None, message: str) -> Finding:
    return Finding("row-ids", "error", version, path, message)


def _high_water_mark(snapshot: Snapshot) -> int | None:
    domain = snapshot.domain_metadata.get(_DOMAIN)
    try:
        mark = None if domain is None else json.loads(domain.configuration)["rowIdHighWaterMark"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return mark if isinstance(mark, int) else None
