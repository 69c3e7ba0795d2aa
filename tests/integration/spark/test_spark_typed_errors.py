"""Delvec errors raised inside Spark arrive as themselves: only the message, in the class that programs catch."""

import pickle
import subprocess
import sys

import pytest
from pyspark.errors.exceptions import base, captured

import delvec
from delvec_engines.spark import typed_errors
from delvec_errors import error_classes

CREATE = """[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: Traceback (most recent call last):
  File "worker_process.py", line 37, in called
    raise error.with_traceback(None) from None
delvec_errors.request_errors.NotADeltaTable: There is no Delta table at file:///x: it has no
_delta_log with a commit in it.
 SQLSTATE: 38000"""
TASK = """org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 4.0 failed 1 times, most recent \
failure: Lost task 0.0 in stage 4.0 (TID 7) (192.0.2.2 executor driver): org.apache.spark.api.python.PythonException: \
Traceback (most recent call last):
  File "data_file.py", line 65, in reading
    raise MissingDataFile(
delvec_errors.table_errors.MissingDataFile: The data file 'a.parquet' of table 'fresh' (version 1) does not exist.

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:645)
Caused by: java.io.IOException: another
"""
ABSENT = "org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed to find the data source: delvec. Make sure"


def raised(kind, text, stack="\tat java.lang.Thread.run"):
    """Return the error that PySpark would raise, without a JVM."""
    error = kind.__new__(kind)
    error._desc, error._stackTrace, error._cause, error._origin = text, stack, None, None
    return error


def test_an_error_is_of_both_classes_and_shows_only_the_message():
    found = typed_errors.typed(raised(captured.AnalysisException, CREATE))

    assert isinstance(found, delvec.NotADeltaTable)
    assert isinstance(found, base.AnalysisException)
    assert str(found) == found.message
    assert found.message.startswith("There is no Delta table at file:///x")
    assert found.message.endswith("with a commit in it.")
    assert repr(found).startswith("NotADeltaTable(")
    again = pickle.loads(pickle.dumps(found))
    assert (type(again), again.message) == (delvec.NotADeltaTable, found.message)


def test_a_task_error_is_found_below_those_of_the_jvm():
    found = typed_errors.typed(raised(captured.UnknownException, "An error occurred", TASK))

    assert isinstance(found, delvec.MissingDataFile)
    # PySpark wraps those in a py4j error.
    assert not isinstance(found, captured.UnknownException)
    assert isinstance(found, base.PySparkException)
    assert str(found) == "The data file 'a.parquet' of table 'fresh' (version 1) does not exist."


def test_a_session_with_another_python_is_reported():
    found = typed_errors.typed(raised(captured.UnknownException, ABSENT))

    assert isinstance(found, delvec.EngineUnavailable)
    assert "PYSPARK_PYTHON" in found.message
    assert sys.executable in found.message


def test_other_errors_are_left_alone():
    error = raised(captured.AnalysisException, "[UNRESOLVED_COLUMN] delvec is no column")

    assert typed_errors.typed(error) is error
    assert typed_errors.typed(None) is None


def test_errors_from_the_service_are_of_delvecs_own_classes():
    typed_errors.typed(raised(captured.AnalysisException, CREATE))

    assert not [kind for kind in error_classes() if issubclass(kind, base.PySparkException)]


@pytest.mark.parametrize("first", ["delvec", "pyspark.sql"])
def test_importing_delvec_is_enough_and_does_not_import_pyspark(first):
    """Whichever is imported first."""
    code = f"""
import sys, {first}
if {first!r} == "delvec":
    assert "pyspark" not in sys.modules
import delvec, inspect
from pyspark.errors.exceptions import captured
from pyspark.sql.streaming.query import StreamingQuery
assert captured.convert_exception._is_typed and StreamingQuery.exception._is_typed
assert "def convert_exception" in inspect.getsource(captured)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
