"""A small reader of its own: the log by PROTOCOL.md, data files by pyarrow; of Delvec only the vectors' codec."""

import io
import json
from dataclasses import dataclass, field

import pyarrow.parquet as pq
from pyroaring import BitMap64
from tests.state_machine.rows import Row

from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.errors import StorageError
from delvec_kernel.storage import files as storage

__all__ = ["LiveFile", "SmallReader", "Version"]


@dataclass(frozen=True)
class LiveFile:
    """A data file with a deletion vector or none.

    Attributes:
        add: the action.
        rows: all of them, in order.
        deleted: row indexes.
    """

    add: dict
    rows: tuple
    deleted: BitMap64

    @property
    def path(self):
        return self.add["path"]

    @property
    def live(self):
        """Pairs of index and row."""
        return [(index, row) for index, row in enumerate(self.rows) if index not in self.deleted]


@dataclass(frozen=True)
class Version:
    """One version.

    Attributes:
        files: the live ones, by path and id of the deletion vector: of one path there should be one.
    """

    number: int
    actions: list = field(repr=False)
    files: dict = field(repr=False)
    metadata: dict = field(repr=False)
    txns: dict = field(repr=False)

    def all(self, kind):
        return [action[kind] for action in self.actions if kind in action]

    @property
    def info(self):
        return next(iter(self.all("commitInfo")), {})

    @property
    def by_path(self):
        return {file.path: file for file in self.files.values()}

    @property
    def rows(self):
        return sorted(
            (row for file in self.files.values() for _, row in file.live), key=lambda row: row.sortable
        )

    def ids_in(self, path):
        return {row.id for file in self.files.values() if file.path == path for _, row in file.live}


class SmallReader:
    """Follows the log of one table."""

    def __init__(self, location):
        self.location = location
        self.versions = []
        self._rows = {}
        self._files = {}

    @property
    def newest(self):
        return self.versions[-1]

    def catch_up(self):
        """Read and return the versions that are new."""
        new = []
        while (data := self._read(f"_delta_log/{len(self.versions):020}.json")) is not None:
            self.versions.append(self._follow([json.loads(line) for line in data.decode().splitlines()]))
            new.append(self.newest)
        return new

    def _read(self, path):
        try:
            return storage.read(self.location, path)
        except FileNotFoundError:
            return None
        except StorageError as error:
            raise AssertionError(f"{path} cannot be read") from error

    def _follow(self, actions):
        before = self.versions[-1] if self.versions else Version(-1, [], {}, {}, {})
        files, metadata, txns = dict(before.files), before.metadata, dict(before.txns)
        for action in actions:
            if "remove" in action:
                files.pop(_key(action["remove"]), None)
        for action in actions:
            if "add" in action:
                files[_key(action["add"])] = self._file(action["add"])
            elif "metaData" in action:
                metadata = action["metaData"]
            elif "txn" in action:
                txns[action["txn"]["appId"]] = action["txn"]["version"]
        return Version(before.number + 1, actions, files, metadata, txns)

    def _file(self, add):
        key = _key(add)
        if key not in self._files:
            rows = self._rows_of(add)
            deleted = BitMap64()
            if "deletionVector" in add:
                descriptor = Descriptor.from_json(add["deletionVector"])
                [deleted] = storage.read_deletion_vectors(
                    self.location, [(add["path"], descriptor)], table="read", version=None
                ).values()
                assert not deleted or deleted.max() < len(rows), (
                    "a deletion vector marks rows that are not there"
                )
            self._files[key] = LiveFile(add, rows, deleted)
        known = self._files[key]
        return LiveFile(add, known.rows, known.deleted)

    def _rows_of(self, add):
        path = add["path"]
        if path not in self._rows:
            file = pq.ParquetFile(io.BytesIO(storage.read(self.location, path)))
            table = file.read(use_threads=False)
            parts = add["partitionValues"]
            columns = [
                table["id"].to_pylist(),
                table["value"].to_pylist(),
                [parts["part"]] * table.num_rows if parts else table["part"].to_pylist(),
            ]
            self._rows[path] = tuple(Row(*row) for row in zip(*columns, strict=True))
        return self._rows[path]


def _key(action):
    vector = action.get("deletionVector")
    return action["path"], None if vector is None else Descriptor.from_json(vector).unique_id
