"""Overwrites with rows read from the same table: they must come from the version that is replaced."""

from typing import Any

from delvec_commands.change_feed.stream_options import FORMAT, VERSION_OPTIONS
from delvec_commands.lazy_rows import Rows
from delvec_commands.reading import ReadableTable
from delvec_errors import ConcurrentWrite, DelvecError, UnsupportedOperation
from delvec_kernel import locations

__all__ = ["WritableTable", "self_read_version"]


class WritableTable(ReadableTable):
    """A table that commands change.

    Attributes:
        source_version: the version of this table that the new rows were read from; None if they come from elsewhere.
    """

    source_version: int | None = None

    def check_source_version(self, version: int) -> None:
        """Check that the new rows were read from the version that is changed.

        Raises:
            ConcurrentWrite: the table has changed since; nothing is committed.
        """
        if self.source_version is not None and version != self.source_version:
            raise ConcurrentWrite(
                f"The new rows of table '{self.name}' were read from its version {self.source_version}, but the table "
                f"is now at version {version}. Nothing was committed; read the rows again, and retry.",
                conflict={"winning-version": version},
            )


def self_read_version(table: ReadableTable, data: Any) -> int | None:
    """Return the version of a table that lazy rows read; None if they do not read it, or it cannot be determined.

    Reads with time travel are exempt: they name a version, so later commits do not matter.

    Raises:
        UnsupportedOperation: they read the table in a way that does not show the version.
    """
    found = {version for id_, version in _read(data) if id_ == table.id}
    if _is_spark_frame(data):
        _check_formats(table, data)
    return min(found, default=None)


def _read(data: Any) -> frozenset[tuple[str, int]]:
    if isinstance(data, Rows):
        return data.reads
    if _is_spark_frame(data):
        from delvec_engines.spark.frame_reads import versions_read

        return versions_read(data)
    if type(data).__module__.lstrip("_").partition(".")[0] == "duckdb":
        from delvec_engines.duckdb.relation import versions_read as versions_of_relation

        return versions_of_relation(data)
    return frozenset()


def _is_spark_frame(data: Any) -> bool:
    return type(data).__module__.startswith("pyspark.sql.") and hasattr(data, "toDF")


def _check_formats(table: ReadableTable, frame: Any) -> None:
    from delvec_engines.spark.frame_reads import may_read, options_of_reads

    if may_read(frame, table.location):
        raise UnsupportedOperation(
            f"The new rows of table '{table.name}' are read from the table itself, but this version of Spark does not tell "
            "their version, so that concurrent changes could be lost; use connection.sql('INSERT OVERWRITE ...') on "
            "DuckDB, or save the rows first. Nothing was committed.",
            table=table.name,
        )
    for options in options_of_reads(frame, FORMAT, ["path", *VERSION_OPTIONS]):
        path = options.get("path")
        if path is None or len(options) > 1:
            continue
        if path == table.name or _location(path) == table.location:
            raise UnsupportedOperation(
                f"The new rows of table '{table.name}' are read from the table itself by format('delvec'), which does "
                "not tell their version, so that concurrent changes could be lost; read them with table.to_df(), or "
                "with connection.sql('INSERT OVERWRITE ...'). Nothing was committed.",
                table=table.name,
            )


def _location(path: str) -> str | None:
    try:
        return locations.canonical(locations.absolute(path))
    except DelvecError:
        return None
