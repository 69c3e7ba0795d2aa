"""One `delvec serve` as a process that is killed and comes back."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

_READY_SECONDS = 60
_MAIN = "from delvec.cli import main; main()"
_COVERED = ("DELVEC_", "XDG_STATE_HOME")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Replica:
    """A service process on a port of its own.

    Args:
        number: which one; its log is named after it.
        folder: for the log.
        roots: where tables may lie.
        database_url: of the SQL store.
        settings: further ``DELVEC_`` variables.

    Attributes:
        starts: how often it was started.
        exits: exit codes of processes that ended by themselves: a fault point, or a start without a database.
    """

    def __init__(self, number, folder, roots, database_url, **settings):
        self.number = number
        self.port = free_port()
        self.log = folder / f"replica-{number}.log"
        self.starts = 0
        self.exits = []
        self.settings = settings
        self._roots = roots
        self._database_url = database_url
        self._lock = threading.Lock()
        self._process = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def process_id(self):
        return self._process.pid

    @property
    def running(self):
        process = self._process
        return process is not None and process.poll() is None

    def start(self, *, fault_points=""):
        """Start it, and do not wait.

        Args:
            fault_points: see ``operations.fault_points``.
        """
        environment = {key: value for key, value in os.environ.items() if not key.startswith(_COVERED)}
        environment |= {
            "DELVEC_DATABASE_URL": self._database_url,
            "DELVEC_FAULT_POINTS": fault_points,
            "DELVEC_LOG_LEVEL": "warning",
            **self.settings,
        }
        command = [sys.executable, "-c", _MAIN, "serve", "--port", str(self.port), "--roots", self._roots]
        with self._lock, self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
            self.starts += 1

    def wait(self, seconds=_READY_SECONDS):
        """Wait until it serves; return whether it does."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(f"{self.url}/livez", timeout=5):
                    return True
            except (urllib.error.URLError, OSError):
                if not self.running:
                    return False
                time.sleep(0.05)
        return False

    def kill(self):
        """Kill it as if the power failed; return whether it ran."""
        with self._lock:
            if not self.running:
                return False
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(120)
            return True

    def send(self, number):
        """Send a signal to it."""
        self._process.send_signal(number)

    def ready(self):
        """Whether ``/readyz`` says yes, as a load balancer would ask."""
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def ended(self, seconds=60):
        """Wait until it ends by itself; return its exit code."""
        return self._process.wait(seconds)

    def revive(self, **options):
        """Start it again if it ended by itself; return whether it had."""
        with self._lock:
            process = self._process
            code = None if process is None else process.poll()
        if code is None:
            return False
        self.exits.append(code)
        self.start(**options)
        return True

    def tail(self, size=4000):
        """Return the end of its log."""
        return self.log.read_text(errors="replace")[-size:] if self.log.exists() else ""
