"""Run the quick tests: first those without JARs, then those with delta-spark's JARs in their Spark sessions.

A failed test is rerun alone at the end: on a machine with two cores another test can starve
it. If it passes then, it is listed as flaky, which is a defect of the test. Randomized tests are never
rerun: they would pass with other random values.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parent.parent
_LAST_FAILED: Final = _ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
_TWO_AT_ONCE: Final = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
_PHASES: Final = (
    # tests/conftest.py orders the collection, longest modules first.
    (
        ["--ignore", "tests/interop", "-m", "not long"],
        _TWO_AT_ONCE,
    ),
    # Separate processes, because a JVM's class path is fixed, and these need delta-spark.
    (["tests/interop", "-m", "not long"], _TWO_AT_ONCE),
)
_CHANCE: Final = re.compile(
    r"tests/(chaos|state_machine|fuzz)/|histories"
    r"|(?<![a-z])(rac(e|es|ing)|threads?|processes|crash|concurren|parallel|at_once|(the_)?same_time|kill|replica"
    r"|lost_answers|loser|group_commit|group_queue|commit_loop)"
)
"""Patterns in the names of randomized tests, which could pass with other random values or thread schedules."""
_FORGIVEN: Final = 5
_FAILED: Final = 1


def pytest(*options: str) -> int:
    """Run pytest in the repository; return its exit code."""
    return subprocess.run([sys.executable, "-m", "pytest", *options], cwd=_ROOT, check=False).returncode


def failed() -> list[str]:
    """Return the names of the tests that failed in the last run."""
    return sorted(json.loads(_LAST_FAILED.read_text())) if _LAST_FAILED.exists() else []


def run(selection: list[str], parallel: list[str]) -> tuple[int, list[str]]:
    """Run one phase; return an exit code, and the flaky tests, which only passed alone."""
    _LAST_FAILED.unlink(missing_ok=True)
    code = pytest(*selection, *parallel)
    names = failed()
    if code != _FAILED or not names or len(names) > _FORGIVEN:
        return code, []
    if any(_CHANCE.search(name) for name in names):
        return code, []
    print(f"\nonce more, alone: {', '.join(names)}", flush=True)
    code = pytest(*names)
    return code, [] if code else names


def main() -> int:
    """Run all phases, even if one fails, so that one run shows all failures."""
    codes, flaky = [], []
    for selection, parallel in _PHASES:
        code, names = run(selection, parallel)
        codes.append(code)
        flaky += names
    for name in flaky:
        print(f"FLAKY, passed only alone: {name}", flush=True)
    for code in codes:
        if code < 0:  # killed by a signal, which is the worst outcome
            print(f"pytest was killed by signal {-code}", flush=True)
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return int(any(codes) or (in_ci and bool(flaky)))


if __name__ == "__main__":
    sys.exit(main())
