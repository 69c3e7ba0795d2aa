"""`make test-changed` runs what a change touches."""

import runpy
from pathlib import Path

import pytest

CHANGED = runpy.run_path(str(Path(__file__).parents[2] / "dev" / "changed.py"))

IMPORTS = {
    "tests/kernel/test_compaction.py": {"delvec_kernel.compaction", "pytest"},
    "tests/client/test_table.py": {"delvec", "delvec.table"},
    "tests/client/test_update.py": {"tests.scenes"},
    "tests/client/dml/test_found_rows.py": {"pytest"},
    "tests/scenes.py": {"delvec.dml.update"},
    "tests/client/conftest.py": set(),
}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ([], []),
        (["kernel/delvec_kernel/compaction.py"], ["tests/kernel/test_compaction.py"]),
        (["clients/delvec/__init__.py"], ["tests/client/test_table.py"]),
        (
            ["clients/delvec/dml/update.py"],
            ["tests/client/dml/test_found_rows.py", "tests/client/test_update.py"],
        ),
        (["tests/scenes.py"], ["tests/client/test_update.py"]),
        (["tests/client/conftest.py", "tests/client/test_table.py"], ["tests/client"]),
        (["docs/sql.md", "Makefile"], ["tests/examples"]),
    ],
)
def test_tests_that_import_a_module_or_are_named_after_it(changed, expected):
    assert CHANGED["selected"](changed, IMPORTS) == ["tests/architecture", *expected]


def test_the_tests_of_a_real_module_are_found():
    tests = CHANGED["selected"](["kernel/delvec_kernel/compaction.py"], CHANGED["imports_of_tests"]())
    assert "tests/kernel/test_compaction.py" in tests
