"""The rows that a command has found, with bounded memory.

The bitmaps of a DELETE may exceed the memory of the committing process: 100 million scattered rows take 200 MB. Above a
limit, the rows of a file are written as its deletion vector at once, and only the descriptor is kept.

Tested in `tests/integration/client/dml/test_found_rows.py`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pyroaring import BitMap64

from delvec_engines.dv_files import SENT_BYTES, DeletionVectorFiles
from delvec_engines.scan import Scan
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, serialize_bitmap
from delvec_storage.files import read_deletion_vectors

__all__ = ["FoundRows", "RowCollector", "serialized_bytes"]

_BYTES_PER_ROW: Final = 2
"""Maximum bytes per row in a bitmap, apart from the header of each non-empty block of 65,536 rows."""


class FoundRows(Mapping[str, BitMap64]):
    """Row indexes by path.

    Args:
        scan: the files.
        held: bitmaps in memory.
        written: deletion vectors, including the rows already deleted in the scan's version. They are read on
            access.

    Attributes:
        written: as given.
    """

    def __init__(
        self,
        scan: Scan,
        held: Mapping[str, BitMap64],
        written: Mapping[str, Descriptor] | None = None,
    ) -> None:
        self._scan = scan
        self._held = held
        self.written = dict(written or {})

    def __getitem__(self, path: str) -> BitMap64:
        if path not in self.written:
            return self._held[path]
        return _read(self._scan, path, self.written[path])

    def __iter__(self) -> Iterator[str]:
        yield from self._held
        yield from self.written

    def __len__(self) -> int:
        return len(self._held) + len(self.written)


class RowCollector:
    """Collects rows file by file; writes deletion vectors if they exceed what a commit request can hold.

    Args:
        scan: the files.
        dv_files: target for deletion vectors; None keeps all rows in memory.
        max_bytes: maximum bytes of bitmaps in memory.
    """

    def __init__(
        self, scan: Scan, dv_files: DeletionVectorFiles | None = None, max_bytes: int = SENT_BYTES
    ) -> None:
        self._scan = scan
        self._dv_files = dv_files
        self._max_bytes = max_bytes
        self._held: dict[str, BitMap64] = {}
        self._written: dict[str, Descriptor] = {}
        self._room = max_bytes

    def add(self, path: str, rows: BitMap64) -> None:
        """Add rows of a file; fastest if the rows of one file come together."""
        self._room -= _BYTES_PER_ROW * len(rows)
        if path in self._held:
            self._held[path] |= rows
        else:
            if path in self._written:
                rows |= _read(self._scan, path, self._written.pop(path))
            self._held[path] = rows
        if self._dv_files is not None and self._room < 0:
            # Keep the latest file, which is likely to get more rows.
            self._make_room(self._dv_files, [each for each in self._held if each != path])

    def found(self) -> FoundRows:
        """Return the rows."""
        for rows in self._held.values():
            rows.run_optimize()
        return FoundRows(self._scan, self._held, self._written)

    def _make_room(self, dv_files: DeletionVectorFiles, paths: list[str]) -> None:
        if serialized_bytes(self._held.values()) > self._max_bytes and paths:
            self._write(dv_files, paths)
        held = serialized_bytes(self._held.values())
        # Not 0 even if the current file, which stays in memory, fills the limit: sizing after each batch takes time.
        self._room = max(self._max_bytes - held, self._max_bytes // 4)

    def _write(self, dv_files: DeletionVectorFiles, paths: list[str]) -> None:
        for part in self._scan.only(paths).parts(self._max_bytes):
            before = part.deletion_vectors if part.has_deletion_vectors else {}
            complete: dict[str, BitMap64] = {}
            columns = (part.files[name].to_pylist() for name in ("path", "num_records"))
            for path, total in zip(*columns, strict=True):
                rows = self._held[path] | before.get(path, BitMap64())
                if len(rows) == total:
                    self._held[path] = rows  # tiny: the whole file is deleted
                else:
                    complete[path] = rows
            self._written |= dv_files.write(complete)
            for path in complete:
                del self._held[path]


def serialized_bytes(bitmaps: Iterable[BitMap64]) -> int:
    """Return the serialized size of bitmaps in bytes."""
    return sum(len(serialize_bitmap(rows)) for rows in bitmaps)


def _read(scan: Scan, path: str, written: Descriptor) -> BitMap64:
    found = read_deletion_vectors(
        scan.location, [(path, written)], table=scan.name, version=scan.version, is_allowed=scan.roots.allows
    )
    return found[path]
