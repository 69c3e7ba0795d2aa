"""Delvec as the catalog of a Spark session, by unmodified delta-spark.

The JAR unitycatalog-spark is in no registry, so a small class stands in for the one by whose name delta-spark knows a Unity
Catalog. All requests but those of DROP TABLE and of CREATE TABLE … LOCATION are delta-spark's own.
"""

import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.served import served

_SHIM = Path(__file__).parent / "unitycatalog_shim"
_TOKEN = "secret"


def shim_jar(folder, spark):
    """Compile the classes of the shim into a JAR in a folder."""
    if shutil.which("javac") is None:
        pytest.skip("no javac: the class that stands in for unitycatalog-spark cannot be compiled")
    classpath = spark.sparkContext._jvm.java.lang.System.getProperty("java.class.path")
    jars = ":".join(str(jar).removeprefix("file:") for jar in spark.conf.get("spark.jars").split(","))
    classes = folder / "classes"
    sources = [str(source) for source in _SHIM.rglob("*.java")]
    command = ["javac", "-nowarn", "-Xlint:none", "-cp", f"{jars}:{classpath}", "-d", str(classes), *sources]
    subprocess.run(command, check=True, capture_output=True)
    jar = folder / "unitycatalog-shim.jar"
    subprocess.run(["jar", "cf", str(jar), "-C", str(classes), "."], check=True, capture_output=True)
    return jar


@contextmanager
def catalog_session(folder, spark):
    """Yield a new session whose catalog `delvec` is a service over a folder, and the service's URL and token."""
    jar = shim_jar(folder, spark)
    lake = folder / "lake"
    lake.mkdir()
    with served(lake, _TOKEN) as url:
        session = spark.newSession()
        session.sql(f"ADD JAR '{jar}'")
        session.conf.set("spark.sql.catalog.delvec", "io.unitycatalog.spark.UCSingleCatalog")
        session.conf.set("spark.sql.catalog.delvec.uri", url)
        session.conf.set("spark.sql.catalog.delvec.token", _TOKEN)
        # delta-spark looks for the catalog in the active session, which writers of frames do not set.
        active = session._jvm.org.apache.spark.sql.SparkSession
        active.setActiveSession(session._jsparkSession)
        yield session, url, _TOKEN
        active.setActiveSession(spark._jsparkSession)
