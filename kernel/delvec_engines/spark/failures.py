"""Translates Spark's exceptions caused by the table, the predicate or the session into Delvec errors.

Tested in `tests/integration/spark/test_spark_scan.py` and
`tests/integration/spark/test_spark_row_changes.py`.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from pyspark.errors import AnalysisException, PySparkException

from delvec_engines.scan import Scan, missing_data_file
from delvec_engines.spark.dv_filter import TASK_ERROR
from delvec_engines.spark.file_values import UNKNOWN_FILE
from delvec_engines.spark.frame_reads import without_scheme
from delvec_engines.spark.manifest import GUARD
from delvec_engines.spark.store_assignment import UNASSIGNABLE
from delvec_errors import (
    BadRequest,
    CorruptTable,
    DelvecError,
    EngineUnavailable,
    InternalError,
    InvalidPredicate,
    SchemaMismatch,
    UnsupportedTable,
    error_classes,
    from_wire,
)
from delvec_kernel import locations
from delvec_kernel.expressions.predicate import Predicate

__all__ = [
    "named_in",
    "of_change",
    "of_predicate",
    "of_scan",
    "of_session",
    "of_source",
    "refusal",
    "unknown_file",
]

_UNREADABLE: Final = re.compile(
    r"\[FAILED_READ_FILE\.([A-Z_]+)\]\s+Encountered error while reading file (.+?)\. [ \n]*(?:File |SQLSTATE|[A-Z]|$)"
)
_COLUMN: Final = re.compile(r"Parquet column \[([^\]\n]+)\]")
"""In ``[FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH]``."""
_UNDECODABLE: Final = re.compile(r"\.UnsupportedOperationException: org\.apache\.parquet\.")
_CAUSE: Final = re.compile(r"^Caused by: (?:[\w.$]+(?:Exception|Error): )?(.+)$", re.MULTILINE)
_DATA_ERROR: Final = re.compile(r"\[[A-Z_.]+\] ([^\n]+?) SQLSTATE: 22\w{3}")
"""SQLSTATE class 22, data exceptions: a cast, a division by zero, an overflow."""
_TASK_ERROR: Final = re.compile(rf"{TASK_ERROR}(\{{.*\}})")
_FRAGMENT: Final = re.compile(r"== SQL[^\n]*==\n+(.+?)\n\^", re.DOTALL)
_RAISED: Final = re.compile(
    r"^(?:.*: )?delvec_errors\.\w+\.(\w+): (.+?)(?= SQLSTATE: |\n\s*\n|\n\s+at |\n\w[\w.]*: |\Z)",
    re.MULTILINE | re.DOTALL,
)
"""The last line of a Python traceback in an exception's text."""
_NOT_FOUND: Final = re.compile(
    r"\[DATA_SOURCE_NOT_FOUND\] Failed to find the data source: delvec\b", re.IGNORECASE
)
_NO_PROGRAM: Final = re.compile(r'Cannot run program "([^"]*python[^"]*)"')
_NO_MODULE: Final = re.compile(r"ModuleNotFoundError: No module named '(delvec\b[\w.]*)'")
_OTHER_PYTHON: Final = re.compile(
    r"\[PYTHON_VERSION_MISMATCH\] Python in worker has different version: (\S+) than that in driver: ([\d.]+)"
)
_NO_FILE_SYSTEM: Final = re.compile(
    r'No FileSystem for scheme "?([\w+.-]+)|Class \S+\.fs\.(?:\w+\.)*(\w+FileSystem\w*) not found'
)
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*:/", re.IGNORECASE)
_LOST_ROWS: Final = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"
_HINT: Final = re.compile(r"\. (?=Use |Correct |If |To )")


def of_scan(scan: Scan, predicate: Predicate | None = None) -> AbstractContextManager[None]:
    """Translate errors of reading a scan's files into errors that name table, version and file.

    Raises:
        MissingDataFile: a file is missing from storage.
        CorruptTable: a file cannot be read.
        InvalidPredicate: evaluating ``predicate`` fails for a row.
        UnsupportedTable: with the session's settings, Spark ignored the manifest.
        EngineUnavailable: Spark cannot read from that storage.
    """
    return _translating(scan, lambda text: _translated(text, scan, predicate))


def of_change(scan: Scan) -> AbstractContextManager[None]:
    """Translate errors of a pass of an UPDATE or a MERGE.

    Raises:
        SchemaMismatch: a value does not fit its column.
        InvalidPredicate: an expression fails for a row.
        EngineUnavailable: Spark lost the rows of the source.
        CorruptTable: and others, as :func:`of_scan`.
    """
    return _translating(scan, lambda text: _translated(text, scan, None) or _of_value(text, scan))


