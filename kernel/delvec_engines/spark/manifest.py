"""Manifests: lists of files for Spark to read, so that it does not list directories.

A manifest is a directory in the format of Spark's streaming file sink: ``_spark_metadata/0`` lists
the files, and Spark reads the listed files, wherever they are. Only the driver reads the list.

By itself this fails open, so three measures make it fail closed:

- A manifest is written once, under a unique name, and deleted as a whole.
- If Spark does not see the list, because the session ignores such lists or because it is damaged, it would read
  the directory itself and find no rows. So the directory contains a *guard*, an invalid Parquet file, on which
  every such read fails.
- A listed size of 0 would read as no rows and is refused.

The list also numbers the files. Spark passes the modification time of a listed file on to its rows unchanged, as
``_metadata.file_modification_time``, and does not compare it with the file. So milliseconds since the epoch are
used as the file number: each row identifies its file by an integer, regardless of the spelling of its path. Multiples of
1000 are not used: if a time is ever rounded to seconds, it matches no file, and the query fails.

Tested in `tests/integration/spark/test_spark_scan.py`.
"""

import atexit
import itertools
import shutil
import tempfile
import threading
import time
import uuid
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import obstore
import pyarrow as pa
import pyarrow.compute as pc
from obstore.exceptions import BaseError

from delvec_engines.protocol import mark
from delvec_engines.scan import Scan
from delvec_errors import CorruptTable, DelvecError, EngineUnavailable
from delvec_kernel.locations import canonical_log_paths, local_path
from delvec_storage import files as storage

__all__ = ["GUARD", "UNUSED_MULTIPLE", "ManifestStore", "file_numbers", "hadoop_path"]

GUARD: Final = "spark-ignored-the-list-of-files.parquet"
"""Name of the guard file, on which every read without the list fails."""

UNUSED_MULTIPLE: Final = 1000
"""Multiples of this are not used as file numbers."""

_GUARD_TEXT: Final = (
    b"This is no Parquet file. A query that fails here did not see the list of files beside it; "
    b"see spark.sql.streaming.fileStreamSink.ignoreMetadata.\n"
)
_LIST: Final = "_spark_metadata/0"
_SCANS: Final = "_delvec/scans"
_MAX_AGE_SECONDS: Final = 7 * 24 * 3600


def file_numbers(count: int) -> list[int]:
    """Return the numbers of a scan's ``count`` files, ascending; none is a multiple of UNUSED_MULTIPLE."""
    return list(itertools.islice((n for n in itertools.count(1) if n % UNUSED_MULTIPLE), count))


def _lines(scan: Scan, numbers: list[int]) -> pa.StringArray:
    """Return one JSON object per file. Canonical URLs need no JSON escapes."""
    files = scan.files
    bad = files.filter(pc.fill_null(pc.less_equal(files["size"], 0), fill_value=True))
    if bad.num_rows:
        path = bad["path"][0].as_py()
        raise CorruptTable(
            f"The log of table '{scan.name}', version {scan.version}, has no size for file '{path}', so Spark would "
            "read no rows from it; repair the log entry, or read the table with DuckDB",
            table=scan.name,
            version=scan.version,
            file=path,
        )
    paths = canonical_log_paths(files["path"].combine_chunks(), scan.location)
    # Only absolute URLs contain a colon; in relative paths it is percent-encoded.
    inside = pc.binary_join_element_wise(scan.location, paths, "/")
    urls = pc.if_else(pc.match_substring(paths, ":"), paths, inside)
    urls = pc.replace_substring_regex(urls, "^s3://", "s3a://")
    return pc.binary_join_element_wise(
        '{"path":"',
        urls,
        '","size":',
        files["size"].combine_chunks().cast(pa.string()),
        ',"isDir":false,"modificationTime":',
        pa.array(numbers, pa.int64()).cast(pa.string()),
        ',"blockReplication":1,"blockSize":134217728,"action":"add"}',
        "",
    )


