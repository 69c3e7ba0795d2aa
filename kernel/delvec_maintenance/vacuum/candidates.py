"""Selects the files that a VACUUM may delete, and checks them again right before deletion.

Pure: listings, references and times are arguments, so that the rules can be tested without storage.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from delvec_errors import DelvecError, LocationNotAllowed
from delvec_kernel.locations import canonical_log_paths
from delvec_maintenance.vacuum.references import References

__all__ = ["given_paths", "old_and_unreferenced", "outside", "unreferenced", "visible"]

_METADATA: Final = "metadata"
"""The directory of the table's Iceberg metadata, which delta-spark also leaves alone."""


def old_and_unreferenced(
    batches: Iterable[pa.RecordBatch], references: References, before: int
) -> Iterator[pa.RecordBatch]:
    """Yield unreferenced files written before a given time.

    Args:
        batches: with ``path``, canonical, and ``modified`` in milliseconds since the epoch.
        references: references of the table.
        before: milliseconds since the epoch, by the storage's clock.
    """
    for batch in batches:
        old = batch.filter(pc.less(batch.column("modified"), before))
        if old.num_rows:
            yield old.filter(pa.array(~references.has(old.column("path"))))


def unreferenced(paths: pa.Array, kept: References) -> pa.Array:
    """Return the unreferenced ones of these canonical paths, for a last check before deletion."""
    return paths.filter(pa.array(~kept.has(paths)))


def outside(files: pa.Table, shielded: Collection[str]) -> pa.Table:
    """Return the files, with ``path``, that are not, and are not inside, any of these paths."""
    for path in shielded:
        inside = pc.or_(pc.equal(files["path"], path), pc.starts_with(files["path"], f"{path}/"))
        files = files.filter(pc.invert(inside))
    return files


def visible(paths: Iterable[str], is_hidden: Callable[[str], bool]) -> list[str]:
    """Return the paths without hidden parts and outside Iceberg's metadata, without duplicates, in order."""
    found = sorted({path for path in paths if path.partition("/")[0] != _METADATA})
    return [path for path in found if not any(map(is_hidden, unquote(path).split("/")))]


def given_paths(paths: Collection[str], location: str) -> list[str]:
    """Return the canonical paths of files given as in a log, each of which must be inside the table.

    Args:
        paths: URL-encoded, relative to the table or absolute.
        location: the table's canonical location.

    Raises:
        LocationNotAllowed: a path is outside the table or invalid.
    """
    try:
        keys: list[str] = canonical_log_paths(pa.array(paths, pa.string()), location).to_pylist()
    except DelvecError as error:
        raise _elsewhere(str(error.details.get("file", "")), location) from error
    for path in keys:
        if "://" in path or not path:
            raise _elsewhere(path, location)
    return keys


def _elsewhere(path: str, location: str) -> LocationNotAllowed:
    return LocationNotAllowed(
        f"VACUUM of the table at {location} was given the file {path[:500]!r}, which is not in the table's "
        "directory, or is not written as in the log: URL-encoded, relative to the table, without '..'. "
        "Leave it out.",
        file=path[:500],
    )
