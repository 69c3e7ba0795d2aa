"""Names of data files in DuckDB's SQL.

Tested in `tests/integration/client/engines/duckdb/test_scan.py`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from delvec_engines.duckdb.lookup import string_literal
from delvec_engines.file_schemas import FileEnds
from delvec_kernel.locations import is_plain_relative, local_name
from delvec_kernel.schema.types import StructType, has_geospatial, has_variant
from delvec_storage import files as storage
from delvec_storage.roots import Roots

__all__ = [
    "FILE_ENDS",
    "PROTOCOL",
    "StorageFileName",
    "as_pattern",
    "file_list",
    "file_names",
    "is_remote",
    "read_as_bytes",
]

PROTOCOL: Final = "delvec"
FILE_ENDS: Final = FileEnds()
"""Of files whose schemas have been read, and which DuckDB has not read yet."""
_PREFIX: Final = f"{PROTOCOL}://"
_AS_BYTES: Final = "bytes "
_GLOB: Final = re.compile(r"[*?[]")


@dataclass(frozen=True, slots=True)
class StorageFileName:
    """A file that DuckDB reads through Delvec's storage; its name encodes all attributes.

    Attributes:
        location: the table's canonical location.
        path: the path, as in the log.
        size: bytes, as in the log.
        modification_time: milliseconds since the epoch, as in the log.
        as_bytes: whether DuckDB reads variants and geospatial values as plain binary columns, see
            :mod:`delvec_parquet.variant_footer`.
    """

    location: str
    path: str
    size: int
    modification_time: int
    as_bytes: bool = False

    @property
    def name(self) -> str:
        """The name in DuckDB's SQL. The location is a URL and has no spaces."""
        marked = _AS_BYTES if self.as_bytes else ""
        return f"{_PREFIX}{marked}{self.size} {self.modification_time} {self.location} {self.path}"

    @classmethod
    def parse(cls, name: str) -> "StorageFileName":
        """Return the file of that name."""
        text = name.removeprefix(_PREFIX)
        plain = text.removeprefix(_AS_BYTES)
        size, modified, location, path = plain.split(" ", 3)
        return cls(location, path, int(size), int(modified), as_bytes=plain != text)


def is_remote(name: str) -> bool:
    """Whether a name is that of a :class:`StorageFileName`; local paths are absolute."""
    return name.startswith(_PREFIX)


def read_as_bytes(schema: StructType) -> bool:
    """Whether a schema has types whose bytes DuckDB would convert: variants and geospatial types."""
    return has_variant(schema) or has_geospatial(schema)


def file_names(location: str, files: pa.Table, roots: Roots, *, as_bytes: bool = False) -> list[str]:
    """Return the names of a scan's files: plain local paths, or :class:`StorageFileName`.

    Args:
        location: the table's canonical location.
        files: the part of ``Scan.files``.
        roots: allowed locations of files.
        as_bytes: the result of :func:`read_as_bytes` for the columns read.

    Raises:
        UnusableFile: one is not a regular file.
        LocationNotAllowed: one is outside the roots.
    """
    storage.check_regular(location, files["path"].to_pylist(), is_allowed=roots.allows)
    columns = (files[name].to_pylist() for name in ("path", "size", "modification_time"))
    directory = None if as_bytes else local_name(location)
    names: list[str] = []
    for path, size, modification_time in zip(*columns, strict=True):
        if directory is not None and is_plain_relative(path):
            names.append(f"{directory}/{path}")  # as below, without a Path for each of up to a million files
            continue
        local = storage.locate(location, path, is_allowed=roots.allows).local
        if local is not None and not as_bytes:
            names.append(str(local))
        else:
            names.append(StorageFileName(location, path, size, modification_time, as_bytes).name)
    return names


def as_pattern(name: str) -> str:
    """Escape a name as a glob pattern, since DuckDB treats every path as one."""
    return _GLOB.sub(r"[\g<0>]", name)


def file_list(names: Iterable[str]) -> str:
    """Return names as a list argument for DuckDB's Parquet table functions."""
    return "[" + ", ".join(string_literal(as_pattern(name)) for name in names) + "]"
