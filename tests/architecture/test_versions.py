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


def test_the_smoke_runs_on_the_newest_pyspark_that_an_installation_takes(versions, project, monkeypatch):
    runs = []

    def run(pair, tests, options):
        runs.append((pair.pyspark, pair.python, tests))
        return True, pair.name

    monkeypatch.setattr(versions, "run", run)
    monkeypatch.setattr(versions, "ensure_java", lambda: None)
    promise = " ".join(project["optional-dependencies"]["spark"])
    lowest, end = re.search(r"pyspark>=4\.(\d+),<4\.(\d+)", promise).groups()

    for line in (["--smoke"], ["--newest", "--smoke"], ["--smoke", "--oldest"]):
        monkeypatch.setattr("sys.argv", ["versions.py", *line])
        assert versions.main() == 0

    assert [run[:2] for run in runs] == [
        (f"4.{int(end) - 1}", versions._HERE),
        (f"4.{int(end) - 1}", versions._HERE),
        (f"4.{lowest}", versions._HERE),
    ]
    assert all((ROOT / test).exists() for _, _, tests in runs for test in tests)


def test_an_environment_is_made_once_and_follows_its_checkout(versions, monkeypatch, tmp_path):
    ran = []
    monkeypatch.setattr(versions, "_FOLDER", tmp_path)
    monkeypatch.setattr(
        versions.subprocess, "run", lambda command, **_: ran.append(command[1:3] + command[-1:])
    )
    pair = versions.Pair("4.3", "3.11", Path("/bin/python3.11"))
    pair.venv.mkdir()

    def steps():
        ran.clear()
        pair.venv.mkdir(exist_ok=True)
        versions.make(pair)
        return [command[-1] for command in ran]

    monkeypatch.setattr(versions.shutil, "rmtree", lambda *_, **__: None)
    locked = str(pair.venv / "other-packages.txt")
    assert steps() == [str(pair.venv), locked, "pyspark[connect]==4.3.*", str(ROOT)]
    assert steps() == []
    monkeypatch.setattr(versions, "ROOT", tmp_path)
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    assert steps() == [str(tmp_path)]
