"""Which errors of DuckDB end a command, and after which Spark runs it again."""

import json
import logging
import pickle

import duckdb
import pyarrow as pa
import pytest

from delvec_engines.spark import fallback, recent_failures
from delvec_engines.spark.fallback import error_of_task, is_of_storage, reason_after, sent_to_driver
from delvec_engines.spark.recent_failures import RecentFailures
from delvec_errors import (
    ConstraintViolation,
    CorruptTable,
    DeletionVectorChecksumMismatch,
    DeletionVectorNotFound,
    DelvecError,
    EngineUnavailable,
    InternalError,
    InvalidPredicate,
    MissingDataFile,
    MultipleMatches,
    SchemaMismatch,
    StorageDenied,
    StorageError,
    StorageFull,
    UnsupportedTable,
    UnsupportedWriterFeature,
)


@pytest.fixture(autouse=True)
def _first_time(monkeypatch, caplog):
    monkeypatch.setattr(fallback, "_warned", set())
    caplog.set_level(logging.INFO, fallback.__name__)


def caused(error, cause):
    error.__cause__ = cause
    return error


def seen_by_the_driver(error):
    """Return an error as the driver gets it from a task."""
    return error_of_task(json.loads(json.dumps(sent_to_driver(error))))


OF_COMMAND = [
    ConstraintViolation("the constraint is violated"),
    MultipleMatches("two rows match"),
    DeletionVectorChecksumMismatch("damaged"),
]
OF_DUCKDB = [
    caused(ConstraintViolation("cannot be evaluated"), duckdb.ConversionException("'x' is no number")),
    InvalidPredicate("reverse() is not translated"),
    caused(SchemaMismatch("does not fit"), duckdb.InvalidInputException("does not fit")),
    SchemaMismatch("does not fit"),
    UnsupportedTable("another calendar"),
    UnsupportedWriterFeature("the constraint cannot be checked"),
    CorruptTable("an unknown codec"),
    MissingDataFile("not on this machine"),
    DeletionVectorNotFound("not on this machine"),
    StorageDenied("no credentials"),
    StorageFull("no room to spill"),
    EngineUnavailable("out of memory"),
]
OF_PROCESS = [MemoryError(), ImportError("libstdc++ is too old")]
DEFECTS = [InternalError("other rows than planned"), AttributeError("a defect"), pa.ArrowInvalid("a defect")]


def named(error):
    return f"{type(error).__name__}-{error.__cause__ is not None}"


@pytest.mark.parametrize("send", [lambda error: error, seen_by_the_driver], ids=["driver", "task"])
@pytest.mark.parametrize("error", OF_COMMAND, ids=named)
def test_errors_of_the_command_end_it(error, send, caplog):
    assert reason_after(send(error)) is None
    assert not caplog.records


@pytest.mark.parametrize("send", [lambda error: error, seen_by_the_driver], ids=["driver", "task"])
@pytest.mark.parametrize("error", OF_DUCKDB, ids=named)
def test_what_duckdb_cannot_do_spark_does_and_says_why(error, send, caplog):
    error = send(error)
    assert reason_after(error) == f"failed: {error.message}"
    assert not caplog.records


@pytest.mark.parametrize("error", OF_PROCESS, ids=named)
def test_what_the_process_lacks_is_no_defect(error, caplog):
    assert reason_after(error).startswith(f"failed: {type(error).__name__}")
    assert not caplog.records


@pytest.mark.parametrize("error", DEFECTS, ids=named)
def test_spark_runs_the_command_after_a_defect_too_with_one_warning(error, caplog):
    for _ in range(2):
        assert reason_after(error).startswith(f"failed unexpectedly: {type(error).__name__}: ")
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert all(record.exc_info for record in caplog.records)


def test_other_defects_have_their_own_warnings(caplog):
    for number in range(2 * fallback._MAX_REMEMBERED):
        reason_after(AttributeError(f"defect {number}"))
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert len(fallback._warned) <= fallback._MAX_REMEMBERED


@pytest.mark.parametrize(
    "error",
    [
        duckdb.InterruptException("INTERRUPT"),
        RuntimeError("org.apache.spark.SparkException: Job 3 cancelled "),
    ],
    ids=["duckdb", "spark"],
)
def test_what_the_user_stopped_is_not_run_again(error):
    assert reason_after(error) is None


def test_answers_of_tasks_that_succeeded_have_no_error():
    assert error_of_task({"changed": []}) is None


def test_errors_of_tasks_can_be_pickled():
    again = pickle.loads(pickle.dumps(seen_by_the_driver(OF_DUCKDB[0])))
    assert type(again) is ConstraintViolation


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (StorageError("no answer"), True),
        (StorageDenied("no credentials"), True),
        (StorageFull("no room"), False),
        (MissingDataFile("no file"), False),
        (DelvecError("x"), False),
        (OSError("x"), False),
    ],
    ids=lambda each: type(each).__name__,
)
def test_only_storage_that_does_not_answer_is_out_of_reach(error, is_one):
    assert is_of_storage(error) is is_one


def test_failures_are_remembered_for_ten_minutes(monkeypatch):
    now = 100.0
    monkeypatch.setattr(recent_failures.time, "monotonic", lambda: now)
    failures = RecentFailures()
    assert failures.reason("a") is None
    failures.note("a", "no package")
    failures.note("b", "no answer")
    now += 599
    failures.note("b", "still no answer")
    assert (failures.reason("a"), failures.reason("b")) == ("no package", "still no answer")
    now += 2
    assert (failures.reason("a"), failures.reason("b")) == (None, "still no answer")
    failures.note("c", "no answer")
    assert set(failures._noted) == {"b", "c"}
