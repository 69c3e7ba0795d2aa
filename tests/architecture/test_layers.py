"""The import rules of docs/architecture.md hold, and modules stay small and say what they are."""

from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path for folder in ("clients", "service", "benchmarks", "dev") for path in (ROOT / folder).rglob("*.py")
)
LONGEST_MODULE = 800
NAMES_THAT_SAY_NOTHING = {"util", "utils", "helper", "helpers", "common", "misc", "manager", "base"}


def test_imports_point_one_way(monkeypatch):
    monkeypatch.chdir(ROOT)

    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_is_one_noun_of_readable_length(path):
    assert path.stem not in NAMES_THAT_SAY_NOTHING
    assert len(path.read_text().splitlines()) <= LONGEST_MODULE


def test_all_sql_is_in_the_store():
    importers = {
        path.relative_to(ROOT / "service" / "delvec_service").parts[0]
        for path in (ROOT / "service").rglob("*.py")
        if "sqlalchemy" in path.read_text()
    }

    assert importers <= {"store"}
