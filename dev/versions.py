"""Run the tests on other versions of PySpark and Python than those locked; needs only Python 3.11 and a package index.

    python3 dev/versions.py [--pyspark 4.0 4.2] [--python 3.11 3.13] [--newest] [--tests PATH ...] [-- PYTEST ...]
    python3 dev/versions.py --smoke [--newest | --oldest]

Each pair of a PySpark and a Python has its own environment under .build/versions, with the other packages from
requirements.lock. By default, every PySpark that pyproject.toml supports, except the locked one, is
run on this Python, and the newest one on each other Python found on PATH or in pyenv. With only --pyspark,
these versions are run on this Python; with only --python, the newest PySpark is run on those.

--smoke runs a minute of tests, on this Python and by default the newest PySpark: that which an installation takes.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from environment import LOCK, ROOT, ensure_java, fingerprint, python_in_venv, say, variables

_FOLDER: Final = ROOT / ".build" / "versions"
PYSPARKS: Final = ("4.0", "4.2", "4.3")
PYTHONS: Final = ("3.11", "3.12", "3.13")
_HERE: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
# Not tests/interop: delta-spark's JARs are built for one version of Spark.
_TESTS: Final = ("tests/integration/spark", "tests/integration/engines", "tests/integration/client")
_SMOKE: Final = ("tests/integration/spark/test_spark_smoke.py", "tests/integration/spark/test_spark_jvm.py")
_TESTS_OF_PYTHON: Final = (
    "tests/unit/kernel",
    "tests/unit/service",
    # What depends on the standard library most: asyncio, threads, sqlite3.
    "tests/integration/service/api",
    "tests/integration/service/store",
    *_TESTS,
)
_NOT_OF_THE_LOCK: Final = ("pyspark", "py4j")


@dataclass(frozen=True)
class Pair:
    """A PySpark version (4.3, or 4.3.0) and a Python interpreter."""

    pyspark: str
    python: str
    interpreter: Path

    @property
    def name(self) -> str:
        """Return the name of its environment."""
        return f"pyspark-{self.pyspark}-python-{self.python}"

    @property
    def venv(self) -> Path:
        """Return the path of its environment."""
        return _FOLDER / self.name

    def tests(self) -> tuple[str, ...]:
        """Return the tests to run: on another Python, those of the kernel and of the service's API, too."""
        return _TESTS if self.python == _HERE else _TESTS_OF_PYTHON


def interpreter(python: str) -> Path | None:
    """Return an interpreter of this version, or None."""
    if python == _HERE:
        # Not that of a virtual environment: it may be gone tomorrow.
        return Path(sys.executable).resolve()
    candidates = [shutil.which(f"python{python}")]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates += [str(each) for each in sorted(pyenv.glob(f"{python}.*/bin/python{python}"))]
    for candidate in filter(None, candidates):
        # pyenv has shims on PATH for inactive versions, too, which only fail.
        done = subprocess.run([candidate, "-c", ""], check=False, capture_output=True)
        if done.returncode == 0:
            return Path(candidate)
    return None


def pairs(pysparks: list[str], pythons: list[str], *, newest: bool) -> list[Pair]:
    """Return the pairs to run; missing Pythons are reported and skipped.

    Args:
        pysparks: the versions; empty for all.
        pythons: the versions; empty for this one with all PySparks, and the others with the newest.
        newest: only the newest of both.
    """
    found = {}
    for python in pythons or ([_HERE] if pysparks and not newest else PYTHONS):
        path = interpreter(python)
        if path is None:
            say(f"no Python {python} on PATH or in pyenv: left out")
        else:
            found[python] = path
    if not found:
        raise SystemExit("none of the Pythons asked for is here")
    last = max(pysparks or PYSPARKS, key=_numbers)
    if newest:
        python = max(found, key=_numbers)
        return [Pair(last, python, found[python])]
    if pysparks:
        return [Pair(each, python, found[python]) for python in found for each in pysparks]
    main = _HERE if _HERE in found else next(iter(found))
    first = [] if pythons else [Pair(each, main, found[main]) for each in PYSPARKS]
    tried = {pair.python for pair in first}
    return first + [Pair(last, python, path) for python, path in found.items() if python not in tried]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def other_packages() -> str:
    """Return the lock file without PySpark and its dependencies."""
    blocks = re.split(r"(?m)^(?=\S)", LOCK.read_text())
    return "".join(block for block in blocks if block.partition("==")[0] not in _NOT_OF_THE_LOCK)


