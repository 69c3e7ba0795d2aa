"""Manifests in Hive's symlink format: a table's data files, for readers without Delta support.

As written by delta-spark: ``_symlink_format_manifest[/column=value]/manifest``, with one file URI per line. Such readers
support neither deletion vectors nor column mapping, so tables with either have no manifests.

Tested in `tests/integration/client/test_symlink_manifests.py`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from delvec_errors import CorruptLog, ManifestUnsupported
from delvec_kernel.actions.actions import Action, AddFile, Metadata, RemoveFile
from delvec_kernel.locations import canonical_log_paths, canonical_relative, resolve
from delvec_kernel.schema.column_mapping import is_mapped
from delvec_kernel.schema.partition_values import HIVE_DEFAULT_PARTITION, partition_path
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.table_properties import SYMLINK_MANIFESTS, is_true

__all__ = ["MANIFESTS", "Manifest", "are_kept_fresh", "check_manifests", "directories", "manifests"]

MANIFESTS: Final = "_symlink_format_manifest"
"""The table's directory of manifests."""


@dataclass(frozen=True)
class Manifest:
    """One manifest.

    Attributes:
        directory: the directory of its partition below :data:`MANIFESTS`, URL-encoded; empty for an unpartitioned table.
        paths: the paths of the data files, as in the log.
    """

    directory: str
    paths: pa.Array

    def text(self, location: str) -> bytes:
        """Return the content of the manifest file.

        Raises:
            CorruptLog: a path is invalid, or contains a line break.
            LocationNotAllowed: a path leads out of the table.
        """
        keys = canonical_log_paths(self.paths, location)
        uris = pc.binary_join_element_wise(_uri(location), keys, "/")
        unusual = pc.or_(pc.match_substring(keys, "%"), pc.match_substring(keys, "://"))
        if pc.any(unusual).as_py():
            others = [_uri(resolve(location, path)) for path in keys.filter(unusual).to_pylist()]
            uris = pc.replace_with_mask(uris, unusual, pa.array(others, pa.string()))
        return "".join(f"{uri}\n" for uri in uris.to_pylist()).encode()


def are_kept_fresh(configuration: Mapping[str, str]) -> bool:
    """Whether each commit should update the manifests."""
    return is_true(configuration, SYMLINK_MANIFESTS)


def check_manifests(snapshot: Snapshot, table: str) -> None:
    """Reject a version whose rows a list of files cannot represent.

    Raises:
        ManifestUnsupported: a file has a deletion vector, or column mapping is enabled.
    """
    facts = {"table": table, "version": snapshot.version}
    count = snapshot.num_deletion_vectors
    if count:
        raise ManifestUnsupported(
            f"No manifest can be written for table '{table}' (version {snapshot.version}): {count} of its "
            f"files {'has a deletion vector' if count == 1 else 'have deletion vectors'}, which readers of "
            f"manifests do not support, so they would return deleted rows. Run REORG TABLE {table} APPLY "
            "(PURGE) first.",
            deletion_vectors=count,
            **facts,
        )
    if is_mapped(snapshot.configuration):
        raise ManifestUnsupported(
            f"No manifest can be written for table '{table}' (version {snapshot.version}): it has column "
            "mapping, and readers of manifests do not know the physical column names in its files.",
            **facts,
        )


def manifests(snapshot: Snapshot, table: str, *, among: Collection[str] | None = None) -> Iterator[Manifest]:
    """Yield the manifests of a version, one per partition; an empty unpartitioned table has an empty one.

    Args:
        snapshot: the snapshot of the version.
        table: the table's name, for errors.
        among: directories to include (:attr:`Manifest.directory`); None for all.

    Raises:
        ManifestUnsupported: see :func:`check_manifests`.
        SegmentsLost: the store lost segments; reload the snapshot.
    """
    check_manifests(snapshot, table)
    names = snapshot.partition_columns
    files = snapshot.live.columns(["path", "partition_values"])
    if not names:
        if among is None or "" in among:
            yield Manifest("", files["path"].combine_chunks())
        return
    values = files["partition_values"].combine_chunks()
    columns = {str(number): pc.map_lookup(values, name, "first") for number, name in enumerate(names)}
    # In Hive's directories, the empty string is null, and so is the name for null.
    nulls = pa.array(["", HIVE_DEFAULT_PARTITION])
    columns = {
        key: pc.if_else(pc.is_in(column, value_set=nulls), None, column) for key, column in columns.items()
    }
    grouped = (
        pa.table({**columns, "path": files["path"]}).group_by(list(columns)).aggregate([("path", "list")])
    )
    paths = grouped["path_list"].combine_chunks()
    for row, texts in enumerate(zip(*(grouped[key].to_pylist() for key in columns), strict=True)):
        directory = _directory(dict(zip(names, texts, strict=True)))
        if among is None or directory in among:
            yield Manifest(directory, paths[row].values)


def directories(actions: Iterable[Action], partition_columns: Collection[str]) -> set[str] | None:
    """Return the directories whose manifests a commit changes; None if it may be all of them.

    Args:
        actions: the actions of the commit.
        partition_columns: the partition columns of the table, in order.
    """
    changed_directories: set[str] = set()
    for action in actions:
        if isinstance(action, Metadata):
            return None
        if isinstance(action, AddFile | RemoveFile):
            if action.partition_values is None:
                return None
            values = {name: action.partition_values.get(name) for name in partition_columns}
            changed_directories.add(_directory(values))
    return changed_directories


def _directory(values: Mapping[str, str | None]) -> str:
    return canonical_relative(partition_path(values))


def _uri(url: str) -> str:
    """Return a canonical URL as Hadoop's Path prints it: ``file:/x``, without encoding."""
    scheme, rest = url.split("://", 1)
    decoded = unquote(rest)
    if "\n" in decoded or "\r" in decoded:
        raise CorruptLog(
            f"The file {url!r} has a line break in its name, so no manifest can list it.", file=url
        )
    return f"file:{decoded}" if scheme == "file" else f"{scheme}://{decoded}"
