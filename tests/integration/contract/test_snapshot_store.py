"""Snapshots in SQLite and PostgreSQL: used after a restart and by other replicas, but never required."""

import json
import shutil
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal

import pytest
from sqlalchemy import text
from tests.support.schema_template import drop_schema

from delvec_errors import DelvecError, ServiceUnavailable
from delvec_kernel import locations
from delvec_kernel.actions.actions import AddFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from delvec_kernel.file_index.segment import SegmentRecord, SegmentsLost, Summary
from delvec_kernel.log.commit_file import serialize_commit
from delvec_service.scans.plan import plan
from delvec_service.scans.warm_up import warm_up
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store import database
from delvec_service.store.database import Database
from delvec_service.store.file_index_engine import FILE_INDEX_ENGINE
from delvec_service.store.objects import ObjectStore
from delvec_service.store.segments import SegmentStore
from delvec_service.store.snapshot_state import LogFileId
from delvec_service.store.snapshots import SnapshotStore

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
    }
)
TABLES = ["snapshots", "snapshot_members", "segments", "segment_blobs", "segment_summaries"]


class Table(ObjectStore):
    """A table with only a log, which counts reads."""

    def __init__(self, folder, files=20):
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(locations.canonical(str(folder)))
        self.folder = folder
        self.read = Counter()
        self.version = -1
        self.create(files)

    def get(self, path):
        self.read[path.rpartition("/")[2]] += 1
        return super().get(path)

    def create(self, files=20, prefix="f"):
        self.version = -1
        metadata = Metadata("m", SCHEMA, (), {})
        self.commit(Protocol(1, 2), metadata, Txn("app", 7), DomainMetadata("d", "{}", False))
        self.commit(*(add(f"{prefix}{number}", number) for number in range(files)))

    def commit(self, *actions):
        self.version += 1
        assert self.put_if_absent(f"_delta_log/{self.version:020d}.json", serialize_commit(actions))

    def drop(self):
        shutil.rmtree(self.folder / "_delta_log")
        (self.folder / "_delta_log").mkdir()


def add(path, number, **fields):
    bounds = {"minValues": {"id": number * 10}, "maxValues": {"id": number * 10 + 9}, "nullCount": {"id": 0}}
    return AddFile(path, {}, 1, 1, stats=json.dumps({"numRecords": 10, **bounds}), **fields)


_SAVES = 3


class Replica:
    """The part of a service that reads tables; ``restart`` drops its memory."""

    def __init__(self, url, **budgets):
        self.url = url
        self.budgets = budgets
        self.database = Database(url)
        self.database.migrate()
        self.loader = None
        self.restart()

    def restart(self):
        if self.loader is not None:
            self.loader.close()
        self.store = SnapshotStore(self.database)
        self.loader = SnapshotLoader(store=self.store, **self.budgets)

    def files(self, table, predicate=None):
        return self.loader.reading(table, "people", lambda found: paths(found, predicate))

    def saved(self, table, predicate=None):
        """Return the files once the version is saved."""
        found = self.files(table, predicate)
        assert self.loader.flush(30)
        return found

    def execute(self, statement, **values):
        with self.database.write() as session:
            return session.execute(text(statement), values).rowcount

    def count(self, name):
        with self.database.read() as session:
            return session.execute(text(f"SELECT count(*) FROM {name}")).scalar()

    def close(self):
        self.loader.close()
        self.database.close()


def paths(snapshot, predicate=None):
    return sorted(plan(snapshot, "people", predicate=predicate).files["path"].to_pylist())


@pytest.fixture
def shared_url(url):
    if url == "sqlite://":
        pytest.skip("a database in memory has one process, and one life")
    return url


@pytest.fixture
def replica(url):
    made = Replica(url)
    yield made
    made.close()


@pytest.fixture
def replicas(shared_url):
    made = [Replica(shared_url), Replica(shared_url)]
    yield made
    for one in made:
        one.close()


@pytest.fixture
def people(tmp_path):
    return Table(tmp_path / "people")