def make(pair: Pair) -> None:
    """Create or update the environment if its inputs changed."""
    stamp, of_checkout = pair.venv / "delvec-setup", pair.venv / "delvec-checkout"
    wanted, checkout = (
        fingerprint(LOCK) + str(pair.interpreter),
        fingerprint(ROOT / "pyproject.toml") + str(ROOT),
    )
    pip = [str(python_in_venv(pair.venv)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if not (stamp.exists() and stamp.read_text() == wanted):
        _make_anew(pair, pip)
        stamp.write_text(wanted)
    # Checkouts may share the environments by a link.
    if not (of_checkout.exists() and of_checkout.read_text() == checkout):
        subprocess.run([*pip, "--no-deps", "--editable", str(ROOT)], check=True, stdout=sys.stderr)
        of_checkout.write_text(checkout)


def _make_anew(pair: Pair, pip: list[str]) -> None:
    say(f"making {pair.name} (a few minutes)")
    shutil.rmtree(pair.venv, ignore_errors=True)
    _FOLDER.mkdir(parents=True, exist_ok=True)
    subprocess.run([str(pair.interpreter), "-m", "venv", str(pair.venv)], check=True)
    locked = pair.venv / "other-packages.txt"
    locked.write_text(other_packages())
    for packages in (
        ["--require-hashes", "-r", str(locked)],
        [f"pyspark[connect]=={pair.pyspark}{'.*' if pair.pyspark.count('.') == 1 else ''}"],
    ):
        subprocess.run([*pip, *packages], check=True, stdout=sys.stderr)


def smoke(*, oldest: bool = False, options: Sequence[str] = ()) -> bool:
    """Run a minute of tests on the newest PySpark, that which an installation takes; return whether they passed.

    Args:
        oldest: on the oldest PySpark instead.
        options: for pytest.
    """
    ensure_java()
    (pair,) = pairs([(min if oldest else max)(PYSPARKS, key=_numbers)], [], newest=False)
    passed, line = run(pair, list(_SMOKE), list(options))
    print(f"{'ok    ' if passed else 'FAILED'} {line}")
    return passed


def run(pair: Pair, tests: list[str], options: list[str]) -> tuple[bool, str]:
    """Run the tests on one pair; return whether they passed, and a line for the summary."""
    try:
        make(pair)
    except subprocess.CalledProcessError as error:
        return False, f"{pair.name}: no environment: {error}"
    program, report = str(python_in_venv(pair.venv)), _FOLDER / f"{pair.name}.xml"
    ask = "import sys, pyspark; print(f'PySpark {pyspark.__version__}, Python {sys.version.split()[0]}')"
    title = subprocess.run([program, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()
    print(f"\n=== {title}", flush=True)
    report.unlink(missing_ok=True)
    # A separate pytest cache, because dev/tests.py reads the last failures from the default one.
    command = [program, "-m", "pytest", *(tests or pair.tests()), "-m", "not long", "-q"]
    command += [f"--junitxml={report}", "-o", f"cache_dir={_FOLDER / (pair.name + '.cache')}", *options]
    done = subprocess.run(command, check=False, env=variables(pair.venv), cwd=ROOT)
    if not report.exists():
        return False, f"{title}: pytest ended with exit code {done.returncode} and no report"
    suite = next(ET.parse(report).iter("testsuite"))  # noqa: S314 - pytest wrote it
    count = {key: int(suite.get(key, "0")) for key in ("tests", "failures", "errors", "skipped")}
    failed = count["failures"] + count["errors"]
    passed = count["tests"] - failed - count["skipped"]
    line = f"{title}: {passed} passed, {failed} failed, {count['skipped']} skipped"
    return done.returncode == 0 and passed > 0, line


def main() -> int:
    """Run the command line: run every pair, even if one fails, and print a summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pyspark", nargs="+", default=[], help="versions, such as 4.3 or 4.0.5")
    parser.add_argument("--python", nargs="+", default=[], help="versions, such as 3.13")
    parser.add_argument("--newest", action="store_true", help="only the newest PySpark on the newest Python")
    parser.add_argument("--oldest", action="store_true", help="with --smoke, the oldest PySpark")
    parser.add_argument("--smoke", action="store_true", help="only a minute of tests, on this Python")
    parser.add_argument("--tests", nargs="+", default=[], help="other tests than the usual ones")
    parser.add_argument("options", nargs="*", help="for pytest, after --")
    given = parser.parse_args()
    if given.smoke:
        return 0 if smoke(oldest=given.oldest, options=given.options) else 1
    ensure_java()
    chosen = pairs(given.pyspark, given.python, newest=given.newest)
    results = [run(pair, given.tests, given.options) for pair in chosen]
    print("\n=== summary")
    for good, line in results:
        print(f"{'ok    ' if good else 'FAILED'} {line}")
    return 0 if all(good for good, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
