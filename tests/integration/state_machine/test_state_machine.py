"""Random concurrent histories: each equals the serial execution of its versions, row by row."""

from collections import Counter

import deltalake
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.integration.state_machine.choices import Drawn
from tests.integration.state_machine.seeded import run
from tests.integration.state_machine.world import World

STEPS = 50_000
TOTALS = Counter()
"""Counts of all successful histories in this process."""
QUIRKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


class Histories(RuleBasedStateMachine):
    """Operations of clients, replicas and a foreign writer on one table, in any order."""

    def __init__(self):
        super().__init__()
        self.world = None
        self.steps = 0

    @initialize(data=st.data())
    def create(self, data):
        self.world = World(Drawn(data))

    @rule(data=st.data())
    def begin(self, data):
        self.step(data, World.begin)

    @rule(data=st.data())
    def begin_another(self, data):
        self.step(data, World.begin)

    @precondition(lambda self: self.world.pending)
    @rule(data=st.data())
    def commit(self, data):
        self.step(data, World.commit)

    @precondition(lambda self: self.world.pending)
    @rule(data=st.data())
    def commit_together(self, data):
        self.step(data, World.commit_together)

    @rule(data=st.data())
    def burst(self, data):
        self.step(data, World.burst)

    @rule(data=st.data())
    def commit_foreign(self, data):
        self.step(data, World.commit_foreign)

    @precondition(lambda self: self.world.pending)
    @rule(data=st.data())
    def commit_another(self, data):
        self.step(data, World.commit)

    @precondition(lambda self: self.world.done)
    @rule(data=st.data())
    def repeat_or_checkpoint(self, data):
        self.step(data, Drawn(data).pick((World.repeat, World.repeat, World.checkpoint)))

    def step(self, data, what):
        what(self.world, Drawn(data))
        self.steps += 1

    def teardown(self):
        if self.world is None:
            return
        counts = self.world.finish()
        self.world.forget()
        counts["longest history"] = counts["versions"]
        most = {name: max(TOTALS[name], counts[name]) for name in ("largest group", "longest history")}
        TOTALS.update(counts, steps=self.steps, histories=1)
        TOTALS.update({name: number - TOTALS[name] for name, number in most.items()})


Histories.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, derandomize=True, suppress_health_check=QUIRKS
)
TestHistories = Histories.TestCase


@pytest.mark.parametrize("seed", range(3))
def test_deltalake_reads_the_same_rows_at_the_end(seed, tmp_path):
    world = run(seed, 60)
    world.copy_to(tmp_path)
    world.forget()

    table = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(tmp_path)))
    found = table.execute("SELECT id, value, part FROM t ORDER BY id").read_all()

    assert [tuple(row) for row in zip(*(column.to_pylist() for column in found.columns), strict=True)] == [
        (row.id, row.value, row.part) for row in world.rows()
    ]


@pytest.mark.long("tens of thousands of random steps")
@pytest.mark.timeout(0)
def test_fifty_thousand_steps(capsys):
    TOTALS.clear()
    many = settings(
        max_examples=100, stateful_step_count=100, deadline=None, database=None, suppress_health_check=QUIRKS
    )
    while TOTALS["steps"] < STEPS:
        run_state_machine_as_test(Histories, settings=many)
    report(capsys, TOTALS)


@pytest.mark.long("tens of thousands of random steps")
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", range(4))
def test_a_long_history(seed, capsys):
    world = run(seed, 2_500)
    world.forget()
    report(capsys, world.counts | {"steps": 2_500, "longest history": world.counts["versions"]})


def report(capsys, totals):
    with capsys.disabled():
        print()  # noqa: T201
        for name, number in sorted(totals.items()):
            print(f"{number:>9,}  {name}")  # noqa: T201