@contextmanager
def _translating(scan: Scan, translate: Callable[[str], DelvecError | None]) -> Iterator[None]:
    try:
        yield
    except DelvecError as error:
        _use_path_in_log(error, scan)
        raise
    except Exception as error:
        if not _is_sparks(error):
            raise
        typed_error = _of_task(str(error), scan) or translate(str(error))
        if typed_error is None:
            raise
        raise typed_error from error


@contextmanager
def of_source() -> Iterator[None]:
    """Translate errors of computing a MERGE source, or rows to write, into errors about the user's input.

    Raises:
        SchemaMismatch: a value does not fit its column.
        BadRequest: the rows cannot be computed or read.
    """
    try:
        yield
    except Exception as error:
        if not _is_sparks(error):
            raise
        unassignable = _unassignable(str(error), "the table")
        if unassignable is not None:
            raise unassignable from error
        causes = _CAUSE.findall(str(error))
        lines = [line for line in str(error).splitlines() if line.strip()]
        said = causes[-1] if causes else lines[0] if lines else type(error).__name__
        raise _known(str(error)) or BadRequest(
            f"The source cannot be read: {said.strip()}. Nothing was changed."
        ) from error


def _is_sparks(error: Exception) -> bool:
    if isinstance(error, DelvecError):
        return False
    # Classic Spark raises py4j's own error when collecting Arrow; Connect may be installed without py4j.
    return isinstance(error, PySparkException) or type(error).__name__ == "Py4JJavaError"


def named_in(text: str) -> DelvecError | None:
    """Return the Delvec error from another process that Spark's text contains, or None.

    Includes the error that such a process cannot import Delvec.
    """
    sent = _TASK_ERROR.search(text)
    if sent:
        return from_wire(json.loads(sent[1]))
    # The tracebacks are followed by Java frames, and then repeated.
    raised = [*_RAISED.finditer(text.partition("\n\tat ")[0])] or [*_RAISED.finditer(text)]
    kind = next((each for each in error_classes() if raised and each.__name__ == raised[-1][1]), None)
    if kind is not None:
        return kind(raised[-1][2].strip())
    module = _NO_MODULE.search(text)
    if module:
        return EngineUnavailable(f"Spark's Python workers cannot import module '{module[1]}'. {_remedy()}")
    if _NOT_FOUND.search(text):
        return EngineUnavailable(
            f"Spark cannot find the data source 'delvec', because its Python does not have Delvec. {_remedy()} "
            "delvec.spark.configure_spark_with_delvec(builder) also sets it. In a thread that you started, Spark finds it "
            "for writes only after spark.createDataFrame([], 'x int') in that thread, which makes the session its active one."
        )
    return None


def _known(text: str) -> DelvecError | None:
    return named_in(text) or _of_python(text)


def _of_task(text: str, scan: Scan) -> DelvecError | None:
    error = _known(text)
    if error is not None:
        _use_path_in_log(error, scan)
    return error


def _use_path_in_log(error: DelvecError, scan: Scan) -> None:
    """Let an error name its file as the log does; Spark's expressions know only Spark's URL."""
    url = error.details.get("file")
    if isinstance(url, str) and _URL.match(url):
        path = _path_in_log(scan, url)
        error.message = error.message.replace(url, path)
        error.details["file"] = path


def _of_python(text: str) -> DelvecError | None:
    version, program = _OTHER_PYTHON.search(text), _NO_PROGRAM.search(text)
    if version:
        return EngineUnavailable(
            f"Spark's workers run Python {version[1]}, but this program runs Python {version[2]}. {_remedy()}"
        )
    if program:
        return EngineUnavailable(f"Spark cannot start its Python '{program[1]}'. {_remedy()}")
    return None


def _remedy() -> str:
    return (
        f"Set PYSPARK_PYTHON before the session starts: to {sys.executable}, or on a cluster to a Python on the "
        "executors that has Delvec installed."
    )


def _of_value(text: str, scan: Scan) -> DelvecError | None:
    facts = {"table": scan.name, "version": scan.version}
    where = f"table '{scan.name}' (version {scan.version})"
    unassignable = _unassignable(text, where, **facts)
    if unassignable is not None:
        return unassignable
    if _LOST_ROWS in text:
        return EngineUnavailable(
            f"Spark lost an executor that held rows of the source of a MERGE into {where}. Nothing was committed; "
            "retry.",
            **facts,
        )
    failed = _DATA_ERROR.search(text)
    if failed is None:
        return None
    part = _FRAGMENT.search(text)
    named = f" {part[1].strip()!r}" if part else ""
    reason = _HINT.split(failed[1])[0].rstrip(".")
    return InvalidPredicate(
        f"The expression{named} failed on rows of {where}: {reason}. Nothing was committed.",
        **facts,
        predicate=part[1].strip() if part else "",
    )


