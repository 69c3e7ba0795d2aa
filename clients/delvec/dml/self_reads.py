"""Rows that are read from the very table whose rows they replace: they must be of the version that is replaced."""

from typing import Any

from delvec.reading import ReadableTable
from delvec.rows import Rows
from delvec_kernel import locations
from delvec_kernel.errors import ConcurrentWrite, DelvecError, UnsupportedOperation

__all__ = ["WritableTable", "self_read_version"]


class WritableTable(ReadableTable):
    """A table as commands change it.

    Attributes:
        source_version: the version of this table that the new rows were read from, None where they come from elsewhere.
    """

    source_version: int | None = None

    def check_source_version(self, version: int) -> None:
        """Refuse to change a version with rows that were read from another one.

        Raises:
            ConcurrentWrite: the table was changed since; nothing is committed.
        """
        if self.source_version is not None and version != self.source_version:
            raise ConcurrentWrite(
                f"The new rows of table '{self.name}' were read from its version {self.source_version}, but the table "
                f"is now at version {version}. Nothing was committed; read the rows again, and retry.",
                conflict={"winning-version": version},
            )


def self_read_version(table: ReadableTable, data: Any) -> int | None:
    """Return the version of a table that lazy rows are read from; None where they are not, or nobody can tell.

    A version that was asked for by number or time does not count: who asks for one wants its rows, whatever came after.

    Raises:
        UnsupportedOperation: they are read from it in a way that does not tell the version.
    """
    found = {version for id_, version in _read(data) if id_ == table.id}
    if _is_spark_frame(data):
        _check_formats(table, data)
    return min(found, default=None)


def _read(data: Any) -> frozenset[tuple[str, int]]:
    if isinstance(data, Rows):
        return data.reads
    if _is_spark_frame(data):
        from delvec.engines.spark.frame_reads import versions_read

        return versions_read(data)
    if type(data).__module__.lstrip("_").partition(".")[0] == "duckdb":
        from delvec.engines.duckdb.relation import versions_read as versions_of_relation

        return versions_of_relation(data)
    return frozenset()


def _is_spark_frame(data: Any) -> bool:
    return type(data).__module__.startswith("pyspark.sql.") and hasattr(data, "toDF")


def _check_formats(table: ReadableTable, frame: Any) -> None:
    from delvec.engines.spark.frame_reads import paths_by_format

    for path in paths_by_format(frame):
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
