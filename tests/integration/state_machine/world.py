"""A small table, two replicas that commit to it, a foreign writer, and the oracle that follows the log."""

import json
import uuid
from collections import Counter
from datetime import UTC, datetime
from functools import cache

from tests.integration.state_machine.foreign import ForeignWriter
from tests.integration.state_machine.rows import Moment
from tests.integration.state_machine.small_reader import SmallReader
from tests.integration.state_machine.transactions import FAMILIES, PLANS, Planner
from tests.support.checked import assert_sound

from delvec_errors import StorageError
from delvec_kernel import locations
from delvec_kernel.locations import table_id
from delvec_kernel.transaction.group_commit import Group
from delvec_kernel.transaction.verdict import Conflict
from delvec_service.app import create_app
from delvec_service.commits.pending_commit import PendingCommit
from delvec_service.config import Settings
from delvec_service.store.objects import ObjectStore
from delvec_service.store.open_table import OpenTable
from delvec_service.store.registry import TableRecord
from delvec_service.tables.new_table import NewTable
from delvec_storage import file_locations as _file_locations
from delvec_storage import files as storage
from delvec_storage.roots import Roots

__all__ = ["World"]

SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "value", "type": "integer", "nullable": True, "metadata": {}},
        {"name": "part", "type": "string", "nullable": True, "metadata": {}},
    ],
}
_REPLICAS = 2
_MAX_PENDING = 8
_OLDEST_READ = 6
_STATISTICS_ARE_QUIRKS = ("vector-loosens-bounds", "application-version")
"""Commits by the foreign writer."""


@cache
def _replica(number):
    """Return a separate service with its own database."""
    settings = Settings(
        database_url="sqlite://", log_maintenance=False, snapshot_store_bytes=0, snapshot_cache_bytes=32 << 20
    )
    service = create_app(settings).state.service
    service.database.migrate()
    return service


class RacingStore(ObjectStore):
    """Storage where creating a version may lose a race, or its answer may be lost.

    Attributes:
        before_put: called once, before the next version is created.
        lose_answer: whether the answer to that is lost.
    """

    before_put = None
    lose_answer = False

    def put_if_absent(self, path, data, **options):
        act, self.before_put = self.before_put, None
        if act is not None:
            act()
        created = super().put_if_absent(path, data, **options)
        lost, self.lose_answer = self.lose_answer, False
        if lost:
            raise StorageError("the answer was lost")
        return created


