"""Run the gate (`make test`), or the whole suite in parts (`make test-full`).

    python dev/tests.py gate [--costs]
    python dev/tests.py full [--part PART ...] [--again]

The gate leaves out what is marked ``full``, each with its reason; the whole suite leaves out what is marked ``long``. Parts
of the whole suite that have passed on the same files are not run again, so a run that was stopped resumes;
``--part`` and ``--again`` run them in any case.

A failed test is rerun alone at the end: on a machine with two cores another test can starve
it. If it passes then, it is listed as flaky, which is a defect of the test. Randomized tests are never
rerun: they would pass with other random values.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from environment import find_java
from test_times import slowest_modules, tables

_ROOT: Final = Path(__file__).parent.parent
_LAST_FAILED: Final = _ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
_BUILD: Final = _ROOT / ".build"
_TIMES: Final = _BUILD / "test-times.jsonl"
_PASSED: Final = _BUILD / "test-full.json"
_WORKERS: Final = ["-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"]
"""More than two cores have: now and then tests wait for a disk, a JVM or another process."""
_INTEROP: Final = "tests/interop"
"""A run of its own, because a JVM's class path is fixed, and these need delta-spark."""
_GATE: Final = (["--ignore", _INTEROP], [_INTEROP])
PARTS: Final = {
    "unit": ["tests/unit", "tests/architecture", "tests/dev"],
    "service": ["tests/integration/service"],
    "client": ["tests/integration/client"],
    "engines": ["tests/integration/engines"],
    "spark": ["tests/integration/spark", "tests/integration/large"],
    "storage": ["tests/integration/contract", "tests/integration/corpus", "tests/integration/state_machine"],
    "interop": [_INTEROP],
    "chaos": ["tests/chaos", "tests/fuzz"],
    "docs": ["tests/docs", "tests/integration/browser"],
    "delivery": ["tests/docker", "tests/helm", "tests/monitoring", "tests/packaging"],
}
"""The whole suite: each part runs on its own."""

_CHANCE: Final = re.compile(
    r"tests/(chaos|integration/state_machine|fuzz)/|histories"
    r"|(?<![a-z])(rac(e|es|ing)|threads?|processes|crash|concurren|parallel|at_once|(the_)?same_time|kill|replica"
    r"|lost_answers|loser|group_commit|group_queue|commit_loop|commit_validator)"
)
"""Patterns in the names of randomized tests, which could pass with other random values or thread schedules."""
_FORGIVEN: Final = 5
_FAILED: Final = 1
_RAM_DISK: Final = Path("/dev/shm")  # noqa: S108 - the folder that is made in it is private
_RAM_BYTES: Final = 6 * 1024**3
"""What must be free on the RAM disk: a gate leaves less than 2 GiB of files."""


def pytest(*options: str) -> int:
    """Run pytest in the repository; return its exit code."""
    with quick_sync() as environment:
        command = [sys.executable, "-m", "pytest", *options]
        return subprocess.run(command, cwd=_ROOT, env=environment, check=False).returncode


def failed() -> list[str]:
    """Return the names of the tests that failed in the last run."""
    return sorted(json.loads(_LAST_FAILED.read_text())) if _LAST_FAILED.exists() else []


def run(selection: list[str], suite: str, *options: str) -> tuple[int, list[str]]:
    """Run the tests of a suite in a selection; return an exit code, and the flaky tests, which only passed alone."""
    _LAST_FAILED.unlink(missing_ok=True)
    measured = ["-p", "dev.test_times", f"--test-times={_TIMES}"]
    code = pytest(*selection, f"--suite={suite}", *measured, *options, *_WORKERS)
    names = failed()
    if code != _FAILED or not names or len(names) > _FORGIVEN:
        return code, []
    if any(_CHANCE.search(name) for name in names):
        return code, []
    print(f"\nonce more, alone: {', '.join(names)}", flush=True)
    code = pytest(*names)
    return code, [] if code else names


