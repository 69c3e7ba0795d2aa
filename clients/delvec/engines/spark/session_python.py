"""Which Python a session's workers run.

Spark starts the ``python3`` that is first on ``PATH``, unless ``PYSPARK_PYTHON`` says otherwise. Without an activated
environment that is another one than this program's: it has another version, or no Delvec.
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

from delvec.engines.spark.session import is_remote

__all__ = ["configure_spark_with_delvec", "use_this_python"]

_SETTING: Final = "PYSPARK_PYTHON"
_met: Final["WeakSet[Any]"] = WeakSet()


def configure_spark_with_delvec(builder: Any) -> Any:
    """Let the session that a builder makes run this program's Python, unless ``PYSPARK_PYTHON`` is set.

    Stands where programs for delta-spark have ``configure_spark_with_delta_pip``. It must come before the first session of
    the process. On a cluster whose executors have their Python elsewhere, set ``PYSPARK_PYTHON`` to that instead.

    Args:
        builder: ``SparkSession.builder``.

    Returns:
        The same builder.
    """
    if sys.executable:
        os.environ.setdefault(_SETTING, sys.executable)
    return builder


def use_this_python(spark: SparkSession) -> None:
    """Let the workers of a session on this machine run this program's Python, where nothing says which they run.

    A session that runs already takes that for what is sent to its workers from now on. Its list of data sources it may have
    made already, with the other Python: ``format("delvec")`` is put there.
    """
    if is_remote(spark) or spark in _met or not sys.executable or _SETTING in os.environ:
        return
    _met.add(spark)
    context = spark.sparkContext
    # Executors elsewhere may not have this path.
    if not context.master.startswith("local") or _is_this("python3"):
        return
    context.pythonExec = sys.executable
    # Spark starts the other Python for its list; what is wrong with that, a query that needs it says.
    with suppress(Exception):
        # By its name, as Spark finds it: an engine knows no data source, which uses a connection.
        spark.dataSource.register(import_module("pyspark_delvec").DefaultSource)


def _is_this(program: str) -> bool:
    found = shutil.which(program)
    if found is None:
        return False
    one, other = Path(found), Path(sys.executable)
    # In virtual environments both may be links to one file: their folder tells the environment.
    return one.parent == other.parent and one.resolve() == other.resolve()
