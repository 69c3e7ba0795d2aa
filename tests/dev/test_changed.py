"""`make test-changed` runs what a change touches."""

import runpy
from pathlib import Path

import pytest

CHANGED = runpy.run_path(str(Path(__file__).parents[2] / "dev" / "changed.py"))

IMPORTS = {
    "tests/unit/maintenance/test_compaction.py": {"delvec_maintenance.compaction", "pytest"},
    "tests/integration/client/test_table.py": {"delvec", "delvec.table"},
    "tests/integration/client/test_update.py": {"tests.scenes"},
    "tests/integration/client/dml/test_found_rows.py": {"pytest"},
    "tests/scenes.py": {"delvec_commands.dml.update"},
    "tests/integration/client/conftest.py": set(),
}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ([], []),
        (["kernel/delvec_maintenance/compaction.py"], ["tests/unit/maintenance/test_compaction.py"]),
        (["clients/delvec/__init__.py"], ["tests/integration/client/test_table.py"]),
        (
            ["kernel/delvec_commands/dml/update.py"],
            ["tests/integration/client/dml/test_found_rows.py", "tests/integration/client/test_update.py"],
        ),
        (["tests/scenes.py"], ["tests/integration/client/test_update.py"]),
        (
            ["tests/integration/client/conftest.py", "tests/integration/client/test_table.py"],
            ["tests/integration/client"],
        ),
        (["docs/sql.md", "Makefile"], ["tests/docs/examples"]),
    ],
)
def test_tests_that_import_a_module_or_are_named_after_it(changed, expected):
    assert CHANGED["selected"](changed, IMPORTS) == ["tests/architecture", *expected]


@pytest.mark.full("reads the imports of all tests")
def test_the_tests_of_a_real_module_are_found():
    tests = CHANGED["selected"](["kernel/delvec_maintenance/compaction.py"], CHANGED["imports_of_tests"]())
    assert "tests/unit/maintenance/test_compaction.py" in tests
