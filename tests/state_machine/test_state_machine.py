"""Random concurrent histories: every committed one equals the serial order of its versions, row by row."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.state_machine.choices import Drawn
from tests.state_machine.world import World


class Histories(RuleBasedStateMachine):
    """What clients, replicas and a foreign writer do to one table, in any order."""

    def __init__(self):
        super().__init__()
        self.world = None

    @initialize(data=st.data())
    def create(self, data):
        self.world = World(Drawn(data))

    @rule(data=st.data())
    def begin(self, data):
        self.world.begin(Drawn(data))

    @rule(data=st.data())
    def begin_another(self, data):
        self.world.begin(Drawn(data))

    @precondition(lambda self: self.world.pending)
    @rule(data=st.data())
    def commit(self, data):
        self.world.commit(Drawn(data))

    @precondition(lambda self: self.world.pending)
    @rule(data=st.data())
    def commit_together(self, data):
        self.world.commit_together(Drawn(data))

    @rule(data=st.data())
    def commit_foreign(self, data):
        self.world.commit_foreign(Drawn(data))

    @precondition(lambda self: self.world.done)
    @rule(data=st.data())
    def repeat(self, data):
        self.world.repeat(Drawn(data))

    @rule(data=st.data())
    def checkpoint(self, data):
        self.world.checkpoint(Drawn(data))

    def teardown(self):
        if self.world is not None:
            self.world.finish()
            self.world.forget()


Histories.TestCase.settings = settings(
    max_examples=30,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestHistories = Histories.TestCase
