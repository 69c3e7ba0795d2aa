"""A job started by the path of its Python, with its environment not activated, at Spark's default log level."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = (
    "PYSPARK_PYTHON",
    "PYSPARK_DRIVER_PYTHON",
    "VIRTUAL_ENV",
    "DELVEC_URL",
    "DELVEC_TOKEN",
    "DELVEC_DATABASE_URL",
)

OF_TESTS = """
import os, sys
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
session.config("spark.driver.host", "localhost").config("spark.sql.shuffle.partitions", "2")
session.config("spark.ui.showConsoleProgress", "false").config("spark.sql.warehouse.dir", os.getcwd() + "/warehouse")
"""

RUNNING = f"""
{OF_TESTS}
spark = session.getOrCreate()
assert spark.sparkContext.pythonExec == "python3"
try:
    spark.read.format("delvec").load(os.getcwd() + "/nothing")
except Exception as error:
    assert "DATA_SOURCE_NOT_FOUND" in str(error), error
import delvec
try:
    spark.read.format("delvec").load(os.getcwd() + "/nothing")
except delvec.EngineUnavailable as error:
    assert "PYSPARK_PYTHON" in error.message and sys.executable in error.message
else:
    raise AssertionError
from delvec.spark import DeltaTable
assert not DeltaTable.isDeltaTable(spark, os.getcwd() + "/nothing")
builder = DeltaTable.createIfNotExists(spark).tableName("fresh").addColumn("id", "LONG")
people = builder.execute()
people._table.append(spark.range(3))
assert people.toDF().select("*").count() == 3
spark.range(3, 5).write.format("delvec").mode("append").save(people._table.location)
assert spark.read.format("delvec").load(people._table.location).count() == 5
"""


@pytest.fixture
def run(tmp_path):
    """Run a job by the path of its Python, while the first python3 on PATH is another one."""
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        pytest.skip("no Java: Spark needs Java 17 or later in JAVA_HOME or on PATH")
    if sys.prefix == sys.base_prefix:
        pytest.skip("the tests do not run in a virtual environment: there is no other Python")
    others = tmp_path / "bin"
    others.mkdir()
    python3 = others / "python3"
    # The system's, which has no Delvec.
    python3.write_text(f'#!/bin/sh\nexec "{Path(sys.executable).resolve()}" "$@"\n')
    python3.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in WITHOUT}
    environment["PATH"] = f"{others}:{environment['PATH']}"
    environment["XDG_STATE_HOME"] = str(tmp_path / "state")

    def of(code):
        job = tmp_path / "job.py"
        job.write_text(code)
        done = subprocess.run(
            [sys.executable, "job.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done

    return of


@pytest.mark.timeout(900)
@pytest.mark.full("starts two Sparks in processes of their own")
def test_a_session_with_another_python_is_reported_and_can_be_fixed(run):
    log = run(RUNNING).stderr

    # Spark logs by itself what failed in the other Python; Delvec adds no traceback.
    assert "FileStreamSink" not in log
    assert "SQLQueryContextLogger" not in log