def _unassignable(text: str, where: str, **facts: Any) -> SchemaMismatch | None:
    start = text.find(UNASSIGNABLE + "{")
    if start < 0:
        return None
    rest = text[start + len(UNASSIGNABLE) :]
    about, end = json.JSONDecoder().raw_decode(rest)
    value = rest[end:].partition("\n")[0].partition(" SQLSTATE:")[0].strip()
    return SchemaMismatch(
        f"The value {value!r} does not fit into column '{about['column']}' of {where}, which is {about['type']}. "
        "Nothing was committed; cast it, or change the column's type.",
        **facts,
        column=about["column"],
    )


def of_session(text: str, scan: Scan) -> DelvecError | None:
    """Return the error for a session that cannot read a scan's files at all; None if Spark's text says nothing of it."""
    facts = {"table": scan.name, "version": scan.version}
    where = f"table '{scan.name}' (version {scan.version})"
    if GUARD in text:
        return UnsupportedTable(
            f"Spark did not see the list of files to read for {where}; "
            "unset spark.sql.streaming.fileStreamSink.ignoreMetadata",
            **facts,
        )
    missing = _NO_FILE_SYSTEM.search(text)
    if missing:
        return EngineUnavailable(
            f"Spark has no file system for {missing[1] or missing[2]}, so its reader cannot open the files of {where} "
            f"at {scan.location}. Start the session with Hadoop's connector on its class path (for S3 spark.jars.packages="
            "org.apache.hadoop:hadoop-aws:<version of Spark's Hadoop>). Without a connector, read the table with "
            "spark.read.format('delvec') and change it with engine='duckdb'. Nothing was committed.",
            **facts,
        )
    return None


def _translated(text: str, scan: Scan, predicate: Predicate | None) -> DelvecError | None:
    facts = {"table": scan.name, "version": scan.version}
    where = f"table '{scan.name}' (version {scan.version})"
    refused = of_session(text, scan)
    if refused is not None:
        return refused
    unreadable = _unreadable(text, scan, where)
    if unreadable is not None:
        return unreadable
    if UNKNOWN_FILE in text:
        return unknown_file(scan)
    failed = _DATA_ERROR.search(text)
    if predicate is not None and failed:
        reason = _HINT.split(failed[1])[0].rstrip(".")
        return InvalidPredicate(
            f"The predicate {predicate.text!r} failed on rows of {where}: {reason}.",
            **facts,
            predicate=predicate.text,
        )
    return None


def _unreadable(text: str, scan: Scan, where: str) -> DelvecError | None:
    """Return the error about a file that Spark's reader cannot read; None if its text says nothing of one."""
    facts = {"table": scan.name, "version": scan.version}
    found = _UNREADABLE.search(text)
    if found:
        path = _path_in_log(scan, found[2])
        if found[1] == "FILE_NOT_EXIST":
            return missing_data_file(scan, path)
        # The last cause is a single line, followed by stack frames.
        causes = [cause for cause in _CAUSE.findall(text) if "[FAILED_READ_FILE." not in cause]
        reason = causes[-1].strip() if causes else "Spark gave no reason"
        column = _COLUMN.search(text)
        return CorruptTable(
            f"The data file '{path}' of {where} cannot be read: {reason}",
            **facts,
            file=path,
            column=column[1] if column else None,
        )
    if _UNDECODABLE.search(text):
        # Spark names no file.
        return CorruptTable(
            f"Spark cannot read a column of {where}, because a file has another type than the table; reading with DuckDB "
            "names it.",
            **facts,
        )
    return None


def _path_in_log(scan: Scan, url: str) -> str:
    """Return the path in the log of a file named by Spark; Spark's own name if it is not in the scan."""
    sought_path = without_scheme(url)
    for path in scan.files["path"].to_pylist():
        if without_scheme(locations.resolve(scan.location, path)) == sought_path:
            return str(path)
    return url


def unknown_file(scan: Scan) -> InternalError:
    """Return the error for rows that come from a file that is not in the scan."""
    return InternalError(
        f"Spark read a file of table '{scan.name}', version {scan.version}, that is not in the plan; please report it",
        table=scan.name,
        version=scan.version,
    )


@contextmanager
def of_predicate(predicate: Predicate) -> Iterator[None]:
    """Translate Spark's analysis errors about a predicate into InvalidPredicate.

    Raises:
        InvalidPredicate: Spark cannot resolve a function in it, or its types do not match.
    """
    try:
        yield
    except AnalysisException as error:
        raise InvalidPredicate(
            f"Spark does not accept the predicate {predicate.text!r}: {refusal(error)}",
            predicate=predicate.text,
        ) from error


def refusal(error: AnalysisException) -> str:
    """Return Spark's message without the query plan."""
    return str(error).partition("\n")[0].partition(" SQLSTATE:")[0]
