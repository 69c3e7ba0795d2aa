"""Object store servers for tests: an installed program, or one installed once, serving a temporary folder."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from contextlib import contextmanager
from pathlib import Path

import pytest

BUILD = Path(__file__).parents[2] / ".build"
_READY_SECONDS = 120


class NoServerError(Exception):
    """The server is not available on this machine; the text is the reason."""


class ObjectStoreServer(ABC):
    """A context manager that runs the server during its block.

    Attributes:
        endpoint: its URL.
        folder: where it may store objects.
    """

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="dv-store-"))
        self._server = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"

    @abstractmethod
    def command(self):
        """Return the program and its arguments.

        Raises:
            NoServerError: the program is missing and cannot be installed.
        """

    def __enter__(self):
        try:
            self._start(self.command())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self._server is not None:
            self._server.terminate()
            self._server.wait(120)
            self._server = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, command):
        with (self.folder / "log").open("ab") as log:
            self._server = subprocess.Popen(command, stdout=log, stderr=log)
        end = time.monotonic() + _READY_SECONDS
        while time.monotonic() < end and self._server.poll() is None:
            try:
                urllib.request.urlopen(self.endpoint, timeout=5).close()
            except urllib.error.HTTPError:
                return  # it answers, even if it denies access
            except OSError:
                time.sleep(0.05)
            else:
                return
        log = (self.folder / "log").read_text(errors="replace")
        raise NoServerError(f"it does not answer: {log[-2000:]}")


def program(name, built, installer, **environment):
    """Return the path of a program: the one on PATH, or one that an installer puts into place once.

    Args:
        name: of the program.
        built: where the installer puts it.
        installer: the installer's command.
        environment: further variables for the installer.

    Raises:
        NoServerError: program and installer are both missing, or the installer fails.
    """
    found = shutil.which(name)
    if found:
        return Path(found)
    if not built.exists():
        if not shutil.which(installer[0]):
            raise NoServerError(f"neither {name} nor {installer[0]} is installed")
        done = subprocess.run(
            installer, env={**os.environ, **environment}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise NoServerError(f"{installer[0]} does not install it: {done.stderr[-2000:]}")
    return built


@contextmanager
def running_or_skip(kind):
    """Yield a running server of this class; skip the test if it is not available."""
    try:
        with kind() as server:
            yield server
    except NoServerError as error:
        pytest.skip(f"{kind.__name__} could not be started: {error}")