class World:
    """One history.

    Args:
        choices: the source of its decisions.
        location: the new table's; in memory by default.

    Attributes:
        counts: how often each thing happened.
        states: the oracle's rows by version.
    """

    def __init__(self, choices, location=None):
        self.location = location or f"memory:///{uuid.uuid4()}"
        self.counts = Counter()
        self.partitioned = choices.flag()
        self.replicas = [_replica(number) for number in range(_REPLICAS)]
        record = TableRecord(table_id(self.location), "people", self.location, datetime.now(UTC))
        self.tables = [OpenTable(record, Roots()) for _ in self.replicas]
        self.stores = [RacingStore(self.location) for _ in self.replicas]
        for table, store in zip(self.tables, self.stores, strict=True):
            table.__dict__["objects"] = store
        self._create(choices)
        self.reader = SmallReader(self.location)
        self.planner = Planner(self.location, partitioned=self.partitioned, statistics=choices.flag(70))
        self.effects = {}
        self.transactions = {}
        self.removed = {}
        self.pending = []
        self.done = []
        self.states = []
        self.foreign = ForeignWriter(self.reader, self.planner, self.effects)
        self.catch_up()
        self.begin(choices, Planner.append)
        self.commit(choices)

    def _create(self, choices):
        properties = {}
        if choices.flag(30):
            properties["delta.isolationLevel"] = "WriteSerializable"
        if choices.flag(30):
            properties["delta.enableInCommitTimestamps"] = "true"
        if choices.flag(20):
            properties["delta.randomizeFilePrefixes"] = "true"
        new = NewTable(SCHEMA, ["part"] if self.partitioned else [], properties)
        self.replicas[0].tables.create(self.location, None, new)

    # --- steps ----------------------------------------------------------------------------------

    def begin(self, choices, plan=None):
        """Plan a transaction at the newest or an earlier version."""
        if len(self.pending) >= _MAX_PENDING:
            return
        plan = plan or choices.pick(PLANS)
        newest = self.reader.newest.number
        back = choices.integer(0, min(newest, _OLDEST_READ)) if choices.flag(30) else 0
        self._begin_at(choices, plan, newest - back)

    def begin_now(self, choices, plan):
        """Plan a transaction at the newest version."""
        self._begin_at(choices, plan, self.reader.newest.number)

    def _begin_at(self, choices, plan, version):
        pending = plan(self.planner, choices, self.reader.versions[version], self.states)
        if pending is not None:
            self.pending.append(pending)
            self.transactions[pending.key] = pending
            self.effects[pending.key] = pending.effect
            self.counts["planned"] += 1

    def commit(self, choices):
        """Commit a pending transaction through one of the replicas."""
        if self.pending:
            pending = self.pending.pop(choices.integer(0, len(self.pending) - 1))
            self._submit(choices, [pending])

    def commit_together(self, choices):
        """Submit several pending transactions as members of one group."""
        if not self.pending:
            return
        chosen = choices.some(self.pending)
        self.pending = [pending for pending in self.pending if pending not in chosen]
        self._submit(choices, chosen)

    def burst(self, choices):
        """Plan transactions of one family at the newest version and submit them together."""
        family = choices.pick(FAMILIES)
        waiting = len(self.pending)
        for _ in range(choices.integer(2, 5)):
            self.begin_now(choices, choices.pick(family))
        chosen, self.pending = self.pending[waiting:], self.pending[:waiting]
        if chosen:
            self._submit(choices, chosen)

    def repeat(self, choices):
        """Repeat an answered request: it gets the same answer and has no effect."""
        if not self.done:
            return
        pending, answered = self.done[choices.integer(max(0, len(self.done) - 12), len(self.done) - 1)]
        [again] = self._run(choices, [pending])
        assert (again.version, again.read_version) == (answered.version, answered.read_version)
        assert again.metrics == answered.metrics, (pending.kind, again.metrics, answered.metrics)
        assert not self.reader.catch_up(), "a request that was sent twice was committed twice"
        self.counts["repeated"] += 1

    def commit_foreign(self, choices):
        self.catch_up()  # may happen in the middle of another commit
        kind = self.foreign.commit(choices)
        if kind is not None:
            self.counts[kind] += 1
            self.catch_up()

    def checkpoint(self, choices):
        number = choices.integer(0, _REPLICAS - 1)
        self.replicas[number].log_maintenance.checkpoint(self.tables[number], cleaning=False, dry_run=False)
        self.counts["checkpoint"] += 1

    # --- committing ---------------------------------------------------------------------------------------

    def _run(self, choices, members, beside=None):
        """Commit the members, sharing versions where possible; return their answers.

        Args:
            choices: the source of decisions.
            members: the transactions.
            beside: the replica in the middle of whose commit this happens; another one is used.
        """
        number = choices.integer(0, _REPLICAS - 1) if beside is None else (beside + 1) % _REPLICAS
        store = self.stores[number]
        if beside is None and choices.flag(25):
            store.before_put = self._interloper(choices, number)
        store.lose_answer = choices.flag(10)
        try:
            return self._answers(self.replicas[number].commits, self.tables[number], members)
        finally:
            store.before_put, store.lose_answer = None, False

    def _answers(self, commits, table, members):
        if len(members) == 1:
            return [commits.commit(table, members[0].changes)]
        requests = [PendingCommit(member.changes) for member in members]
        configuration = self.reader.newest.metadata["configuration"]
        waiting = list(requests)
        while waiting:
            group = Group(waiting[0].changes, configuration)
            together = [waiting[0], *(one for one in waiting[1:] if group.admit(one.changes))]
            waiting = [one for one in waiting if one not in together]
            commits.run(table, together)
            self.counts["largest group"] = max(self.counts["largest group"], len(together))
        return [request.answer() for request in requests]

    def _interloper(self, choices, beside):
        """Return an action that runs when another writer is about to create a version."""

        def act():
            if self.pending and choices.flag(70):
                pending = self.pending.pop(choices.integer(0, len(self.pending) - 1))
                self._submit(choices, [pending], beside)
            else:
                self.commit_foreign(choices)

        return act

    def _submit(self, choices, members, beside=None):
        before = self.reader.newest.number
        results = self._run(choices, members, beside)
        self.catch_up()
        self.note(members, results, before)

    def note(self, members, results, before):
        """Compare answers with the log, which has been followed already.

        Args:
            members: the transactions.
            results: their answers.
            before: the newest version before they were sent.
        """
        for pending, result in zip(members, results, strict=True):
            name = type(result).__name__
            self.counts[name] += 1
            self.counts[f"{pending.kind}: {name}"] += 1
            if isinstance(result, Conflict):
                self._check_conflict(pending, result)
            elif name == "NothingToDo":
                self._check_nothing(pending, before)
            elif name == "AlreadyApplied":
                txn = pending.changes.app_transaction
                assert self.reader.newest.txns[txn.app_id] >= txn.version
            else:
                self._check_committed(pending, result)
                self.done.append((pending, result))

    def _check_committed(self, pending, result):
        assert pending.key in self._keys(self.reader.versions[result.version]), (pending.kind, result)
        assert result.winners_passed == tuple(range(pending.changes.read_version + 1, result.version))
        assert result.read_version == pending.changes.read_version
        if pending.is_pure_delete:
            told = result.metrics.get("numDeletedRows")
            assert told == self.removed[pending.key], (
                f"{pending.kind}: {told}, not {self.removed[pending.key]}"
            )

    def _check_nothing(self, pending, before):
        """Check that a transaction answered with "nothing to do" had no effect at some version in its window."""
        for version in range(before, self.reader.newest.number + 1):
            state = self.states[version]
            properties = self.reader.versions[version].metadata["configuration"]
            now = self._moment(pending, version + 1, properties.get("delta.isolationLevel"))
            if _rows(pending.effect.on(state, now)) == _rows(state):
                return
        raise AssertionError(f"{pending.kind} was told that there is nothing to do")

    def _check_conflict(self, pending, result):
        assert not self._is_in_log(pending), f"{pending.kind} is in the log, and was told of a conflict"
        winners = self.reader.versions[pending.changes.read_version + 1 :]
        assert winners, "a conflict without a winner"
        changes_table = any("metaData" in action for winner in winners for action in winner.actions)
        if changes_table:
            return
        kinds = {self._kind_of(winner) for winner in winners}
        story = f"{pending.kind} lost against {sorted(kinds)}: {result}"
        if pending.in_partitions and self.partitioned:
            assert not self._partitions(winners).isdisjoint(pending.parts), story
        applications = {txn["appId"] for winner in winners for txn in winner.all("txn")}
        if pending.is_blind_append:
            mine = pending.changes.app_transaction
            assert mine is not None and mine.app_id in applications, story  # noqa: PT018
        if pending.is_pure_delete:
            assert not kinds <= {"pure delete", "optimize"}, story
        if pending.kind in ("update", "merge"):
            assert not kinds <= {"optimize"}, story
        if pending.kind == "optimize":
            assert not kinds <= {"pure delete", "update", "merge", "blind append"}, story

    @staticmethod
    def _partitions(versions):
        files = [file for version in versions for file in (*version.all("add"), *version.all("remove"))]
        return {file["partitionValues"]["part"] for file in files}

    def _kind_of(self, version):
        """Return the kind of winning commit, if any promise is made about it."""
        pendings = [self.transactions.get(key) for key in self._keys(version)]
        if any(pending is None for pending in pendings):
            return "foreign"
        if all(pending.is_pure_delete for pending in pendings):
            return "pure delete"
        if all(pending.is_blind_append for pending in pendings):
            return "blind append"
        return pendings[0].kind

    # --- following the log ---------------------------------------------------------------------------------

    @staticmethod
    def _keys(version):
        members = json.loads((version.info.get("tags") or {}).get("delvec.members", "[]"))
        return [member["key"] for member in members] or [version.info.get("txnId")]

    def _is_in_log(self, pending):
        return any(pending.key in self._keys(version) for version in self.reader.versions)

    def _moment(self, pending, version, isolation):
        read = version - 1 if pending is None else pending.changes.read_version
        between = self.reader.versions[read + 1 : version]
        return Moment(
            version=version,
            read_version=read,
            restored=any(winner.info.get("operation") == "RESTORE" for winner in between),
            skips_blind=isolation == "WriteSerializable",
            states=self.states,
            ids_in=self.reader.versions[version - 1].ids_in,
        )

    def catch_up(self):
        """Follow the log: each new version must hold the oracle's rows."""
        for version in self.reader.catch_up():
            keys = self._keys(version)
            if version.number == 0:
                self.states.append({})
                continue
            state = self.states[-1]
            story = []
            for key in keys:
                assert key in self.effects, f"version {version.number} is of nobody"
                pending = self.transactions.get(key)
                now = self._moment(pending, version.number, version.info.get("isolationLevel"))
                before, state = state, self.effects[key].on(state, now)
                self.removed[key] = len(before) - len(state)
                story.append(f"{key} {self.effects[key]}")
            self.states.append(state)
            self.counts["versions"] += 1
            self.counts["members"] += len(keys)
            found, wanted = version.rows, _rows(state)
            assert found == wanted, self._difference(version, found, wanted, story)
            paths = [file.path for file in version.files.values()]
            assert len(paths) == len(set(paths)), f"version {version.number} has a path twice"

    def _difference(self, version, found, wanted, story):
        lost = Counter(wanted) - Counter(found)
        extra = Counter(found) - Counter(wanted)
        pendings = [self.transactions.get(key) for key in self._keys(version)]
        asked = [pending.changes for pending in pendings if pending is not None]
        return (
            f"version {version.number} ({version.info.get('operation')}): lost {sorted(lost.elements())}, "
            f"extra {sorted(extra.elements())}; {story}; {asked}"
        )

    # --- the end ------------------------------------------------------------------------------------------

    def finish(self):
        """Check all invariants, and what a freshly started service reads; return the counts."""
        self.catch_up()
        assert_sound(ObjectStore(self.location), allow=_STATISTICS_ARE_QUIRKS)
        for replica, table in zip(self.replicas, self.tables, strict=True):
            snapshot = replica.loader.load(table.objects, table.name)
            assert snapshot.version == self.reader.newest.number
            assert snapshot.num_files == len(self.reader.newest.files)
            assert (snapshot.num_records or 0) - snapshot.num_deleted_rows == len(self.states[-1])
        return self.counts

    def rows(self):
        """Return the oracle's rows of the newest version."""
        return _rows(self.states[-1])

    def copy_to(self, folder):
        """Copy the table to local disk, for readers that cannot see this process's memory."""
        store = storage.store_for(self.location)
        for chunk in store.list():
            for meta in chunk:
                target = folder / meta["path"]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(bytes(store.get(meta["path"]).bytes()))

    def forget(self):
        """Free the table's memory."""
        if locations.local_path(self.location) is None:
            _file_locations._memory.pop(self.location, None)
        for replica in self.replicas:
            replica.loader.forget(self.location)


def _rows(state):
    return sorted((stored.row for stored in state.values()), key=lambda row: row.sortable)
