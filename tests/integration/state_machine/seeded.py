"""Histories from a seeded generator: longer than hypothesis's, and easy to repeat from the seed."""

from tests.integration.state_machine.choices import Seeded
from tests.integration.state_machine.world import World

__all__ = ["STEPS", "run"]

STEPS = (
    *[World.begin] * 10,
    *[World.commit] * 6,
    *[World.commit_together] * 2,
    *[World.burst] * 2,
    *[World.commit_foreign] * 2,
    World.repeat,
)


def run(seed, steps, location=None):
    """Run one history of this many steps; return its finished world."""
    choices = Seeded(seed)
    world = World(choices, location)
    for _ in range(steps):
        if choices.integer(0, 199) == 0:
            world.checkpoint(choices)
        else:
            choices.pick(STEPS)(world, choices)
    world.finish()
    return world
