"""A `delvec serve` process that is killed and restarted."""

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
    """A service process on its own port.

    Args:
        number: its number, which also names its log.
        folder: where the log goes.
        roots: where tables may be.
        database_url: the SQL store's.
        settings: further ``DELVEC_`` variables.

    Attributes:
        starts: how often it was started.
        exits: exit codes of processes that ended by themselves, at a fault point or for want of a database.
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
        """Start it without waiting.

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
        """Wait until it is ready; return whether it is."""
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
        """Kill it as a power failure would; return whether it was running."""
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
        """Return whether ``/readyz`` reports ready, as a load balancer would check."""
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def ended(self, seconds=60):
        """Wait until it exits by itself; return its exit code."""
        return self._process.wait(seconds)

    def revive(self, **options):
        """Restart it if it exited by itself; return whether it had."""
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
