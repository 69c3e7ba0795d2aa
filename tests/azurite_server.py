"""Azure's blob storage as Microsoft's emulator serves it: Azurite, over a temporary folder."""

import base64
import email.utils
import hmac
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.s3_bucket import BUCKET

CONTAINER = BUCKET
ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite has this account and key built in; they are in its documentation."""
_PACKAGE = "azurite@3"
_INSTALLED = Path(__file__).parent.parent / ".build" / "azurite"
_READY_SECONDS = 120


class NoAzuriteError(Exception):
    """No Azurite could be had on this machine; the reason is its text."""


def program():
    """Return the path of the emulator's program: the one on PATH, or installed once with npm."""
    found = shutil.which("azurite-blob")
    if found:
        return Path(found)
    installed = _INSTALLED / "node_modules" / ".bin" / "azurite-blob"
    if not installed.exists():
        if not shutil.which("npm"):
            raise NoAzuriteError("neither Azurite nor npm is installed")
        _INSTALLED.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "--prefix", _INSTALLED, _PACKAGE],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise NoAzuriteError(f"npm does not install it: {done.stderr[-2000:]}")
    return installed


class AzuriteServer:
    """A context manager; serves an empty container from the start to the end of its block.

    Attributes:
        settings: what clients need, as environment variables.
    """

    def __init__(self):
        self._folder = Path(tempfile.mkdtemp(prefix="dv-azure-"))
        self._server = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self._endpoint = f"http://127.0.0.1:{self._port}/{ACCOUNT}"
        self.settings = {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
            "AZURE_STORAGE_ENDPOINT": self._endpoint,
        }

    def __enter__(self):
        try:
            self._start(program())
            self._create_container()
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
        where = [
            "--blobHost",
            "127.0.0.1",
            "--blobPort",
            str(self._port),
            "--location",
            self._folder / "objects",
        ]
        # Newer API versions than it knows are asked for by clients that need nothing of them.
        options = ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [command, *where, *options], stdout=log, stderr=log, env=os.environ
            )
        end = time.monotonic() + _READY_SECONDS
        while time.monotonic() < end and self._server.poll() is None:
            try:
                urllib.request.urlopen(self._endpoint, timeout=5).close()
            except urllib.error.HTTPError:
                return  # it answers, if only that it does not know us
            except OSError:
                time.sleep(0.1)
            else:
                return
        log = (self._folder / "log").read_text(errors="replace")
        raise NoAzuriteError(f"it does not answer: {log[-2000:]}")

    def _create_container(self):
        """Ask as the REST API has it: obstore creates no containers, and Azure's own client is not needed else."""
        headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
        named = "".join(f"{name}:{value}\n" for name, value in headers.items())
        path = f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
        signed = hmac.digest(base64.b64decode(_KEY), f"PUT{chr(10) * 12}{named}{path}".encode(), "sha256")
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(signed).decode()}"
        url = f"{self._endpoint}/{CONTAINER}?restype=container"
        request = urllib.request.Request(url, method="PUT", headers=headers | {"Content-Length": "0"})
        urllib.request.urlopen(request, timeout=30).close()
