"""A pytest plugin that measures what each test, module and fixture costs, and what it starts.

    pytest -p dev.test_times --test-times=FILE [--test-costs] [...]

The times are cheap to take; costs, a tenth more, add fixtures and the CPU seconds of everything below pytest's process: JVMs,
Python workers, services, databases. A fixture's seconds are those of its set-up alone, without the fixtures that it asks for.
`make test-times` runs the gate with costs, and prints the tables. ``FILE`` gets a JSON object per test as soon
as it ends, so several workers and runs can append to it; `tables` makes Markdown of them.
"""

import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

_TICKS: Final = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_STARTS: Final = {
    "JVM": ("java", "spark-submit"),
    "service": ("delvec", "delvec_service", "replica"),
    "database": ("postgres", "pg_ctl", "initdb"),
    "object store": ("moto_server", "versitygw", "azurite"),
    "browser": ("chromium", "chrome"),
}
"""What a started program counts as, by a part of its command line; everything else is a process."""

MODULES: Final = 40
"""Rows of the table of modules."""


class Times:
    """Appends CPU seconds of pytest's process, wall seconds and starts of each test to a file."""

    def __init__(self, file: Path) -> None:
        """Measure nothing yet."""
        self._file = file
        self.fixtures: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
        self.starts: Counter[str] = Counter()

    def cpu(self) -> float:
        """Return CPU seconds."""
        return time.process_time()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Measure one test with its fixtures."""
        self.starts.clear()
        self.fixtures.clear()
        cpu, wall = self.cpu(), time.perf_counter()
        yield
        measured = {
            "test": item.nodeid,
            "cpu": round(self.cpu() - cpu, 3),
            "wall": round(time.perf_counter() - wall, 3),
            "starts": self.starts,
            "fixtures": self.fixtures,
        }
        with self._file.open("a") as file:
            file.write(json.dumps(measured) + "\n")

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Count started programs and SQLite connections (an audit hook of the interpreter)."""
        if event == "subprocess.Popen":
            program = arguments[1]
            listed = isinstance(program, list | tuple)
            words = " ".join(map(os.fsdecode, program)) if listed else str(program)
            kinds = (kind for kind, names in _STARTS.items() if any(name in words for name in names))
            self.starts[next(kinds, "process")] += 1
        elif event == "sqlite3.connect":
            self.starts["SQLite"] += 1


class Costs(Times):
    """Also measures fixtures, and what runs below pytest's process."""

    def __init__(self, file: Path) -> None:
        """Measure nothing yet."""
        super().__init__(file)
        self._inner: list[float] = []
        self._children: dict[int, float] = {}
        self._ended = 0.0

    def cpu(self) -> float:
        """Return the CPU seconds of this process and all processes below it, ended ones included."""
        alive: dict[int, float] = {}
        for pid in _descendants(os.getpid()):
            seconds = _seconds_of(pid)
            if seconds is not None:
                alive[pid] = seconds
        # A process whose parent is not ours (a daemon of a JVM) takes its seconds with it unless they are kept.
        times = os.times()
        own = times.user + times.system
        waited = times.children_user + times.children_system
        for pid, seconds in self._children.items():
            if pid not in alive:
                self._ended += seconds
        self._children = alive
        return own + max(waited, self._ended) + sum(alive.values())

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """Measure the set-up of one fixture."""
        self._inner.append(0.0)
        cpu, wall = self.cpu(), time.perf_counter()
        try:
            return (yield)
        finally:
            seconds = self.cpu() - cpu
            inner = self._inner.pop()
            if self._inner:
                self._inner[-1] += seconds
            entry = self.fixtures[f"{fixturedef.baseid or '.'}::{fixturedef.argname} ({fixturedef.scope})"]
            entry[0] += 1
            entry[1] += seconds - inner
            entry[2] += time.perf_counter() - wall


def _descendants(pid: int) -> Iterator[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return
    for task in tasks:
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue
        for child in map(int, children):
            yield child
            yield from _descendants(child)


def _seconds_of(pid: int) -> float | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    # utime, stime, and those of waited-for children.
    return sum(map(int, fields[11:15])) / _TICKS


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    parser.addoption("--test-times", metavar="FILE", help="append the times of tests to FILE")
    parser.addoption("--test-costs", action="store_true", help="with the costs of fixtures and processes")


def pytest_configure(config: pytest.Config) -> None:
    """Measure, in each worker, or in the only process."""
    target = config.getoption("--test-times")
    controls_workers = bool(config.getoption("numprocesses", None)) and not hasattr(config, "workerinput")
    if target is None or controls_workers:
        return
    costs = (Costs if config.getoption("--test-costs") else Times)(Path(target).resolve())
    config.pluginmanager.register(costs, "test-costs")
    sys.addaudithook(costs.audit)
    _count_calls(costs)


def _count_calls(costs: Times) -> None:
    try:
        import duckdb
    except ImportError:
        return
    connect = duckdb.connect

    def counted(*arguments: Any, **named: Any) -> Any:
        costs.starts["DuckDB"] += 1
        return connect(*arguments, **named)

    duckdb.connect = counted


def slowest_modules(path: Path, count: int = 5) -> str:
    """Return a line for each of the modules that took the longest."""
    walls: Counter[str] = Counter()
    for line in path.read_text().splitlines():
        test = json.loads(line)
        walls[test["test"].partition("::")[0]] += test["wall"]
    slowest = [f"{seconds:6.0f} s  {module}" for module, seconds in walls.most_common(count)]
    return "\n".join([f"slowest of {len(walls)} modules:", *slowest])


def tables(path: Path) -> str:
    """Return the tables of the dearest modules, fixtures and tests, in Markdown."""
    tests = [json.loads(line) for line in path.read_text().splitlines()]
    fixtures: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    modules: dict[str, dict[str, Any]] = defaultdict(
        lambda: {"tests": 0, "cpu": 0.0, "wall": 0.0, "starts": Counter()}
    )
    for test in tests:
        for name, numbers in test["fixtures"].items():
            fixtures[name] = [old + new for old, new in zip(fixtures[name], numbers, strict=True)]
        module = modules[test["test"].partition("::")[0]]
        module["tests"] += 1
        module["cpu"] += test["cpu"]
        module["wall"] += test["wall"]
        module["starts"].update(test["starts"])
    total = sum(module["cpu"] for module in modules.values())
    lines = [
        f"{len(tests)} tests in {len(modules)} modules: {total:.0f} CPU seconds, {sum(m['wall'] for m in modules.values()):.0f} s of wall time in all workers",
        "",
        "| module | tests | CPU s | wall s | starts |",
        "|---|---:|---:|---:|---|",
    ]
    for name, module in sorted(modules.items(), key=lambda item: -item[1]["cpu"])[:MODULES]:
        starts = ", ".join(f"{count} {kind}" for kind, count in module["starts"].most_common())
        lines.append(
            f"| {name} | {module['tests']} | {module['cpu']:.1f} | {module['wall']:.1f} | {starts} |"
        )
    lines += ["", "| fixture | set-ups | CPU s | wall s |", "|---|---:|---:|---:|"]
    for name, (count, cpu, wall) in sorted(fixtures.items(), key=lambda item: -item[1][1])[:20]:
        lines.append(f"| {name} | {count:.0f} | {cpu:.1f} | {wall:.1f} |")
    lines += ["", "| test | CPU s | wall s |", "|---|---:|---:|"]
    for test in sorted(tests, key=lambda test: -test["wall"])[:20]:
        lines.append(f"| {test['test']} | {test['cpu']:.1f} | {test['wall']:.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(tables(Path(sys.argv[1])))
