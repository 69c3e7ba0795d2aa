"""The queue of commits to a table: order, grouping, and no starvation."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from pyroaring import BitMap64

from delvec_errors import InternalError
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_service.commits.commit_queue import GroupCommit

LONG = 30.0


@dataclass(frozen=True)
class Table:
    location: str = "memory:///t"


@dataclass(eq=False)
class PendingCommit:
    changes: Changes
    result: str | None = None


def member(key, operation="DELETE", rows=1):
    return PendingCommit(Changes(operation, 0, str(key), "engine", row_deletes={"a": BitMap64(range(rows))}))


@dataclass
class Runs:
    """Fake commits that block until released."""

    groups: list[list[str]] = field(default_factory=list)
    failing: set[str] = field(default_factory=set)
    failure: BaseException = field(default_factory=lambda: RuntimeError("broken"))

    def __post_init__(self):
        self.changed = threading.Condition()
        self.let_go = 0

    def __call__(self, _table, members):
        with self.changed:
            self.groups.append([one.changes.transaction_id for one in members])
            number = len(self.groups)
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: self.let_go >= number, LONG)
        if self.failing.intersection(self.groups[number - 1]):
            raise self.failure
        for one in members:
            one.result = f"run {number}"

    def wait_for(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.groups) >= count, LONG)

    def go(self, count=1000):
        with self.changed:
            self.let_go += count
            self.changed.notify_all()


class Line:
    """Submits members from threads of their own, one after the other."""

    def __init__(self, runs, **settings):
        self.commits = GroupCommit(runs, **{"patience": LONG, **settings})
        self.pool = ThreadPoolExecutor(64)

    def add(self, one, table=Table()):
        before = self._waiting(table)
        future = self.pool.submit(self.commits.submit, table, one)
        pause = threading.Event()
        while self._waiting(table) == before and not future.done():
            pause.wait(0.001)
        return future

    def _waiting(self, table):
        line = self.commits._queues.get(table.location)
        return (0, 0) if line is None else (len(line.waiting), len(line.running))


@pytest.fixture
def runs():
    return Runs()


def test_a_commit_that_nobody_is_ahead_of_runs_at_once_and_alone(runs):
    runs.go()
    line = Line(runs)
    for key in "abc":
        line.add(member(key)).result(LONG)
    assert runs.groups == [["a"], ["b"], ["c"]]
    assert line.commits._queues == {}


def test_those_that_wait_share_the_next_version(runs):
    line = Line(runs)
    members = [member(key) for key in "abcd"]
    futures = [line.add(one) for one in members]
    runs.go()
    for future in futures:
        future.result(LONG)
    assert runs.groups == [["a"], ["b", "c", "d"]]
    assert [one.result for one in members] == ["run 1", "run 2", "run 2", "run 2"]


def test_another_kind_is_overtaken_once_and_runs_next(runs):
    line = Line(runs)
    kinds = {"a": "DELETE", "b": "DELETE", "c": "UPDATE", "d": "DELETE", "e": "UPDATE"}
    futures = [line.add(member(key, kind)) for key, kind in kinds.items()]
    runs.go()
    for future in futures:
        future.result(LONG)
    assert runs.groups == [["a"], ["b", "d"], ["c"], ["e"]]


def test_a_table_may_refuse_groups(runs):
    line = Line(runs, configuration=lambda _: {"delvec.groupCommit": "false"})
    futures = [line.add(member(key)) for key in "abc"]
    runs.go()
    for future in futures:
        future.result(LONG)
    assert runs.groups == [["a"], ["b"], ["c"]]


def test_groups_are_bounded_by_members(runs):
    line = Line(runs, max_members=2)
    futures = [line.add(member(key)) for key in "abcde"]
    runs.go()
    for future in futures:
        future.result(LONG)
    assert runs.groups == [["a"], ["b", "c"], ["d", "e"]]


def test_groups_are_bounded_by_bytes_and_a_large_commit_is_not_overtaken(runs):
    line = Line(runs, max_bytes=5000)
    sizes = {"a": 1, "b": 1, "large": 10_000, "c": 1}
    futures = [line.add(member(key, rows=rows)) for key, rows in sizes.items()]
    runs.go()
    for future in futures:
        future.result(LONG)
    assert runs.groups == [["a"], ["b"], ["large"], ["c"]]


def test_a_failure_is_that_of_its_group_only(runs):
    line = Line(runs)
    runs.failing = {"b"}
    futures = {key: line.add(member(key)) for key in "abc"}
    later = line.add(member("d", "UPDATE"))
    runs.go()
    futures["a"].result(LONG)
    for key in "bc":
        with pytest.raises(RuntimeError, match="broken"):
            futures[key].result(LONG)
    later.result(LONG)
    assert line.commits._queues == {}


def test_those_who_wait_are_told_when_the_thread_that_works_for_them_is_stopped(runs):
    line = Line(runs)
    runs.failing, runs.failure = {"b"}, SystemExit()
    futures = {key: line.add(member(key)) for key in "abc"}
    runs.go()
    futures["a"].result(LONG)
    with pytest.raises(SystemExit):
        futures["b"].result(LONG)
    with pytest.raises(InternalError):
        futures["c"].result(LONG)


def test_a_commit_that_hangs_does_not_hold_up_the_others(runs):
    line = Line(runs, patience=0.05)
    stuck = line.add(member("stuck"))
    runs.wait_for(1)
    others = [line.add(member(key)) for key in "ab"]
    runs.wait_for(2)
    assert not stuck.done()
    runs.go()
    for future in (stuck, *others):
        future.result(LONG)
    assert {key for group in runs.groups for key in group} == {"stuck", "a", "b"}


def test_tables_do_not_wait_for_each_other(runs):
    line = Line(runs)
    futures = [line.add(member("a")), line.add(member("b"), Table("memory:///other"))]
    runs.wait_for(2)
    runs.go()
    for future in futures:
        future.result(LONG)
    assert sorted(runs.groups) == [["a"], ["b"]]


def test_many_threads_each_get_their_own_answer():
    done = []

    def run(_table, members):
        for one in members:
            one.result = one.changes.transaction_id
        done.append(len(members))

    commits = GroupCommit(run, max_members=7)

    def client(number):
        for turn in range(50):
            one = member(f"{number}-{turn}")
            commits.submit(Table(), one)
            assert one.result == f"{number}-{turn}"

    with ThreadPoolExecutor(16) as pool:
        for future in [pool.submit(client, number) for number in range(16)]:
            future.result(LONG)
    assert sum(done) == 16 * 50
    assert max(done) <= 7
    assert commits._queues == {}