class ManifestStore:
    """Writes the manifests of one session.

    Args:
        in_table: write under the table's location, because the driver runs elsewhere (Spark Connect) or cannot read
            this machine's temporary files. Otherwise write to a temporary directory of this process.
    """

    def __init__(self, *, in_table: bool) -> None:
        self._in_table = in_table
        self._swept: set[str] = set()

    def write(self, scan: Scan, numbers: list[int]) -> str:
        """Write the manifest of a scan's files; return the path for Spark to read.

        Raises:
            CorruptTable: the log has no size for a file.
            UnusableFile: a file is not a regular file.
            EngineUnavailable: only this process can read the table's storage.
            StorageError: storage did not answer.
        """
        if scan.location.startswith("memory:"):
            raise EngineUnavailable(
                f"Table '{scan.name}' is in the memory of one process, where Spark cannot read it; use DuckDB",
                table=scan.name,
            )
        paths = scan.files["path"].to_pylist()
        scan.roots.check_files(scan.location, paths, table=scan.name, version=scan.version)
        if not self._in_table:  # the driver may run where the files are not
            storage.check_regular(scan.location, paths, is_allowed=scan.roots.allows)
        content = "\n".join(["v1", *_lines(scan, numbers).to_pylist()]).encode()
        # The time is for the clean-up; the marker at the end shows in a frame's plan which version it reads.
        name = "-".join(filter(None, (f"{int(time.time())}-{uuid.uuid4()}", mark(scan))))
        if not self._in_table:
            return _temporary.write(name, content)
        if scan.location not in self._swept:
            self._swept.add(scan.location)
            _sweep(scan.location)
        root = f"{_SCANS}/{name}"
        storage.write_file(scan.location, f"{root}/{GUARD}", _GUARD_TEXT)
        storage.write_file(scan.location, f"{root}/{_LIST}", content)
        return hadoop_path(f"{scan.location}/{root}")


def hadoop_path(url: str) -> str:
    """Return a canonical URL as a Hadoop path: not percent-encoded, with Hadoop's scheme."""
    scheme, rest = url.split("://", 1)
    authority, slash, path = rest.partition("/")
    return f"{'s3a' if scheme == 's3' else scheme}://{authority}{slash}{unquote(path)}"


class _TemporaryManifests:
    """Manifests on this machine, removed when the process ends, or after a week.

    Classic Spark reads a manifest once, when a DataFrame is created, so a week is plenty.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._root: Path | None = None
        self._written: deque[tuple[float, Path]] = deque()

    def write(self, name: str, content: bytes) -> str:
        now = time.monotonic()
        with self._lock:
            if self._root is None:
                self._root = Path(tempfile.mkdtemp(prefix="delvec-scans-"))
                atexit.register(shutil.rmtree, self._root, ignore_errors=True)
            directory = self._root / name
            while self._written and self._written[0][0] < now - _MAX_AGE_SECONDS:
                _remove_local(self._written.popleft()[1])
            self._written.append((now, directory))
        (directory / _LIST).parent.mkdir(parents=True)
        (directory / GUARD).write_bytes(_GUARD_TEXT)
        (directory / _LIST).write_bytes(content)
        return f"file://{directory}"


_temporary: Final = _TemporaryManifests()


def _remove_local(directory: Path) -> None:
    # Rename first: without its list, but with the list's folder, the directory would read as empty.
    with suppress(OSError):
        shutil.rmtree(directory.rename(directory.with_name(f".{directory.name}.removed")))


def _sweep(location: str) -> None:
    """Remove manifests in the table that are too old to be in use."""
    oldest = time.time() - _MAX_AGE_SECONDS
    with suppress(OSError, DelvecError, BaseError):
        if local_path(location) is not None:
            storage.remove_directories(location, _SCANS, lambda name: _is_older(name, oldest))
            return
        store = storage.store_for(location)
        for prefix in obstore.list_with_delimiter(store, f"{_SCANS}/")["common_prefixes"]:
            if _is_older(prefix.rstrip("/").rpartition("/")[2], oldest):
                paths = [meta["path"] for page in obstore.list(store, prefix) for meta in page]
                # Delete the guard last: until then, readers fail instead of finding no rows.
                obstore.delete(store, [path for path in paths if not path.endswith(GUARD)])
                obstore.delete(store, [path for path in paths if path.endswith(GUARD)])


def _is_older(name: str, oldest: float) -> bool:
    written = name.partition("-")[0]
    return written.isdigit() and int(written) < oldest
