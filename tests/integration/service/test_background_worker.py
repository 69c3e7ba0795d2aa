"""The background worker thread."""

import threading
import time
from itertools import pairwise

import pytest

from delvec_service.background_worker import BackgroundWorker

HOUR = 3600.0


class Turns:
    """A task that notes its turns, and that can be held in the middle of one."""

    def __init__(self):
        self.taken = []
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.go_on.set()

    def __call__(self, item):
        self.taken.append(item)
        self.begun.release()
        assert self.go_on.wait(120)
        if "bad" in item:
            raise ValueError(item)

    def has_begun(self):
        return self.begun.acquire(timeout=120)


@pytest.fixture
def turns():
    return Turns()


@pytest.fixture
def worker(turns):
    worker = BackgroundWorker("delvec-test", turns)
    yield worker
    turns.go_on.set()
    worker.close()


def test_an_item_that_is_due_has_its_turn_at_once_and_the_newest_of_a_key_counts(worker, turns):
    turns.go_on.clear()
    worker.schedule("a", ("a", 1))
    assert turns.has_begun()
    worker.schedule("b", ("b", 2))
    worker.schedule("b", ("b", 3))
    worker.schedule("c", ("c", 4), after=HOUR)
    assert worker.backlog == 2
    assert not worker.is_idle
    turns.go_on.set()
    assert turns.has_begun()
    assert turns.taken == [("a", 1), ("b", 3)]
    assert worker.wait(120)
    assert turns.taken == [("a", 1), ("b", 3), ("c", 4)]
    assert worker.is_idle


def test_the_first_time_of_a_key_counts(worker, turns):
    turns.go_on.clear()
    worker.schedule("busy", ("busy", 0))
    assert turns.has_begun()
    worker.schedule("a", ("a", 1), after=HOUR)
    worker.schedule("a", ("a", 2))
    worker.schedule("a", ("a", 3), after=HOUR)
    turns.go_on.set()
    assert turns.has_begun()
    assert turns.taken[-1] == ("a", 3)


def test_a_turn_that_fails_is_logged_and_the_next_has_its_turn(worker, turns, caplog):
    worker.schedule("a", ("a", "bad"))
    worker.schedule("b", ("b", "good"))
    assert worker.wait(120)
    assert turns.taken == [("a", "bad"), ("b", "good")]
    assert "ValueError" in caplog.text


def test_what_is_discarded_or_comes_after_the_end_has_no_turn(worker, turns):
    worker.schedule("a", ("a", 1), after=HOUR)
    worker.schedule("b", ("b", 2), after=HOUR)
    worker.discard("a")
    assert worker.wait(120)
    assert turns.taken == [("b", 2)]
    worker.schedule("c", ("c", 3), after=HOUR)
    worker.close()
    worker.schedule("d", ("d", 4))
    assert worker.wait(120)
    assert turns.taken == [("b", 2)]


def test_whoever_waits_does_not_wait_for_what_comes_later(turns):
    def again(item):
        turns(item)
        worker.schedule("a", ("a", item[1] + 1))

    worker = BackgroundWorker("delvec-test", again)
    worker.schedule("a", ("a", 0))
    assert worker.wait(120)
    worker.close()
    assert turns.taken[0] == ("a", 0)


def test_under_load_a_key_has_a_turn_now_and_then_and_whoever_waits_has_it_at_once(turns):
    worker = BackgroundWorker("delvec-test", turns, rest=lambda _: HOUR)
    worker.schedule("a", ("a", (1,)))
    assert turns.has_begun()
    for version in (2, 3, 4):
        worker.schedule("a", ("a", (version,)), merge=lambda old, new: (old[0], old[1] + new[1]))
    worker.schedule("other", ("other", (9,)))
    assert turns.has_begun()
    assert turns.taken == [("a", (1,)), ("other", (9,))]
    assert worker.wait(120)
    assert turns.taken == [("a", (1,)), ("other", (9,)), ("a", (2, 3, 4))]
    worker.close()


def test_a_worker_leaves_most_of_a_processor_to_others_however_many_keys_there_are():
    taken, done = [], threading.Event()

    def task(item):
        taken.append((item, time.monotonic(), time.thread_time()))
        while time.thread_time() - taken[-1][2] < 0.05:
            pass
        if len(taken) == 4:
            done.set()

    worker = BackgroundWorker("delvec-test", task, share=0.1)
    for number in range(4):
        worker.schedule(str(number), number)
    assert done.wait(120)
    worker.close()
    begins = [at for _, at, _ in taken]
    assert [item for item, _, _ in taken] == [0, 1, 2, 3]
    assert all(later - earlier > 0.4 for earlier, later in pairwise(begins))


def test_who_waits_for_a_worker_does_not_wait_for_its_pauses():
    taken = []

    def task(item):
        began = time.thread_time()
        while time.thread_time() - began < 0.01:
            pass
        taken.append(item)

    worker = BackgroundWorker("delvec-test", task, share=1e-6)
    for number in range(20):
        worker.schedule(str(number), number)
    assert worker.wait(50)  # pauses would be 95 seconds
    assert sorted(taken) == list(range(20))
    worker.close()
