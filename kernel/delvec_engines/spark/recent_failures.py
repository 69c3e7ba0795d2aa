"""What failed a few minutes ago, so that not every command finds it out again.

Tested in `tests/unit/engines/spark/test_fallback.py`.
"""

import time
from typing import Final

__all__ = ["RecentFailures"]

_SECONDS: Final = 600.0
"""How long a failure is remembered: the cause may have been mended since, by a package or a credential."""


class RecentFailures:
    """Reasons by key, of this process, each for ten minutes."""

    def __init__(self) -> None:
        self._noted: dict[str, tuple[float, str]] = {}

    def note(self, key: str, reason: str) -> None:
        """Remember that something failed just now."""
        now = time.monotonic()
        for other, (since, _) in list(self._noted.items()):
            if now - since >= _SECONDS:
                self._noted.pop(other, None)
        self._noted[key] = now, reason

    def reason(self, key: str) -> str | None:
        """Return why something failed in the last ten minutes; None if it did not."""
        since, reason = self._noted.get(key, (float("-inf"), ""))
        return reason if time.monotonic() - since < _SECONDS else None