def test_a_saved_version_round_trips(replica, people):
    people.commit(RemoveFile("f3"), add("g", 100))
    assert replica.store.find(people.location) is None
    before = replica.loader.load(people, "people")
    assert replica.loader.flush(30)

    stored = replica.store.find(people.location)

    after = stored.snapshot
    assert stored.file == LogFileId.of(people.head(f"_delta_log/{2:020d}.json"))
    for name in ("version", "timestamp", "protocol", "metadata", "txns", "domain_metadata", "num_files"):
        assert getattr(after, name) == getattr(before, name), name
    assert after.live.counts == before.live.counts
    assert after.live.table.sort_by("path") == before.live.table.sort_by("path")
    assert paths(after, "id = 55") == ["f5"]


def test_a_restart_reads_no_log(replica, people):
    expected = replica.saved(people)
    replica.restart()
    people.read.clear()

    assert replica.files(people) == expected
    assert replica.files(people, "id BETWEEN 20 AND 39") == ["f2", "f3"]
    assert not people.read


def test_only_new_commits_are_read_and_saved(replica, people):
    replica.saved(people)
    replica.restart()
    people.read.clear()
    people.commit(add("new", 50))

    assert replica.saved(people, "id >= 190") == ["f19", "new"]

    assert people.read == {f"{2:020d}.json": 1}
    assert replica.store.find(people.location).snapshot.version == 2
    segments = replica.count("segments")
    for number in range(3):
        people.commit(RemoveFile(f"f{number}"))
        assert replica.saved(people)[0] == f"f{number + 1}" if number < 1 else True
    assert replica.count("snapshots") == 1
    assert replica.count("segments") <= segments + 1
    replica.restart()
    assert "f2" not in replica.files(people)


def test_parsed_bounds_are_saved_too(replica, people, monkeypatch):
    replica.saved(people, "id = 55")
    blobs = replica.count("segment_blobs")
    assert replica.count("segment_summaries")
    replica.restart()
    asked = []
    read = SegmentStore.blobs
    monkeypatch.setattr(
        SegmentStore, "blobs", lambda store, ids, name: asked.append(name) or read(store, ids, name)
    )

    assert replica.files(people, "id = 55") == ["f5"]

    assert "stats" not in asked
    assert replica.loader.flush(30)
    assert replica.count("segment_blobs") == blobs


def test_a_replica_uses_what_another_one_saved(replicas, people):
    one, other = replicas
    expected = one.saved(people)
    people.read.clear()

    assert other.files(people) == expected
    assert not people.read
    people.commit(add("new", 50))
    assert "new" in other.saved(people)
    one.restart()
    people.read.clear()
    assert "new" in one.files(people)
    assert not people.read


def test_replicas_that_read_the_log_at_once_agree_on_one_version_in_the_store(replicas, people):
    one, other = replicas
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda replica: replica.saved(people), replicas))
    for number in range(6):
        people.commit(add(f"g{number}", 60 + number))
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda replica: replica.saved(people), replicas))
        assert found[0] == found[1]
        assert f"g{number}" in found[0]

    one.restart()
    people.read.clear()
    assert f"g{number}" in one.files(people)
    assert len(people.read) <= 1
    one.store.sweep(timedelta(0))
    other.restart()
    assert other.files(people) == one.files(people)
    assert one.count("segments") == one.count("snapshot_members")


def test_a_save_does_not_replace_a_later_one(replica, people):
    replica.loader._writer._delay = 3600.0  # on a busy machine its own save could come first
    snapshot = replica.loader.load(people, "people")
    mark = LogFileId.of(people.head(f"_delta_log/{1:020d}.json"))
    first = replica.store.save(snapshot, mark, None)

    assert replica.store.save(snapshot, mark, None) is None
    assert replica.store.save(snapshot, mark, "another") is None
    second = replica.store.save(snapshot, mark, first)
    assert second not in (None, first)
    replica.store.forget(people.location, first)
    assert replica.store.head(people.location).generation == second
    replica.store.forget(people.location, second)
    assert replica.store.find(people.location) is None


