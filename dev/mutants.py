"""Try whether the tests notice defects: change one place of a module, and run the tests of that module.

    python dev/mutants.py [--only TEXT ...] [--count N] [--seed N] [--list]

A change (a mutant) that no test notices survives and is printed as a diff: a test is missing, or the change means the
same. The latter are named in dev/equivalent_mutants.toml, each with the reason, and count as killed. The modules are
those whose defects lose rows. Works on a copy of the repository, in one process, so that the tests can be run beside it.
"""

import argparse
import ast
import difflib
import importlib
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
EQUIVALENT: Final = ROOT / "dev" / "equivalent_mutants.toml"
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
_LEAST_SECONDS: Final = 20.0
_LONGEST_SECONDS: Final = 600.0
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
"""What takes long to import, and may be there before a fork: it starts no threads."""
_MEMORY_BYTES: Final = 8 << 30
_KERNEL: Final = "kernel/delvec_kernel/"
_SERVICE: Final = "service/delvec_service/"
_CLIENT: Final = "clients/delvec/"


class Subject(NamedTuple):
    """Modules (paths, or folders with all their modules) and the tests that must notice their defects."""

    modules: Sequence[str]
    tests: Sequence[str]


_CONFLICTS: Final = (
    *(
        "tests/kernel/transaction/test_conflicts.py",
        "tests/kernel/transaction/test_group.py",
        "tests/kernel/transaction/test_conflict_matrix.py",
    ),
    "tests/kernel/transaction/test_row_runs.py",
)
_ROW_CHANGES: Final = (
    "tests/client/test_row_commands.py",
    "tests/engines/test_merge.py",
    "tests/engines/test_update.py",
)
SUBJECTS: Final = (
    Subject(
        [
            _KERNEL + f"transaction/{name}.py"
            for name in (
                "conflict_checker",
                "rebase",
                "compaction_rebase",
                "current_transaction",
                "metadata_conflicts",
                "row_runs",
                "winning_commit",
                "group_commit",
            )
        ],
        _CONFLICTS,
    ),
    Subject(
        [_KERNEL + "transaction/commit_builder.py", _KERNEL + "deletion_vectors/dv_packing.py"],
        [
            "tests/kernel/transaction/test_commit_builder.py",
            "tests/unit/test_change_files.py",
            "tests/kernel/deletion_vectors/test_dv_packing.py",
            "tests/service/test_written_vectors.py",
        ],
    ),
    Subject(
        [
            _KERNEL + "data_skipping",
            _KERNEL + "statistics/bounds.py",
            _KERNEL + "statistics/literal_bounds.py",
            _KERNEL + "statistics/typed_statistics.py",
            _KERNEL + "file_index/column_bounds.py",
        ],
        [
            *(
                "tests/kernel/data_skipping/test_skipping.py",
                "tests/kernel/data_skipping/test_file_selection.py",
            ),
            *(
                "tests/kernel/statistics/test_typed_statistics.py",
                "tests/kernel/data_skipping/test_generated_columns.py",
            ),
            "tests/kernel/data_skipping/test_skipping_rows.py",
        ],
    ),
    Subject(
        [_KERNEL + "file_index"],
        [
            *(
                "tests/kernel/file_index/test_live_files.py",
                "tests/kernel/file_index/test_part_cache.py",
                "tests/kernel/file_index/test_file_clustering.py",
            ),
            *("tests/kernel/snapshot/test_replay.py", "tests/contract/test_snapshot_store.py"),
        ],
    ),
    Subject(
        [_KERNEL + "snapshot/replay.py", _KERNEL + "log/tombstones.py"],
        [
            "tests/kernel/snapshot/test_replay.py",
            "tests/kernel/log/test_tombstones.py",
            "tests/kernel/log/test_checkpoint.py",
        ],
    ),
    Subject(
        [_KERNEL + "log/log_cleanup.py", _SERVICE + "maintenance/log_cleanup.py"],
        ["tests/service/test_log_cleanup.py"],
    ),
    Subject(
        [
            _SERVICE + f"commits/{name}.py"
            for name in ("commit_loop", "commit_race", "commit_log", "commit_member", "overwrite_watch")
        ],
        [
            *("tests/unit/test_commit_log.py", "tests/service/test_commit_loop.py"),
            *(
                "tests/service/test_races.py",
                "tests/service/test_own_commits.py",
                "tests/service/test_commit.py",
            ),
        ],
    ),
    Subject(
        [
            _SERVICE + f"commits/{name}.py"
            for name in (
                "commit_checks",
                "metadata_changes",
                "uploaded_dvs",
                "dv_writer",
                "dv_cache",
                "outcomes",
            )
        ],
        [
            *("tests/unit/test_vector_cache.py", "tests/service/test_written_vectors.py"),
            *("tests/service/test_write_changes.py", "tests/service/test_commit_refusals.py"),
            *(
                "tests/service/test_change_files.py",
                "tests/service/test_commit.py",
                "tests/service/test_races.py",
            ),
        ],
    ),
    Subject(
        [_SERVICE + "commits/group_commit.py"],
        ["tests/unit/test_group_queue.py", "tests/service/test_group_commit.py"],
    ),
    Subject(
        [_CLIENT + f"dml/{name}.py" for name in ("merge", "update", "row_command", "touched_files")],
        _ROW_CHANGES,
    ),
    Subject(
        [_CLIENT + "dml/delete.py", _CLIENT + "engines/found_rows.py", _CLIENT + "transaction.py"],
        [
            *("tests/client/test_row_commands.py", "tests/client/test_delta_table.py"),
            *(
                "tests/client/test_found_rows.py",
                "tests/client/test_transactions.py",
                "tests/client/test_bad_input.py",
            ),
        ],
    ),
    Subject(
        [_CLIENT + "engines/duckdb/row_changes.py", _CLIENT + "engines/row_changes.py"],
        ["tests/client/test_duckdb_row_changes.py", *_ROW_CHANGES],
    ),
    Subject(
        [_KERNEL + "deletion_vectors/deletion_vector.py", _KERNEL + "deletion_vectors/z85.py"],
        [
            "tests/kernel/deletion_vectors/test_z85.py",
            "tests/kernel/deletion_vectors/test_deletion_vector_codec.py",
        ],
    ),
)

