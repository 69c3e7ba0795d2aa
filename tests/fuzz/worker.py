"""Runs cases one after the other in a separate process that may crash.

Reads case ids from standard input, one per line, and answers each with a line of JSON on standard output.
"""

import contextlib
import gc
import json
import logging
import os
import resource
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.fuzz import tables
from tests.fuzz.canary import Canary, Opens
from tests.fuzz.case import erase, make, write
from tests.fuzz.direct import DirectLake
from tests.fuzz.draft import Draft
from tests.fuzz.judge import Judge, Suspicion, Verdict, baseline
from tests.support.asgi_transport import EmbeddedTransport

from delvec.connection import Connection
from delvec.http.service_client import ServiceClient
from delvec_errors import DelvecError
from delvec_service.app import create_app
from delvec_service.config import Settings

MAX_MEMORY = 800 * 1024 * 1024
"""Maximum peak memory of a case in bytes; a fresh worker holds about 250 MB."""

ADDRESS_SPACE = 12 * 1024 * 1024 * 1024
_CASES_PER_SERVICE = 300
_DIRECT = 0.7
"""The share of cases read without HTTP and database."""
_WARM = 0.1
"""The share of cases in which the service has read the table before its damage.

Its cache may then predate the damage, because log files never change; such rows are right, too.
"""
_OPENED, _FOLDER = "WRONG file opened", "."
_OF_BEFORE = ("WRONG table", "WRONG rows", "WRONG rows of a damaged table", "WRONG skipping")


class Worker:
    """A service and a client in this process, and folders for tables."""

    def __init__(self, base):
        self._base = Path(base).resolve()
        self.outside = self._base / "outside"
        self._root = self._base / "root"
        self._root.mkdir()
        self.outside.mkdir()
        _fill(self.outside)
        self._canary = Canary(self.outside)
        self._canary.start()
        code = {sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]), "/usr", "/lib"}
        self._opens = Opens([*code, str(self._root), "/proc", "/sys", str(self._base / "state")])
        self._baselines = {}
        self._direct = DirectLake(str(self._root))
        self._count = 0
        self._lake = None

    def run(self, name):
        """Run a case and return its result."""
        result = self._run(name)
        if (result["outcome"], result["detail"]) == (_OPENED, _FOLDER):
            result = self._run(name)  # other processes on this machine may have listed it
        return result

    def _run(self, name):
        case = make(name, self.outside)
        lake = self._connection()
        before = self._baseline(lake, case.table)
        folder = self._root / name / "table"
        direct = case.rng.random() < _DIRECT
        if direct:
            lake = self._direct
        warm = case.rng.random() < _WARM
        if warm:
            write(Draft(case.table.files, {}, case.rng, ""), folder)
            with contextlib.suppress(DelvecError):
                lake.table(str(folder)).to_arrow()
            erase(folder)
        write(case.draft, folder)
        _reset_peak()
        self._canary.opened()
        began = time.perf_counter()
        try:
            verdict = self._judged(case, lake, before, folder)
        finally:
            erase(folder.parent)
        if warm and verdict.outcome in _OF_BEFORE:
            verdict = Verdict("cached", verdict.outcome)
        peak = _peak()
        if peak > MAX_MEMORY and not verdict.failed:
            verdict = Verdict("WRONG memory", f"{peak >> 20} MiB")
        return {
            "case": name,
            "table": case.table.name,
            "damage": case.damage,
            "outcome": verdict.outcome,
            "detail": verdict.detail,
            "ms": round((time.perf_counter() - began) * 1000),
            "mib": peak >> 20,
        }

    def _judged(self, case, lake, before, folder):
        if before.defect:
            return Verdict("WRONG undamaged table", before.defect)
        judge = Judge(case, before, str(folder))
        self._opens.found.clear()
        self._opens.on = True
        try:
            read = judge.read(lake)
            further = None
            if not isinstance(read, Verdict):
                skipping = lake is self._direct or case.rng.random() < 0.5
                further = (judge.judge_skipping if skipping else judge.judge_others)(*read)
        except Exception:  # noqa: BLE001 - whatever it is, it is what the fuzzer looks for
            return Verdict("WRONG exception", traceback.format_exc()[-1500:])
        finally:
            self._opens.on = False
        opened = [*self._canary.opened(), *self._opens.found]
        if opened and not (isinstance(read, Verdict) and read.failed):
            return Verdict(_OPENED, ", ".join(opened)[:500])
        if isinstance(read, Verdict):
            return read
        if isinstance(further, Suspicion):
            further = judge.settled(further)
        _, scan, vectors, rows = read
        verdict = judge.judge(scan, vectors, rows)
        return verdict if verdict.failed or further is None else further

    def _connection(self):
        self._count += 1
        if self._lake is None or self._count % _CASES_PER_SERVICE == 0:
            self.close()
            state = self._base / "state"
            state.mkdir(exist_ok=True)
            url = f"sqlite:///{state / f'{self._count}.db'}"
            settings = Settings(roots=(str(self._root),), database_url=url, log_level="error")
            transport = EmbeddedTransport(create_app(settings))
            self._lake = Connection(ServiceClient("http://delvec.test", transport=transport))
        return self._lake

    def _baseline(self, lake, table):
        if table.name not in self._baselines:
            folder = self._root / "baseline" / table.name
            for path, content in table.files.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(content)
            self._baselines[table.name] = baseline(lake, str(folder))
        return self._baselines[table.name]

    def close(self):
        """Stop the service; a later case starts another."""
        if self._lake is not None:
            self._lake.close()
            self._lake = None
            gc.collect()


def _fill(outside):
    """Create files there that would be read without an error."""
    table = tables.with_checkpoint().files
    copies = {
        "secret.parquet": table["part-1.parquet"],
        "secret.json": table[f"_delta_log/{1:020}.json"],
        "secret.crc": table[f"_delta_log/{5:020}.crc"],
        "secret.bin": next(
            body for path, body in tables.with_vectors().files.items() if path.endswith(".bin")
        ),
    }
    for name, content in copies.items():
        (outside / name).write_bytes(content)


def _reset_peak():
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def answer_cases(kind):
    """Answer cases by a worker of a kind until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # other output must not mix with the answers
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # thousands of small files
    with tempfile.TemporaryDirectory(prefix="delvec-fuzz-", dir=memory) as base:
        worker = kind(base)
        for line in sys.stdin:
            answers.write(json.dumps(worker.run(line.strip())) + "\n")
            answers.flush()
        worker.close()


if __name__ == "__main__":
    answer_cases(Worker)
