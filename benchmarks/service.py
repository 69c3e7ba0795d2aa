"""A service in its own process, started by ``delvec serve``."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import httpx

from benchmarks.measure import memory

__all__ = ["Service"]

_PATIENCE = 60.0
_SETTLED = 2.0


class Service:
    """``delvec serve``, over HTTP on this machine. A context manager.

    Args:
        roots: allowed locations of tables.
        store: the SQLite file; may be from an earlier run. The log is beside it.
        settings: further ``DELVEC_`` variables.
        workers: number of processes.
        database_url: of another store than the SQLite file.
    """

    def __init__(
        self,
        roots: Path,
        store: Path,
        settings: Mapping[str, str] | None = None,
        *,
        workers: int = 1,
        database_url: str | None = None,
    ) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.store = store
        self._settings = settings or {}
        self._log = store.with_suffix(".log")
        program = Path(sys.executable).with_name("delvec")
        self._command = [str(program), "serve", "--port", str(self.port), "--roots", str(roots)]
        self._command += ["--database-url", database_url or f"sqlite:///{store}"]
        self._command += ["--workers", str(workers)]

    def __enter__(self) -> Self:
        """Start the service; return once it is ready."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DELVEC_")}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, env=kept | self._settings, stdout=log, stderr=log)
        limit = time.monotonic() + _PATIENCE
        with httpx.Client(base_url=self.url) as client:
            while time.monotonic() < limit and self._process.poll() is None:
                try:
                    if client.get("/readyz").is_success:
                        return self
                except httpx.TransportError:
                    pass
                time.sleep(0.002)
        self.__exit__()
        raise SystemExit(f"the service did not start: {self._log.read_text()[-2000:]}")

    def __exit__(self, *error: object) -> None:
        """Stop the service as an operator would."""
        self._process.terminate()
        self._process.wait(_PATIENCE)

    def memory(self) -> tuple[int, int]:
        """Return resident and peak bytes."""
        return memory(self._process.pid)

    def wait_for_store(self) -> int:
        """Wait until the SQLite file no longer changes; return its bytes."""
        seen: list[tuple[int, int]] = []
        since = time.monotonic()
        limit = since + _PATIENCE
        while time.monotonic() - since < _SETTLED and time.monotonic() < limit:
            files = sorted(self.store.parent.glob(self.store.name + "*"))
            now = [(file.stat().st_size, file.stat().st_mtime_ns) for file in files]
            if now != seen:
                seen, since = now, time.monotonic()
            time.sleep(0.05)
        return sum(size for size, _ in seen)