def test_snapshots_of_unregistered_tables_are_swept(replica, people, tmp_path):
    kept = Table(tmp_path / "kept")
    replica.saved(people, "id = 55")
    expected = replica.saved(kept)
    replica.loader.forget(people.location)
    assert replica.store.sweep() == 0
    assert replica.store.sweep(timedelta(0)) == 1
    replica.loader.forget(kept.location)
    assert replica.files(kept) == expected
    assert replica.loader.flush(30)
    replica.store.sweep(timedelta(0))
    assert replica.count("segments") == replica.count("snapshot_members") == 1
    replica.execute("DELETE FROM segments")
    replica.store.sweep()

    assert replica.count("segment_blobs") == replica.count("segment_summaries") == 0


def test_the_least_recently_used_tables_are_evicted(shared_url, tmp_path):
    tables = [Table(tmp_path / str(number), files=300) for number in range(4)]
    probe = Replica(shared_url)
    probe.saved(tables[0])
    with probe.database.read() as session:
        size = session.execute(text("SELECT sum(nbytes) FROM segments")).scalar()
    probe.loader.forget(tables[0].location)
    probe.store.sweep(timedelta(0))
    probe.close()
    replica = Replica(shared_url, max_stored_bytes=2 * size + size // 2)

    for table in tables:
        replica.saved(table)

    assert [replica.store.find(table.location) is not None for table in tables] == [False, False, True, True]
    assert replica.count("segments") == 2
    for table in tables:  # some have been evicted from memory
        assert len(replica.saved(table)) == 300
    assert replica.count("snapshots") == 2
    replica.close()


def test_a_table_larger_than_the_budget_is_not_saved(shared_url, people):
    replica = Replica(shared_url, max_stored_bytes=10)
    assert len(replica.saved(people)) == 20
    people.commit(add("new", 50))
    assert len(replica.saved(people)) == 21
    assert [replica.count(name) for name in TABLES] == [0] * 5
    replica.close()


def test_a_tables_use_is_recorded(replica, people, monkeypatch):
    replica.saved(people)
    with replica.database.read() as session:
        before = session.execute(text("SELECT used_at FROM snapshots")).scalar()
    replica.saved(people)
    with replica.database.read() as session:
        assert session.execute(text("SELECT used_at FROM snapshots")).scalar() == before
    monkeypatch.setattr("delvec_service.snapshots.saved_snapshots._TOUCH_SECONDS", 0.0)
    replica.saved(people)
    with replica.database.read() as session:
        assert session.execute(text("SELECT used_at FROM snapshots")).scalar() > before


def test_a_recreated_table_is_never_answered_with_old_rows(replica, people):
    replica.saved(people)
    people.drop()
    people.create(prefix="g")  # with the same number of versions
    new = [f"g{number}" for number in range(20)]

    assert set(replica.files(people)) == set(new)
    replica.restart()
    assert set(replica.saved(people)) == set(new)
    replica.restart()
    people.read.clear()
    assert set(replica.files(people)) == set(new)
    assert not people.read
    people.drop()
    people.create(files=1, prefix="h")
    replica.restart()
    assert replica.files(people) == ["h0"]


def test_the_newest_version_by_its_number_needs_no_log_either(replica, people):
    replica.saved(people)
    replica.restart()
    people.read.clear()
    assert replica.loader.load(people, "people", version=1).num_files == 20
    assert not people.read
    assert replica.loader.load(people, "people", version=0).num_files == 0


DAMAGE = {
    "no snapshot": "DELETE FROM snapshots",
    "no member": "DELETE FROM snapshot_members",
    "no segment": "DELETE FROM segments",
    "no part": "DELETE FROM segment_blobs",
    "no paths": "DELETE FROM segment_blobs WHERE name = 'files'",
    "no bounds": "DELETE FROM segment_blobs WHERE name LIKE 'bounds/%'",
    "no summary": "DELETE FROM segment_summaries",
    "another state": "UPDATE snapshots SET state = segment_blobs.data FROM segment_blobs",
    "another part": "UPDATE segment_blobs SET data = snapshots.state FROM snapshots",
    "another format": "UPDATE snapshots SET format = 99",
    "another version": "UPDATE snapshots SET version = version + 1",
    "an older version": "UPDATE snapshots SET version = 0, file_name = '00000000000000000000.json'",
    "a file back from the dead": "UPDATE snapshot_members SET dead = snapshots.state FROM snapshots",
    "more rows": "UPDATE segments SET num_rows = num_rows + 1",
    "wrong bounds": "UPDATE segment_summaries SET high_int = 3",
    "wrong kind": "UPDATE segment_summaries SET kind = 'text', low_text = '', high_text = ''",
    "wrong nulls": "UPDATE segment_summaries SET only_null = NOT only_null",
}


@pytest.mark.parametrize("statement", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("when", ["before a restart", "in use"])
def test_answers_are_right_whatever_rows_are_damaged(replica, people, statement, when):
    people.commit(RemoveFile("f1"))
    replica.saved(people, "id = 55")
    replica.restart()
    if when == "in use":
        replica.loader.load(people, "people")
    assert replica.execute(statement)

    assert replica.files(people, "id = 55") == ["f5"]
    assert len(replica.saved(people)) == 19

    for _ in range(_SAVES):
        replica.restart()
        people.read.clear()
        assert replica.files(people, "id = 55") == ["f5"]
        if when != "before a restart" or not people.read:
            break
        # A save in progress may be lost as well; the next request saves it again.
        replica.saved(people)
    else:
        pytest.fail("it was not saved again")


@pytest.mark.parametrize("statement", ["DELETE FROM segment_blobs", "DELETE FROM snapshots", None])
def test_answers_stay_right_while_rows_are_lost_under_load(shared_url, people, statement):
    replica = Replica(shared_url, max_bytes=1)
    replica.loader._writer._delay = 0.0
    done = threading.Event()

    def destroy():
        while not done.is_set():
            try:
                if statement is None:
                    drop_schema(replica.database)
                else:
                    replica.execute(statement)
                replica.store.sweep(timedelta(0))
            except DelvecError:
                pass
            if statement is None:
                replica.database.migrate()
            time.sleep(0.02)

    def ask(number):
        for _ in range(15):
            assert replica.files(people, f"id = {number * 10}") == [f"f{number}"]
            replica.loader.discard(people.location)

    with ThreadPoolExecutor(5) as pool:
        destroyer = pool.submit(destroy)
        try:
            list(pool.map(ask, range(4)))
        finally:
            done.set()
        destroyer.result()
    replica.close()


def test_without_a_database_the_log_is_read(tmp_path, people, monkeypatch):
    replica = Replica(f"sqlite:///{tmp_path / 'store.db'}")
    expected = replica.saved(people)
    replica.restart()
    replica.loader.load(people, "people")  # none of its files have been read yet

    def down(*_):
        raise ServiceUnavailable("the database does not answer")

    monkeypatch.setattr(Database, "read", down)
    monkeypatch.setattr(Database, "write", down)
    assert replica.files(people) == expected
    people.commit(add("new", 50))
    assert len(replica.saved(people)) == 21
    replica.restart()
    assert len(replica.files(people)) == 21
    monkeypatch.undo()
    replica.loader._writer._quiet_until = 0.0
    people.commit(add("newer", 51))
    assert len(replica.saved(people)) == 22  # builds on the saved snapshot, so most files are not saved again
    assert len(replica.saved(people)) == 22
    assert replica.store.find(people.location).snapshot.version == 3
    replica.close()


def test_a_busy_database_delays_no_plan(tmp_path, people, monkeypatch):
    monkeypatch.setattr(database, "_BUSY_SECONDS", 3600)  # a save that waits for the lock does not return
    replica = Replica(f"sqlite:///{tmp_path / 'store.db'}")
    replica.loader._writer._delay = 0.0
    with replica.database.write():  # no other writer can write now
        assert len(replica.files(people)) == 20
        people.commit(add("new", 50))
        assert len(replica.files(people)) == 21
    assert replica.loader.flush(30)
    assert replica.store.find(people.location).snapshot.version == 2
    replica.close()


def test_closing_waits_for_a_bounded_time(tmp_path, people, monkeypatch):
    monkeypatch.setattr(database, "_BUSY_SECONDS", 3600)  # the running save only ends with this block
    replica = Replica(f"sqlite:///{tmp_path / 'store.db'}")
    with replica.database.write():
        replica.files(people)
        replica.loader.close(0.2)
    replica.database.close()


def test_losing_the_database_loses_a_cache_and_nothing_else(replica, people):
    expected = replica.saved(people)
    drop_schema(replica.database)
    replica.database.migrate()
    replica.loader._writer._quiet_until = 0.0
    assert replica.files(people) == expected


@pytest.mark.parametrize(
    "summary",
    [
        Summary(None, None, nullable=True, only_null=True),
        Summary(-(2**63), 2**63 - 1, nullable=False, only_null=False),
        Summary(None, 5, nullable=True, only_null=False),
        Summary(-0.0, 1.5e300, nullable=False, only_null=False),
        Summary(0.1, None, nullable=False, only_null=False),
        Summary("", "z\U0010ffffé'\"\\%", nullable=True, only_null=False),
        Summary(Decimal("-1.10"), Decimal(99999999999999999999999999999999999999), True, False),
    ],
    ids=str,
)
def test_bounds_round_trip(database, summary):
    store = SegmentStore(database)
    store.add("t", [SegmentRecord("s", 1, {"files": b"x"}, {"c": summary})])
    (found,) = store.summaries(["s", "unknown"], "c").values()
    assert found == summary
    assert type(found.low) is type(summary.low)
    assert store.summaries(["s"], "another") == {}


@pytest.mark.parametrize(
    "summary",
    [
        Summary(2**63, 2**63, nullable=False, only_null=False),
        Summary("\ud800", "x", nullable=False, only_null=False),
        Summary("a\0", "x", nullable=False, only_null=False),
        Summary(float("nan"), 1.0, nullable=False, only_null=False),
        Summary(1, 2.5, nullable=False, only_null=False),
        Summary(Decimal("NaN"), Decimal(1), nullable=False, only_null=False),
    ],
    ids=repr,
)
def test_bounds_that_do_not_fit_are_left_out(database, summary):
    store = SegmentStore(database)
    store.add("t", [SegmentRecord("s", 1, {"files": b"x"}, {"c": summary})])
    assert store.summaries(["s"], "c") == {}


def test_lost_parts_are_found_by_name(database):
    store = SegmentStore(database)
    store.add("t", [SegmentRecord(id_, 1, {"files": id_.encode()}, {}) for id_ in ("a", "b")])
    assert store.blobs(["a", "b"], "files") == {"a": b"a", "b": b"b"}
    assert store.optional_blobs(["a", "b", "c"], "bounds/x") == {}
    with pytest.raises(SegmentsLost) as caught:
        store.blobs(["a", "c"], "files")
    assert caught.value.args == ("c",)


def test_a_large_save_lets_other_writers_proceed(tmp_path):
    database = Database(f"sqlite:///{tmp_path / 'store.db'}")
    database.migrate()
    store = SegmentStore(database)
    records = [SegmentRecord(f"{number:032x}", 1, {"files": b"x" * 2**20}, {}) for number in range(64)]
    writes = 0
    saving = threading.Thread(target=store.add, args=("t", records))
    saving.start()
    while saving.is_alive():
        with database.write():
            writes += 1
        time.sleep(0.01)
    saving.join()
    assert writes > 2
    database.close()


def test_disk_space_is_released(tmp_path):
    path = tmp_path / "store.db"
    database = Database(f"sqlite:///{path}")
    database.migrate()
    store = SegmentStore(database)
    store.add("t", [SegmentRecord(f"{number:032x}", 1, {"files": b"x" * 2**20}, {}) for number in range(8)])
    assert store.sweep(timedelta(0)) == 8
    database.close()
    assert path.stat().st_size < 2**20


def test_a_dry_run_leaves_nothing(replica):
    warm_up(replica.store)
    warm_up(None)
    assert [replica.count(name) for name in TABLES] == [0] * 5


def test_a_table_too_large_for_memory_is_read_from_the_store(shared_url, tmp_path):
    replica = Replica(shared_url, max_bytes=1)
    tables = [Table(tmp_path / str(number), files=300) for number in range(3)]
    for table in tables:
        replica.saved(table)
        table.read.clear()

    for table in tables:
        assert len(replica.files(table)) == 300
        assert not table.read
    replica.close()


def test_snapshots_are_still_used_when_they_cannot_be_written(
    tmp_path, people, tmp_path_factory, monkeypatch
):
    replica = Replica(f"sqlite:///{tmp_path / 'store.db'}")
    replica.saved(people)
    other = Table(tmp_path_factory.mktemp("other"))

    def locked(*_):
        raise ServiceUnavailable("database is locked")

    with monkeypatch.context() as patch:
        patch.setattr(SegmentStore, "add", locked)
        assert len(replica.saved(other)) == 20
        replica.loader.discard(people.location)
        people.read.clear()
        assert len(replica.files(people)) == 20
        assert not people.read
    assert len(replica.saved(other)) == 20
    assert replica.store.find(other.location) is not None
    replica.close()


def test_a_damaged_snapshot_is_not_saved_again_from_memory(replica, people):
    replica.saved(people)
    replica.restart()
    damaged = replica.loader.load(people, "people")
    mark = LogFileId.of(people.head(f"_delta_log/{1:020d}.json"))
    replica.execute("DELETE FROM segment_blobs")
    for segment in damaged.live.segments:  # the caches of the process outlive a restart of the loader
        FILE_INDEX_ENGINE.decoded.drop(segment.id)
        FILE_INDEX_ENGINE.stored.drop(segment.id)
    people.read.clear()
    assert len(replica.files(people)) == 20
    assert people.read

    replica.loader._writer.note(damaged, mark)
    assert replica.loader.flush(30)

    assert len(replica.saved(people)) == 20
    replica.restart()
    people.read.clear()
    assert len(replica.files(people)) == 20
    assert not people.read


def test_segments_saved_before_their_snapshot_are_not_swept(database):
    store = SegmentStore(database)
    store.add("t", [SegmentRecord("ahead", 1, {"files": b"x"}, {})], ahead=timedelta(hours=1))
    store.add("t", [SegmentRecord("left", 1, {"files": b"x"}, {})])
    assert store.sweep(timedelta(0)) == 1
    assert store.known("t") == {"ahead"}
    assert store.sweep(timedelta(hours=-2)) == 1


def test_threads_that_write_take_turns(tmp_path):
    """Otherwise SQLite would make them sleep, and they would miss their chance to write."""
    database = Database(f"sqlite:///{tmp_path / 'store.db'}")
    database.migrate()
    inside, most = [], []

    def write():
        for _ in range(20):
            with database.write():
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 160
    assert max(most) == 1
    database.close()


def test_waiting_too_long_for_a_turn_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("delvec_service.store.database._BUSY_SECONDS", 0.05)
    database = Database(f"sqlite:///{tmp_path / 'store.db'}")
    database.migrate()
    found = []

    def write():
        try:
            with database.write():
                pass
        except ServiceUnavailable as error:
            found.append(error.message)

    with database.write():
        other = threading.Thread(target=write)
        other.start()
        other.join()
    write()
    assert found == ["The service's database does not answer: it has been busy for 0.05 seconds; try again."]
    database.close()
