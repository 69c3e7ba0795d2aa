"""Parameters of which the gate runs only some."""

import pytest


def some_in_gate(values, in_gate, reason):
    """Return parameters: those of ``in_gate`` run in the gate, the others in the whole suite only, for a reason."""
    full = pytest.mark.full(reason)
    assert all(value in values for value in in_gate), "a misspelled value would silently leave the gate"
    return [value if value in in_gate else pytest.param(value, marks=full) for value in values]
