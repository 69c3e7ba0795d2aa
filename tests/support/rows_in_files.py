"""A table whose rows have identities, stored as in Delta: files, deletion vectors, actions.

A row keeps its identity when a commit only moves it, and gets a new one when a commit changes it. The effect of a commit
can thus be determined from the table's rows, independently of the conflict check's files and row indexes.
"""

import json
from dataclasses import dataclass, field, replace

from pyroaring import BitMap64

from delvec_kernel.actions.actions import AddFile, CommitInfo, Metadata, Protocol, RemoveFile
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.schema.types import PrimitiveType, StructField, StructType
from delvec_kernel.transaction import row_maps, row_runs
from delvec_kernel.transaction.conflict_checker import WinningCommit
from delvec_kernel.transaction.transaction_changes import Changes

LOCATION = "file:///data/people"
SCHEMA = StructType((StructField("id", PrimitiveType("long")), StructField("day", PrimitiveType("string"))))
FEATURES = ("deletionVectors",)
VECTORS_ON = {"delta.enableDeletionVectors": "true"}


@dataclass(frozen=True)
class Row:
    """A row: its identity, and its value of column ``id``."""

    identity: int
    value: int


@dataclass
class Facts:
    """The part of a snapshot that the conflict check needs."""

    version: int
    location: str = LOCATION
    schema: StructType = field(default_factory=lambda: SCHEMA)
    metadata: Metadata = field(
        default_factory=lambda: Metadata("table", json.dumps(SCHEMA.to_json()), configuration=VECTORS_ON)
    )
    protocol: Protocol = field(default_factory=lambda: Protocol(3, 7, FEATURES, FEATURES))

    def with_properties(self, **properties):
        """Return a copy with these properties, prefixed by ``delta.``."""
        named = {f"delta.{name}": value for name, value in properties.items()}
        return replace(self, metadata=replace(self.metadata, configuration=VECTORS_ON | named))


class Vectors:
    """A store of deletion vectors; equal row sets get different descriptors."""

    def __init__(self):
        self._rows = {}
        self.reads = 0

    def __call__(self, file):
        self.reads += 1
        return self._rows[file.deletion_vector] if file.deletion_vector else BitMap64()

    def write(self, rows):
        """Return a descriptor of these rows, None for no rows."""
        if not rows:
            return None
        descriptor = Descriptor("u", f"{len(self._rows):020}", 1, 34, len(rows))
        self._rows[descriptor] = BitMap64(rows)
        return descriptor


class RowsInFiles:
    """The table, with all its versions and all files ever written."""

    def __init__(self):
        self.vectors = Vectors()
        self.contents = {}
        self.versions = [{}]
        self.commits = [[]]
        self._identities = 0

    @property
    def version(self):
        """The newest version."""
        return len(self.versions) - 1

    # --- reading ----------------------------------------------------------------------------------------

    def rows(self, version=None):
        """Return the live rows of a version, in no particular order, with duplicates if a row is live twice."""
        live = self.versions[-1 if version is None else version]
        return [row for path in live for row in self.rows_of(path, version).values()]

    def rows_of(self, path, version=None):
        """Return the live rows of a file by row index."""
        gone = self.vectors(self.versions[-1 if version is None else version][path])
        return {index: row for index, row in enumerate(self.contents[path]) if index not in gone}

    def winners(self, read_version):
        """Return the commits after a version."""
        return [
            WinningCommit.of(version, self.commits[version], LOCATION)
            for version in range(read_version + 1, self.version + 1)
        ]

    # --- writing ----------------------------------------------------------------------------------------

    def new_rows(self, values):
        """Return rows with new identities."""
        found = [Row(self._identities + place, value) for place, value in enumerate(values)]
        self._identities += len(found)
        return found

    def write(self, rows, *, stats=True, data_change=True):
        """Write a file and return its add."""
        path = f"f{len(self.contents):03}.parquet"
        self.contents[path] = list(rows)
        bounds = {"numRecords": len(rows)}
        if stats:
            values = [row.value for row in rows]
            bounds |= {"minValues": {"id": min(values)}, "maxValues": {"id": max(values)}}
        return AddFile(path, {}, 10, 0, data_change=data_change, stats=json.dumps(bounds))

    def commit(self, changes, *, says_what=True, group=()):
        """Apply changes to the newest version like the service; return the new version.

        Raises:
            AssertionError: a file or a row to remove is not live, which the service would reject.
        """
        live = dict(self.versions[-1])
        actions = [
            RemoveFile.of(live.pop(path), 0, data_change=changes.data_change) for path in changes.removes
        ]
        for path, rows in changes.row_deletes.items():
            add = live[path]
            union = self.vectors(add) | rows
            assert union.max() < len(self.contents[path])
            if len(union) == add_cardinality(add):
                continue
            actions.append(RemoveFile.of(add, 0))
            if len(union) == len(self.contents[path]):
                del live[path]
            else:
                live[path] = replace(add, deletion_vector=self.vectors.write(union))
                actions.append(live[path])
        for add in changes.adds:
            assert add.path not in live
            descriptor = self.vectors.write(changes.added_deletes.get(add.path, BitMap64()))
            live[add.path] = replace(add, deletion_vector=descriptor, data_change=changes.data_change)
            actions.append(live[add.path])
        tags = {row_runs.TAG: row_runs.encode(changes.rewritten)} if changes.rewritten else {}
        if changes.row_map is not None:
            tags[row_maps.TAG] = row_maps.encode(changes.row_map)
        if group:
            tags["delvec.members"] = json.dumps([{"key": key, "readVersion": 0} for key in group])
        info = CommitInfo(
            operation=changes.operation,
            is_blind_append=changes.is_blind_append,
            tags=tags or None,
            txn_id=changes.transaction_id,
        )
        return self.record([info, *actions] if says_what else actions, live)

    def record(self, actions, live):
        """Append a version with these actions and live files."""
        self.commits.append(actions)
        self.versions.append(live)
        return self.version

    def restore(self, version):
        """Restore the files of a version with their deletion vectors; return the new version."""
        now, then = self.versions[-1], self.versions[version]
        actions = [CommitInfo(operation="RESTORE", is_blind_append=False)]
        for path, add in now.items():
            if path not in then or then[path].deletion_vector != add.deletion_vector:
                actions.append(RemoveFile.of(add, 0))
        for path, add in then.items():
            if path not in now or now[path].deletion_vector != add.deletion_vector:
                actions.append(replace(add, data_change=True))
        return self.record(actions, dict(then))

    def add_again(self, path):
        """Add a file again with only a tag changed, like a command that computes statistics."""
        live = dict(self.versions[-1])
        live[path] = replace(live[path], data_change=False, tags={"again": "yes"})
        return self.record([CommitInfo(operation="COMPUTE STATS", is_blind_append=False), live[path]], live)


def add_cardinality(add):
    """Return the number of deleted rows of a file."""
    return add.deletion_vector.cardinality if add.deletion_vector else 0


def changes(operation, read_version, **what):
    """Return changes with a new transaction id."""
    return Changes(operation, read_version, f"{operation}-{read_version}", "test", **what)
