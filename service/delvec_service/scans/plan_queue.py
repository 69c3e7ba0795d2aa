"""Plans take turns: together, each would take longer, and the last one much longer.

Threads that compute at once hand Python's interpreter lock to one another at every call into Arrow, hundreds of times
in a plan, and each time a processor has to wake up. One after the other, each plan keeps the lock until it is done.
"""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["PlanQueue"]

_PATIENCE_SECONDS: Final = 0.1


class PlanQueue:
    """Lets threads compute one at a time, in the order in which they came; safe to share between threads.

    Args:
        patience: how many seconds a thread waits for those ahead of it. Then it computes beside them, so that a plan
            that takes seconds does not hold up the short ones, and one that waits for the database holds up none.
    """

    def __init__(self, patience: float = _PATIENCE_SECONDS) -> None:
        self._patience = patience
        self._lock = threading.Lock()
        self._taken = False
        self._waiting: deque[threading.Event] = deque()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Run the block in this thread's turn."""
        own = self._take()
        try:
            yield
        finally:
            if own:
                self._pass_on()

    def _take(self) -> bool:
        """Wait for the turn; return False if it did not come in time."""
        with self._lock:
            if not self._taken:
                self._taken = True
                return True
            turn = threading.Event()
            self._waiting.append(turn)
        if turn.wait(self._patience):
            return True
        with self._lock:
            if turn.is_set():
                return True
            self._waiting.remove(turn)
        return False

    def _pass_on(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._taken = False
