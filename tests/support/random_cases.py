"""How many random cases tests run: all of them, or a share."""

import os

_ASKED = os.environ.get("DELVEC_TEST_EXAMPLES")
_share = float(_ASKED or 1)
_IN_GATE = 0.25


def take_share_of_gate():
    """From now on run the share that the gate takes, unless DELVEC_TEST_EXAMPLES says otherwise."""
    global _share  # noqa: PLW0603
    if _ASKED is None:
        _share = _IN_GATE


def share_of(cases, least=1):
    """Return how many of so many random cases to run: at the most all of them."""
    return max(min(least, cases), round(cases * min(_share, 1)))
