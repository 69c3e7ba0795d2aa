"""Corrupt tables and invalid requests, and checks that must hold after each."""

import json
import os
import sqlite3
import struct
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import delvec
import delvec_errors as errors

ROWS = pa.table(
    {
        "id": pa.array(range(10), pa.int64()),
        "name": [f"n{number}" for number in range(10)],
        "part": ["a"] * 5 + ["b"] * 5,
    }
)
ODD_NAMES = ["a b", "50%25", "1+1", "k=v", "x[1]", "no#1", "é", "all %+=[]#é"]
"""Names of files on disk, percent signs and all."""


@dataclass
class Place:
    """A table on local disk and the service's records of it, viewed from outside."""

    folder: Path
    database: Path

    @property
    def log(self):
        return self.folder / "_delta_log"

    def connect(self):
        """Open a connection without cached state of the table."""
        return delvec.connect(database_url=f"sqlite:///{self.database}")

    def commit_file(self, version):
        return self.log / f"{version:020}.json"

    def actions(self, version):
        return [json.loads(line) for line in self.commit_file(version).read_text().splitlines()]

    def rewrite(self, version, change):
        """Rewrite a commit with ``change(action)`` applied to each action."""
        actions = self.actions(version)
        for action in actions:
            change(action)
        self.commit_file(version).write_text("".join(json.dumps(action) + "\n" for action in actions))
        self.forget()

    def forget(self):
        """Delete what would reveal log corruption before the log is read: checksums, and the service's records."""
        for checksum in self.log.glob("*.crc"):
            checksum.unlink()
        self.database = self.database.with_name("other " + self.database.name)

    def data_file(self):
        """Return the data file's path in the log and on disk."""
        (path,) = [action["add"]["path"] for action in self.actions(1) if "add" in action]
        return path, self.folder / path

    def vectors(self):
        """Return the only deletion vector file."""
        (found,) = self.folder.rglob("deletion_vector_*.bin")
        return found

    def files(self):
        """Return everything below the folder: content of log files, names and sizes of other files."""
        # Checksums are written some time after their commit.
        found = [path for path in self.folder.rglob("*") if path.is_file() and ".crc" not in path.name]
        return {
            path.relative_to(self.folder).as_posix(): path.read_bytes()
            if path.parent == self.log
            else path.stat().st_size
            for path in found
        }

    def ledgered(self, path):
        """Whether the ledger knows a file, by its path or by the transaction id in its name."""
        with sqlite3.connect(self.database) as connection:
            known = {row[0] for row in connection.execute("SELECT path FROM ledger_files")}
            begun = {row[0] for row in connection.execute("SELECT id FROM transactions")}
        connection.close()
        return path in known or any(transaction in path for transaction in begun)


@contextmanager
def refused(place, lake, kind, *words, table=None, version=None, file=None, exactly=True):
    """Check that the block fails with ``kind`` and without side effects.

    Args:
        place: the table.
        lake: the connection, which must still work afterwards.
        kind: the error class.
        words: expected in the message.
        table: expected in message and details, like ``version`` and ``file``.
        version: see ``table``.
        file: see ``table``; a path in the log.
        exactly: whether to reject subclasses of ``kind``.
    """
    before = place.files()
    with pytest.raises(kind) as caught:
        yield
    error = caught.value
    assert not exactly or type(error) is kind, repr(error)
    message = error.message
    print(f"{type(error).__name__}: {message}")  # noqa: T201 - shown with -rA, for people to judge
    assert message[:1].strip(), message
    assert "\n" not in message, message
    assert "Traceback" not in message, message
    for word in words:
        assert word in message, message
    if table is not None:
        assert f"'{table}'" in message, message
        assert error.details.get("table") == table, error.details
    if version is not None:
        assert f"version {version}" in message, message
        assert error.details.get("version") == version, error.details
    if file is not None:
        assert file in message, message
        assert file in str(error.details.get("file")), error.details
    check_unchanged(place, before)
    check_works(place, lake)


def check_unchanged(place, before):
    """Check that the log is unchanged, and that every new file is in the ledger."""
    after = place.files()
    assert {path: after.get(path) for path in before} == before
    new = after.keys() - before.keys()
    assert [path for path in new if path.startswith("_delta_log/")] == []
    assert [path for path in new if not place.ledgered(path)] == []


def check_works(place, lake):
    """Check that a connection can still write, delete and read."""
    number = len(list(place.folder.parent.glob("healthy_*")))
    healthy = lake.create_table(place.folder.parent / f"healthy_{number}", ROWS.schema)
    healthy.append(ROWS)
    assert healthy.delete("id = 4")["numDeletedRows"] == 1
    assert healthy.to_arrow().num_rows == 9


# --- requests -----------------------------------------------------------------------------------------------

PREDICATES = {
    "unparsable": ("id = = 1", errors.InvalidPredicate, "id = = 1"),
    "unclosed quote": ("name = 'n1", errors.InvalidPredicate, "name = 'n1"),
    "several statements": ("id = 1; DROP TABLE people", errors.InvalidPredicate, "id = 1; DROP TABLE people"),
    "unknown column": ("nobody = 1", errors.UnknownColumn, "nobody"),
    "not Boolean": ("id + 1", errors.InvalidPredicate, "id + 1"),
    "text": ("name", errors.InvalidPredicate, "name"),
    "subquery": ("id IN (SELECT 1)", errors.InvalidPredicate, "id IN (SELECT 1)"),
    "empty": ("", errors.InvalidPredicate, ""),
}

