"""Where a module is tested can be seen: from the name of a test module, or from its docstring."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = {"delvec", "pyspark_delvec"}
LONG_ENOUGH = 100
LONGEST_TEST_MODULE = 800
MODULES = [
    path
    for folder in ("kernel", "clients", "service")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if len(path.read_text().splitlines()) > LONG_ENOUGH
]
TEST_MODULES = sorted((ROOT / "tests").rglob("test_*.py"))


def folders_for(module):
    """Return the folders, below ``tests``, whose test modules are about the package of ``module``."""
    package = module.relative_to(ROOT).parts[1:-1]
    area = "client" if package[0] in CLIENTS else package[0].removeprefix("delvec_")
    mirrored = Path(area, *package[1:])
    folders = {Path("unit") / mirrored, Path("integration") / mirrored}
    if area == "storage" or package[:2] == ("delvec_service", "store"):
        folders.add(Path("integration/contract"))
    if area == "commands":  # users run them through the client
        folders.add(Path("integration/client", *package[1:]))
    if area == "engines":
        folders.add(Path("integration/client") / mirrored)
    return {ROOT / "tests" / folder for folder in folders}


def named_in_docstring(module):
    """Return the paths after ``Tested in`` in the docstring of a module."""
    text = ast.get_docstring(ast.parse(module.read_text())) or ""
    return re.findall(r"`(tests/[^`]+)`", text.rpartition("Tested in ")[2]) if "Tested in " in text else []


def like_named(module):
    """Return the test modules of the same package that are named after ``module``."""
    stem = module.parent.name if module.stem == "__init__" else module.stem
    name = re.compile(rf"test_{re.escape(stem)}(s|_.+)?")
    folders = folders_for(module)
    return [each for each in TEST_MODULES if each.parent in folders and name.fullmatch(each.stem)]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_has_a_test_module_of_its_name_or_says_where_it_is_tested(module):
    named = named_in_docstring(module)

    assert not [path for path in named if not (ROOT / path).is_file()]
    assert named or like_named(module), (
        f"{module.relative_to(ROOT)} has more than {LONG_ENOUGH} lines: name a test module after it, or end its docstring with "
        "a sentence like: Tested in `tests/unit/kernel/transaction/test_rebase.py`."
    )


def test_test_modules_are_of_readable_length():
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in TEST_MODULES}

    assert {path: lines for path, lines in lengths.items() if lines > LONGEST_TEST_MODULE} == {}
