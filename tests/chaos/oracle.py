"""Compares the answers that writers got with the log and the table.

It reads the log itself, so that it does not share the service's mistakes.
"""

import json
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from delvec_kernel.deletion_vectors.deletion_vector import Descriptor

ACKNOWLEDGED, CONFLICT, REFUSED, UNAVAILABLE, UNKNOWN = (
    "acknowledged",
    "conflict",
    "refused",
    "unavailable",
    "unknown",
)


class BrokenPromiseError(AssertionError):
    """The table contradicts the answers that its writers got."""


@dataclass
class Operation:
    """One append or delete, and the answer to it.

    Attributes:
        key: the transaction's id.
        ids: of the rows that it adds or deletes.
        outcome: the last answer, or unknown.
        version: the version in the answer; None if there was nothing to do.
        error: the type of the last error.
        sent: everything needed to send it again.
    """

    kind: str
    key: str
    ids: frozenset
    outcome: str = UNKNOWN
    version: int | None = None
    error: str = ""
    attempts: int = 0
    sent: Any = field(default=None, repr=False)


@dataclass
class Log:
    """The transactions of each version, from the log's JSON files.

    Attributes:
        versions: transaction ids by version; several if they share it.
        live: paths of data files that are live in the newest version.
        named: every data file and deletion vector file that any version names, relative to the table.
    """

    versions: dict = field(default_factory=dict)
    live: set = field(default_factory=set)
    named: set = field(default_factory=set)

    def read(self, folder):
        """Read new versions."""
        names = sorted(path.stem for path in (folder / "_delta_log").glob("*.json") if path.stem.isdigit())
        expected = len(self.versions)
        for version in range(expected, int(names[-1]) + 1 if names else 0):
            path = folder / "_delta_log" / f"{version:020}.json"
            if not path.exists():
                raise BrokenPromiseError(f"version {version} is missing between 0 and {names[-1]}")
            self._take(version, [json.loads(line) for line in path.read_text().splitlines()])

    def _take(self, version, actions):
        info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
        members = json.loads((info.get("tags") or {}).get("delvec.members", "[]"))
        self.versions[version] = [member["key"] for member in members] or [info.get("txnId")]
        removed = {action["remove"]["path"] for action in actions if "remove" in action}
        if not removed <= self.live:
            raise BrokenPromiseError(f"version {version} removes what is not live: {removed - self.live}")
        self.live -= removed
        for action in actions:
            if "add" not in action:
                continue
            file = action["add"]
            if file["path"] in self.live:
                raise BrokenPromiseError(f"version {version} adds {file['path']}, which is live")
            self.live.add(file["path"])
            self.named.add(file["path"])
            vector = file.get("deletionVector")
            if vector is not None and vector["storageType"] == "u":
                self.named.add(Descriptor.from_json(vector).relative_path())

    @property
    def keys(self):
        """Count how often each transaction is in the log."""
        return Counter(key for keys in self.versions.values() for key in keys)


class Oracle:
    """All operations and their answers. Thread-safe.

    Attributes:
        log: the table's log.
    """

    def __init__(self, folder):
        self.folder = folder
        self.log = Log()
        self._lock = threading.Lock()
        self._operations = []
        self._next_id = 0
        self._deletable = []

    # --- for writers ---------------------------------------------------------------------------------

    def new_ids(self, count):
        with self._lock:
            first, self._next_id = self._next_id, self._next_id + count
        return range(first, first + count)

    def begin(self, kind, key, ids):
        """Record an operation before it is sent."""
        operation = Operation(kind, key, frozenset(ids))
        with self._lock:
            self._operations.append(operation)
        return operation

    def acknowledge(self, operation, version):
        operation.outcome, operation.version = ACKNOWLEDGED, version
        if operation.kind == "append":
            with self._lock:
                self._deletable.extend(sorted(operation.ids))

    def some_rows(self, random, count):
        """Return ids of added rows, most of them recent; another delete may have picked them too."""
        with self._lock:
            lately = self._deletable[-200:]
            pool = self._deletable if random.random() < 0.2 else lately
            chosen = random.sample(pool, min(count, len(pool)))
            if random.random() < 0.7:
                # Usually only this delete picks them; otherwise deletes compete for the same rows.
                gone = set(chosen)
                self._deletable = [one for one in self._deletable if one not in gone]
        return chosen

    @property
    def operations(self):
        with self._lock:
            return list(self._operations)

    # --- between rounds -----------------------------------------------------------------------------

    def check_log(self):
        """Compare the log with every answer; no operation may be running.

        Raises:
            BrokenPromiseError: an acknowledged operation is missing, there twice or at another version; or one that
                was refused is there.
        """
        self.log.read(self.folder)
        keys = self.log.keys
        for operation in self.operations:
            count = keys[operation.key]
            said = f"{operation.kind} {operation.key}, {operation.outcome} ({operation.error or 'no error'})"
            if count > 1:
                raise BrokenPromiseError(f"{said}, is in the log {count} times")
            if operation.outcome == ACKNOWLEDGED:
                if count != (operation.version is not None):
                    raise BrokenPromiseError(
                        f"{said} with version {operation.version}, is in the log {count} times"
                    )
                if count and operation.key not in self.log.versions.get(operation.version, ()):
                    raise BrokenPromiseError(f"{said}, is not at version {operation.version}")
            elif operation.outcome != UNKNOWN and count:
                raise BrokenPromiseError(f"{said}, is in the log all the same")

    def expected(self):
        """Return the ids that the table must hold, according to the log as of :meth:`check_log`."""
        keys = self.log.keys
        added, deleted = set(), set()
        for operation in self.operations:
            took_effect = keys[operation.key] or operation.outcome == ACKNOWLEDGED
            if took_effect:
                (added if operation.kind == "append" else deleted).update(operation.ids)
        return added - deleted

    def check_rows(self, reader, ids):
        """Compare the rows that a reader found with the expected ones.

        Raises:
            BrokenPromiseError: rows are lost, doubled or resurrected.
        """
        found = Counter(ids)
        twice = sorted(id_ for id_, count in found.items() if count > 1)
        expected = self.expected()
        lost, resurrected = sorted(expected - found.keys()), sorted(found.keys() - expected)
        if twice or lost or resurrected:
            raise BrokenPromiseError(
                f"{reader} finds {len(lost)} rows lost {lost[:10]}, {len(twice)} twice {twice[:10]}, "
                f"{len(resurrected)} that must not be there {resurrected[:10]}"
            )

    def outcomes(self):
        """Count answers by kind of operation, outcome and error."""
        return Counter(
            f"{operation.kind} {operation.outcome}" + (f": {operation.error}" if operation.error else "")
            for operation in self.operations
        )
