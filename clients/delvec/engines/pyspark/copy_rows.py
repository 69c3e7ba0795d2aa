"""Rows that stay where files are replaced: written again by executors, with the proof that none was missed."""

import json
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from delvec.engines.engine import WriteTarget
from delvec.engines.pyspark.scan import ScanFrames
from delvec.engines.pyspark.write import write_frame
from delvec.protocol.errors import CorruptTable
from delvec.protocol.wire import AddFile
from delvec.scan import Scan

__all__ = ["copy_rows", "num_records"]


def copy_rows(
    frames: ScanFrames, scan: Scan, gone: Mapping[str, BitMap64], target: WriteTarget
) -> list[AddFile]:
    """Write the live rows of the scan's files again, without those in ``gone``.

    Rows are not held against the table's constraints: they were when they were new.

    Args:
        frames: of the session.
        scan: the files.
        gone: by path; rows that the file's deletion vector holds already may be among them.
        target: the table as it will be.

    Raises:
        CorruptTable: the files do not have the rows that their statistics say.
        StorageError: storage did not answer.
    """
    absent = _absent_rows(scan, gone)
    rest = scan.filter(_keeps_rows(scan, absent))
    if not len(rest):
        return []
    adds = write_frame(frames.live(rest, scan.schema.names, deleted=absent), target)
    _check_all_read(rest, absent, sum(num_records(add) for add in adds))
    return adds


def num_records(add: AddFile) -> int:
    """Return the rows of a file that was just written."""
    return int(json.loads(add.stats or "{}")["numRecords"])


def _absent_rows(scan: Scan, gone: Mapping[str, BitMap64]) -> dict[str, BitMap64]:
    """Return all rows to leave out, of the files that have any: those that go, and those that went before."""
    absent = dict(scan.deletion_vectors)
    for path in scan.files["path"].to_pylist():
        if gone.get(path):
            absent[path] = absent[path] | gone[path] if path in absent else gone[path]
    return absent


def _keeps_rows(scan: Scan, absent: Mapping[str, BitMap64]) -> pa.Array:
    """Return which files keep a row, as far as statistics say."""
    deleted = [len(absent.get(path, ())) for path in scan.files["path"].to_pylist()]
    return pc.fill_null(pc.greater(scan.files["num_records"], pa.array(deleted, pa.int64())), fill_value=True)


def _check_all_read(scan: Scan, absent: Mapping[str, BitMap64], copied: int) -> None:
    """Prove that every row that stays was read, before files are removed for good."""
    numbers = scan.files["num_records"].to_pylist()
    if None in numbers:
        return
    expected = sum(numbers) - sum(len(absent.get(path, ())) for path in scan.files["path"].to_pylist())
    if expected != copied:
        raise CorruptTable(
            f"Rewriting {len(scan)} files of table '{scan.name}', version {scan.version}, copied {copied} rows, but "
            f"their statistics promise {expected}; nothing was committed",
            table=scan.name,
            version=scan.version,
        )
