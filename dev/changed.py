"""Run the tests affected by a change: those that import a changed module, mirror its folder or name, and changed tests.

    python dev/changed.py [--since REVISION] [--list]

The change is everything since the branch left main, committed or not; on main itself, uncommitted changes. It is no
substitute for `make test`: a test may depend on a module that it does not import.
"""

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCES: Final = ("kernel", "clients", "service")
SUITES: Final = ("unit", "integration")
"""Folders below ``tests`` that mirror the source."""
_IN_PACKAGE: Final = 4
ALWAYS: Final = "tests/architecture"
"""Always run: these tests are fast and cover every module."""


def changed_files(since: str | None) -> list[str]:
    """Return the changed paths, without deleted ones."""
    try:
        base = since or _git("merge-base", "HEAD", "main")[0]
    except subprocess.CalledProcessError:
        base = "HEAD"  # the clone has no main
    named = {*_git("diff", "--name-only", "--diff-filter=d", base)}
    return sorted(named | {*_git("ls-files", "--others", "--exclude-standard")})


def module_of(path: str) -> str | None:
    """Return the module of a source file; None for other files."""
    parts = Path(path).with_suffix("").parts
    if not path.endswith(".py") or parts[0] not in SOURCES:
        return None
    return ".".join(parts[1:-1] if parts[-1] == "__init__" else parts[1:])


def folders_of(path: str) -> set[str]:
    """Return the test folders of a module's package; none for modules in the root package.

    ``service/delvec_service/scans/plan.py`` is tested in ``service/scans`` below ``tests/unit`` and ``tests/integration``.
    """
    parts = Path(path).parts
    if module_of(path) is None or len(parts) < _IN_PACKAGE:
        return set()
    area = "client" if parts[0] == "clients" else parts[1].removeprefix("delvec_")
    packages = [Path(area, *parts[2:-1])]
    if area == "commands":  # users run them through the client
        packages.append(Path("client", *parts[2:-1]))
    return {str(Path("tests", suite) / package) for suite in SUITES for package in packages}


def selected(changed: Iterable[str], imports: dict[str, set[str]]) -> list[str]:
    """Return the tests to run, as pytest arguments.

    Args:
        changed: paths.
        imports: by path of a Python file below ``tests``, the modules it imports.
    """
    changed = list(changed)
    found = {ALWAYS}
    modules = {name for name in map(module_of, changed) if name}
    folders = {folder for path in changed for folder in folders_of(path)}
    for path, named in imports.items():
        is_test = Path(path).name.startswith("test_")
        in_folder = str(Path(path).parent) in folders
        if is_test and (in_folder or named & modules or any(_is_named_after(path, name) for name in modules)):
            found.add(path)
    for path in changed:
        if path.startswith("docs/") or path == "README.md":
            found.add("tests/docs/examples")
        elif path.startswith("tests/") and path.endswith(".py"):
            name = Path(path).name
            if name.startswith("test_"):
                found.add(path)
            elif name == "conftest.py":
                found.add(str(Path(path).parent))
            else:
                helper = ".".join(Path(path).with_suffix("").parts)
                found |= {test for test, named in imports.items() if helper in named and "/test_" in test}
    return sorted(path for path in found if not any(str(each) in found for each in Path(path).parents))


def imports_of_tests() -> dict[str, set[str]]:
    """Return the modules that each Python file below ``tests`` imports."""
    return {
        str(path.relative_to(ROOT)): set(_imported(ast.parse(path.read_text())))
        for path in sorted((ROOT / "tests").rglob("*.py"))
    }


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_named_after(path: str, module: str) -> bool:
    last = module.rpartition(".")[2]
    return Path(path).stem in (f"test_{last}", f"test_{last}s")


def _git(*command: str) -> list[str]:
    done = subprocess.run(["git", *command], cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S607
    return done.stdout.split()


def main() -> int:
    """Select the tests and run them."""
    parser = argparse.ArgumentParser(description="Run the tests of what a change touches.")
    parser.add_argument("--since", help="a revision; by default where the branch left main")
    parser.add_argument("--list", action="store_true", help="print the tests, and run none")
    asked = parser.parse_args()
    tests = selected(changed_files(asked.since), imports_of_tests())
    if asked.list:
        print("\n".join(tests))
        return 0
    command = [
        sys.executable,
        "-m",
        "pytest",
        *tests,
        "--suite=gate",
        "-n",
        "2",
        "--dist",
        "loadfile",
        "-q",
    ]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
