"""Somebody who types the examples of a page: a folder, a Python session, a shell, and the service that the page starts."""

import contextlib
import io
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

import delvec

_READY_SECONDS = 300
_SERVE = re.compile(r"^delvec serve(?:.*\\\n)*.*$", re.MULTILINE)
_FOLDERS = re.compile(r"(?<![\w./])/(data|tmp)(?=/|\b)")
_PORT = 8710
_FORGET = ("DELVEC_URL", "DELVEC_TOKEN", "DELVEC_ROOTS", "DELVEC_DATABASE_URL")


class Reader:
    """Runs examples in a folder of its own: ``/data``, ``/tmp`` and port 8710 of a page are elsewhere.

    Python runs in this process, the shell in bash; what a block exports the next ones have. ``delvec serve`` runs in the background until :meth:`leave`.

    Args:
        folder: everything that examples write is below it.
        spark: what ``spark`` is; None where the page has none.
    """

    def __init__(self, folder, spark=None):
        self._folder = folder
        self._spark = spark
        self._names = {}
        self._services = []
        self._exports = folder / "exports"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        for name in ("data", "tmp", "work", "state"):
            (folder / name).mkdir(exist_ok=True)
        self._environment = {key: value for key, value in os.environ.items() if key not in _FORGET}
        self._environment |= {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "XDG_STATE_HOME": str(folder / "state"),
            "COLUMNS": "100",
            "NO_COLOR": "1",
        }

    @property
    def workplace(self):
        """The working directory of the examples."""
        return self._folder / "work"

    def read(self, examples):
        """Run examples in order, in a new session, and compare what they print.

        Raises:
            AssertionError: one failed, or printed something else; the message names its place in the page.
        """
        self._exports.write_text("")
        self._names = {"__name__": "__main__"} | ({} if self._spark is None else {"spark": self._spark})
        run = {"python": self._python, "shell": self._shell, "sql": self._sql}
        try:
            for example in examples:
                if not example.reason:
                    example.check(self._as_written(run[example.language](example)))
        finally:
            self.leave()

    def leave(self):
        """Close connections, stop streams and services, and let go of what a page chose for the whole process."""
        if self._spark is not None:
            from delvec.spark import use

            use(None)
        for value in self._names.values():
            if isinstance(value, delvec.Connection):
                value.close()
        for query in self._spark.streams.active if self._spark is not None else ():
            query.stop()
        for service in self._services:
            service.terminate()
        for service in self._services:
            service.wait(60)
        self._services.clear()

    def _here(self, code):
        code = _FOLDERS.sub(lambda found: str(self._folder / found[1]), code)
        return re.sub(rf"\b(localhost|host|127\.0\.0\.1):{_PORT}\b", f"127.0.0.1:{self._port}", code)

    def _as_written(self, printed):
        for name in ("data", "tmp"):
            printed = printed.replace(str(self._folder / name), f"/{name}")
        return printed.replace(f"127.0.0.1:{self._port}", f"localhost:{_PORT}")

    def _python(self, example):
        code = "\n" * (example.line - 1) + self._here(example.code)
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(code, example.place, "exec"), self._names)
        except Exception as error:
            raise AssertionError(f"{example.place} failed: {type(error).__name__}: {error}") from error
        return printed.getvalue()

    def _sql(self, example):
        run = self._names["lake" if self._spark is None else "spark"].sql
        for statement in example.code.split(";\n"):
            if statement.strip():
                try:
                    done = run(self._here(statement))
                    if hasattr(done, "collect"):
                        done.collect()
                except Exception as error:
                    raise AssertionError(
                        f"{example.place} failed: {type(error).__name__}: {error}"
                    ) from error
        return ""

    def _shell(self, example):
        code = example.code
        for command in _SERVE.findall(code):
            self._serve(shlex.split(self._here(command.replace("\\\n", " ")), comments=True))
        exported = f". {shlex.quote(str(self._exports))}\n"
        keep = f"\nexport -p > {shlex.quote(str(self._exports))}"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", exported + self._here(_SERVE.sub("", code)) + keep],
            cwd=self.workplace,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        said = f"{example.place} failed with code {done.returncode}:\n{done.stderr}{done.stdout}"
        assert done.returncode == 0, said
        return done.stdout

    def _serve(self, command):
        if "--port" in command:
            command[command.index("--port") + 1] = str(self._port)
        else:
            command += ["--port", str(self._port)]
        log = self._folder / "service.log"
        with log.open("ab") as stream:
            service = subprocess.Popen(
                command, cwd=self.workplace, env=self._environment, stdout=stream, stderr=stream
            )
        self._services.append(service)
        end = time.monotonic() + _READY_SECONDS
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{self._port}/readyz").is_success:
                    return
            assert service.poll() is None, log.read_text()
            assert time.monotonic() < end, f"delvec serve is not ready:\n{log.read_text()}"
            time.sleep(0.05)