FAILING_PREDICATES = {
    "cast": "CAST(name AS INT) = 1",
    "division by zero": "10 / (id - id) > 1",
}

BAD_ROWS = {
    "wrong type": (pa.table({"id": ["x"], "name": ["n"], "part": ["a"]}), "id"),
    "unknown column": (pa.table({"id": [1], "name": ["n"], "part": ["a"], "surplus": ["s"]}), "surplus"),
    "null in a required column": (
        pa.table({"id": pa.array([None], pa.int64()), "name": ["n"], "part": ["a"]}),
        "id",
    ),
}
REQUIRED = pa.schema([ROWS.schema.field("id").with_nullable(nullable=False), *list(ROWS.schema)[1:]])


# --- damage -------------------------------------------------------------------------------------------------


def _descriptor(**changes):
    def change(action):
        if "add" in action:
            action["add"]["deletionVector"].update(changes)

    return lambda place: place.rewrite(2, change)


def _wrong_checksum(place):
    path = place.vectors()
    content = bytearray(path.read_bytes())
    content[-1] ^= 0xFF
    path.write_bytes(content)


def _truncated_vectors(place):
    path = place.vectors()
    path.write_bytes(path.read_bytes()[:-6])


def _junk_bitmap(place):
    # Size and CRC are right; only the bitmap is wrong.
    path = place.vectors()
    content = path.read_bytes()
    (size,) = struct.unpack_from(">i", content, 1)
    payload = content[5:9] + b"\xff" * (size - 4)
    path.write_bytes(content[:5] + payload + struct.pack(">I", zlib.crc32(payload)))


def _missing_vectors(place):
    place.vectors().unlink()


def _missing_data(place):
    place.data_file()[1].unlink()


def _corrupt_data(place):
    path = place.data_file()[1]
    path.write_bytes(b"not parquet " * (path.stat().st_size // 12 + 1))


def _cut_data(place):
    path = place.data_file()[1]
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


VECTORS = {
    "wrong checksum": (_wrong_checksum, errors.DeletionVectorChecksumMismatch),
    "wrong size": (_descriptor(sizeInBytes=33), errors.DeletionVectorSizeMismatch),
    "wrong cardinality": (_descriptor(cardinality=7), errors.DeletionVectorCardinalityMismatch),
    "truncated file": (_truncated_vectors, errors.DeletionVectorTruncated),
    "missing file": (_missing_vectors, errors.DeletionVectorNotFound),
    "junk": (_junk_bitmap, errors.CorruptDeletionVector),
}

DATA_FILES = {
    "missing": (_missing_data, errors.MissingDataFile),
    "junk": (_corrupt_data, errors.CorruptTable),
    "cut": (_cut_data, errors.CorruptTable),
}


def _cut_commit(place):
    path = place.commit_file(2)
    path.write_bytes(path.read_bytes()[:-20])
    os.utime(path, (1, 1))  # a recent file may still be in the making
    place.forget()


def _gap(place):
    place.commit_file(1).unlink()
    place.forget()


def _protocol(**changes):
    def change(action):
        if "protocol" in action:
            for key, features in changes.items():
                action["protocol"][key] = [*action["protocol"][key], *features]

    return lambda place: place.rewrite(0, change)


def _append_only(place):
    def change(action):
        if "metaData" in action:
            action["metaData"]["configuration"]["delta.appendOnly"] = "true"
        if "protocol" in action:
            action["protocol"]["writerFeatures"].append("appendOnly")

    place.rewrite(0, change)


LOGS = {
    "cut commit": (_cut_commit, errors.CorruptLog, ("people",)),
    "gap": (_gap, errors.MissingLogFile, ("people", "00000000000000000001.json", "version 2")),
    "unknown reader feature": (
        _protocol(readerFeatures=["timeLoops"], writerFeatures=["timeLoops"]),
        errors.UnsupportedReaderFeature,
        ("people", "timeLoops"),
    ),
}

REFUSED_WRITES = {
    "unknown writer feature": (
        _protocol(writerFeatures=["timeLoops"]),
        errors.UnsupportedWriterFeature,
        ("people", "timeLoops"),
    ),
    "append only": (_append_only, errors.AppendOnlyTable, ("people", "appendOnly")),
}


def make(folder, database):
    """Create ``people`` at version 2 with ten rows, row 3 deleted by a deletion vector."""
    place = Place(folder / "people", database)
    with place.connect() as lake:
        table = lake.create_table(place.folder, ROWS.schema)
        table.append(ROWS)
        assert table.delete("id = 3")["numDeletionVectorsAdded"] == 1
    return place


def make_with_odd_names(folder, database):
    """Create a table whose files have odd names, with three consecutively numbered rows each and none deleted."""
    place = Place(folder / "odd", database)
    with place.connect() as lake:
        lake.create_table(place.folder, pa.schema([("id", pa.int64())]))
    adds = []
    for number, name in enumerate(ODD_NAMES):
        path = place.folder / name / f"{name}.parquet"
        path.parent.mkdir()
        pq.write_table(pa.table({"id": pa.array(range(3 * number, 3 * number + 3), pa.int64())}), path)
        adds.append(
            {
                "add": {
                    "path": quote(f"{name}/{name}.parquet", safe="/=+"),
                    "partitionValues": {},
                    "size": path.stat().st_size,
                    "modificationTime": 1_700_000_000_000,
                    "dataChange": True,
                    "stats": json.dumps({"numRecords": 3}),
                }
            }
        )
    place.commit_file(1).write_text("".join(json.dumps(add) + "\n" for add in adds))
    return place
