"""Spark's failures whose cause is the table, the predicate or the session, as Delvec's errors."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import unquote

from pyspark.errors import AnalysisException, PySparkException

from delvec.engines.pyspark.dv_tasks import TASK_ERROR
from delvec.engines.pyspark.facts import UNKNOWN_FILE
from delvec.engines.pyspark.manifest import GUARD
from delvec.protocol import locations
from delvec.protocol.errors import (
    CorruptTable,
    DelvecError,
    InternalError,
    InvalidPredicate,
    MissingDataFile,
    UnsupportedTable,
    from_wire,
)
from delvec.protocol.predicate import Predicate
from delvec.scan import Scan

__all__ = ["of_predicate", "of_scan", "unknown_file"]

_UNREADABLE: Final = re.compile(
    r"\[FAILED_READ_FILE\.([A-Z_]+)\]\s+Encountered error while reading file (.+?)\. [ \n]*(?:File |SQLSTATE|[A-Z]|$)"
)
_CAUSE: Final = re.compile(r"^Caused by: (?:[\w.$]+(?:Exception|Error): )?(.+)$", re.MULTILINE)
_DATA_ERROR: Final = re.compile(r"\[[A-Z_.]+\] ([^\n]+?) SQLSTATE: 22\w{3}")
"""SQL's class of errors about values: a cast, a division by zero, an overflow."""
_TASK_ERROR: Final = re.compile(rf"{TASK_ERROR}(\{{.*\}})")
_HINT: Final = re.compile(r"\. (?=Use |Correct |If |To )")


@contextmanager
def of_scan(scan: Scan, predicate: Predicate | None = None) -> Iterator[None]:
    """Turn a failed read of the scan's files into the error that names table, version and file.

    Raises:
        MissingDataFile: a file is not in storage.
        CorruptTable: a file cannot be read.
        InvalidPredicate: evaluating ``predicate`` fails for a row.
        UnsupportedTable: the session did not let Spark see the list of files.
    """
    try:
        yield
    except Exception as error:
        # Collecting Arrow from classic Spark gives py4j's bare error; Connect comes without py4j.
        if not isinstance(error, PySparkException) and type(error).__name__ != "Py4JJavaError":
            raise
        sent = _TASK_ERROR.search(str(error))
        known = from_wire(json.loads(sent[1])) if sent else _translated(str(error), scan, predicate)
        if known is None:
            raise
        raise known from error


def _translated(text: str, scan: Scan, predicate: Predicate | None) -> DelvecError | None:
    facts = {"table": scan.name, "version": scan.version}
    where = f"table '{scan.name}' (version {scan.version})"
    if GUARD in text:
        return UnsupportedTable(
            f"Spark did not see the list of files to read for {where}; "
            "unset spark.sql.streaming.fileStreamSink.ignoreMetadata",
            **facts,
        )
    found = _UNREADABLE.search(text)
    if found:
        path = _path_in_log(scan, found[2])
        if found[1] == "FILE_NOT_EXIST":
            return MissingDataFile(
                f"The data file '{path}' of {where} does not exist; restore it from a backup, or restore the "
                "table to a version that does not need it.",
                **facts,
                file=path,
            )
        # Frames of a stack trace follow the last cause; the cause itself is one line.
        causes = [cause for cause in _CAUSE.findall(text) if "[FAILED_READ_FILE." not in cause]
        reason = causes[-1].strip() if causes else "Spark gives no reason"
        return CorruptTable(f"The data file '{path}' of {where} cannot be read: {reason}", **facts, file=path)
    if UNKNOWN_FILE in text:
        return unknown_file(scan)
    failed = _DATA_ERROR.search(text)
    if predicate is not None and failed:
        reason = _HINT.split(failed[1])[0].rstrip(".")
        return InvalidPredicate(
            f"The predicate {predicate.text!r} fails on rows of {where}: {reason}.",
            **facts,
            predicate=predicate.text,
        )
    return None


def _path_in_log(scan: Scan, url: str) -> str:
    """Return what the log calls a file that Spark names; Spark's own name if it is none of the scan's."""
    wanted = _without_scheme(url)
    for path in scan.files["path"].to_pylist():
        if _without_scheme(locations.resolve(scan.location, path)) == wanted:
            return str(path)
    return url


def _without_scheme(url: str) -> str:
    # Spark may be given s3a: for s3:, and writes file:/ for file:///.
    return unquote(url.partition(":")[2]).lstrip("/")


def unknown_file(scan: Scan) -> InternalError:
    """Return the error for rows that come from a file that is not in the scan."""
    return InternalError(
        f"Spark read a file of table '{scan.name}', version {scan.version}, that is not in the plan; please report it",
        table=scan.name,
        version=scan.version,
    )


@contextmanager
def of_predicate(predicate: Predicate) -> Iterator[None]:
    """Turn Spark's refusal of a predicate into InvalidPredicate.

    Raises:
        InvalidPredicate: Spark cannot resolve a function in it, or its types do not match.
    """
    try:
        yield
    except AnalysisException as error:
        reason = str(error).partition("\n")[0].partition(" SQLSTATE:")[0]
        raise InvalidPredicate(
            f"Spark does not accept the predicate {predicate.text!r}: {reason}", predicate=predicate.text
        ) from error
