"""The supported versions are those that are tested: by `make test` and by `make test-versions`."""

import importlib
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def versions(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "dev")
    return importlib.import_module("versions")


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_supported_pyspark_is_tested(versions, project):
    promise = " ".join(project["optional-dependencies"]["spark"])
    lowest, end = re.search(r"pyspark>=4\.(\d+),<4\.(\d+)", promise).groups()
    locked = re.search(r"(?m)^pyspark==(\d+\.\d+)\.", (ROOT / "requirements.lock").read_text())[1]

    assert sorted({locked, *versions.PYSPARKS}) == [f"4.{minor}" for minor in range(int(lowest), int(end))]


def test_every_supported_python_is_tested(versions, project):
    promised = [line.split()[-1] for line in project["classifiers"] if ":: Python ::" in line]

    assert list(versions.PYTHONS) == promised
    assert project["requires-python"] == f">={promised[0]}"


def test_pyspark_and_its_dependencies_are_not_taken_from_the_lock(versions):
    lock = (ROOT / "requirements.lock").read_text()
    left = versions.other_packages()

    assert set(re.findall(r"(?m)^([\w-]+)==", lock)) - set(re.findall(r"(?m)^([\w-]+)==", left)) == {
        "pyspark",
        "py4j",
    }
    assert lock.startswith(left[:100])


def test_combinations_that_are_run(versions, monkeypatch):
    monkeypatch.setattr(versions, "interpreter", lambda python: Path(f"/bin/python{python}"))
    monkeypatch.setattr(versions, "_HERE", "3.12")

    def names(*pysparks, pythons=(), newest=False):
        return [
            (pair.pyspark, pair.python)
            for pair in versions.pairs(list(pysparks), list(pythons), newest=newest)
        ]

    assert names() == [("4.0", "3.12"), ("4.2", "3.12"), ("4.3", "3.12"), ("4.3", "3.11"), ("4.3", "3.13")]
    assert names("4.0.5") == [("4.0.5", "3.12")]
    assert names(pythons=["3.13"]) == [("4.3", "3.13")]
    assert names("4.0", "4.2", pythons=["3.11"]) == [("4.0", "3.11"), ("4.2", "3.11")]
    assert names(newest=True) == [("4.3", "3.13")]
