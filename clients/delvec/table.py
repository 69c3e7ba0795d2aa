"""A Delta table and its commands: one implementation of each, whatever the engine."""

import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from datetime import datetime
from typing import Any, Literal, Unpack

from delvec.alterations import Alterations
from delvec.checks import CheckedTable
from delvec.dml.append import WriteOptions, append, is_repeatable
from delvec.dml.delete import delete, delete_keys
from delvec.dml.merge import merge
from delvec.dml.merge_builder import MergeBuilder, MergeStatement
from delvec.dml.optimize import Optimizer
from delvec.dml.overwrite import PartitionOverwrite, Replacement, overwrite
from delvec.dml.retry import DEFAULT_RETRIES, checked, with_retries
from delvec.dml.self_reads import self_read_version
from delvec.dml.statistics import compute_statistics
from delvec.dml.table_definition import (
    REPLACING,
    TableDefinition,
    location_of,
    property_text,
    replace_table,
)
from delvec.dml.update import update
from delvec.downgrade import Downgrade, DowngradeStep, downgrade
from delvec.engines.input_data import to_arrow
from delvec.engines.operation import running
from delvec.engines.protocol import Engine
from delvec.engines.row_changes import MergeSource
from delvec.http.service_client import ServiceClient, answer, request, table_path
from delvec.peer_names import assignments, condition_of
from delvec.transaction import Metrics, Transaction, TransactionOptions, begin
from delvec.vacuum import Vacuum, VacuumPlan
from delvec_kernel.errors import BadRequest, SchemaMismatch
from delvec_kernel.schema.types import StructType
from delvec_kernel.wire import (
    CheckpointRequest,
    CheckpointResponse,
    CloneRequest,
    CloneResponse,
    GenerateRequest,
    GenerateResponse,
    HealthResponse,
    HealthSamplesResponse,
    IcebergRequest,
    IcebergResponse,
    RestoreRequest,
    RestoreResponse,
    TableResource,
)

__all__ = ["DeltaTable"]