def smoke(*options: str) -> int:
    """Run the smoke of Spark on another PySpark than the lock's; return an exit code."""
    if find_java() is None and "java" not in os.environ.get("DELVEC_REQUIRE", ""):
        print("no Java: no smoke of Spark on other versions", flush=True)
        return 0
    command = [sys.executable, "dev/versions.py", "--smoke", *options]
    # Its output comes whole, as another run of pytest may be printing.
    ended = subprocess.run(
        command, cwd=_ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    print(ended.stdout, flush=True)
    return ended.returncode


def gate(*options: str) -> int:
    """Run all selections of the gate, even if one fails, so that one run shows all failures."""
    most, interop = _GATE
    outcomes = [run(most, "gate", *options)]
    # Much of both is the start of JVMs, for which two cores are more than one needs.
    with ThreadPoolExecutor(1) as pool:
        other_version = pool.submit(smoke)
        outcomes.append(run(interop, "gate", *options))
    return _finish([*outcomes, (other_version.result(), [])])


def full(parts: list[str], *, again: bool) -> int:
    """Run parts of the whole suite, all by default, except those that have passed on the same files."""
    files = _digest()
    passed = json.loads(_PASSED.read_text()) if _PASSED.exists() and not again else {}
    outcomes = []
    for part in parts or PARTS:
        if not parts and passed.get(part) == files:
            print(f"{part}: has passed on these files", flush=True)
            continue
        print(f"\n{part}:", flush=True)
        outcome = run(PARTS[part], "full")
        if part == "spark":
            outcome = outcome[0] or smoke("--oldest"), outcome[1]
        outcomes.append(outcome)
        passed[part] = files if outcome == (0, []) else ""
        _PASSED.write_text(json.dumps(passed))
    return _finish(outcomes)


def _finish(outcomes: list[tuple[int, list[str]]]) -> int:
    for _, flaky in outcomes:
        for name in flaky:
            print(f"FLAKY, passed only alone: {name}", flush=True)
    for code, _ in outcomes:
        if code < 0:  # killed by a signal, which is the worst outcome
            print(f"pytest was killed by signal {-code}", flush=True)
    return int(any(code for code, _ in outcomes))


def _digest() -> str:
    """Return a digest of the names and contents of all files that are in git or could be."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=_ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    digest = hashlib.sha256()
    for name in sorted(set(listed.stdout.splitlines())):
        path = _ROOT / name
        if path.is_file():
            digest.update(name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@contextmanager
def quick_sync(disk: Path = _RAM_DISK) -> Iterator[Mapping[str, str]]:
    """Yield an environment whose temporary files are in memory, if there is room.

    Each commit waits for the disk, several times in a small test: on an ordinary disk tests wait as long as they compute.
    """
    for left in disk.glob("delvec-tests-*"):  # by a run that was killed
        if not Path("/proc", left.name.rpartition("-")[2]).exists():
            shutil.rmtree(left, ignore_errors=True)
    if not disk.is_dir() or shutil.disk_usage(disk).free < _RAM_BYTES:
        yield os.environ
        return
    folder = disk / f"delvec-tests-{os.getpid()}"
    folder.mkdir(mode=0o700)
    try:
        yield {**os.environ, "TMPDIR": str(folder)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(arguments: list[str] | None = None) -> int:
    """Run a suite; print its five slowest modules and the time in total."""
    parser = argparse.ArgumentParser(description="Run the tests.")
    suites = parser.add_subparsers(dest="suite", required=True)
    quick = suites.add_parser("gate", help="what every change must pass")
    quick.add_argument(
        "--costs", action="store_true", help="measure and print what modules and fixtures cost"
    )
    whole = suites.add_parser("full", help="the whole suite, in parts")
    whole.add_argument("--part", nargs="*", choices=PARTS, default=[], help="only these parts")
    whole.add_argument("--again", action="store_true", help="also parts that have passed on these files")
    asked = parser.parse_args(arguments)
    started = time.monotonic()
    _BUILD.mkdir(exist_ok=True)
    _TIMES.unlink(missing_ok=True)
    if asked.suite == "gate":
        code = gate(*(["--test-costs"] if asked.costs else []))
    else:
        code = full(asked.part, again=asked.again)
    if _TIMES.exists():
        costs = asked.suite == "gate" and asked.costs
        print(tables(_TIMES) if costs else slowest_modules(_TIMES), flush=True)
    minutes, seconds = divmod(round(time.monotonic() - started), 60)
    print(f"{asked.suite}: {minutes} min {seconds} s", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
