"""Runs many cases in monitored processes, and summarizes the results."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS_PER_CASE = 60
_STARTING = 60
"""Extra seconds for a process's first case, which imports everything."""
WORKER = (sys.executable, "-m", "tests.fuzz.worker")
FOOTER_WORKER = (sys.executable, "-m", "tests.fuzz.footer_worker")


class _Process:
    """A worker and its current case."""

    def __init__(self, command):
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `end`
        # One thread per native library: workers already use all cores.
        threads = {"OMP_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=ROOT,
            env={**os.environ, **threads},
            text=True,
        )
        self.case = None
        self.deadline = 0.0
        self._done = 0

    @property
    def answers(self):
        return self._process.stdout

    def give(self, case, patience):
        self.case = case
        self.deadline = time.monotonic() + patience + (0 if self._done else _STARTING)
        self._done += 1
        try:
            self._process.stdin.write(f"{case}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # noticed when its output ends

    def end(self):
        """Kill it if it does not exit; return its cause of death."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        if self._process.poll() is None:
            self._process.kill()
        code = self._process.wait()
        self._errors.seek(0)
        tail = self._errors.read()[-1500:].decode(errors="replace")
        for file in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(BrokenPipeError):
                file.close()
        return f"{signal.Signals(-code).name if code < 0 else f'exit code {code}'}: {tail}"

    def finish(self):
        """Let it exit by itself."""
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()
        self._errors.close()


def run(cases, *, processes=2, seconds=None, patience=SECONDS_PER_CASE, command=WORKER):
    """Yield each case's result from its worker, in order of completion.

    Args:
        cases: case ids.
        processes: how many run concurrently.
        seconds: start no further case after this many.
        patience: maximum seconds per case.
        command: the worker's command line.
    """
    campaign = _Campaign(cases, seconds, patience, command)
    try:
        for _ in range(processes):
            campaign.start()
        while campaign.running.get_map():
            yield from campaign.results()
    finally:
        campaign.end()


class _Campaign:
    """Waiting cases, and the processes that run the others."""

    def __init__(self, cases, seconds, patience, command):
        self.running = selectors.DefaultSelector()
        self._waiting = iter(cases)
        self._until = None if seconds is None else time.monotonic() + seconds
        self._patience, self._command = patience, command

    def _next_case(self):
        late = self._until is not None and time.monotonic() > self._until
        return None if late else next(self._waiting, None)

    def start(self):
        """Start a process if a case is waiting."""
        if (case := self._next_case()) is not None:
            process = _Process(self._command)
            process.give(case, self._patience)
            self.running.register(process.answers, selectors.EVENT_READ, process)

    def results(self):
        """Yield the results that arrive within a second."""
        for key, _ in self.running.select(timeout=1):
            line = key.data.answers.readline()
            if not line:
                yield self._replace(key.data, "WRONG crash", "")
                continue
            yield json.loads(line)
            self._go_on(key.data)
        for key in list(self.running.get_map().values()):
            if time.monotonic() > key.data.deadline:
                yield self._replace(key.data, "WRONG hang", f"more than {self._patience} seconds")

    def _go_on(self, process):
        following = self._next_case()
        if following is None:
            self.running.unregister(process.answers)
            process.finish()
        else:
            process.give(following, self._patience)

    def _replace(self, process, outcome, detail):
        self.running.unregister(process.answers)
        said = process.end()
        self.start()
        return {"case": process.case, "damage": [], "outcome": outcome, "detail": detail or said}

    def end(self):
        """Kill the remaining processes."""
        for key in list(self.running.get_map().values()):
            key.data.end()
        self.running.close()


class Summary:
    """Counts by kind of damage and outcome, and the failures."""

    def __init__(self):
        self.outcomes = Counter()
        self.kinds = {}
        self.errors = Counter()
        self.failures = []
        self.slowest = (0, "")
        self.largest = (0, "")

    def add(self, result):
        """Count a result."""
        self.outcomes[result["outcome"]] += 1
        for kind in {kind for kind, _ in result["damage"]}:
            self.kinds.setdefault(kind, Counter())[result["outcome"]] += 1
        if result["outcome"] == "error":
            self.errors[result["detail"]] += 1
        if result["outcome"].startswith("WRONG"):
            self.failures.append(result)
        self.slowest = max(self.slowest, (result.get("ms", 0), result["case"]))
        self.largest = max(self.largest, (result.get("mib", 0), result["case"]))

    def __str__(self):
        lines = [f"{sum(self.outcomes.values())} cases, {len(self.failures)} failures"]
        lines += [f"  {count:8} {outcome}" for outcome, count in self.outcomes.most_common()]
        lines += [f"slowest: {self.slowest[0]} ms ({self.slowest[1]}); most memory: {self.largest[0]} MiB"]
        lines += ["errors: " + ", ".join(f"{code} {count}" for code, count in self.errors.most_common())]
        lines += ["by kind of damage (a case may have several):"]
        for kind in sorted(self.kinds):
            counts = ", ".join(f"{outcome} {count}" for outcome, count in self.kinds[kind].most_common())
            lines.append(f"  {kind:45} {counts}")
        return "\n".join(lines)


def describe(result):
    """Return a failure as text, with the command that reproduces it."""
    damage = "; ".join(f"{kind} ({where})" for kind, where in result["damage"])
    return (
        f"{result['outcome']} in case {result['case']}, table {result.get('table', '?')}: {damage}\n"
        f"  {result['detail']}\n  repeat: python -m tests.fuzz --case {result['case']}"
    )
