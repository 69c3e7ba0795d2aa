"""The times that a command reports."""

import time

__all__ = ["Clock"]


class Clock:
    """Milliseconds since the command began, split as Delta's metrics split them."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._scan: int | None = None
        self._rewrite = 0

    def _elapsed(self) -> int:
        return round((time.perf_counter() - self._start) * 1000)

    def scanned(self) -> None:
        """Note the end of the search for rows; the first call counts."""
        if self._scan is None:
            self._scan = self._elapsed()

    def rewritten(self) -> None:
        """Note the end of the rewriting that followed."""
        self._rewrite = self._elapsed() - (self._scan or 0)

    def metrics(self) -> dict[str, int]:
        """Return the times so far."""
        elapsed = self._elapsed()
        scan = elapsed if self._scan is None else self._scan
        return {"executionTimeMs": elapsed, "scanTimeMs": scan, "rewriteTimeMs": self._rewrite}
