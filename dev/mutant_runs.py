"""Runs tests on mutants: collects tests once, and tries each mutant in a fork."""

import gc
import importlib
import json
import os
import pickle
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Final, NamedTuple, NoReturn, TextIO

import hypothesis
import pytest
from mutant_changes import ROOT, Mutant, changed_functions, statement_at

__all__ = ["LONGEST_SECONDS", "Copy", "Outcome", "import_others"]

_COPIED: Final = (
    "docs",
    "kernel",
    "clients",
    "service",
    "migrations",
    "tests",
    "benchmarks",
    "pyproject.toml",
)
_MIN_SECONDS: Final = 20.0
LONGEST_SECONDS: Final = 600.0
_OTHERS: Final = (
    *("alembic.command", "fastapi", "httpx", "hypothesis.strategies", "numpy", "pandas", "pyarrow.compute"),
    *(
        "pyarrow.parquet",
        "pydantic_settings",
        "pyroaring",
        "sqlalchemy.dialects.sqlite",
        "sqlglot",
        "structlog",
    ),
)
"""Slow imports that are safe before a fork, as they start no threads."""
_MEMORY_BYTES: Final = 8 << 30


@dataclass(frozen=True)
class Baseline:
    """The behavior of a subject's tests without mutants.

    Attributes:
        seconds: duration of each test, in the order of collection.
        lines: by module (path in the repository), the lines that each test runs.
        imported: by module, the lines that run before the tests, on import.
    """

    seconds: Sequence[float]
    lines: Sequence[Mapping[str, AbstractSet[int]]]
    imported: Mapping[str, AbstractSet[int]]

    def tests_of(self, module: str, lines: range) -> list[int]:
        """Return the tests that run any of these lines, fastest first."""
        found = [
            place for place, run in enumerate(self.lines) if not run.get(module, set()).isdisjoint(lines)
        ]
        return sorted(found, key=self.seconds.__getitem__)


class Outcome(NamedTuple):
    """The outcome of a mutant.

    Attributes:
        means: ``killed``, ``survived``, ``not run``: no test runs the line in this process, or ``import``: code that runs
            on import cannot be changed later.
        test: the test that failed.
    """

    means: str
    test: str = ""


class Copy:
    """A copy of the repository in which the tests of a suite, gate or full, run."""

    def __init__(self, folder: Path, suite: str = "full") -> None:
        self._folder = folder
        self._suite = suite
        for name in _COPIED:
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / name, folder / name, ignore=ignored)
            else:
                shutil.copy(ROOT / name, folder / name)

    def outcomes(
        self, tests: Sequence[str], modules: Sequence[str], tried: Sequence[Mutant]
    ) -> Iterator[Outcome]:
        """Yield the outcome of each mutant; tests are collected once.

        Raises:
            SystemExit: the tests fail without a change.
        """
        output, (source, sink), told_of = self._folder / "output", os.pipe(), 0
        child = os.fork()
        if not child:
            os.close(source)
            with os.fdopen(sink, "w") as told:
                self._pytest(tests, output, [_Session(self._folder, modules, tried, told)])
        os.close(sink)
        try:
            with os.fdopen(source) as told:
                for line in told:
                    told_of += 1
                    yield Outcome(**json.loads(line))
        finally:
            _ended(child, 10.0)
        if told_of < len(tried):
            raise SystemExit(output.read_text(errors="replace")[-3000:])

    def run(self, tests: Sequence[str], seconds: float = LONGEST_SECONDS) -> tuple[bool, str]:
        """Run tests until the first failure; return whether all passed, and the end of the output."""
        output = self._folder / "output"
        child = os.fork()  # third-party imports are done, which take longer than most tests
        if not child:
            self._pytest(tests, output, [])
        code = _ended(child, seconds)
        return code == 0, output.read_text(errors="replace")[-3000:]

    def _pytest(self, tests: Sequence[str], output: Path, plugins: Sequence[object]) -> NoReturn:
        code = 1
        try:
            os.setsid()
            os.nice(10)
            resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
            with output.open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            os.chdir(self._folder)
            sys.dont_write_bytecode = True
            ours = [str(self._folder / name) for name in ("kernel", "clients", "service", "")]
            sys.path[:0] = ours
            os.environ["PYTHONPATH"] = os.pathsep.join(ours)
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
            os.environ["TMPDIR"] = tempfile.tempdir = str(self._folder / "tmp")
            Path(tempfile.tempdir).mkdir(exist_ok=True)
            options = [
                "-q",
                *(() if plugins else ("-x",)),
                "-p",
                "no:cacheprovider",
                "-p",
                "no:xdist",
                "-k",
                "not killed",
            ]
            options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis is already imported
            options.append(f"--suite={self._suite}")
            marks = "not spark and not jars"
            code = int(pytest.main([*options, "-m", marks, *tests], plugins=[_Quicker(), *plugins]))
        except BaseException:  # noqa: BLE001 - nothing of the parent must run in the child
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def survives(self, mutant: Mutant, tests: Sequence[str], seconds: float) -> bool:
        """Return whether a mutant survives that is applied before the module is imported."""
        file = self._folder / mutant.module
        original = file.read_text()
        file.write_text(mutant.source)
        try:
            return self.run(tests, seconds)[0]
        finally:
            file.write_text(original)


def _ended(child: int, seconds: float) -> int:
    """Wait for a process, and kill it and its children on a timeout; return its status, non-zero on a timeout."""
    end = time.monotonic() + seconds
    pause = 0.005
    done, status = os.waitpid(child, os.WNOHANG)
    while not done and time.monotonic() < end:
        time.sleep(pause)
        pause = min(0.1, pause * 1.3)
        done, status = os.waitpid(child, os.WNOHANG)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not done:
        os.waitpid(child, 0)
        return 1
    return status