# --- changes ------------------------------------------------------------------------------------------------

_COMPARISONS: Final[dict[type[ast.cmpop], ast.cmpop]] = {
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
}
_OPERATORS: Final[dict[type[ast.operator], ast.operator]] = {
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.Mult: ast.FloorDiv(),
    ast.FloorDiv: ast.Mult(),
    ast.Mod: ast.Add(),
    ast.BitOr: ast.BitAnd(),
    ast.BitAnd: ast.BitOr(),
    ast.LShift: ast.RShift(),
    ast.RShift: ast.LShift(),
}


@dataclass(frozen=True)
class Mutant:
    """A module with one change.

    Attributes:
        module: path in the repository.
        before: the lines that change, without the indentation of the first.
        after: what becomes of them.
        source: of the whole module.
    """

    module: str
    line: int
    before: str
    after: str
    source: str

    @property
    def key(self) -> tuple[str, str, str]:
        """Return what it is known by, wherever in the module its lines are."""
        return self.module, self.before, self.after

    def diff(self) -> str:
        """Return the change as people read it."""
        old = (ROOT / self.module).read_text().splitlines(keepends=True)
        lines = difflib.unified_diff(
            old, self.source.splitlines(keepends=True), self.module, self.module, n=2
        )
        return "".join(lines)


