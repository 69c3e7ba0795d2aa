"""Plans of one process take turns: one at a time, in order, and none waits for a slow one."""

import time
from concurrent.futures import ThreadPoolExecutor

from delvec_service.scans.plan_queue import PlanQueue

LONG = 30.0


def waits(turns, count):
    """Wait until ``count`` threads wait for their turn."""
    limit = time.monotonic() + LONG
    while len(turns._waiting) < count:
        assert time.monotonic() < limit
        time.sleep(0.001)


def test_turns_come_one_at_a_time_in_the_order_of_asking():
    turns = PlanQueue(LONG)
    order, inside = [], []

    def compute(number):
        with turns.turn():
            inside.append(number)
            assert inside == [number]
            time.sleep(0.001)
            inside.clear()
            order.append(number)

    with ThreadPoolExecutor(8) as pool:
        with turns.turn():
            asked = []
            for number in range(8):
                asked.append(pool.submit(compute, number))
                waits(turns, number + 1)
            assert order == []
        for each in asked:
            each.result(LONG)
    assert order == list(range(8))


def test_a_slow_plan_holds_up_others_only_for_the_patience():
    turns = PlanQueue(0.05)

    def compute():
        began = time.monotonic()
        with turns.turn():
            return time.monotonic() - began

    with ThreadPoolExecutor(1) as pool, turns.turn():
        assert pool.submit(compute).result(LONG) >= 0.05


def test_turns_go_on_after_threads_that_did_not_wait_and_after_errors():
    turns = PlanQueue(0.01)

    def compute(number):
        with turns.turn():
            time.sleep(0.03)
            if number % 3 == 0:
                raise ValueError(number)
        return number

    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(compute, number) for number in range(24)]
        results = [each.exception(LONG) for each in asked]
    assert [result is None for result in results] == [number % 3 != 0 for number in range(24)]
    assert not turns._taken
    assert not turns._waiting


def test_no_turn_is_lost_when_patience_ends_just_as_the_turn_comes():
    turns = PlanQueue(0.001)

    def compute():
        with turns.turn():
            time.sleep(0.001)

    with ThreadPoolExecutor(16) as pool:
        for each in [pool.submit(compute) for _ in range(2000)]:
            each.result(LONG)
    assert not turns._taken
    assert not turns._waiting
