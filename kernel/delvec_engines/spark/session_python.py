"""The Python interpreter of a session's workers.

Spark starts the first ``python3`` on ``PATH`` unless ``PYSPARK_PYTHON`` is set. Without an activated environment, that
may be another interpreter than this program's, with another version or without Delvec.
"""

import os
import shutil
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

from pyspark.sql import SparkSession

from delvec_engines.spark.session_properties import is_remote

__all__ = ["configure_spark_with_delvec", "use_this_python"]

_SETTING: Final = "PYSPARK_PYTHON"
_met: Final["WeakSet[Any]"] = WeakSet()


def configure_spark_with_delvec(builder: Any) -> Any:
    """Make the builder's session run this program's Python in its workers, unless ``PYSPARK_PYTHON`` is set.

    Replaces delta-spark's ``configure_spark_with_delta_pip``. Call it before the process creates its first session. If
    the executors' Python has another path, set ``PYSPARK_PYTHON`` to that path instead.

    Args:
        builder: ``SparkSession.builder``.

    Returns:
        The same builder.
    """
    if sys.executable:
        os.environ.setdefault(_SETTING, sys.executable)
    return builder


def use_this_python(spark: SparkSession) -> None:
    """Make the workers of a local session run this program's Python, unless ``PYSPARK_PYTHON`` is set.

    A running session uses it for tasks from now on. Spark may have listed its Python data sources with the other
    interpreter already, so ``format("delvec")`` is registered, too.
    """
    if is_remote(spark) or spark in _met or not sys.executable or _SETTING in os.environ:
        return
    _met.add(spark)
    context = spark.sparkContext
    # Executors elsewhere may not have this path.
    if not context.master.startswith("local") or _is_this("python3"):
        return
    context.pythonExec = sys.executable
    # Listing data sources starts the other Python, which may fail; a query that needs the list reports that.
    with suppress(Exception):
        # Not imported: engines must not depend on the data source. This is the name by which Spark finds it.
        spark.dataSource.register(import_module("pyspark_delvec").DefaultSource)


def _is_this(program: str) -> bool:
    found = shutil.which(program)
    if found is None:
        return False
    one, other = Path(found), Path(sys.executable)
    # The interpreters of two virtual environments may link to one file, so their folders are compared, too.
    return one.parent == other.parent and one.resolve() == other.resolve()