class _Quicker:
    """Makes property tests deterministic, and disables shrinking."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile(
            "mutants",
            hypothesis.settings.get_profile("delvec"),
            phases=phases,
            derandomize=True,
            database=None,
        )
        hypothesis.settings.load_profile("mutants")


class _Session:
    """Collects the tests once, records which lines each of them runs, and tries each mutant in a fork.

    A mutant replaces the code of existing function objects, so other references to them are affected, too.
    """

    def __init__(self, folder: Path, modules: Sequence[str], tried: Sequence[Mutant], told: TextIO) -> None:
        self._folder = folder
        self._modules = {str(folder / module): module for module in modules}
        self._tried = tried
        self._told = told
        self._lines: dict[str, set[int]] = defaultdict(set)
        self._functions: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        sys.settrace(self._trace)
        threading.settrace(self._trace)

    def _trace(self, frame: FrameType, _event: str, _arg: object) -> Callable[..., Any] | None:
        module = self._modules.get(frame.f_code.co_filename)
        if module is None:
            return None
        add = self._lines[module].add

        def line(frame: FrameType, event: str, _arg: object) -> Callable[..., Any]:
            if event == "line":
                add(frame.f_lineno)
            return line

        add(frame.f_lineno)
        return line

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("the tests cannot be collected")
        for module in self._modules.values():  # some are imported lazily
            importlib.import_module(module.partition("/")[2].removesuffix(".py").replace("/", "."))
        gc.unfreeze()  # what collecting the tests left, which is not among the objects otherwise
        for each in gc.get_objects():
            if type(each) is FunctionType and each.__code__.co_filename in self._modules:
                code = each.__code__
                self._functions[code.co_filename, code.co_qualname, code.co_firstlineno].append(each)
        gc.freeze()  # a collection in a fork would copy every page
        base = self._baseline(session)
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        for mutant in self._tried:
            json.dump(self._outcome(session, mutant, base)._asdict(), self._told)
            self._told.write("\n")
            self._told.flush()
        return True

    def _baseline(self, session: pytest.Session) -> Baseline:
        imported = {module: set(lines) for module, lines in self._lines.items()}
        place = self._folder / "baseline"

        def work() -> int:
            seconds, run = [], []
            for item in session.items:
                self._lines.clear()
                began = time.monotonic()
                if _first_failure(session, [item]) and _first_failure(session, [_afresh(session, item)]):
                    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
                    reporter.summary_failures()
                    sys.stdout.flush()
                    return 1
                seconds.append(time.monotonic() - began)
                run.append(dict(self._lines))
            place.write_bytes(pickle.dumps((seconds, run)))
            return 0

        self._forked(work, LONGEST_SECONDS)
        if not place.exists():
            raise session.Interrupted("the tests fail without a change")
        seconds, run = pickle.loads(place.read_bytes())  # noqa: S301 - our own
        place.unlink()
        return Baseline(seconds, run, imported)

    def _outcome(self, session: pytest.Session, mutant: Mutant, base: Baseline) -> Outcome:
        statement = statement_at(mutant.line, (self._folder / mutant.module).read_text())
        swaps = self._swaps(mutant)
        if swaps is None or not base.imported.get(mutant.module, set()).isdisjoint(statement):
            return Outcome("import")
        chosen = base.tests_of(mutant.module, statement)
        if not chosen:
            return Outcome("not run")
        place = self._folder / "noticed"

        def work() -> int:
            for function, code in swaps:
                function.__code__ = code
            failed = _first_failure(session, [session.items[number] for number in chosen])
            place.write_text(failed or "")
            return int(bool(failed))

        expected = sum(base.seconds[number] for number in chosen)
        place.write_text("takes too long, or ends the process")
        if not self._forked(work, _MIN_SECONDS + 4 * expected):
            return Outcome("survived")
        return Outcome("killed", place.read_text())

    def _forked(self, work: Callable[[], int], seconds: float) -> int:
        child = os.fork()
        if not child:
            code = 1
            try:
                os.setsid()
                code = work()
            except BaseException:  # noqa: BLE001 - as above
                traceback.print_exc()
            finally:
                os._exit(code)
        try:
            return _ended(child, seconds)
        finally:
            for left in (self._folder / "tmp").iterdir():
                shutil.rmtree(left, ignore_errors=True)

    def _swaps(self, mutant: Mutant) -> list[tuple[FunctionType, CodeType]] | None:
        """Return functions and their new code; None if the change is not only in functions, or they do not exist."""
        file = str(self._folder / mutant.module)
        old = compile((self._folder / mutant.module).read_text(), file, "exec", dont_inherit=True)
        new = compile(mutant.source, file, "exec", dont_inherit=True)
        changed = changed_functions(old, new)
        if not changed:
            return None
        swaps = []
        for before, after in changed:
            found = self._functions.get((file, before.co_qualname, before.co_firstlineno), [])
            if not found or before.co_freevars != after.co_freevars:
                return None
            swaps += [(function, after) for function in found]
        return swaps


def _afresh(session: pytest.Session, item: pytest.Item) -> pytest.Item:
    """Prepare to rerun a test, as it may have failed because the machine is busy."""
    session.testsfailed = 0
    item._initrequest()  # type: ignore[attr-defined]  # noqa: SLF001 - as the plugins do that run tests again
    return item


def _first_failure(session: pytest.Session, items: Sequence[pytest.Item]) -> str | None:
    """Run tests until the first failure; return its name."""
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return item.nodeid
    return None


def import_others() -> None:
    """Import third-party packages that the tests need."""
    for name in _OTHERS:
        importlib.import_module(name)