class DeltaTable(CheckedTable):
    """A table, through its service, on one engine. Get one from a :class:`~delvec.Connection`.

    Every read is of one version: the latest when the method is called, or the one asked for. ``timestamp``
    takes ISO 8601 text or a datetime; without a time zone it is UTC. A predicate is a Boolean expression in
    Spark's SQL.

    Attributes:
        id: the service's own id, stable when the table is renamed.
        name: what URLs call the table.
        location: canonical URL, without a trailing slash.
        engine: what reads and writes the data files.
        compacts_after_commits: whether commands do so where the table's ``delta.autoOptimize.autoCompact`` asks for it.
    """

    compacts_after_commits: bool = True

    def __init__(
        self,
        service: ServiceClient,
        resource: TableResource,
        engine: Engine,
        retries: int = DEFAULT_RETRIES,
    ) -> None:
        super().__init__(service, resource, engine)
        self._retries = retries

    def __repr__(self) -> str:
        return f"DeltaTable(name={self.name!r}, location={self.location!r}, engine={self.engine.name!r})"

    @property
    def alter(self) -> Alterations:
        """Changes of the table itself: ``table.alter.add_columns("age int")``, and so on."""
        return Alterations(self._service, self)

    @property
    def optimize(self) -> Optimizer:
        """OPTIMIZE: ``table.optimize()`` writes small files together, ``table.optimize.purge()`` drops deleted rows."""
        return Optimizer(self._service, self, self._retries)

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
        """Make wide bounds tight again, and fill in statistics that are missing: ANALYZE TABLE ... COMPUTE DELTA STATISTICS.

        Of the files that need it the columns that have statistics are read, by the client's process (with Spark the driver's),
        and the same files are committed with the statistics of their live rows, up to 10,000 at a time: no row changes. Files that
        others change meanwhile are left as they are then.

        Args:
            where: a predicate over partition columns.
            all_files: not only files with wide bounds or missing statistics.
            dry_run: only count the files that need it.
            user_metadata: text for the table's history.
            retries: how often to begin anew where another writer changed the table itself; by default the connection's.

        Returns:
            ``numUpdatedFiles``, ``numConsideredFiles`` and ``executionTimeMs``; ``.version`` is None where nothing was committed.

        Raises:
            InvalidPredicate: ``where`` is over other columns.
            CorruptTable: or a subclass: a file cannot be read, or has not the rows that the log says.
            MissingDataFile: a file is not in storage.
            ConcurrentModification: or a subclass: others change the table itself all the time.
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

        No new deletion vectors are written, files that have one are rewritten without the deleted rows, and the feature
        goes out of the protocol: DROP FEATURE deletionVectors. An interrupted downgrade goes on when it is called again.

        Args:
            truncate_history: then also let go of older versions, which need readers that know deletion vectors. As long as
                ``delta.logRetentionDuration`` keeps them, this step waits: call again later.
            dry_run: commit nothing; return the steps that there would be.
            progress: is called after each step.

        Raises:
            InvalidTableChange: another feature of the table needs deletion vectors; the message says which.
            CorruptTable: a file cannot be read, or lacks rows; nothing of its commit took effect.
        """
        return downgrade(self, truncate_history=truncate_history, dry_run=dry_run, progress=progress)

    # --- maintenance ------------------------------------------------------------------------------------

    def health(self, *, files: int = 0, partitions: int = 0, columns: Sequence[str] = ()) -> dict[str, Any]:
        """Return how much care the table needs, with recommendations; names are as on the wire.

        Args:
            files: how many files each recommendation names, those that cost most first.
            partitions: how many partitions to report on, those that cost most first.
            columns: also say in ``overlaps`` how many files a lookup of a value of these columns opens; clustering columns are
                always there.

        Raises:
            UnknownColumn: there is none of that name.
        """
        parameters = {
            "files": files or None,
            "partitions": partitions or None,
            "column": list(columns) or None,
        }
        body = self._service.get(table_path(self.id, "health"), parameters)
        return answer(HealthResponse, body).model_dump(by_alias=True)

    def health_samples(
        self, since: str | datetime | None = None, *, limit: int = 1000
    ) -> list[dict[str, Any]]:
        """Return how the table was after its versions, the newest first, as the service kept it; names are as on the wire.

        Of samples older than a day one per hour is kept, of those older than a month one per day, for a year.

        Args:
            since: only samples from then on: ISO 8601 text or a datetime; without a zone it is UTC.
            limit: only the newest so many.
        """
        start = since.isoformat() if isinstance(since, datetime) else since
        body = self._service.get(table_path(self.id, "health", "samples"), {"since": start, "limit": limit})
        found = answer(HealthSamplesResponse, body).samples
        return [one.model_dump(by_alias=True) for one in found]

    def checkpoint(self, *, clean_up: bool = False, dry_run: bool = False) -> dict[str, Any]:
        """Write a checkpoint of the newest version, unless there is one; returns what was done.

        Args:
            clean_up: also delete what the log need not keep by ``delta.logRetentionDuration``.
            dry_run: write and delete nothing; say what a clean-up would delete now.

        Raises:
            UnsupportedWriterFeature: the table has features that Delvec does not know.
        """
        body = request(CheckpointRequest, clean_up=clean_up, dry_run=dry_run)
        answered = self._service.post(table_path(self.id, "checkpoint"), body)
        return answer(CheckpointResponse, answered).model_dump(by_alias=True)

    def vacuum(
        self,
        retention_hours: float | None = None,
        dry_run: bool = False,
        *,
        mode: Literal["full", "lite"] = "full",
        enforce_retention_duration: bool = True,
        keep_versions: Sequence[int] | None = None,
        limit: int = 1000,
        plan: VacuumPlan | None = None,
        inventory: Any = None,
        quarantine: bool = False,
    ) -> dict[str, Any]:
        """Delete the files that neither a retained version nor a commit under way needs; returns what was deleted.

        Args:
            retention_hours: how long removed files are kept; by default ``delta.deletedFileRetentionDuration``.
            dry_run: delete nothing; say what would be deleted.
            mode: ``"lite"`` reads the log and lists nothing: it finds what versions removed, with deletion vectors and change
                files, and not what commits that failed left behind.
            enforce_retention_duration: refuse less retention than the table's, and keep every file younger than 24 hours.
                Without it, files of commits under way can be lost: only where nothing else writes.
            keep_versions: versions that stay readable, however old they are.
            limit: how many paths the answer lists under ``files``; the counts are of all.
            plan: of :meth:`plan_vacuum`: delete nothing else, and of it only what nothing needs by now. What it was made
                with goes before the arguments above.
            inventory: look at the files of this Arrow table (or what converts to one) and list nothing: ``path``, ``length``,
                ``isDir`` and ``modificationTime``, as delta-spark's ``USING INVENTORY``. Sizes and times are storage's own.
            quarantine: move the files within the table's directory instead of deleting them; ``["quarantine"]`` of the answer is
                what :meth:`undo_vacuum` takes.

        Raises:
            BadRequest: the plan is of another table, or the inventory lacks a column.
            RetentionTooShort: the table keeps files for longer.
            VacuumIncomplete: storage did not delete everything; the message says what is gone. Run it again.
            VacuumLiteImpossible: the log does not reach back to the last VACUUM LITE; run a full one.
            UnsupportedTable: or a subclass: the table has features that Delvec does not know.
        """
        return self._vacuum.run(
            plan=plan,
            inventory=None if inventory is None else to_arrow(inventory),
            dry_run=dry_run,
            limit=limit,
            mode=mode,
            retention_hours=retention_hours,
            enforce_retention_duration=enforce_retention_duration,
            keep_versions=list(keep_versions or ()),
            quarantine=quarantine,
        )

    def plan_vacuum(
        self,
        retention_hours: float | None = None,
        *,
        mode: Literal["full", "lite"] = "full",
        enforce_retention_duration: bool = True,
        keep_versions: Sequence[int] | None = None,
        inventory: Any = None,
    ) -> VacuumPlan:
        """Return what a VACUUM would delete, at most a million files, for a person to approve; ``vacuum(plan=...)`` does it.

        Args and errors are those of :meth:`vacuum`.
        """
        return self._vacuum.plan(
            retention_hours,
            keep_versions or (),
            enforce_retention_duration=enforce_retention_duration,
            mode=mode,
            inventory=None if inventory is None else to_arrow(inventory),
        )

    def quarantines(self) -> list[dict[str, Any]]:
        """Return the quarantines that VACUUM has moved files into, the newest first; names are as on the wire."""
        return self._vacuum.quarantines()

    def undo_vacuum(self, quarantine: str) -> dict[str, Any]:
        """Put the files of a quarantine back where they were; what is there by now is not replaced.

        Raises:
            QuarantineNotFound: there is none of that name.
            StorageError: storage refused some; call it again.
        """
        return self._vacuum.undo(quarantine)

    def purge_quarantine(
        self, quarantine: str | None = None, *, older_than_hours: float = 168
    ) -> list[dict[str, Any]]:
        """Delete the files of a quarantine for good, or of all that are older than a time; returns what was deleted.

        Raises:
            QuarantineNotFound: there is none of that name.
            StorageError: storage refused some; call it again.
        """
        return self._vacuum.purge(quarantine, older_than_hours)

    @property
    def _vacuum(self) -> Vacuum:
        return Vacuum(self._service, self.id, self.location)

    def generate(self, mode: str = "symlink_format_manifest") -> dict[str, Any]:
        """Write manifests that list the newest version's data files, for readers that know no Delta log; returns what was written.

        They are in the table's directory ``_symlink_format_manifest``, one for each partition. With the table property
        ``delta.compatibility.symlinkFormatManifest.enabled`` Delvec's commits bring them up to date.

        Args:
            mode: there is one, as in delta-spark.

        Raises:
            ManifestUnsupported: files have deletion vectors (``optimize.purge()`` helps), or columns are mapped.
            BadRequest: it is another mode.
        """
        if mode != "symlink_format_manifest":
            raise BadRequest(f"the mode of generate() must be 'symlink_format_manifest', not {mode!r}")
        answered = self._service.post(table_path(self.id, "generate"), request(GenerateRequest, mode=mode))
        return answer(GenerateResponse, answered).model_dump(by_alias=True)

    def to_iceberg(
        self, *, format_version: int = 2, squash: bool = False, catalog: str | None = None
    ) -> dict[str, Any]:
        """Publish the newest version for readers of Iceberg, and return where: no data file is written or copied.

        Goes on from the version that was published last, so that it costs what changed since.

        Args:
            format_version: 2 shows deleted rows as position delete files, 3 as deletion vectors in Puffin files.
            squash: one Iceberg snapshot for all new versions, instead of one for each.
            catalog: of PyIceberg's configuration, or a table in it, as ``"prod.sales.orders"``, that is to show the table, too.

        Returns:
            ``metadata-location``, ``delta-version``, ``catalog``, and ``snapshot-id``, None for a table that never had a file.

        Raises:
            IcebergUnsupported: a column cannot be expressed, which is named, or another Iceberg table is in the directory.
            CorruptTable: what was published before, or a deletion vector, cannot be read.
            IcebergCatalogError: the catalog did not take it; it is published in the table's directory all the same.
            EngineUnavailable: catalogs need PyIceberg, which is not installed where the service runs.
            BadRequest: there is no such format version or catalog, or the service may not write to it.
        """
        body = request(IcebergRequest, format_version=format_version, squash=squash, catalog=catalog)
        answered = self._service.post(table_path(self.id, "iceberg"), body)
        return answer(IcebergResponse, answered).model_dump(by_alias=True)

    def restore(
        self,
        target: int | str | datetime,
        *,
        ignore_missing_files: bool = False,
        dry_run: bool = False,
        user_metadata: str | None = None,
    ) -> Metrics:
        """Make the table what it was at an earlier version: rows, columns and properties; a new version, so it can be undone.

        Table features stay, and so do the numbers that identity columns and row ids have reached. What others commit while
        this runs is undone as well.

        Args:
            target: a version, or a time: ISO 8601 text or a datetime, UTC without a zone.
            ignore_missing_files: restore the version although files of it are gone from storage; reading the table fails then.
            dry_run: check, return what would be restored, and commit nothing.
            user_metadata: text for the table's history.

        Returns:
            Delta's metrics of a RESTORE, and the version in ``.version``: None where the target is the newest version.

        Raises:
            VersionNotFound: the log does not reach there.
            MissingRestoreFiles: data files or deletion vectors of that version are missing; ``.details`` lists them.
            InvalidTableChange: Delvec could not write the table afterwards.
            AppendOnlyTable: rows would be removed, and the table does not let them.
            ConcurrentModification: or a subclass: others change the table all the time.
            CommitOutcomeUnknown: the answer was lost, and the service does not know what became of the commit.
        """
        if isinstance(target, bool) or not isinstance(target, int | str | datetime):
            raise BadRequest(
                f"restore() takes a version number, ISO 8601 text or a datetime, not {type(target).__name__}"
            )
        body = request(
            RestoreRequest,
            version=target if isinstance(target, int) else None,
            timestamp=target.isoformat()
            if isinstance(target, datetime)
            else target
            if isinstance(target, str)
            else None,
            ignore_missing_files=ignore_missing_files,
            dry_run=dry_run,
            user_metadata=user_metadata,
            engine_info=self.engine.name,
        )
        done = answer(RestoreResponse, self._service.post(table_path(self.id, "restore"), body))
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
        """Make another table what this one is at a version, with its columns, properties and deletion vectors; returns it.

        What is done to one of them afterwards does not change the other. A shallow clone needs the files of this table: VACUUM of
        Delvec keeps them while the service knows of the clone.

        Args:
            target: where the clone goes, as in :meth:`~delvec.Connection.create_table`: a location, or a name alone.
            shallow: refer to this table's files, instead of copying them.
            version: which version; the newest by default.
            timestamp: instead, the version of a time.
            replace: a table that is there becomes the clone, in one version; its history stays.
            if_not_exists: a table that is there stays as it is.
            properties: of the clone, beside this table's or in their place.
            name: the clone's name, where a location is given.

        Raises:
            TableAlreadyExists: something is there, or has the name.
            VersionNotFound: the log does not reach there.
            MissingCloneFiles: data files or deletion vectors of that version are gone; ``.details`` lists them.
            InvalidTableChange: a property cannot be set so, or Delvec could not write the clone.
            LocationNotAllowed: the service does not work there.
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
        """Do the same as :meth:`clone`; return Delta's metrics, too."""
        location = location_of(target)
        body = request(
            CloneRequest,
            location=location,
            name=name if location else os.fspath(target),
            timestamp=timestamp.isoformat() if isinstance(timestamp, datetime) else timestamp,
            properties={key: property_text(value) for key, value in (properties or {}).items()},
            engine_info=self.engine.name,
            **options,
        )
        done = answer(CloneResponse, self._service.post(table_path(self.id, "clone"), body))
        made = DeltaTable(self._service, done.table, self.engine, self._retries)
        return made, Metrics(done.operation_metrics, done.version)

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
        """Add rows; without any, nothing is committed.

        Args:
            data: an Arrow table or stream, a pandas or polars DataFrame, a list of dictionaries; on Spark also
                a Spark DataFrame.
            merge_schema: add columns, and fields of structs, that the table lacks, in the same version; where the table
                has ``delta.enableTypeWidening`` also widen types. Without it such rows do not fit.
            txn: an application's id and how far it has got, as a stream's query and batch: where the table has
                that or more, nothing is added, and ``.already_applied`` says so.
            user_metadata: text for the table's history.
            retries: how often to write anew where the table was changed meanwhile in a way that matters; by default
                the connection's. Data that can be read only once is written once.

        Returns:
            Delta's metrics of a write, and the version in ``.version``.

        Raises:
            SchemaMismatch: the data does not fit the table's schema.
            ConstraintViolation: a row does not satisfy a constraint of the table.
            UnsupportedWriterFeature: the table requires an unsupported writer feature.
            ConcurrentModification: or a subclass: another writer changed the table; ``.conflict`` says how.
            CommitOutcomeUnknown: the answer was lost, and the service does not know what became of the commit.
        """
        allowed = self._allowed(retries) if is_repeatable(data) else 0
        options = WriteOptions(merge_schema=merge_schema, txn=txn, user_metadata=user_metadata)
        done = with_retries(self._service, allowed, lambda: append(self._service, self, data, options))
        return self._compacted(done)

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
        """Put rows in the place of all rows, or of some, in one version.

        Args:
            data: as for :meth:`append`. Lazy rows of this table itself (:meth:`scan`, :meth:`to_df`, :meth:`to_duckdb`) replace
                the version that they are read from and no other: they are not written again where others won. Of rows in
                memory nobody can tell; use SQL's INSERT OVERWRITE, :meth:`merge` or :meth:`transaction`.
            replace_where: replace only the rows for which this condition is true; each new row must satisfy it.
            partition_overwrite: ``"dynamic"`` replaces only the partitions that the new rows are in.
            merge_schema: as for :meth:`append`.
            overwrite_schema: give the table the columns of the new rows; only where all rows are replaced.
            partition_by: with ``overwrite_schema``, other partition columns, ``[]`` for none.
            txn: as for :meth:`append`.
            user_metadata: as for :meth:`append`.
            retries: as for :meth:`append`.

        Returns:
            Delta's metrics of a write, and the version in ``.version``.

        Raises:
            AppendOnlyTable: the table does not let rows be removed.
            BadRequest: options contradict each other.
            InvalidTableChange: the table cannot get the new rows' columns.
            ConstraintViolation: a new row does not satisfy ``replace_where``, or a constraint of the table.
            ConcurrentWrite: the rows are read from an older version of this table.
            DelvecError: as for :meth:`append`.
        """
        allowed = self._allowed(retries) if is_repeatable(data) else 0
        replacement = Replacement(replace_where, partition_overwrite)
        options = WriteOptions(merge_schema, overwrite_schema, partition_by, txn, user_metadata)
        read = self_read_version(self, data) if self.source_version is None else None
        # The same rows again would put what was read in the place of what others have written since.
        table, allowed = (self, allowed) if read is None else (self._reading(read), 0)
        done = with_retries(
            self._service, allowed, lambda: overwrite(self._service, table, data, replacement, options)
        )
        return self._compacted(done)

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
    ) -> Metrics:
        """Delete the rows for which ``predicate`` is true; all rows without one.

        Files that lose all their rows are removed. Of the others the rows are marked in deletion vectors, or
        the files are written again: where the table does not have deletion vectors enabled, and of a file that
        loses nearly all of its rows (the table property ``delvec.rewriteThreshold``).

        Args:
            predicate: a Boolean expression in Spark's SQL.
            condition: delta-spark's name of ``predicate``.
            keys: delete only rows that have the key of one of these rows: what :meth:`merge` takes.
            on: the columns of the key; by default all that ``keys`` has. A NULL equals nothing.
            dry_run: commit nothing; what is returned says in ``.files`` what would become of which file.
            retries: how often to run again, on the new version, where another writer won and the service cannot
                pass the two; by default the connection's. ``.retries`` of what is returned says how often it was.
            user_metadata: text for the table's history.

        Returns:
            Delta's metrics of a delete, and the version in ``.version``: None where no row matched, as then
            nothing is committed.

        Raises:
            InvalidPredicate: the predicate cannot be parsed.
            ConcurrentModification: or a subclass: another writer won, the last time too; ``.conflict`` says which.
            AppendOnlyTable: the table does not let rows be removed.
            CommitOutcomeUnknown: the answer was lost, and the service does not know what became of the commit.
        """
        allowed = self._allowed(retries)
        predicate = condition_of(predicate, condition, "delete()")
        if keys is None:
            if on is not None:
                raise BadRequest("delete(on=...) needs keys=, whose columns it names")
            return with_retries(
                self._service,
                allowed,
                lambda: delete(self._service, self, predicate, dry_run=dry_run, user_metadata=user_metadata),
            )
        source, _ = self._merge_source(keys)
        return with_retries(
            self._service,
            allowed if source.is_repeatable else 0,
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
    ) -> Metrics:
        """Change columns of the rows for which ``predicate`` is true; of all rows without one.

        ::

            people.update({"age": "age + 1", "name": delvec.lit("Ada"), "address.city": None}, "id = 3")

        Args:
            set: by column, or field of a struct: SQL text, which may read all columns as they were; or a value:
                :func:`delvec.lit` of a text, None, a number, bytes, a date or a datetime. May stand behind the predicate, as
                in delta-spark.
            predicate: a Boolean expression in Spark's SQL.
            updates: deltalake's name of ``set``.
            new_values: deltalake's way to give values instead of SQL: texts mean themselves.
            condition: delta-spark's name of ``predicate``.
            dry_run: as in :meth:`delete`.
            retries: as in :meth:`delete`.
            user_metadata: text for the table's history.

        Returns:
            Delta's metrics of an update, and the version in ``.version``: None where no row matched.

        Raises:
            UnknownColumn: the table has no such column.
            InvalidPredicate: predicate or value cannot be parsed, or fails for a row.
            SchemaMismatch: a value does not fit its column.
            ConstraintViolation: a new row breaks what the table asks of its rows.
            ConcurrentModification: or a subclass, as in :meth:`delete`.
        """
        wanted, where = assignments(set, predicate, updates, new_values, condition)
        done = with_retries(
            self._service,
            self._allowed(retries),
            lambda: update(self._service, self, wanted, where, dry_run=dry_run, user_metadata=user_metadata),
        )
        return self._compacted(done)

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
        """Begin a MERGE of other rows into the table; what is returned takes its clauses, and runs it.

        ::

            people.merge(changes, "target.id = source.id").when_matched_update_all().when_not_matched_insert_all().execute()

        Args:
            source: an Arrow table or stream, a pandas or polars DataFrame, a list of dictionaries, another
                :class:`DeltaTable`; on Spark also a Spark DataFrame.
            on: which rows belong together: a condition in Spark's SQL over both sides.
            source_alias: what predicates and values call the source; ``source`` by default.
            target_alias: and this table; ``target`` by default.
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
        allowed = self._allowed(retries)
        source, misfits = self._merge_source(statement.source)
        try:
            done = with_retries(
                self._service,
                allowed if source.is_repeatable else 0,
                lambda: merge(
                    self._service, self, statement, source, dry_run=dry_run, user_metadata=user_metadata
                ),
            )
        except SchemaMismatch as error:
            misfit = misfits.get(str(error.details.get("column")).lower())
            raise error if misfit is None else misfit from error
        return self._compacted(done)

    def _compacted(self, done: Metrics) -> Metrics:
        """Compact what a commit touched where the table asks for it; the command is done, whatever comes of this."""
        if done.auto_compact and self.compacts_after_commits:
            self.optimize.after_commit(done.auto_compact)
        return done

    def _merge_source(self, data: Any) -> tuple[MergeSource, Mapping[str, SchemaMismatch]]:
        """Return rows as the engine takes them, and why columns do not have the types that the table has."""
        misfits: dict[str, SchemaMismatch] = {}
        if isinstance(data, list):
            # Only where all of its values fit: what becomes of a column is the clauses' to say.
            schema = StructType.from_json(self.snapshot().table_schema)
            data = to_arrow(data, schema, misfits=misfits)
        return self.engine.merge_source(data), misfits

    def transaction(
        self, operation: str, *, read_version: int | None = None, **options: Unpack[TransactionOptions]
    ) -> Transaction:
        """Begin a transaction whose changes the caller knows, for programs that find rows or write files themselves.

        ::

            with people.transaction("DELETE", read_version=7, predicate="id = 3") as change:
                change.delete_rows({"part-0.parquet": [17, 18]})
            print(change.result.version)

        Args:
            operation: Delta's operation name: WRITE, DELETE, UPDATE, MERGE, OPTIMIZE, ...
            read_version: the version that the changes rest on; without one the newest, which is then in
                ``.read_version``.
            options: see :class:`~delvec.transaction.Transaction`.

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

    def replace_with(self, definition: TableDefinition, operation: str = REPLACING) -> Metrics:
        """Give the table another definition, without rows; see ``replace`` of :meth:`~delvec.Connection.create_table`."""
        return with_retries(
            self._service,
            self._retries,
            lambda: replace_table(self._service, self, definition, operation),
        )

    def change_from_itself(self, command: Callable[["DeltaTable"], Metrics]) -> Metrics:
        """Change the table with rows that a query makes of its own, so that nothing that others do meanwhile is lost.

        Args:
            command: makes the rows from version ``source_version`` of the table that it is given, and changes that table.
                It is called again, for a newer version, where another writer won: as often as the connection says.

        Raises:
            ConcurrentModification: or a subclass: another writer won, the last time too.
        """

        def attempt() -> Metrics:
            return command(self._reading(self.version()))

        return with_retries(self._service, self._retries, attempt)

    def _reading(self, version: int) -> "DeltaTable":
        table = copy(self)
        # What is run again without the query would put old rows in the place of new ones.
        table._retries, table.source_version = 0, version  # noqa: SLF001 - a copy of this one
        return table

    def _allowed(self, retries: int | None) -> int:
        return self._retries if retries is None else checked(retries)
