"""``DeltaTable`` with delta-spark's names and arguments.

Tested in `tests/integration/spark/test_spark_delta_table.py` and
`tests/integration/spark/test_spark_delta_spark_api.py`.
"""

# ruff: noqa: N802, N803, A002 - delta-spark's spelling is the point

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - as everyone calls it

from delvec.spark.arguments import check_condition, check_value, check_values
from delvec.spark.catalog_entries import catalog_entry, short_name
from delvec.spark.column_texts import to_sql, without_alias
from delvec.spark.current_connection import current
from delvec.spark.delta_merge_builder import DeltaMergeBuilder, assignments
from delvec.spark.frames import detail_frame, history_frame, is_retention_checked, struct
from delvec.spark.optimize_builder import DeltaOptimizeBuilder
from delvec.spark.table_builder import DeltaTableBuilder
from delvec.table import DeltaTable as Table
from delvec_commands.transaction import Metrics
from delvec_engines.spark.manifest import hadoop_path
from delvec_errors import BadRequest, InvalidTableChange, NotADeltaTable, TableNotFound, UnsupportedOperation
from delvec_kernel import locations

__all__ = ["DeltaTable"]

_UNKNOWN_FEATURE: Final = "DELTA_UNSUPPORTED_FEATURES_IN_CONFIG"
_OF_ANOTHER_STORE: Final = re.compile(r"fs\.(?!file\.)\w+\.")
"""Hadoop's options that mean nothing for local files."""
_RESTORED: Final = {
    "table_size_after_restore": "tableSizeAfterRestore",
    "num_of_files_after_restore": "numOfFilesAfterRestore",
    "num_removed_files": "numRemovedFiles",
    "num_restored_files": "numRestoredFiles",
    "removed_files_size": "removedFilesSize",
    "restored_files_size": "restoredFilesSize",
}


