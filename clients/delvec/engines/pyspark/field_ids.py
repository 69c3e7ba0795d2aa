"""Tables that map columns by field id, which Spark finds in files only if the session lets it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from delvec.protocol.errors import UnsupportedTable
from delvec.scan import Scan

__all__ = ["check_field_ids", "read_by_field_id"]

_SETTING: Final = "spark.sql.parquet.fieldId.read.enabled"
_lock: Final = threading.Lock()
_running: Final[dict[int, int]] = {}


@contextmanager
def read_by_field_id(spark: SparkSession, scan: Scan) -> Iterator[None]:
    """Let the session read by field id while the block runs, if the scan's table needs it.

    Several threads may be in such blocks: the last one to leave turns it off again.
    """
    if not _maps_by_id(scan):
        yield
        return
    key = id(spark)
    with _lock:
        # A session where it is on already is left alone.
        mine = key in _running or not _is_on(spark)
        if mine:
            _running[key] = _running.get(key, 0) + 1
            spark.conf.set(_SETTING, "true")
    try:
        yield
    finally:
        with _lock:
            if mine:
                _running[key] -= 1
                if not _running[key]:
                    del _running[key]
                    spark.conf.set(_SETTING, "false")


def check_field_ids(spark: SparkSession, scan: Scan) -> None:
    """Refuse a table whose columns this session would look for by the wrong property.

    Raises:
        UnsupportedTable: the table maps columns by field id, and the session does not read by it.
    """
    if _maps_by_id(scan) and not _is_on(spark):
        raise UnsupportedTable(
            f"Table '{scan.name}' maps columns by field id, which DataFrames only do with {_SETTING}=true in the "
            "session: set it and leave it set, or use a command that returns rows",
            table=scan.name,
            setting=_SETTING,
        )


def _maps_by_id(scan: Scan) -> bool:
    return scan.configuration.get("delta.columnMapping.mode", "none").lower() == "id"


def _is_on(spark: SparkSession) -> bool:
    return str(spark.conf.get(_SETTING, "false")).lower() == "true"
