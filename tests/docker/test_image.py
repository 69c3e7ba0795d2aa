"""The container image and the tour: what they are made of, and the image's steps in a fresh virtual environment."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import yaml
from tests.chaos.replica import free_port

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+)", re.MULTILINE)


def instructions(stage):
    """Return (instruction, text) of a stage, continued lines joined."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    stages = []
    for line in filter(str.strip, lines):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            stages.append([])
        elif stages:
            stages[-1].append((name, rest.strip()))
    return stages[stage]


def test_the_dockerfile_passes_hadolint():
    done = subprocess.run(
        [Path(sys.executable).parent / "hadolint", ROOT / "Dockerfile"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_runs_as_nobody_and_says_whether_it_lives():
    run = dict(instructions(1))
    assert run["USER"] == "10001:10001"
    assert "/livez" in run["HEALTHCHECK"]
    assert json.loads(run["ENTRYPOINT"]) == ["delvec"]


def test_the_lock_of_the_image_is_part_of_the_lock():
    image, everything = (
        dict(PIN.findall((ROOT / name).read_text()))
        for name in ("requirements-image.lock", "requirements.lock")
    )
    build = {"hatchling", "pathspec", "pluggy", "trove-classifiers", "packaging", "editables", "tomlkit"}
    assert {name: found for name, found in image.items() if name not in build} == {
        name: everything.get(name) for name in image if name not in build
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = project["dependencies"] + [
        one for extra in ("service", "local", "postgres") for one in project["optional-dependencies"][extra]
    ]
    names = {re.match(r"[\w-]+", one)[0].lower().replace("_", "-") for one in needed} - {"delvec"}
    assert names <= image.keys(), "make lock"
    assert not {"pyspark", "pytest", "mypy"} & image.keys()
    assert "://" not in (ROOT / "requirements-image.lock").read_text()


def test_what_is_copied_is_let_through_by_dockerignore():
    let = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [rest.split()[:-1] for name, rest in instructions(0) if name == "COPY"]
    for source in (one.rstrip("/") for names in copied for one in names):
        assert source in let
        assert (ROOT / source).exists()


def test_the_tour_mounts_what_is_there_and_opens_no_port_to_others():
    for name, service in COMPOSE["services"].items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert "build" in service or not service["image"].endswith(":latest")
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            if source.startswith("./docker"):
                assert (ROOT / source).is_file(), source
            elif not source.startswith("."):
                assert source in COMPOSE["volumes"]
        for other in service.get("depends_on", {}):
            assert other in COMPOSE["services"]
    assert COMPOSE["services"]["delvec"]["read_only"] is True


def test_prometheus_and_grafana_of_the_tour_ask_the_right_services():
    prometheus = yaml.safe_load((ROOT / "docker" / "prometheus.yml").read_text())
    (job,) = prometheus["scrape_configs"]
    assert job["static_configs"][0]["targets"] == ["delvec:8710"]
    assert job["authorization"]["credentials"] == COMPOSE["services"]["delvec"]["environment"]["DELVEC_TOKEN"]
    source = yaml.safe_load((ROOT / "docker" / "grafana" / "datasource.yml").read_text())
    assert source["datasources"][0]["url"] == "http://prometheus:9090"


@pytest.mark.long("installs the image's packages into a new environment: minutes")
@pytest.mark.timeout(900)
def test_the_steps_of_the_image_make_a_service_that_answers_its_health_check(tmp_path):
    source, target = tmp_path / "src", tmp_path / "opt" / "delvec"
    source.mkdir()
    target.parent.mkdir()
    for name, rest in instructions(0):
        if name == "COPY":
            *paths, destination = rest.split()
            for path in paths:
                if (ROOT / path).is_dir():
                    shutil.copytree(
                        ROOT / path, source / destination, ignore=shutil.ignore_patterns("__pycache__")
                    )
                else:
                    shutil.copy(ROOT / path, source / destination)
        elif name == "RUN":
            command = rest.replace("/opt/delvec", shlex.quote(str(target)))
            done = subprocess.run(
                ["sh", "-ec", command], cwd=source, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{command}\n{done.stdout[-1000:]}{done.stderr[-2000:]}"

    data, scratch, port = tmp_path / "data", tmp_path / "tmp", free_port()
    data.mkdir()
    scratch.mkdir()
    environment = {
        "PATH": f"{target / 'bin'}:/usr/bin:/bin",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "DELVEC_ROOTS": str(data),
        "DELVEC_HOST": "127.0.0.1",
        "DELVEC_PORT": str(port),
    }
    run = dict(instructions(1))
    check = json.loads(run["HEALTHCHECK"].partition("CMD ")[2])
    command = json.loads(run["ENTRYPOINT"]) + json.loads(run["CMD"])
    service = subprocess.Popen([target / "bin" / command[0], *command[1:]], env=environment, cwd=scratch)
    try:
        end = time.monotonic() + 60
        while (
            healthy := subprocess.run(check, env=environment, capture_output=True, check=False)
        ).returncode:
            assert service.poll() is None
            assert time.monotonic() < end, healthy.stderr.decode()
            time.sleep(0.1)
    finally:
        service.terminate()
        service.wait(60)
    assert subprocess.run(check, env=environment, capture_output=True, check=False).returncode != 0
