"""Transactions planned at one version and committed concurrently, one thread each, through two replicas."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from tests.integration.state_machine.choices import Seeded
from tests.integration.state_machine.transactions import Planner
from tests.integration.state_machine.world import World

DELETES = (Planner.delete_rows, Planner.delete, Planner.delete_in_partition)
MIXED = (*DELETES, Planner.append, Planner.update, Planner.merge, Planner.optimize)


def at_once(world, count):
    """Commit all pending transactions, one thread each; return the answers in planning order."""
    members, world.pending = world.pending, []
    start = Barrier(len(members))

    def commit(number):
        start.wait(120)
        replica = number % len(world.replicas)
        return world.replicas[replica].commits.commit(world.tables[replica], members[number].changes)

    with ThreadPoolExecutor(count) as pool:
        results = list(pool.map(commit, range(len(members))))
    before = world.reader.newest.number
    world.catch_up()
    world.note(members, results, before)


@pytest.mark.parametrize("plans", [DELETES, MIXED], ids=["deletes", "mixed"])
@pytest.mark.parametrize("seed", range(3))
def test_transactions_committed_at_once_equal_a_serial_order(plans, seed):
    choices = Seeded(seed)
    world = World(choices)
    for _ in range(6):
        world.begin(choices, Planner.append)
        world.commit(choices)
        for _ in range(6):
            world.begin_now(choices, choices.pick(plans))
        if world.pending:
            at_once(world, 8)
    counts = world.finish()
    world.forget()
    assert counts["versions"] > 6
    if plans is DELETES:
        assert counts["Conflict"] == 0
