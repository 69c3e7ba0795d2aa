"""Delta's Java kernel, unmodified, as a client of the catalog: a program of its own reads and appends."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pyspark
import pytest
from tests.support.served import served

import delvec

TOKEN = "s3cret"
PROGRAM = Path(__file__).parent / "kernel_java" / "KernelClient.java"

pytestmark = pytest.mark.slow("each call starts a JVM")


@pytest.fixture(scope="module")
def classpath(tmp_path_factory):
    jars = os.environ.get("DELVEC_TEST_JARS")
    if not jars:
        pytest.skip("no JARs of Delta: `make test` fetches them where Maven is installed")
    if shutil.which("javac") is None:
        pytest.skip("no javac: the program that uses the kernel cannot be compiled")
    classes = tmp_path_factory.mktemp("classes")
    libraries = f"{jars}/*:{Path(pyspark.__file__).parent}/jars/*"
    command = ["javac", "-nowarn", "-Xlint:none", "-cp", libraries, "-d", str(classes), str(PROGRAM)]
    subprocess.run(command, check=True, capture_output=True)
    return f"{classes}:{libraries}"


@pytest.fixture
def lake(tmp_path):
    with served(tmp_path, TOKEN) as url, delvec.connect(url, token=TOKEN) as lake:
        yield lake


@pytest.fixture
def kernel(lake, classpath):
    """Runs the program on a table of the schema ``sales``; returns the lines that it prints, by their first word."""

    def run(table, *action):
        command = ["java", "-cp", classpath, "KernelClient", lake.url, TOKEN, "sales", table, *action]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        lines = [
            line.split(" ", 1) for line in done.stdout.splitlines() if line.startswith(("VERSION", "IDS"))
        ]
        return {word.lower(): json.loads(value) for word, value in lines}

    return run


def test_kernel_reads_deleted_rows_away_and_appends(lake, kernel):
    people = lake.create_table("sales.people", "id long, name string", managed=True)
    people.append([{"id": n, "name": f"n{n}"} for n in range(6)])
    people.delete("id % 3 = 0")
    assert kernel("people", "read") == {"version": 2, "ids": [1, 2, 4, 5]}

    assert kernel("people", "copy") == {"version": 3}
    people.delete("id = 4")  # of the file of either writer

    assert kernel("people", "read") == {"version": 4, "ids": [1, 1, 2, 2, 5, 5]}
    assert kernel("people", "read", "1") == {"version": 1, "ids": [0, 1, 2, 3, 4, 5]}
    assert sorted(people.to_arrow()["id"].to_pylist()) == [1, 1, 2, 2, 5, 5]
    assert "Kernel" in people.history(2)[1]["engineInfo"]


@pytest.mark.full("the first test shows that the kernel reads and commits")
def test_kernel_reads_columns_by_their_physical_names(lake, kernel):
    mapped = lake.create_table(
        "sales.mapped", "id long, name string", managed=True, properties={"delta.columnMapping.mode": "name"}
    )
    mapped.append([{"id": 1, "name": "x"}, {"id": 2, "name": "y"}])
    mapped.alter.rename_column("id", "number")

    assert kernel("mapped", "read") == {"version": 2, "ids": [1, 2]}
