"""The import rules of docs/architecture.md hold, and modules are small and well named."""

import logging
import re
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path
    for folder in ("kernel", "clients", "service", "benchmarks", "dev")
    for path in (ROOT / folder).rglob("*.py")
)
PACKAGES = sorted(
    path.parent.name
    for folder in ("kernel", "clients", "service")
    for path in (ROOT / folder).glob("*/__init__.py")
    if path.parent.name != "pyspark_delvec"  # a name for Spark to discover
)
LONGEST_MODULE = 800
NAMES_THAT_SAY_NOTHING = {"util", "utils", "helper", "helpers", "common", "misc", "manager", "base"}


@pytest.fixture
def loggers_as_they_were():
    """Import-linter disables all loggers that it does not know."""
    loggers = [log for log in logging.root.manager.loggerDict.values() if isinstance(log, logging.Logger)]
    before = [log.disabled for log in loggers]
    yield
    for log, disabled in zip(loggers, before, strict=True):
        log.disabled = disabled


@pytest.mark.usefixtures("loggers_as_they_were")
def test_import_contracts_hold(monkeypatch):
    monkeypatch.chdir(ROOT)

    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_is_one_noun_of_readable_length(path):
    assert path.stem not in NAMES_THAT_SAY_NOTHING
    assert len(path.read_text().splitlines()) <= LONGEST_MODULE


WITHOUT_PYSPARK = """
import importlib, pkgutil, sys
sys.modules["pyspark"] = None
import delvec, delvec_engines
for package in (delvec, delvec_engines):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        try:
            importlib.import_module(module.name)
        except ImportError:
            print(module.name)
"""


@pytest.mark.full("starts a process that imports everything")
def test_only_spark_modules_need_pyspark():
    """``pip install '.[local]'`` does not install it, and must be enough for Python, SQL and the shell."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PYSPARK], capture_output=True, text=True, check=True, cwd=ROOT
    )

    others = [
        name
        for name in done.stdout.split()
        if not re.match(
            r"(delvec_engines\.spark|delvec\.spark|delvec\.spark_datasource|delvec\.(airflow|dbt))(\.|$)",
            name,
        )
    ]
    assert done.stdout.split()
    assert not others


def test_there_are_no_import_cycles_not_even_for_types():
    graph = grimp.build_graph(*PACKAGES)

    TopologicalSorter(
        {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    ).prepare()


def test_all_sql_is_in_the_store():
    importers = {
        path.relative_to(ROOT / "service" / "delvec_service").parts[0]
        for path in (ROOT / "service").rglob("*.py")
        if "sqlalchemy" in path.read_text()
    }

    assert importers <= {"store"}


def test_one_module_opens_parquet_files_with_pyarrow():
    """pyarrow aborts the process over some footers, which that module checks first."""
    opening = re.compile(
        r"ParquetFile\(|ParquetDataset|pyarrow\.dataset|\.read_(metadata|schema|table|pandas)\("
    )
    openers = {
        str(path.relative_to(ROOT))
        for folder in ("kernel", "clients", "service")
        for path in (ROOT / folder).rglob("*.py")
        if "parquet" in path.read_text() and opening.search(path.read_text())
    }

    assert openers == {"kernel/delvec_parquet/parquet_file.py"}


def test_the_contracts_know_every_package():
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    downwards = next(each for each in layers["contracts"] if each["name"] == "packages import downwards")
    below = {name for layer in downwards["layers"] for name in layer.split(" | ")}

    assert sorted(layers["root_packages"]) == PACKAGES
    assert below == set(PACKAGES) - {"delvec", "delvec_service"}


@pytest.mark.parametrize(
    ("tests", "source"),
    [("client", "clients/delvec"), ("service", "service/delvec_service")]
    + [
        (name.removeprefix("delvec_"), f"kernel/{name}")
        for name in PACKAGES
        if (ROOT / "kernel" / name).is_dir()
    ],
)
def test_test_folders_mirror_the_packages_they_test(tests, source):
    unit = ROOT / "tests" / "unit" / tests
    folders = {path.parent.relative_to(unit) for path in unit.rglob("test_*.py")}

    assert not [folder for folder in folders if not (ROOT / source / folder).is_dir()]


def test_the_architecture_page_and_the_contracts_agree():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    page = (ROOT / "docs" / "architecture.md").read_text()
    listed = page.partition("## Which way imports point")[2].partition("## ")[0]

    assert re.findall(r"(?m)^- \*\*(.+?)\*\*", listed) == [
        contract["name"][:1].upper() + contract["name"][1:] for contract in contracts
    ]
    assert re.findall(r"(?m)^(delvec_\S.*)$", listed) == [
        layer for contract in contracts for layer in contract.get("layers", [])
    ]


def test_private_handles_on_the_jvm_are_in_one_module():
    """Any version of Spark may change them: there, each has a fallback, and a test that runs on every version."""
    handles = re.compile(r"\._(?:j[a-z]+(?:Session)?|sc|jvm|gateway)\b(?!\()")
    users = [
        path.name
        for path in SOURCES
        if {"kernel", "clients"} & set(path.parts) and handles.search(path.read_text())
    ]

    assert users == ["jvm.py"]
