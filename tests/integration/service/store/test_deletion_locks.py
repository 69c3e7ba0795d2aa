"""Deletion locks between VACUUM and RESTORE, within a process and across processes."""

import threading
import time

import pytest
from sqlalchemy import delete, select
from tests.support.postgres_server import postgres_or_skip

from delvec_errors import ServiceUnavailable
from delvec_service.store.database import Database
from delvec_service.store.deletion_locks import DeletionLocks, FileLease
from delvec_service.store.models import FileLeaseRow

TABLE = "file:///tables/people"


@pytest.fixture(scope="module")
def postgres():
    with postgres_or_skip() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request, tmp_path):
    url = (
        f"sqlite:///{tmp_path / 'store.db'}"
        if request.param == "sqlite"
        else request.getfixturevalue("postgres").url
    )
    opened = Database(url)
    opened.migrate()
    yield opened
    opened.close()


WAITS = pytest.mark.parametrize(
    "database",
    ["sqlite", pytest.param("postgresql", marks=pytest.mark.full("it waits for seconds, the same on both"))],
    indirect=True,
)


@pytest.fixture
def locks(database):
    return DeletionLocks(database)


def enters(lock, location=TABLE, seconds=0.5):
    """Return whether another thread gets a lock now."""
    entered, left = threading.Event(), threading.Event()

    def enter():
        with lock(location):
            entered.set()
        left.set()

    threading.Thread(target=enter, daemon=True).start()
    got = entered.wait(seconds)
    if got:
        assert left.wait(60)  # it is done with the database
    return got, left


# --- within a process -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "wanted", "together"),
    [
        ("restoring", "restoring", True),
        ("restoring", "deleting", False),
        ("deleting", "restoring", False),
        ("deleting", "deleting", False),
    ],
)
def test_only_restores_work_on_a_table_together(locks, held, wanted, together):
    with getattr(locks, held)(TABLE):
        entered, left = enters(getattr(locks, wanted), seconds=60 if together else 0.5)
        assert entered is together
    assert left.wait(60)


def test_other_tables_are_not_held_up(locks):
    with locks.deleting(TABLE):
        assert enters(locks.deleting, "file:///tables/orders", 60)[0]


def test_an_error_gives_the_lock_back(locks, database):
    with pytest.raises(ZeroDivisionError), locks.deleting(TABLE):
        _ = 1 / 0
    assert enters(locks.restoring, seconds=60)[0]


@pytest.mark.parametrize("kind", ["restoring", "deleting"])
def test_a_database_that_fails_while_others_are_looked_for_leaves_no_flag(locks, database, monkeypatch, kind):
    def fail(_):
        raise ServiceUnavailable("The database does not answer.")

    with monkeypatch.context() as patch:
        patch.setattr(FileLease, "is_opposed", fail)
        with pytest.raises(ServiceUnavailable), getattr(locks, kind)(TABLE):
            pass
    assert flags(database) == []
    assert enters(locks.restoring, seconds=60)[0]


def test_nothing_is_left_in_the_store(locks, database):
    with locks.deleting(TABLE):
        assert flags(database) == ["deleting"]
    with locks.restoring(TABLE):
        assert flags(database) == ["restoring"]
    assert flags(database) == []


def flags(database):
    with database.read() as session:
        return list(session.scalars(select(FileLeaseRow.kind)))


# --- across processes -------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(database):
    """``elsewhere(kind)``: the flag of another process."""
    shown = []

    def show(kind, seconds=60.0):
        shown.append(FileLease(database, TABLE, kind, seconds))
        shown[-1].show()
        return shown[-1]

    yield show
    for lease in shown:
        lease.take_down()


@pytest.mark.parametrize(("theirs", "ours"), [("restoring", "deleting"), ("deleting", "restoring")])
def test_the_other_kind_is_waited_for(locks, elsewhere, theirs, ours):
    other = elsewhere(theirs)

    entered, left = enters(getattr(locks, ours))
    assert not entered
    assert enters(getattr(locks, ours), "file:///tables/orders", 60)[0]
    other.take_down()

    assert left.wait(60)


@pytest.mark.parametrize("kind", ["restoring", "deleting"])
def test_the_same_kind_is_not_waited_for(locks, elsewhere, kind):
    elsewhere(kind)

    assert enters(getattr(locks, kind), seconds=60)[0]


@WAITS
def test_a_restore_comes_before_the_next_files_of_a_vacuum_that_goes_on(locks, elsewhere):
    """Otherwise a VACUUM that takes the lock again at once would let no RESTORE in."""
    deleting = elsewhere("deleting")
    entered, left = enters(locks.restoring)
    assert not entered

    # The other VACUUM's next batch: it looks for RESTOREs, and takes its flag down.
    deleting.take_down()
    again = elsewhere("deleting")
    assert again.is_opposed()
    again.take_down()

    assert left.wait(60)


@WAITS
def test_a_process_that_died_holds_nobody_up_for_longer_than_its_flag(database, elsewhere):
    dead = elsewhere("deleting", seconds=1.0)
    dead._released.set()  # nothing renews it

    for _ in range(2):
        assert enters(DeletionLocks(database).restoring, seconds=60)[0]
    assert dead.owner not in owners(database)


def owners(database):
    with database.read() as session:
        return list(session.scalars(select(FileLeaseRow.owner)))


@WAITS
@pytest.mark.full("waits for a lease to end")
def test_a_flag_is_renewed_while_it_is_held(database, elsewhere):
    other = elsewhere("restoring", seconds=4.0)
    time.sleep(6)

    assert FileLease(database, TABLE, "deleting", 60).is_opposed()
    other.check()


@WAITS
def test_whoever_lost_the_flag_is_told(database):
    """The database was deleted, so the other kind could begin."""
    with DeletionLocks(database, seconds=2.0).deleting(TABLE) as lease:
        lease.check()
        with database.write() as session:
            session.execute(delete(FileLeaseRow))
        end = time.monotonic() + 60
        with pytest.raises(ServiceUnavailable, match="try again"):  # noqa: PT012 - until it is noticed
            while time.monotonic() < end:
                lease.check()
                time.sleep(0.05)


@WAITS
def test_whoever_cannot_renew_the_flag_is_told_before_it_ends(database, monkeypatch):
    with DeletionLocks(database, seconds=2.0).deleting(TABLE) as lease:
        monkeypatch.setattr(Database, "write", _away)
        time.sleep(1.6)
        with pytest.raises(ServiceUnavailable, match="try again"):
            lease.check()
        monkeypatch.undo()


def _away(_):
    raise ServiceUnavailable("away")
