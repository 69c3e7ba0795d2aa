"""The built wheel, alone in an empty environment, runs the README's session."""

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def empty_environment(wheel, tmp_path_factory):
    """An environment with the wheel and what ``[local]`` asks for, at the locked versions."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    constraints = folder / "constraints.txt"
    locked = re.findall(r"^[\w.\-]+==\S+", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE)
    constraints.write_text("\n".join(locked))
    pip = [str(python), "-m", "pip", "install", "--quiet", "--constraint", str(constraints)]
    subprocess.run([*pip, f"{wheel}[local]"], check=True, capture_output=True, text=True)
    return python


@pytest.mark.full("builds a wheel")
def test_the_wheel_holds_the_migrations_and_the_type_markers(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())

    packages = {name.partition("/")[0] for name in names if name.endswith("/__init__.py")} - {
        "pyspark_delvec"
    }
    assert {"delvec", "delvec_commands", "delvec_kernel", "delvec_service"} <= packages
    assert {f"{package}/py.typed" for package in packages} <= names
    assert "delvec_service/migrations/env.py" in names
    page = "delvec_service/dashboard"
    assert {
        f"{page}/templates/table.html",
        f"{page}/static/htmx.min.js",
        f"{page}/static/VENDORED.txt",
    } <= names
    assert "pyspark_delvec/__init__.py" in names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "dev/"))]


@pytest.mark.full("installs the wheel with its dependencies into an empty environment")
@pytest.mark.timeout(600)
def test_the_readme_session(empty_environment, tmp_path):
    session = re.search(r"```python\n(.*?)```", README, flags=re.DOTALL).group(1)
    told = re.search(r"```text\n(.*?)```", README, flags=re.DOTALL).group(1).splitlines()
    shutil.rmtree("/tmp/delvec-readme", ignore_errors=True)  # the README's own place
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }

    done = subprocess.run(
        [str(empty_environment), "-W", "error", "-c", session],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == told
    shutil.rmtree("/tmp/delvec-readme", ignore_errors=True)


@pytest.mark.full("needs the same empty environment")
def test_the_shell_starts_without_the_service_and_the_engines(empty_environment):
    done = subprocess.run(
        [str(empty_environment.with_name("delvec")), "--help"],
        check=True,
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "PYTHONPROFILEIMPORTTIME": "1"},
    )

    assert "delete" in done.stdout
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert not imported & {"fastapi", "sqlalchemy", "duckdb", "pyspark"}
