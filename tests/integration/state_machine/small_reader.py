"""An independent small reader: the log by PROTOCOL.md, data files by pyarrow; it shares only Delvec's vector codec."""

import io
import json
from dataclasses import dataclass, field

import pyarrow.parquet as pq
from pyroaring import BitMap64
from tests.integration.state_machine.rows import Row

from delvec_errors import StorageError
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_storage import files as storage

__all__ = ["LiveFile", "SmallReader", "Version", "physical_names"]


@dataclass(frozen=True)
class LiveFile:
    """A data file with or without a deletion vector.

    Attributes:
        add: the action.
        rows: all rows, in order.
        deleted: deleted row indexes.
    """

    add: dict
    rows: tuple
    deleted: BitMap64

    @property
    def path(self):
        return self.add["path"]

    @property
    def live(self):
        """Return pairs of row index and row."""
        return [(index, row) for index, row in enumerate(self.rows) if index not in self.deleted]


@dataclass(frozen=True)
class Version:
    """One version.

    Attributes:
        files: live files by path and deletion vector id; each path should occur once.
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
        self._tables = {}

    @property
    def newest(self):
        return self.versions[-1]

    def catch_up(self):
        """Read and return new versions."""
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
        files, txns = dict(before.files), dict(before.txns)
        metadata = next((each["metaData"] for each in actions if "metaData" in each), before.metadata)
        for action in actions:
            if "remove" in action:
                files.pop(_key(action["remove"]), None)
        for action in actions:
            if "add" in action:
                files[_key(action["add"])] = self._file(action["add"], metadata)
            elif "txn" in action:
                txns[action["txn"]["appId"]] = action["txn"]["version"]
        return Version(before.number + 1, actions, files, metadata, txns)

    def _file(self, add, metadata):
        key = _key(add)
        if key not in self._files:
            rows = self._rows_of(add, metadata)
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

    def column(self, path, name):
        """Return a column's values by its name in the data file; None if the file lacks it."""
        table = self._tables[path]
        return table[name].to_pylist() if name in table.column_names else None

    def _table(self, path):
        return pq.ParquetFile(io.BytesIO(storage.read(self.location, path))).read(use_threads=False)

    def _rows_of(self, add, metadata):
        path = add["path"]
        if path not in self._rows:
            names = physical_names(metadata)
            table = self._tables[path] = self._table(path)
            parts = add["partitionValues"]
            columns = [
                table[names["id"]].to_pylist(),
                table[names["value"]].to_pylist(),
                [parts[names["part"]]] * table.num_rows if parts else table[names["part"]].to_pylist(),
            ]
            self._rows[path] = tuple(Row(*row) for row in zip(*columns, strict=True))
        return self._rows[path]


def physical_names(metadata):
    """Return columns' physical names by name (PROTOCOL.md, "Column Mapping")."""
    fields = json.loads(metadata["schemaString"])["fields"]
    return {
        field["name"]: field["metadata"].get("delta.columnMapping.physicalName", field["name"])
        for field in fields
    }


def _key(action):
    vector = action.get("deletionVector")
    return action["path"], None if vector is None else Descriptor.from_json(vector).unique_id
