"""The files that a table references, which VACUUM must keep."""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from delvec_errors import CorruptDeletionVector
from delvec_kernel.actions.actions import Action, AddFile, Cdc, RemoveFile
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.file_index.file_rows import DELETION_VECTOR
from delvec_kernel.locations import canonical_log_path, canonical_log_paths, canonical_relative

__all__ = ["References", "removed_files"]

_ON_DISK: Final = ("u", "p")
_Hashes = npt.NDArray[np.uint64]


class References:
    """The referenced files of any number of versions, at a few bytes of memory each.

    Paths are stored as hashes. If two paths share a hash, an unreferenced file is kept, too.

    Args:
        location: the table's canonical location, against which relative paths are resolved.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._known: _Hashes = np.empty(0, np.uint64)
        self._added: list[_Hashes] = []
        self._names: set[str] = set()

    def add_paths(self, paths: pa.Array) -> None:
        """Add files by path, as in a log.

        Raises:
            LocationNotAllowed: a path leads out of the table.
            InvalidLocation: an absolute path has an unknown scheme.
            CorruptLog: a path is invalid.
        """
        keys = canonical_log_paths(paths, self._location).drop_null()
        self._added.append(_hashed(keys))
        # Different URLs can refer to the same file (a link, another name of a container), so a file with a foreign URL may
        # be in this table. Keep files with its name.
        outside = keys.filter(pc.match_substring(keys, "://"))
        self._names.update(path.rpartition("/")[2] for path in outside.to_pylist())
        # Some writers do not encode paths, so that % is part of the file name.
        escaped = paths.drop_null()
        escaped = escaped.filter(pc.match_substring(escaped, "%"))
        if len(escaped):
            self._added.append(_hashed(pa.array(map(canonical_relative, escaped.to_pylist()), pa.string())))

    def add_vectors(self, vectors: pa.StructArray) -> None:
        """Add the files of deletion vectors, each of which may contain those of many data files.

        Args:
            vectors: descriptors, null for none.

        Raises:
            CorruptDeletionVector: a descriptor names no file, so nothing can be deleted safely.
            DelvecError: see :meth:`add_paths`.
        """
        if vectors.null_count == len(vectors):
            return
        kinds, texts = vectors.drop_null().flatten()[:2]
        known = pc.is_in(kinds, value_set=pa.array([*_ON_DISK, "i"]))
        if not pc.all(pc.and_(known, pc.is_valid(texts)), min_count=0).as_py():
            raise CorruptDeletionVector(
                f"A deletion vector of the table at {self._location} has no path or an unknown storage "
                "type, so Delvec cannot tell which file it needs; run VACUUM with software that supports "
                "it."
            )
        for kind in _ON_DISK:
            found = pc.unique(texts.filter(pc.equal(kinds, kind)))
            if kind == "u":
                found = pa.array(map(_relative_path, found.to_pylist()), pa.string())
            self.add_paths(found)

    def add_files(self, batches: Iterable[pa.RecordBatch], vector: str) -> None:
        """Add data files and their deletion vectors.

        Args:
            batches: with a column ``path``.
            vector: the name of the descriptor column.

        Raises:
            DelvecError: see :meth:`add_paths` and :meth:`add_vectors`.
        """
        for batch in batches:
            self.add_paths(batch.column("path"))
            self.add_vectors(batch.column(vector))

    def add_actions(self, actions: Iterable[Action]) -> None:
        """Add the files in a commit's add, remove and cdc actions.

        Raises:
            DelvecError: see :meth:`add_paths` and :meth:`add_vectors`.
        """
        files = [action for action in actions if isinstance(action, AddFile | RemoveFile | Cdc)]
        vectors = [None if isinstance(action, Cdc) else action.deletion_vector for action in files]
        described = [None if vector is None else vector.to_json() for vector in vectors]
        self.add_paths(pa.array([action.path for action in files], pa.string()))
        self.add_vectors(pa.array(described, DELETION_VECTOR))

    def has(self, paths: pa.Array) -> npt.NDArray[np.bool_]:
        """Return a mask of the canonical paths, relative to the table, that are referenced."""
        hashes = _hashed(paths)
        sorted_hashes = self._sorted()
        if not len(sorted_hashes):
            is_referenced = np.zeros(len(hashes), np.bool_)
        else:
            at = np.minimum(np.searchsorted(sorted_hashes, hashes), len(sorted_hashes) - 1)
            is_referenced = sorted_hashes[at] == hashes
        if self._names:
            names = (path.rpartition("/")[2] in self._names for path in paths.to_pylist())
            is_referenced |= np.fromiter(names, np.bool_, len(paths))
        return is_referenced

    def _sorted(self) -> _Hashes:
        if self._added:
            self._known = np.unique(np.concatenate([self._known, *self._added]))
            self._added = []
        return self._known


def removed_files(actions: Iterable[Action], location: str) -> dict[str, int]:
    """Return the files inside the table in a commit's removes, their deletion vectors, and cdc actions.

    Args:
        actions: the actions of the commit.
        location: the table's canonical location.

    Returns:
        Size in bytes by canonical path, 0 if unknown.

    Raises:
        CorruptDeletionVector: a descriptor names no file.
        DelvecError: see :meth:`References.add_paths`.
    """
    sizes_by_path: dict[str, int] = {}
    for action in actions:
        if isinstance(action, RemoveFile | Cdc):
            sizes_by_path[canonical_log_path(action.path, location)] = action.size or 0
        vector = action.deletion_vector if isinstance(action, RemoveFile) else None
        if vector is not None and not vector.is_inline:
            path = vector.relative_path() or vector.path_or_inline_dv
            key = canonical_log_path(path, location)
            sizes_by_path[key] = max(vector.size_in_bytes, sizes_by_path.get(key, 0))
    return {path: size for path, size in sizes_by_path.items() if "://" not in path}


def _hashed(paths: pa.Array) -> _Hashes:
    keys: list[Any] = paths.cast(pa.binary()).to_pylist()
    return np.fromiter(map(xxhash.xxh3_64_intdigest, keys), np.uint64, len(keys))


def _relative_path(text: str) -> str | None:
    return Descriptor("u", text, 1, 1, 1).relative_path()
