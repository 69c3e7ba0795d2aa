"""A foreign writer that knows nothing of the service and creates versions by put-if-absent."""

import json
import uuid

from pyroaring import BitMap64
from tests.integration.state_machine.conditions import any_condition
from tests.integration.state_machine.data_files import write_vector
from tests.integration.state_machine.rows import Appends, Nothing, Replaces, Restores, Row, Updates

from delvec_kernel.actions.actions import AddFile, CommitInfo, Metadata, RemoveFile, Txn
from delvec_kernel.deletion_vectors.deletion_vector import inline
from delvec_kernel.log.commit_file import serialize_commit
from delvec_storage import files as storage

__all__ = ["ForeignWriter"]


class ForeignWriter:
    """Commits immediately to the newest version, so its own commits are serial.

    Args:
        reader: reads the table.
        planner: supplies rows and files.
        effects: effects by transaction id; it adds its own.
    """

    def __init__(self, reader, planner, effects):
        self._reader = reader
        self._planner = planner
        self._effects = effects
        self._time = 0

    def commit(self, choices):
        """Make a random commit; return its kind, or None if there was nothing to do."""
        kind = choices.pick(
            (
                "append",
                "append",
                "delete",
                "delete",
                "copy",
                "copy",
                "restore",
                "compact",
                "property",
                "txn",
                "analyze",
            )
        )
        made = getattr(self, f"_{kind}")(choices, self._reader.newest)
        if made is None:
            return None
        operation, actions, effect, blind = made
        self._put(operation, actions, effect, blind=blind)
        return f"foreign {kind}"

    def _put(self, operation, actions, effect, *, blind):
        key = str(uuid.uuid4())
        version = self._reader.newest.number + 1
        self._time = max(self._time + 1, self._stamp() + 1)
        stamped = (
            self._reader.newest.metadata["configuration"].get("delta.enableInCommitTimestamps") == "true"
        )
        info = CommitInfo(
            timestamp=self._time,
            in_commit_timestamp=self._time if stamped else None,
            operation=operation,
            is_blind_append=blind,
            engine_info="foreign",
            txn_id=key,
        )
        path = f"_delta_log/{version:020}.json"
        assert storage.create_file(self._reader.location, path, serialize_commit([info, *actions]))
        self._effects[key] = effect

    def _stamp(self):
        return self._reader.newest.info.get("inCommitTimestamp", 0)

    # --- kinds --------------------------------------------------------------------------------------------

    def _append(self, choices, _version):
        rows = self._planner.new_rows(choices)
        says = choices.pick((True, False, None))
        return "WRITE", self._planner.write(rows), Appends(tuple(rows), blind=says is True), says

    def _delete(self, choices, version):
        """Delete rows by deletion vector, inline or in its own file."""
        condition = any_condition(choices, self._planner.next_id)
        actions = []
        for file in version.files.values():
            found = [index for index, row in file.live if condition(row)]
            if not found:
                continue
            actions.append(_remove(file))
            if len(found) < len(file.live):
                actions.append(self._marked(file, file.deleted | BitMap64(found), in_log=choices.flag()))
        return ("DELETE", actions, Replaces(condition), False) if actions else None

    def _copy(self, choices, version):
        """Update rows by copy-on-write."""
        condition, value = any_condition(choices, self._planner.next_id), choices.integer(0, 9)
        removes, rows = [], []
        for file in version.files.values():
            if any(condition(row) for _, row in file.live):
                removes.append(_remove(file))
                rows += [Row(row.id, value, row.part) if condition(row) else row for _, row in file.live]
        if not removes:
            return None
        return "UPDATE", [*removes, *self._planner.write(rows)], Updates(condition, value), False

    def _compact(self, choices, version):
        """Compact the live rows of some files in another order, without recording where rows went."""
        files = sorted((file for file in version.files.values() if file.live), key=lambda file: file.path)
        if not files:
            return None
        sources = choices.some(files)
        rows = sorted((row for file in sources for _, row in file.live), key=lambda row: -row.id)
        removes = [_remove(file, data_change=False) for file in sources]
        return "OPTIMIZE", [*removes, *self._planner.write(rows, data_change=False)], Nothing(), False

    def _restore(self, choices, version):
        """Restore an earlier version: files come back with their deletion vectors of that time."""
        number = choices.integer(max(0, version.number - 6), max(0, version.number - 1))
        old = self._reader.versions[number]
        actions = [_remove(file) for key, file in version.files.items() if key not in old.files]
        actions += [
            AddFile.from_json(file.add) for key, file in old.files.items() if key not in version.files
        ]
        actions = [action if isinstance(action, RemoveFile) else _changing(action) for action in actions]
        return ("RESTORE", actions, Restores(number), False) if actions else None

    def _property(self, choices, version):
        metadata = version.metadata
        changed = metadata | {
            "configuration": metadata["configuration"] | {"foreign": str(choices.integer(0, 3))}
        }
        return "SET TBLPROPERTIES", [Metadata.from_json(changed)], Nothing(), False

    def _txn(self, choices, version):
        application = choices.pick(("s1", "s2", "s3"))
        number = version.txns.get(application, 0) + choices.integer(1, 2)
        rows = self._planner.new_rows(choices, 2)
        actions = [Txn(application, number), *self._planner.write(rows)]
        return "STREAMING UPDATE", actions, Appends(tuple(rows)), True

    def _analyze(self, choices, version):
        """Add a live file again with recomputed statistics: no row changes."""
        files = sorted(version.files.values(), key=lambda file: file.path)
        if not files:
            return None
        add = AddFile.from_json(choices.pick(files).add | {"dataChange": False})
        return "COMPUTE STATS", [add], Nothing(), False

    def _marked(self, file, deleted, *, in_log):
        stats = json.loads(file.add["stats"]) | {"tightBounds": False}
        vector = inline(deleted) if in_log else write_vector(self._reader.location, deleted)
        changed = {"dataChange": True, "deletionVector": vector.to_json(), "stats": json.dumps(stats)}
        return AddFile.from_json(file.add | changed)


def _remove(file, *, data_change=True):
    return RemoveFile.of(AddFile.from_json(file.add), 1, data_change=data_change)


def _changing(add):
    return AddFile.from_json(add.to_json() | {"dataChange": True})
