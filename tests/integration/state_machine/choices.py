"""The source of a history's decisions: hypothesis, which can shrink a failing one, or a seeded generator."""

import random

from hypothesis import strategies as st

__all__ = ["Drawn", "Seeded"]


class Choices:
    """Decisions, all derived from :meth:`integer`."""

    def integer(self, low, high):
        """Return an integer between both ends, inclusive."""
        raise NotImplementedError

    def flag(self, percent=50):
        # Hypothesis shrinks towards small numbers, so false is the simpler answer.
        return self.integer(0, 99) >= 100 - percent

    def pick(self, options):
        return options[self.integer(0, len(options) - 1)]

    def some(self, options, most=None):
        """Return one or more of the options, in order."""
        count = self.integer(1, min(len(options), most or len(options)))
        first = self.integer(0, len(options) - 1)
        chosen = {(first + step) % len(options) for step in range(count)}
        return [option for number, option in enumerate(options) if number in chosen]


class Drawn(Choices):
    def __init__(self, data):
        self._data = data

    def integer(self, low, high):
        return self._data.draw(st.integers(low, high))


class Seeded(Choices):
    def __init__(self, seed):
        self._random = random.Random(seed)

    def integer(self, low, high):
        return self._random.randint(low, high)
