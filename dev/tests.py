"""Run the quick tests: those without JARs, then those that have delta-spark's in their Spark sessions.

A test that fails is run once more, alone, when the rest is done: on a machine with two cores a neighbour can starve
it. What passes then is listed as unsteady, which is a defect of the test, to be mended. Tests that throw dice are never
forgiven: they would pass with other dice.
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
    # In the order of collection, which tests/conftest.py sets: the longest modules first.
    (
        ["--ignore", "tests/interop", "-m", "not long"],
        _TWO_AT_ONCE,
    ),
    # Apart from the others: a JVM keeps its class path, and these have delta-spark on theirs.
    (["tests/interop", "-m", "not long"], _TWO_AT_ONCE),
)
_CHANCE: Final = re.compile(
    r"tests/(chaos|state_machine|fuzz)/|histories"
    r"|(?<![a-z])(rac(e|es|ing)|threads?|processes|crash|concurren|parallel|at_once|(the_)?same_time|kill|replica"
    r"|lost_answers|loser|group_commit|group_queue|commit_loop)"
)
"""In the name of a test, that it could pass with other dice, or another order of threads."""
_FORGIVEN: Final = 5
_FAILED: Final = 1


def pytest(*options: str) -> int:
    """Run pytest in the repository; return its exit code."""
    return subprocess.run([sys.executable, "-m", "pytest", *options], cwd=_ROOT, check=False).returncode


def failed() -> list[str]:
    """Return the names of the tests that failed last."""
    return sorted(json.loads(_LAST_FAILED.read_text())) if _LAST_FAILED.exists() else []


def run(selection: list[str], parallel: list[str]) -> tuple[int, list[str]]:
    """Run one phase; return an exit code, and the tests that passed only when they were alone."""
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
    """Run all phases, whatever becomes of the first, so that one run tells everything."""
    codes, unsteady = [], []
    for selection, parallel in _PHASES:
        code, names = run(selection, parallel)
        codes.append(code)
        unsteady += names
    for name in unsteady:
        print(f"UNSTEADY, passed only alone: {name}", flush=True)
    for code in codes:
        if code < 0:  # not the largest code, but the worst
            print(f"pytest was killed by signal {-code}", flush=True)
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return int(any(codes) or (in_ci and bool(unsteady)))


if __name__ == "__main__":
    sys.exit(main())
