"""Whether Spark runs a command again after DuckDB's attempt has failed.

Three kinds of errors: those of the command or the table, which Spark would only repeat; those that say that DuckDB cannot run the
command; and defects, after which Spark runs it, too, but with a warning.

Tested in `tests/unit/engines/spark/test_fallback.py` and `tests/integration/spark/test_spark_fallback.py`.
"""

import json
import logging
import re
from typing import Any, Final

import pyarrow as pa

from delvec_engines.operation import operation
from delvec_errors import (
    ConstraintViolation,
    CorruptDeletionVector,
    CorruptTable,
    DeletionVectorNotFound,
    DelvecError,
    EngineUnavailable,
    InvalidPredicate,
    InvalidSchema,
    MultipleMatches,
    SchemaMismatch,
    StorageDenied,
    StorageError,
    UnsupportedOperation,
    UnsupportedTable,
    from_wire,
)

__all__ = [
    "error_of_task",
    "first_line",
    "is_cancelled",
    "is_of_storage",
    "reason_after",
    "sent_to_driver",
    "warn",
]

_LOGGER: Final = logging.getLogger(__name__)
_OF_COMMAND: Final = (ConstraintViolation, MultipleMatches, CorruptDeletionVector)
"""Found by Delvec's own checks, which both engines share, or in which matches are counted."""
_OF_DUCKDB: Final = (
    # An expression that is not translated, or fails for a row: DuckDB may evaluate operands that Spark skips.
    InvalidPredicate,
    # Spark's casts accept texts that DuckDB's refuse.
    SchemaMismatch,
    InvalidSchema,
    ConstraintViolation,
    # Features and types; and damage, of which Spark's reader may not notice what DuckDB's does.
    UnsupportedTable,
    UnsupportedOperation,
    CorruptTable,
    # Storage that this machine cannot reach, or sees differently, and memory.
    StorageError,
    EngineUnavailable,
    MemoryError,
    # DuckDB is installed, but cannot be loaded.
    ImportError,
)
_CANCELLED: Final = re.compile(r"\bJob \S+ cancelled\b|SparkContext was shut down")
"""Spark's messages for a cancelled job, which must not be rerun."""
_MAX_LENGTH: Final = 200
_MAX_REMEMBERED: Final = 100
_warned: Final[set[str]] = set()
"""Defects of which this process has warned."""


class _CauseInTask(Exception):
    """The text of what DuckDB raised in a task."""


def reason_after(error: Exception) -> str | None:
    """Return why Spark has to run a command after this error of DuckDB's; None if the error is the command's outcome.

    Warns of defects, of each once.
    """
    if _is_interrupt(error) or _is_of_command(error):
        return None
    if isinstance(error, _OF_DUCKDB):
        text = error.message if isinstance(error, DelvecError) else first_line(error)
        return f"failed: {text.rstrip('.')}"
    warn(error, "DuckDB failed unexpectedly, so Spark runs %s; please report this", operation())
    return f"failed unexpectedly: {first_line(error)}"


def warn(error: Exception, message: str, *values: object) -> None:
    """Log a defect with its traceback: as a warning the first time in this process, then at level INFO."""
    key = first_line(error)
    level = logging.INFO if key in _warned else logging.WARNING
    if len(_warned) >= _MAX_REMEMBERED:
        _warned.clear()
    _warned.add(key)
    _LOGGER.log(level, message, *values, exc_info=error)


def first_line(error: Exception) -> str:
    """Return an error's class and the beginning of its text."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:_MAX_LENGTH]}"


def is_cancelled(error: Exception) -> bool:
    """Whether a job was cancelled, so that its command must not run again."""
    return _CANCELLED.search(str(error)) is not None


def is_of_storage(error: Exception) -> bool:
    """Whether an error says that a process cannot reach storage, and not what is wrong with a file or a disk there."""
    return type(error) in (StorageError, StorageDenied)


def _is_interrupt(error: Exception) -> bool:
    return _is_duckdbs(error, "InterruptException") or is_cancelled(error)


def _is_of_command(error: Exception) -> bool:
    # A file that is missing for this machine may be there for the executors.
    if not isinstance(error, _OF_COMMAND) or isinstance(error, DeletionVectorNotFound):
        return False
    return not _is_found_by_duckdb(error)


def _is_found_by_duckdb(error: Exception) -> bool:
    """Whether DuckDB failed to evaluate something, such as a constraint, which Spark may succeed in."""
    cause = error.__cause__
    return isinstance(cause, pa.ArrowException | OSError | _CauseInTask) or _is_duckdbs(cause, "Error")


def _is_duckdbs(error: BaseException | None, name: str) -> bool:
    # By name: importing DuckDB may be what has failed.
    return any(
        kind.__name__ == name and kind.__module__.lstrip("_").partition(".")[0] == "duckdb"
        for kind in type(error).__mro__
    )


# --- between task and driver ------------------------------------------------------------------------------------


def sent_to_driver(error: DelvecError) -> dict[str, Any]:
    """Return an error of a task for :func:`error_of_task`; a raised one would reach the driver as text."""
    cause = str(error.__cause__) if _is_found_by_duckdb(error) else None
    return {"error": json.dumps(error.to_wire()), "cause": cause}


def error_of_task(answer: dict[str, Any]) -> DelvecError | None:
    """Return the error that a task's answer has, with its cause; None if the task succeeded."""
    if "error" not in answer:
        return None
    error = from_wire(json.loads(answer["error"]))
    if answer["cause"] is not None:
        error.__cause__ = _CauseInTask(answer["cause"])
    return error
