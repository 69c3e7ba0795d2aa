"""An S3 server of our own, versitygw over a temporary folder: slower to get than moto, and stricter."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ACCESS_KEY = "test"
SECRET_KEY = "test-secret"
_MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
_BUILT = Path(__file__).parent.parent / ".build" / "versitygw"
_READY_SECONDS = 120


class NoVersitygwError(Exception):
    """No versitygw could be had on this machine; the reason is its text."""


def program():
    """Return the path of the server's program: the one on PATH, or built once with Go, which takes minutes."""
    found = shutil.which("versitygw")
    if found:
        return Path(found)
    built = _BUILT / "versitygw"
    if not built.exists():
        if not shutil.which("go"):
            raise NoVersitygwError("neither versitygw nor Go is installed")
        done = subprocess.run(
            ["go", "install", _MODULE],
            env={**os.environ, "GOBIN": str(_BUILT), "GOFLAGS": "-p=2"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise NoVersitygwError(f"Go does not build it: {done.stderr[-2000:]}")
    return built


class VersitygwServer:
    """A context manager; serves from the start to the end of its block.

    Attributes:
        endpoint: its URL.
    """

    def __init__(self):
        self._folder = Path(tempfile.mkdtemp(prefix="dv-s3-"))
        self._server = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.endpoint = f"http://{self._address}"

    def __enter__(self):
        try:
            self._start(program())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self._server is not None:
            self._server.terminate()
            self._server.wait(120)
            self._server = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, command):
        objects, beside = self._folder / "objects", self._folder / "beside"
        objects.mkdir()
        beside.mkdir()
        # Not every file system has the extended attributes that it would keep its metadata in.
        options = ["--port", self._address, "--access", ACCESS_KEY, "--secret", SECRET_KEY, "--quiet"]
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [command, *options, "posix", "--sidecar", beside, objects], stdout=log, stderr=log
            )
        end = time.monotonic() + _READY_SECONDS
        while time.monotonic() < end and self._server.poll() is None:
            try:
                urllib.request.urlopen(self.endpoint, timeout=5).close()
            except urllib.error.HTTPError:
                return  # it answers, if only that it does not know us
            except OSError:
                time.sleep(0.05)
            else:
                return
        log = (self._folder / "log").read_text(errors="replace")
        raise NoVersitygwError(f"it does not answer: {log[-2000:]}")