class DeltaTable:
    """A Delta table on a SparkSession. Get one from :meth:`forPath` or :meth:`forName`."""

    def __init__(self, spark: SparkSession, table: Table, alias: str | None = None) -> None:
        self._spark = spark
        self._table = table
        self._alias = alias

    @classmethod
    def forPath(
        cls, sparkSession: SparkSession, path: str, hadoopConf: Mapping[str, str] | None = None
    ) -> "DeltaTable":
        """Return the table at ``path``.

        Args:
            sparkSession: classic or Connect.
            path: a path or URL.
            hadoopConf: options of other file systems than the path's: the service and Spark have their own access to
                storage.

        Raises:
            BadRequest: an option is not about another file system.
            NotADeltaTable: there is no Delta table at the path.
        """
        place = locations.absolute(path)
        is_local = locations.canonical(place).startswith("file:")
        keys = [key for key in hadoopConf or {} if not (is_local and _OF_ANOTHER_STORE.match(key))]
        if keys:
            raise BadRequest(
                f"hadoopConf is not supported ({', '.join(sorted(keys))}): set the service's credentials in its "
                "environment, and Spark's in the session",
                keys=sorted(keys),
            )
        found = current().table(place, engine=sparkSession)
        found.version()  # raises if the log of a registered table is gone
        return cls(sparkSession, found)

    @classmethod
    def forName(cls, sparkSession: SparkSession, tableOrViewName: str) -> "DeltaTable":
        """Return the Delta table of this name in Spark's catalog, or else the one registered with the service.

        Raises:
            TableNotFound: neither has it.
            NotADeltaTable: only the catalog has it, as a view or a table of another format; or the table's files are
                gone.
        """
        if tableOrViewName.lower().startswith("delta.`") and tableOrViewName.endswith("`"):
            return cls.forPath(sparkSession, tableOrViewName[len("delta.`") : -1])
        entry = catalog_entry(sparkSession, tableOrViewName)
        if entry is not None and entry.location is not None:
            try:
                return cls.forPath(sparkSession, entry.location)
            except NotADeltaTable as error:
                raise _gone(tableOrViewName, "Spark's catalog", error, "DROP TABLE") from error
        try:
            found = current().table(short_name(tableOrViewName), engine=sparkSession)
            found.version()
            return cls(sparkSession, found)
        except NotADeltaTable as error:
            raise _gone(tableOrViewName, "the service", error, "`delvec drop`") from error
        except TableNotFound as error:
            if entry is None:
                raise
            raise NotADeltaTable(
                f"'{tableOrViewName}' is {entry.what} in Spark's catalog, not a Delta table, and the service has no "
                "table of that name; give the name of a Delta table, or call DeltaTable.forPath with its path.",
                name=tableOrViewName,
            ) from error

    @classmethod
    def convertToDelta(
        cls, sparkSession: SparkSession, identifier: str, partitionSchema: str | T.StructType | None = None
    ) -> "DeltaTable":
        """Convert a directory of Parquet files, or an Iceberg table, to a Delta table.

        Args:
            sparkSession: classic or Connect.
            identifier: ``parquet.`/path` ``, or ``iceberg.`/path` ``.
            partitionSchema: the partition columns of the directories: DDL, or a StructType.

        Raises:
            BadRequest: there are no Parquet files, or the directories have other partition columns.
            UnsupportedOperation: the identifier is a table of a catalog, or the Iceberg table has features that Delta
                does not have.
        """
        kind, _, path = identifier.partition(".")
        quoted = path.startswith("`") and path.endswith("`")
        if kind.lower() not in ("parquet", "iceberg") or not quoted:
            raise UnsupportedOperation(
                "Delvec converts directories of Parquet files (parquet.`/path`) and Iceberg tables (iceberg.`/path`), "
                "not "
                f"{identifier!r}.",
                operation="convertToDelta",
            )
        if kind.lower() == "iceberg":
            return cls(sparkSession, current().import_iceberg(path[1:-1], engine=sparkSession))
        return cls(sparkSession, current().convert(path[1:-1], partitionSchema, engine=sparkSession))

    @classmethod
    def isDeltaTable(cls, sparkSession: SparkSession, identifier: str) -> bool:
        """Whether there is a Delta table at a path; looks for a log, and registers nothing."""
        if identifier.lower().startswith("delta.`") and identifier.endswith("`"):
            identifier = identifier[len("delta.`") : -1]
        log = hadoop_path(locations.canonical(locations.absolute(identifier))) + "/_delta_log"
        escaped = "".join(f"\\{character}" if character in "{}[]*?\\" else character for character in log)
        reader = sparkSession.read.format("binaryFile").option("pathGlobFilter", "*.{json,parquet}")
        try:
            # Spark logs that a single path does not exist.
            return bool(reader.load([escaped, escaped]).select("path").head(1))
        except AnalysisException:
            return False

    @classmethod
    def create(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """Start building a new table, which must not exist."""
        return DeltaTableBuilder(_session(sparkSession), "create", cls)

    @classmethod
    def createIfNotExists(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """Start building a new table; an existing one is left as it is."""
        return DeltaTableBuilder(_session(sparkSession), "createIfNotExists", cls)

    @classmethod
    def replace(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """Start building a table that replaces an existing one: its rows are removed, earlier versions are kept."""
        return DeltaTableBuilder(_session(sparkSession), "replace", cls)

    @classmethod
    def createOrReplace(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """Start building a new table, which may replace an existing one, as :meth:`replace` does."""
        return DeltaTableBuilder(_session(sparkSession), "createOrReplace", cls)

    def toDF(self) -> DataFrame:
        """Return the live rows of the newest version at the time of the call."""
        frame: DataFrame = self._table.to_df()
        return frame if self._alias is None else frame.alias(self._alias)

    def alias(self, aliasName: str) -> "DeltaTable":
        """Return the same table under an alias for use in conditions."""
        return DeltaTable(self._spark, self._table, aliasName)

    def delete(self, condition: str | Column | None = None) -> None:
        """Delete the rows that match ``condition``, or all rows.

        Raises:
            TypeError: the condition is neither a string nor a Column.
            InvalidPredicate: the condition is not a Boolean expression over the table's columns.
            ConcurrentModification: or a subclass: another writer won.
        """
        self._table.delete(self._text(condition))

    def update(
        self, condition: str | Column | None = None, set: Mapping[str, str | Column] | None = None
    ) -> None:
        """Update columns of the rows that match ``condition``, or of all rows.

        Args:
            condition: SQL text or a Column.
            set: a dict from columns to new values, as SQL text or a Column.

        Raises:
            ValueError: ``set`` is None.
            TypeError: the condition or a value is neither a string nor a Column, or ``set`` is not a dict.
            BadRequest: or a subclass: ``set`` is empty, or names columns that the table does not have.
            InvalidPredicate: the condition or a value is not SQL over the table's columns.
            ConcurrentModification: or a subclass: another writer won.
        """
        check_values(set, "set")
        where = self._text(condition)
        values = assignments(set, self._alias, "set")
        texts = {column: without_alias(text, self._alias) for column, text in values.items()}
        self._table.update(texts, where)

    def merge(self, source: DataFrame, condition: str | Column) -> DeltaMergeBuilder:
        """Start a MERGE of ``source`` into the table; add clauses to the builder, then execute it.

        Args:
            source: a DataFrame; use its alias and the table's to distinguish their columns.
            condition: the condition that matches source and target rows, as SQL text or a Column.

        Raises:
            ValueError: one of them is None.
            TypeError: the source is not tabular, or the condition is neither a string nor a Column.
        """
        return DeltaMergeBuilder(self._spark, self._table, self._alias, source, condition)

    def optimize(self) -> DeltaOptimizeBuilder:
        """Start an OPTIMIZE: ``optimize().where("day = '2026-01-01'").executeCompaction()``."""
        return DeltaOptimizeBuilder(self._spark, self._table)

    def history(self, limit: int | None = None) -> DataFrame:
        """Return the commits, newest first, as delta-spark's history does."""
        return history_frame(self._spark, self._table.history(limit))

    def detail(self) -> DataFrame:
        """Return one row about the table, as DESCRIBE DETAIL does."""
        return detail_frame(self._spark, self._table.detail())

    def changes(
        self,
        startingVersion: int | None = None,
        endingVersion: int | None = None,
        *,
        startingTimestamp: str | datetime | None = None,
        endingTimestamp: str | datetime | None = None,
    ) -> DataFrame:
        """Return the rows that versions changed, as ``readChangeFeed`` does; not in delta-spark.

        Args:
            startingVersion: the first version; or
            startingTimestamp: the first version committed at or after this time.
            endingVersion: the last version, by default the newest; or
            endingTimestamp: the last version committed at or before this time.

        Raises:
            BadRequest: no start is given, or the end is before it.
            ChangeDataNotRecorded: the change data feed was off in one of the versions.
        """
        frame: DataFrame = self._table.changes_df(
            startingVersion,
            endingVersion,
            start_timestamp=startingTimestamp,
            end_timestamp=endingTimestamp,
        )
        return frame if self._alias is None else frame.alias(self._alias)

    def vacuum(self, retentionHours: float | None = None) -> DataFrame:
        """Delete files that no retained version and no commit in progress needs; return an empty DataFrame.

        Respects the session's ``spark.databricks.delta.retentionDurationCheck.enabled``, as delta-spark does.

        Args:
            retentionHours: how long to keep removed files; by default the table's retention.

        Raises:
            RetentionTooShort: the table's retention is longer.
            VacuumIncomplete: storage did not delete everything; run it again.
        """
        hours = None if retentionHours is None else float(retentionHours)
        self._table.vacuum(hours, enforce_retention_duration=is_retention_checked(self._spark), limit=0)
        return self._spark.createDataFrame([], T.StructType([]))

    def restoreToVersion(self, version: int) -> DataFrame:
        """Restore the table to a version.

        Returns:
            One row with Delta's metrics; none if the version is the newest.

        Raises:
            ValueError: it is not a whole number.
            VersionNotFound: the log does not have the version.
            MissingRestoreFiles: data files or deletion vectors of it are missing.
        """
        check_value(version, int, "version", "an int")
        return self._restored(self._table.restore(version))

    def restoreToTimestamp(self, timestamp: str) -> DataFrame:
        """Restore the table to a time, UTC unless it has a zone; as :meth:`restoreToVersion`.

        Raises:
            ValueError: it is not a string.
            BadRequest: it cannot be read.
        """
        check_value(timestamp, str, "timestamp", "a string")
        try:
            return self._restored(self._table.restore(timestamp))
        except BadRequest as error:
            if "timestamp" not in error.details:
                raise
            raise BadRequest(
                f"The provided timestamp ({timestamp!r}) cannot be converted to a valid timestamp: {error.message}",
                **error.details,
            ) from None

    def _restored(self, metrics: Metrics) -> DataFrame:
        rows = [] if metrics.version is None else [tuple(metrics[name] for name in _RESTORED.values())]
        schema = struct(**dict.fromkeys(_RESTORED, T.LongType()))
        return self._spark.createDataFrame(rows, schema)

    def generate(self, mode: str) -> None:
        """Write manifests of the data files, for engines that cannot read a Delta log.

        Args:
            mode: ``"symlink_format_manifest"``.

        Raises:
            ManifestUnsupported: files have deletion vectors, or columns are mapped.
            BadRequest: the mode is not supported.
        """
        self._table.generate(mode)

    def clone(
        self,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> "DeltaTable":
        """Clone this table; deep clones, which copy its files, are not in delta-spark.

        Args:
            target: the clone's path or name.
            isShallow: refer to this table's files instead of copying them.
            replace: make an existing table the clone.
            properties: the properties of the clone; added to this table's, or replacing them.

        Raises:
            TableAlreadyExists: the target exists, and ``replace`` is False.
            ValueError: an argument has the wrong type.
        """
        return self._cloned(target, isShallow, replace, properties)

    def cloneAtVersion(
        self,
        version: int,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> "DeltaTable":
        """Like :meth:`clone`, as of a version."""
        check_value(version, int, "version", "an integer")
        return self._cloned(target, isShallow, replace, properties, version=version)

    def cloneAtTimestamp(
        self,
        timestamp: str,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> "DeltaTable":
        """Like :meth:`clone`, as of a time, UTC unless it has a zone."""
        check_value(timestamp, str, "timestamp", "a string")
        return self._cloned(target, isShallow, replace, properties, timestamp=timestamp)

    def _cloned(
        self,
        target: str,
        shallow: bool,
        replace: bool,
        properties: Mapping[str, str] | None,
        **moment: Any,
    ) -> "DeltaTable":
        check_value(target, str, "target", "a string")
        check_value(shallow, bool, "isShallow", "a boolean")
        check_value(replace, bool, "replace", "a boolean")
        check_value({} if properties is None else properties, dict, "properties", "a dict")
        if target.lower().startswith("delta.`") and target.endswith("`"):
            target = target[len("delta.`") : -1]
        elif "/" not in target:
            target = short_name(target)
        made = self._table.clone(target, shallow=shallow, replace=replace, properties=properties, **moment)
        return DeltaTable(self._spark, made)

    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:
        """Upgrade the protocol to a reader and a writer version; versions below the table's have no effect.

        Raises:
            ValueError: one of them is not a whole number.
        """
        check_value(readerVersion, int, "readerVersion", "an integer")
        check_value(writerVersion, int, "writerVersion", "an integer")
        self._table.alter.upgrade_protocol(readerVersion, writerVersion)

    def addFeatureSupport(self, featureName: str) -> None:
        """Add a table feature to the protocol, and those that it needs.

        Raises:
            ValueError: it is not a string.
            InvalidTableChange: Delvec could no longer write the table.
        """
        check_value(featureName, str, "featureName", "a string")
        try:
            self._table.alter.add_feature(featureName)
        except InvalidTableChange as error:
            if error.details.get("feature") != featureName:
                raise
            # Programs look for the name of delta-spark's error.
            raise InvalidTableChange(f"[{_UNKNOWN_FEATURE}] {error.message}", **error.details) from None

    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None) -> None:
        """Drop a table feature from the protocol.

        For deletion vectors, first rewrites the files that have one.

        Raises:
            ValueError: it is not a string, or ``truncateHistory`` is not a bool.
            InvalidTableChange: the table needs it, or it cannot be dropped; the message says what to do.
        """
        check_value(featureName, str, "featureName", "a string")
        if truncateHistory is not None:
            check_value(truncateHistory, bool, "truncateHistory", "a boolean")
        if featureName.lower() == "deletionvectors":
            # As delta-spark, which purges the table itself.
            downgrade_result = self._table.downgrade(truncate_history=bool(truncateHistory))
            if not downgrade_result.is_complete:
                raise InvalidTableChange(str(downgrade_result), feature=featureName)
            return
        self._table.alter.drop_feature(featureName, truncate_history=bool(truncateHistory))

    def _text(self, condition: str | Column | None) -> str | None:
        check_condition(condition)
        return None if condition is None else without_alias(to_sql(condition), self._alias)


def _session(given: SparkSession | None) -> SparkSession:
    found = given if given is not None else SparkSession.getActiveSession()
    if found is None:
        raise BadRequest("no SparkSession is active; pass one")
    return found


def _gone(name: str, who: str, error: NotADeltaTable, drop: str) -> NotADeltaTable:
    return NotADeltaTable(
        f"'{name}' is registered with {who}, but its table is gone. {error.message} Restore its directory, or drop the "
        f"name with {drop}.",
        **(error.details | {"name": name}),
    )