class _Changes(ast.NodeVisitor):
    """Collects pairs of a node and the text that takes its place; what only people read is left as it is."""

    def __init__(self) -> None:
        self.found: list[tuple[ast.expr | ast.stmt, str]] = []

    def _put(self, node: ast.expr | ast.stmt, changed: ast.AST | str) -> None:
        if not isinstance(changed, str):
            changed = ast.unparse(ast.fix_missing_locations(changed))
        if isinstance(node, ast.expr):
            changed = f"({changed})"
        self.found.append((node, changed))

    def _negate(self, test: ast.expr) -> None:
        changed = test.operand if isinstance(test, ast.UnaryOp) else ast.UnaryOp(ast.Not(), test)
        # Of a comparison its own change is the negation, or nearly.
        if not isinstance(test, ast.Compare) or not isinstance(
            test.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn)
        ):
            self._put(test, changed)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        for statement in node.body:
            self.visit(statement)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        if "__all__" in names:
            return
        if not names and isinstance(node.targets[0], ast.Attribute | ast.Subscript):
            self._put(node, "pass")
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._put(node, "pass")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):  # documentation
            return
        if isinstance(node.value, ast.Call) and "log" in ast.unparse(node.value.func).split(".")[0]:
            return
        if isinstance(node.value, ast.Call):
            self._put(node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._put(node, "pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._put(node, "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._put(node, "continue")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self._put(node, "pass")
            return
        if not isinstance(node.value, ast.Constant):
            self._put(node, "return None")
        self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return
        self._negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for place, operator in enumerate(node.ops):
            ops = list(node.ops)
            ops[place] = _COMPARISONS[type(operator)]
            self._put(node, ast.Compare(node.left, ops, node.comparators))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._put(node, ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values))
        for left in range(len(node.values)):
            rest = [value for place, value in enumerate(node.values) if place != left]
            self._put(node, rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        text = isinstance(node.left, ast.JoinedStr) or (
            isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
        )
        if type(node.op) in _OPERATORS and not text:
            self._put(node, ast.BinOp(node.left, _OPERATORS[type(node.op)], node.right))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if len(node.args) > 1 and not any(isinstance(each, ast.Starred) for each in node.args[:2]):
            swapped = [node.args[1], node.args[0], *node.args[2:]]
            if ast.unparse(node.func) not in ("isinstance", "cast", "getattr", "hasattr"):
                self._put(node, ast.Call(node.func, swapped, node.keywords))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._put(node, str(not node.value))
        elif isinstance(node.value, int | float):
            self._put(node, repr(node.value + 1))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave texts as they are."""


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """Yield every mutant of a module, in the order of its text."""
    tree = ast.parse(source)
    collected = _Changes()
    collected.visit(tree)
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    seen = set()
    for node, text in sorted(collected.found, key=lambda pair: (pair[0].lineno, pair[0].col_offset)):
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        start, end = starts[node.lineno - 1] + node.col_offset, starts[end_line - 1] + end_column
        data = source.encode()
        changed = (data[:start] + text.encode() + data[end:]).decode()
        if changed in seen:
            continue
        seen.add(changed)
        before = b"".join(lines[node.lineno - 1 : end_line]).decode().strip()
        tail = data[end : starts[end_line]]
        after = (data[starts[node.lineno - 1] : start] + text.encode() + tail).decode().strip()
        yield Mutant(module, node.lineno, before, after, changed)


# --- running ------------------------------------------------------------------------------------------------


class Copy:
    """A copy of what the tests need, in which one module at a time is changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in _COPIED:
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / name, folder / name, ignore=ignored)
            else:
                shutil.copy(ROOT / name, folder / name)

    def run(self, tests: Sequence[str], seconds: float = _LONGEST_SECONDS) -> tuple[bool, str]:
        """Run tests up to the first that fails; return whether all passed, and the end of the output."""
        output = self._folder / "output"
        child = os.fork()  # with everything imported that is not ours, which takes longer than most tests
        if not child:
            self._run_here(tests, output)
        end = time.monotonic() + seconds
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return status == 0, output.read_text(errors="replace")[-3000:]
            if time.monotonic() > end:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return False, f"no end within {seconds:.0f} seconds"
            time.sleep(0.05)

    def _run_here(self, tests: Sequence[str], output: Path) -> NoReturn:
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
            options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", "not killed"]
            options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis is here already
            code = int(pytest.main([*options, "-m", "not long and not spark and not jars", *tests]))
        except BaseException:  # noqa: BLE001 - nothing of the parent must run in the child
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def survives(self, mutant: Mutant, tests: Sequence[str], seconds: float) -> bool:
        """Return whether no test notices."""
        file = self._folder / mutant.module
        original = file.read_text()
        file.write_text(mutant.source)
        try:
            return self.run(tests, seconds)[0]
        finally:
            file.write_text(original)


def _imported() -> None:
    """Import what the tests need of others."""
    for name in _OTHERS:
        importlib.import_module(name)


# --- the whole ----------------------------------------------------------------------------------------------


def modules_of(subject: Subject) -> list[str]:
    """Return the modules of a subject as paths."""
    found = []
    for name in subject.modules:
        place = ROOT / name
        files = [place] if place.is_file() else sorted(place.rglob("*.py"))
        found += [str(file.relative_to(ROOT)) for file in files if file.name != "__init__.py"]
    return found


def equivalents() -> dict[tuple[str, str, str], str]:
    """Return the reason of each mutant that means the same, by what it is known by."""
    entries = tomllib.loads(EQUIVALENT.read_text()).get("mutant", []) if EQUIVALENT.exists() else []
    return {(entry["module"], entry["before"], entry["after"]): entry["reason"] for entry in entries}


class Trial:
    """Tries samples of the mutants of modules, and counts.

    Args:
        copy: where they are tried; None to show them only.
        lines: the first and the last line of what is changed; None for all.
    """

    def __init__(self, copy: Copy | None, *, count: int, seed: int, lines: Sequence[int] | None) -> None:
        self._copy = copy
        self._count = count
        self._seed = seed
        self._lines = range(lines[0], lines[1] + 1) if lines else range(sys.maxsize)
        self._same = equivalents()
        self.tried = 0
        self.survived = 0

    def run(self, modules: Sequence[str], tests: Sequence[str]) -> None:
        """Try a sample of each of these modules with these tests.

        Raises:
            SystemExit: the tests fail without a change.
        """
        if self._copy is None:
            for module in modules:
                print("\n".join(mutant.diff() for mutant in self._sample(module)))
            return
        began = time.monotonic()
        passed, output = self._copy.run(tests) if modules else (True, "")
        if not passed:
            raise SystemExit(f"{output}\nthe tests of {modules[0]} fail without a change")
        limit = max(_LEAST_SECONDS, 4 * (time.monotonic() - began))
        for module in modules:
            sample = self._sample(module)
            left = sum(self._survives(self._copy, mutant, tests, limit) for mutant in sample)
            self.tried += len(sample)
            self.survived += left
            print(f"{module}: {len(sample) - left} of {len(sample)} killed or equivalent", flush=True)

    def _sample(self, module: str) -> list[Mutant]:
        found = [each for each in mutants(module, (ROOT / module).read_text()) if each.line in self._lines]
        dice = random.Random(f"{self._seed} {module}")  # noqa: S311 - a sample that can be had again
        return dice.sample(found, min(self._count, len(found)))

    def _survives(self, copy: Copy, mutant: Mutant, tests: Sequence[str], limit: float) -> bool:
        where = f"{mutant.module}:{mutant.line}"
        if mutant.key in self._same:
            print(f"equivalent: {where}", flush=True)
            return False
        if not copy.survives(mutant, tests, limit):
            print(f"killed: {where}", flush=True)
            return False
        print(f"SURVIVED: {where}\n{mutant.diff()}", flush=True)
        return True


def main() -> int:
    """Read the command line, try the mutants, and say how many survived."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[""], help="modules whose path contains one of these")
    parser.add_argument("--count", type=int, default=5, help="mutants of each module (5)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (0)")
    parser.add_argument("--tests", nargs="+", help="in place of those of the module")
    parser.add_argument("--lines", type=int, nargs=2, help="only mutants from one line to another")
    parser.add_argument("--list", action="store_true", help="show the sample, and run nothing")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="delvec-mutants-") as folder:
        if not arguments.list:
            _imported()
        copy = None if arguments.list else Copy(Path(folder))
        trial = Trial(copy, count=arguments.count, seed=arguments.seed, lines=arguments.lines)
        for subject in SUBJECTS:
            chosen = [each for each in modules_of(subject) if any(text in each for text in arguments.only)]
            trial.run(chosen, arguments.tests or subject.tests)
    killed, total = trial.tried - trial.survived, trial.tried
    if total:
        print(f"{killed} of {total} killed or equivalent ({100 * killed // total} %)")
    return int(bool(trial.survived))


if __name__ == "__main__":
    sys.exit(main())
