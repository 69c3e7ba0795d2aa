"""RESTORE and a running VACUUM in two service processes on one store: neither deletes or restores the other's files."""

from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial

import pytest
from tests.chaos.replica import Replica
from tests.support.between import during_deletes
from tests.support.suites import some_in_gate
from tests.support.tables import ids

import delvec
from delvec_service.commits.commit import Commits

START_SECONDS = 300


@pytest.fixture(
    params=some_in_gate(["sqlite", "postgresql"], ["postgresql"], "the same with the locks of a file")
)
def lakes(request, tmp_path):
    """A connection to an in-process service, and one to another process on the same store."""
    url = (
        f"sqlite:///{tmp_path / 'store.db'}"
        if request.param == "sqlite"
        else request.getfixturevalue("postgres").url
    )
    (tmp_path / "tables").mkdir()
    replica = Replica(1, tmp_path, str(tmp_path / "tables"), url)
    with delvec.connect(database_url=url) as here:
        table = here.create_table(tmp_path / "tables" / "replaced", "id long")
        table.append([{"id": n} for n in range(10)])
        table.overwrite([{"id": n} for n in range(20, 30)])
        replica.start()
        try:
            assert replica.wait(START_SECONDS), replica.tail()
            with delvec.connect(replica.url, timeout=START_SECONDS) as there:
                yield table, there.table(table.location, engine="duckdb")
        finally:
            replica.kill()


@pytest.mark.timeout(900)
def test_a_restore_waits_for_a_vacuum_that_another_process_runs(lakes, monkeypatch):
    """Between VACUUM's read of the log and its deletes, the RESTORE would find all files and commit them."""
    here, there = lakes
    with during_deletes(monkeypatch, partial(there.restore, 1), seconds=3) as restores:
        assert here.vacuum(0, enforce_retention_duration=False)["num-files"] == 1
        with pytest.raises(delvec.MissingRestoreFiles):
            restores[0].result(START_SECONDS)
    assert ids(here) == ids(there) == list(range(20, 30))
    assert here.check()["num-errors"] == 0


@pytest.mark.full("the other way round; starts processes")
@pytest.mark.timeout(900)
def test_a_vacuum_waits_for_a_restore_that_another_process_runs(lakes, monkeypatch):
    """Between RESTORE's check of the files and its commit, the VACUUM would delete them."""
    here, there = lakes
    commit, vacuums = Commits.commit, []
    with ThreadPoolExecutor(1) as pool:

        def late(self, table, changes):
            if changes.operation == "RESTORE" and not vacuums:
                vacuums.append(pool.submit(there.vacuum, 0, enforce_retention_duration=False))
                wait(vacuums, 3)
            return commit(self, table, changes)

        monkeypatch.setattr(Commits, "commit", late)
        here.restore(1)
        vacuums[0].result(START_SECONDS)
    assert ids(here) == ids(there) == list(range(10))
    assert here.check()["num-errors"] == 0
