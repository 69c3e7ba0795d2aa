"""A Delta table and its commands: one implementation of each, for all engines."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from datetime import datetime
from typing import Any, Literal, Unpack

from delvec.alterations import Alterations
from delvec.checks import CheckedTable
from delvec.downgrade import Downgrade, DowngradeStep, downgrade
from delvec_commands.dml.append import WriteOptions, append, is_repeatable
from delvec_commands.dml.delete import delete, delete_keys
from delvec_commands.dml.merge import merge
from delvec_commands.dml.merge_builder import MergeBuilder, MergeStatement
from delvec_commands.dml.overwrite import PartitionOverwrite, Replacement, overwrite
from delvec_commands.dml.retry import checked, with_retries
from delvec_commands.dml.self_reads import self_read_version
from delvec_commands.dml.statistics import compute_statistics
from delvec_commands.dml.table_definition import (
    REPLACING,
    TableDefinition,
    location_of,
    property_text,
    replace_table,
)
from delvec_commands.dml.update import update
from delvec_commands.peer_names import ROW_ARGUMENTS, assignments, condition_of, no_argument
from delvec_commands.table_service import iso_time, request
from delvec_commands.transaction import Metrics, Transaction, TransactionOptions, begin
from delvec_commands.vacuum import VacuumPlan
from delvec_contract import operations
from delvec_contract.maintenance import GenerateRequest, IcebergRequest, RestoreRequest
from delvec_contract.tables import CloneRequest
from delvec_engines.input_data import to_arrow
from delvec_engines.operation import running
from delvec_engines.row_changes import MergeSource
from delvec_errors import BadRequest, DelvecError, SchemaMismatch
from delvec_kernel.schema.types import StructType

__all__ = ["DeltaTable"]


class DeltaTable(CheckedTable):
    """A table, accessed through its service, on one engine. Get one from a :class:`~delvec.Connection`.

    Each read is of one version: the newest when the method is called, or the one given. ``timestamp`` takes ISO 8601
    text or a datetime; without a time zone it is UTC. A predicate is a Boolean expression in Spark's SQL.

    Attributes:
        id: the service's id of the table; stable when the table is renamed.
        name: the table's name in URLs.
        location: canonical URL, without a trailing slash.
        engine: reads and writes the data files.
        compacts_after_commits: whether commands compact if the table's ``delta.autoOptimize.autoCompact`` asks for it.
    """

    compacts_after_commits: bool = True

    def __repr__(self) -> str:
        return f"DeltaTable(name={self.name!r}, location={self.location!r}, engine={self.engine.name!r})"

    @property
    def alter(self) -> Alterations:
        """Alterations of the table: ``table.alter.add_columns("age int")``, and so on."""
        return Alterations(self._service, self)

    @running("COMPUTE STATS")
    def compute_statistics(
        self,
        where: str | None = None,
        *,
        all_files: bool = False,
        dry_run: bool = False,
        user_metadata: str | None = None,
        retries: int | None = None,
    ) -> Metrics:
        """Tighten wide bounds, and fill in missing statistics: ANALYZE TABLE ... COMPUTE DELTA STATISTICS.

        Reads the columns with statistics of the files that need it, in the client's process (with Spark, the driver),
        and commits the statistics of the files' live rows, up to 10,000 files at a time: no row changes. Files that
        other writers change meanwhile are skipped.

        Args:
            where: a predicate over partition columns.
            all_files: not only files with wide bounds or missing statistics.
            dry_run: only count the files that need it.
            user_metadata: text for the table's history.
            retries: how often to retry if another writer changed the table's metadata; by default the connection's.

        Returns:
            ``numUpdatedFiles``, ``numConsideredFiles`` and ``executionTimeMs``; ``.version`` is None without a commit.

        Raises:
            InvalidPredicate: ``where`` reads other columns.
            CorruptTable: or a subclass: a file cannot be read, or its rows are not as the log says.
            MissingDataFile: a file is missing from storage.
            ConcurrentModification: or a subclass: other writers keep changing the table's metadata.
        """
        return with_retries(
            self._service,
            self._allowed(retries),
            lambda: compute_statistics(
                self._service, self, where, all_files=all_files, dry_run=dry_run, user_metadata=user_metadata
            ),
        )

    def downgrade(
        self,
        *,
        truncate_history: bool = False,
        dry_run: bool = False,
        progress: Callable[[DowngradeStep], None] | None = None,
    ) -> Downgrade:
        """Make the table readable by clients without deletion vector support, step by step.

        Stops new deletion vectors, rewrites files that have one without the deleted rows, and drops the feature from
        the protocol: DROP FEATURE deletionVectors. Call it again to resume an interrupted downgrade.

        Args:
            truncate_history: also delete older versions, which require readers with deletion vector support. While
                ``delta.logRetentionDuration`` keeps them, this step waits: call again later.
            dry_run: commit nothing; return the steps that are needed.
            progress: called after each step.

        Raises:
            InvalidTableChange: another feature of the table needs deletion vectors; the message says which.
            CorruptTable: a file cannot be read, or lacks rows; its commit had no effect.
        """
        return downgrade(self, truncate_history=truncate_history, dry_run=dry_run, progress=progress)

    # --- maintenance ------------------------------------------------------------------------------------

    def health_samples(
        self, since: str | datetime | None = None, *, limit: int = 1000
    ) -> list[dict[str, Any]]:
        """Return the health samples that the service took after commits, newest first; names are as on the wire.

        After a day, one sample per hour is kept; after a month, one per day, for a year.

        Args:
            since: only samples since this time: ISO 8601 text or a datetime, UTC unless it has a zone.
            limit: only the newest so many.
        """
        parameters = {"since": iso_time(since), "limit": limit}
        answered = self._service.call(operations.LIST_HEALTH_SAMPLES, parameters=parameters, table=self.id)
        return [one.model_dump(by_alias=True) for one in answered.samples]

    def plan_vacuum(
        self,
        retention_hours: float | None = None,
        *,
        mode: Literal["full", "lite"] = "full",
        enforce_retention_duration: bool = True,
        keep_versions: Sequence[int] | None = None,
        inventory: Any = None,
    ) -> VacuumPlan:
        """Return what a VACUUM would delete, at most a million files, for approval; ``vacuum(plan=...)`` deletes it.

        Arguments and errors are those of :meth:`vacuum`.
        """
        return self._vacuum.plan(
            retention_hours,
            keep_versions or (),
            enforce_retention_duration=enforce_retention_duration,
            mode=mode,
            inventory=None if inventory is None else to_arrow(inventory),
        )

    def quarantines(self) -> list[dict[str, Any]]:
        """Return the quarantines of VACUUM, newest first; names are as on the wire."""
        return self._vacuum.quarantines()

    def undo_vacuum(self, quarantine: str) -> dict[str, Any]:
        """Move the files of a quarantine back; existing files are not replaced.

        Raises:
            QuarantineNotFound: it does not exist.
            StorageError: storage refused some files; call it again.
        """
        return self._vacuum.undo(quarantine)

    def purge_quarantine(
        self, quarantine: str | None = None, *, older_than_hours: float = 168
    ) -> list[dict[str, Any]]:
        """Permanently delete the files of one quarantine, or of all old ones; return what was deleted.

        Raises:
            QuarantineNotFound: it does not exist.
            StorageError: storage refused some files; call it again.
        """
        return self._vacuum.purge(quarantine, older_than_hours)

    def generate(self, mode: str = "symlink_format_manifest") -> dict[str, Any]:
        """Write manifests of the newest version's data files, for engines that cannot read a Delta log.

        They are in the table's directory ``_symlink_format_manifest``, one per partition. With the table property
        ``delta.compatibility.symlinkFormatManifest.enabled`` Delvec's commits keep them up to date.

        Args:
            mode: only ``symlink_format_manifest``, as in delta-spark.

        Raises:
            ManifestUnsupported: files have deletion vectors (``optimize.purge()`` helps), or columns are mapped.
            BadRequest: the mode is not supported.
        """
        if mode != "symlink_format_manifest":
            raise BadRequest(f"the mode of generate() must be 'symlink_format_manifest', not {mode!r}")
        body = request(GenerateRequest, mode=mode)
        return self._service.call(operations.GENERATE, body, table=self.id).model_dump(by_alias=True)

    def to_iceberg(
        self, *, format_version: int = 2, squash: bool = False, catalog: str | None = None
    ) -> dict[str, Any]:
        """Publish the newest version for Iceberg readers without writing or copying data files; return where.

        Continues from the last published version, so it costs only what changed since.

        Args:
            format_version: 2 shows deleted rows as position delete files, 3 as deletion vectors in Puffin files.
            squash: write one Iceberg snapshot for all new versions, instead of one for each.
            catalog: also register the table in this catalog of PyIceberg's configuration, or as this table:
                ``"prod.sales.orders"``.

        Returns:
            ``metadata-location``, ``delta-version``, ``catalog``, ``snapshot-id``, None for a table without files, and
            ``warning``, for a directory (property ``delvec.iceberg.location``) from which a VACUUM may delete it.

        Raises:
            IcebergUnsupported: Iceberg cannot express a column, or another Iceberg table is in the directory.
            CorruptTable: earlier published metadata, or a deletion vector, cannot be read.
            IcebergCatalogError: the catalog refused it; it is still published in the table's directory.
            EngineUnavailable: catalogs need PyIceberg, which is not installed where the service runs.
            BadRequest: the format version or catalog does not exist, or the service may not write to it.
        """
        body = request(IcebergRequest, format_version=format_version, squash=squash, catalog=catalog)
        answered = self._service.call(operations.CONVERT_TO_ICEBERG, body, table=self.id)
        return answered.model_dump(by_alias=True)

    def restore(
        self,
        target: int | str | datetime,
        *,
        ignore_missing_files: bool = False,
        dry_run: bool = False,
        user_metadata: str | None = None,
    ) -> Metrics:
        """Restore rows, columns and properties of an earlier version, as a new version, so it can be undone.

        Keeps table features and the high-water marks of identity columns and row ids. Undoes concurrent commits, too.

        Args:
            target: a version, or a time: ISO 8601 text or a datetime, UTC unless it has a zone.
            ignore_missing_files: restore even if files of the version are missing; reads of them will fail.
            dry_run: commit nothing; check, and return what would be restored.
            user_metadata: text for the table's history.

        Returns:
            Delta's metrics of a RESTORE, and the version in ``.version``: None if the target is the newest version.

        Raises:
            VersionNotFound: the log does not have the version.
            MissingRestoreFiles: data files or deletion vectors of that version are missing; ``.details`` lists them.
            InvalidTableChange: Delvec could not write the restored table.
            AppendOnlyTable: rows would be removed, which the table does not allow.
            ConcurrentModification: or a subclass: other writers keep changing the table.
            CommitOutcomeUnknown: the response was lost, and the service does not know the outcome of the commit.
        """
        if isinstance(target, bool) or not isinstance(target, int | str | datetime):
            raise BadRequest(
                f"restore() takes a version number, ISO 8601 text or a datetime, not {type(target).__name__}"
            )
        if isinstance(target, str) and target.strip().isdecimal():
            raise BadRequest(
                f"restore({target!r}) takes text as a time, in ISO 8601; a version is a number: restore({int(target)})"
            )
        body = request(
            RestoreRequest,
            version=target if isinstance(target, int) else None,
            timestamp=None if isinstance(target, int) else iso_time(target),
            read_version=None if dry_run else self._newest_version(self.id),
            ignore_missing_files=ignore_missing_files,
            dry_run=dry_run,
            user_metadata=user_metadata,
            engine_info=self.engine.name,
        )
        done = self._service.call(operations.RESTORE_TABLE, body, table=self.id)
        return Metrics(done.operation_metrics, done.version)

    def clone(
        self,
        target: str | os.PathLike[str],
        *,
        shallow: bool = False,
        version: int | None = None,
        timestamp: str | datetime | None = None,
        replace: bool = False,
        if_not_exists: bool = False,
        properties: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> "DeltaTable":
        """Clone a version of this table, with columns, properties and deletion vectors; return the clone.

        Later changes of one do not affect the other. A shallow clone needs the files of this table: Delvec's VACUUM
        keeps them while the service knows the clone.

        Args:
            target: location or name of the clone, as in :meth:`~delvec.Connection.create_table`.
            shallow: refer to this table's files, instead of copying them.
            version: the version to clone; by default the newest.
            timestamp: instead, the time to clone.
            replace: make an existing table the clone, in one version; its history is kept.
            if_not_exists: leave an existing table as it is.
            properties: the properties of the clone; added to this table's, or replacing them.
            name: the clone's name, if a location is given.

        Raises:
            TableAlreadyExists: the location or name is taken.
            VersionNotFound: the log does not have the version.
            MissingCloneFiles: data files or deletion vectors of that version are missing; ``.details`` lists them.
            InvalidTableChange: a property value is not allowed, or Delvec could not write the clone.
            LocationNotAllowed: the service does not allow the location.
        """
        return self.run_clone(
            target,
            shallow=shallow,
            version=version,
            timestamp=timestamp,
            replace=replace,
            if_not_exists=if_not_exists,
            properties=properties,
            name=name,
        )[0]

    def run_clone(
        self,
        target: str | os.PathLike[str],
        *,
        timestamp: str | datetime | None = None,
        properties: Mapping[str, Any] | None = None,
        name: str | None = None,
        **options: Any,
    ) -> tuple["DeltaTable", Metrics]:
        """Like :meth:`clone`, but also return Delta's metrics."""
        location = location_of(target)
        name = name if location else os.fspath(target)
        read_version = None
        if options.get("replace"):
            known = None if location is None else self._service.resolve(location)
            read_version = self._newest_version(known.id if known else None if location else name)
        body = request(
            CloneRequest,
            location=location,
            name=name,
            read_version=read_version,
            timestamp=iso_time(timestamp),
            properties={key: property_text(value) for key, value in (properties or {}).items()},
            engine_info=self.engine.name,
            **options,
        )
        done = self._service.call(operations.CLONE_TABLE, body, table=self.id)
        made = DeltaTable(self._service, done.table, self.engine, self._retries)
        return made, Metrics(done.operation_metrics, done.version)

    def _newest_version(self, table: str | None) -> int | None:
        """Return the newest version of a table, from which a repeated request is searched for its first copy."""
        if table is not None:
            with suppress(DelvecError):  # it may not exist, or be damaged, which a RESTORE repairs
                return self._service.call(operations.GET_SNAPSHOT, table=table).version
        return None

    # --- writing --------------------------------------------------------------------------------------

    @running("WRITE")
    def append(
        self,
        data: Any,
        *,
        merge_schema: bool = False,
        txn: tuple[str, int] | None = None,
        user_metadata: str | None = None,
        retries: int | None = None,
    ) -> Metrics:
        """Append rows; without any, nothing is committed.

        Args:
            data: an Arrow table or stream, a pandas or polars DataFrame, or a list of dictionaries; on Spark also a
                Spark DataFrame.
            merge_schema: add the data's new columns and fields of structs in the same version; with
                ``delta.enableTypeWidening`` also widen types. Without it, such data is refused.
            txn: an application id and its version, such as a stream's query and batch: if the table has that version
                already, nothing is added, and ``.already_applied`` is True.
            user_metadata: text for the table's history.
            retries: how often to retry after a conflict; by default the connection's. Data that can be read only once
                is not retried.

        Returns:
            Delta's metrics of a write, and the version in ``.version``.

        Raises:
            SchemaMismatch: the data does not fit the table's schema.
            ConstraintViolation: a row does not satisfy a constraint of the table.
            UnsupportedWriterFeature: the table requires an unsupported writer feature.
            ConcurrentModification: or a subclass: another writer changed the table; ``.conflict`` says how.
            CommitOutcomeUnknown: the response was lost, and the service does not know the outcome of the commit.
        """
        max_retries = self._allowed(retries) if is_repeatable(data) else 0
        options = WriteOptions(merge_schema=merge_schema, txn=txn, user_metadata=user_metadata)
        metrics = with_retries(self._service, max_retries, lambda: append(self._service, self, data, options))
        return self._compacted(metrics)

    @running("WRITE")
    def overwrite(
        self,
        data: Any,
        *,
        replace_where: str | None = None,
        partition_overwrite: PartitionOverwrite = "static",
        merge_schema: bool = False,
        overwrite_schema: bool = False,
        partition_by: Sequence[str] | None = None,
        txn: tuple[str, int] | None = None,
        user_metadata: str | None = None,
        retries: int | None = None,
    ) -> Metrics:
        """Replace all rows, or some of them, in one version.

        Args:
            data: as for :meth:`append`. Lazy rows of this table itself replace only the version that they are read from:
                there are no retries after a conflict. For rows in memory use :meth:`merge` or :meth:`transaction`.
            replace_where: replace only rows that match this condition; all new rows must match it, too.
            partition_overwrite: ``"dynamic"`` replaces only the partitions of the new rows.
            merge_schema: as for :meth:`append`.
            overwrite_schema: replace the table's schema with the data's; only if all rows are replaced.
            partition_by: with ``overwrite_schema``, the new partition columns; ``[]`` for none.
            txn: as for :meth:`append`.
            user_metadata: as for :meth:`append`.
            retries: as for :meth:`append`.

        Returns:
            Delta's metrics of a write, and the version in ``.version``.

        Raises:
            AppendOnlyTable: the table does not allow rows to be removed.
            BadRequest: options contradict each other.
            InvalidTableChange: the table cannot have the columns of the data.
            ConstraintViolation: a new row does not satisfy ``replace_where``, or a constraint of the table.
            ConcurrentWrite: the data was read from an older version of this table.
            DelvecError: as for :meth:`append`.
        """
        max_retries = self._allowed(retries) if is_repeatable(data) else 0
        replacement = Replacement(replace_where, partition_overwrite)
        options = WriteOptions(merge_schema, overwrite_schema, partition_by, txn, user_metadata)
        read = self_read_version(self, data) if self.source_version is None else None
        # Writing the same rows again would replace what others have written since the read.
        table, max_retries = (self, max_retries) if read is None else (self._reading(read), 0)
        metrics = with_retries(
            self._service, max_retries, lambda: overwrite(self._service, table, data, replacement, options)
        )
        return self._compacted(metrics)

    @running("DELETE")
    def delete(
        self,
        predicate: str | None = None,
        *,
        condition: str | None = None,
        keys: Any = None,
        on: str | Sequence[str] | None = None,
        dry_run: bool = False,
        retries: int | None = None,
        user_metadata: str | None = None,
        **others: Any,
    ) -> Metrics:
        """Delete the rows that match ``predicate``; without one, all rows.

        Removes files that lose all their rows, and marks rows of other files in deletion vectors. Rewrites files that
        lose nearly all rows (property ``delvec.rewriteThreshold``), and all if deletion vectors are not enabled.

        Args:
            predicate: a Boolean expression in Spark's SQL.
            condition: delta-spark's name of ``predicate``.
            keys: delete only rows with the key of one of these rows; data as for :meth:`merge`.
            on: the key columns; by default all columns of ``keys``. NULL equals nothing.
            dry_run: commit nothing; ``.files`` of the result says what would happen to each file.
            retries: how often to rerun after a conflict that the service cannot resolve; by default the connection's.
                ``.retries`` of the result has the number of reruns.
            user_metadata: text for the table's history.
            others: refused, with what to give instead.

        Returns:
            Delta's metrics of a delete, and the version in ``.version``: None if no row matched.

        Raises:
            InvalidPredicate: the predicate cannot be parsed.
            ConcurrentModification: or a subclass: another writer won on every attempt; ``.conflict`` says which.
            AppendOnlyTable: the table does not allow rows to be removed.
            CommitOutcomeUnknown: the response was lost, and the service does not know the outcome of the commit.
        """
        no_argument("table.delete()", others, ROW_ARGUMENTS, self.delete)
        max_retries = self._allowed(retries)
        predicate = condition_of(predicate, condition, "delete()")
        if keys is None:
            if on is not None:
                raise BadRequest("delete(on=...) needs keys=, whose columns it names")
            return with_retries(
                self._service,
                max_retries,
                lambda: delete(self._service, self, predicate, dry_run=dry_run, user_metadata=user_metadata),
            )
        source, _ = self._merge_source(keys)
        return with_retries(
            self._service,
            max_retries if source.is_repeatable else 0,
            lambda: delete_keys(
                self._service, self, predicate, source, on, dry_run=dry_run, user_metadata=user_metadata
            ),
        )

    @running("UPDATE")
    def update(
        self,
        set: Mapping[str, Any] | None = None,  # noqa: A002 - as in SQL
        predicate: str | None = None,
        *,
        updates: Mapping[str, str] | None = None,
        new_values: Mapping[str, Any] | None = None,
        condition: str | None = None,
        dry_run: bool = False,
        retries: int | None = None,
        user_metadata: str | None = None,
        **others: Any,
    ) -> Metrics:
        """Update columns of the rows that match ``predicate``; without one, of all rows.

        ::

            people.update({"age": "age + 1", "name": delvec.lit("Ada"), "address.city": None}, "id = 3")

        Args:
            set: by column or field of a struct: SQL text, which may read all columns as they were; or a value:
                :func:`delvec.lit` of a text, None, a number, bytes, a date or a datetime. May follow the predicate.
            predicate: a Boolean expression in Spark's SQL.
            updates: deltalake's name of ``set``.
            new_values: deltalake's way to give values instead of SQL: strings are values.
            condition: delta-spark's name of ``predicate``.
            dry_run: as in :meth:`delete`.
            retries: as in :meth:`delete`.
            user_metadata: text for the table's history.
            others: refused, with what to give instead.

        Returns:
            Delta's metrics of an update, and the version in ``.version``: None if no row matched.

        Raises:
            UnknownColumn: the table has no such column.
            InvalidPredicate: the predicate or a value cannot be parsed, or fails for a row.
            SchemaMismatch: a value does not fit its column.
            ConstraintViolation: a new row violates a constraint of the table.
            ConcurrentModification: or a subclass, as in :meth:`delete`.
        """
        no_argument("table.update()", others, ROW_ARGUMENTS, self.update)
        wanted, where = assignments(set, predicate, updates, new_values, condition)
        metrics = with_retries(
            self._service,
            self._allowed(retries),
            lambda: update(self._service, self, wanted, where, dry_run=dry_run, user_metadata=user_metadata),
        )
        return self._compacted(metrics)

    def merge(
        self,
        source: Any,
        on: str | None = None,
        source_alias: str | None = None,
        target_alias: str | None = None,
        merge_schema: bool = False,
        *,
        predicate: str | None = None,
        condition: str | None = None,
    ) -> MergeBuilder:
        """Start a MERGE into the table; add clauses to the returned builder, then execute it.

        ::

            people.merge(changes, "target.id = source.id").when_matched_update_all().when_not_matched_insert_all().execute()

        Args:
            source: an Arrow table or stream, a pandas or polars DataFrame, a list of dictionaries, another
                :class:`DeltaTable`; on Spark also a Spark DataFrame.
            on: the condition, in Spark's SQL, that matches source and target rows.
            source_alias: alias of the source in predicates and values; by default ``source``.
            target_alias: alias of this table; by default ``target``.
            merge_schema: add columns to the table that clauses set and only the source has.
            predicate: deltalake's name of ``on``.
            condition: delta-spark's name of it.
        """
        matched = condition_of(on if predicate is None else predicate, condition, "merge()")
        if matched is None or (on is not None and predicate is not None):
            raise BadRequest("merge() needs one condition: merge(source, 'target.id = source.id')")
        statement = MergeStatement(
            source, matched, source_alias or "source", target_alias or "target", merge_schema
        )
        return MergeBuilder(statement, self._run_merge)

    @running("MERGE")
    def _run_merge(
        self, statement: MergeStatement, *, dry_run: bool, retries: int | None, user_metadata: str | None
    ) -> Metrics:
        statement.check()
        max_retries = self._allowed(retries)
        source, misfits = self._merge_source(statement.source)
        try:
            metrics = with_retries(
                self._service,
                max_retries if source.is_repeatable else 0,
                lambda: merge(
                    self._service, self, statement, source, dry_run=dry_run, user_metadata=user_metadata
                ),
            )
        except SchemaMismatch as error:
            misfit = misfits.get(str(error.details.get("column")).lower())
            raise error if misfit is None else misfit from error
        return self._compacted(metrics)

    def _compacted(self, metrics: Metrics) -> Metrics:
        """Compact what a commit touched if the table asks for it; the command succeeds even if this fails."""
        if metrics.auto_compact and self.compacts_after_commits:
            self.optimize.after_commit(metrics.auto_compact)
        return metrics

    def _merge_source(self, data: Any) -> tuple[MergeSource, Mapping[str, SchemaMismatch]]:
        """Return rows as the engine takes them, and why columns do not have the table's types."""
        misfits: dict[str, SchemaMismatch] = {}
        if isinstance(data, list):
            # Only if all values fit: the clauses decide what happens to a column.
            schema = StructType.from_json(self.snapshot().table_schema)
            data = to_arrow(data, schema, misfits=misfits)
        return self.engine.merge_source(data), misfits

    def transaction(
        self, operation: str, *, read_version: int | None = None, **options: Unpack[TransactionOptions]
    ) -> Transaction:
        """Start a transaction with given changes, for programs that find rows or write files themselves.

        ::

            with people.transaction("DELETE", read_version=7, predicate="id = 3") as change:
                change.delete_rows({"part-0.parquet": [17, 18]})
            print(change.result.version)

        Args:
            operation: Delta's operation name: WRITE, DELETE, UPDATE, MERGE, OPTIMIZE, ...
            read_version: the version that the changes are based on; by default the newest. See ``.read_version``.
            options: see :class:`~delvec_commands.transaction.Transaction`.

        Raises:
            UnsupportedWriterFeature: the table requires an unsupported writer feature.
        """
        if read_version is None:
            begun, _ = begin(self._service, self.id, operation)
            read_version = begun.version
            options.setdefault("transaction_id", begun.transaction_id)
            options.setdefault("read_mark", begun.read_mark)
        options.setdefault("engine_info", self.engine.name)
        return Transaction(self._service, self.id, operation, read_version, **options)

    def replace_with(
        self, definition: TableDefinition, operation: str = REPLACING, rows: Any = None
    ) -> Metrics:
        """Replace the table's definition, and all its rows; see :meth:`~delvec.Connection.create_table`.

        Args:
            definition: the new one.
            operation: its name in the table's history.
            rows: the new rows; by default none.
        """
        if rows is not None:
            options = WriteOptions(definition=(definition, operation))
            return with_retries(
                self._service,
                self._retries if is_repeatable(rows) else 0,
                lambda: overwrite(self._service, self, rows, Replacement(), options),
            )
        return with_retries(
            self._service,
            self._retries,
            lambda: replace_table(self._service, self, definition, operation),
        )

    def change_from_itself(self, command: Callable[["DeltaTable"], Metrics]) -> Metrics:
        """Change the table with rows that a query reads from it, without losing concurrent changes.

        Args:
            command: computes the rows from version ``source_version`` of the given table, and changes the table. It is
                called again for a newer version after a conflict, as often as the connection's ``retries``.

        Raises:
            ConcurrentModification: or a subclass: another writer won on the last attempt, too.
        """

        def attempt() -> Metrics:
            # A part of a statement reads what the whole statement does.
            return command(
                self._reading(self.version() if self.source_version is None else self.source_version)
            )

        return with_retries(self._service, self._retries, attempt)

    def _reading(self, version: int) -> "DeltaTable":
        table = copy(self)
        # A retry without the query would replace new rows with old ones.
        table._retries, table.source_version = 0, version  # noqa: SLF001 - a copy of this one
        return table

    def _allowed(self, retries: int | None) -> int:
        return self._retries if retries is None else checked(retries)
