"""The corpus of real tables: its location, its manifest, and writable copies."""

import json
import os
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

ROOT = Path(__file__).resolve().parents[3]
CORPUS = Path(os.environ.get("DELVEC_CORPUS", ROOT.parent / "shared" / "corpus")) / "dev"


@dataclass(frozen=True)
class CorpusTable:
    """One entry of the manifest."""

    id: str
    path: Path
    entry: dict[str, Any]

    @property
    def expected(self) -> dict[str, Any]:
        return self.entry["expected"]

    def __str__(self) -> str:
        return self.id


def pytest_itemcollected(item):
    # In the gate DuckDB reads every table, Spark a tenth of them.
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    table = parameters.get("corpus_table")
    if parameters.get("engine") == "spark" and table is not None and corpus_tables().index(table) % 10:
        item.add_marker(pytest.mark.full("DuckDB reads it in the gate, and Spark a tenth of the tables"))


@cache
def corpus_tables() -> list[CorpusTable]:
    manifest = CORPUS / "MANIFEST.json"
    if not manifest.exists():
        return []
    entries = json.loads(manifest.read_text())["tables"]
    return [CorpusTable(entry["id"], CORPUS / entry["path"], entry) for entry in entries]


def pytest_generate_tests(metafunc):
    if "corpus_table" in metafunc.fixturenames:
        tables = corpus_tables()
        missing = pytest.param(
            None, marks=pytest.mark.skip(reason=f"no corpus at {CORPUS}: set DELVEC_CORPUS to its folder")
        )
        metafunc.parametrize("corpus_table", tables or [missing], ids=str)


@pytest.fixture
def location(corpus_table, tmp_path):
    """A copy of the table, so that the corpus stays unchanged, with absolute paths filled in where the entry requires it."""
    copy = tmp_path / corpus_table.path.name
    shutil.copytree(corpus_table.path, copy)
    for folder in [copy, *copy.rglob("*")]:
        folder.chmod(0o755 if folder.is_dir() else 0o644)
    if "prepare" in corpus_table.entry:
        folder = quote(str(copy / "folder&with%special char"), safe="/&")
        for file in (copy / "_delta_log").glob("*.json"):
            file.write_text(file.read_text().replace(corpus_table.entry["prepare"]["token"], folder))
    return copy


@pytest.fixture
def copied(tmp_path):
    """``copied(id)`` copies a table of the corpus, and returns its folder."""

    def copy(name):
        if not (CORPUS / name).exists():
            pytest.skip(f"no corpus at {CORPUS}: set DELVEC_CORPUS to its folder")
        return shutil.copytree(CORPUS / name, tmp_path / "lake" / name)

    return copy
