"""A Delta table and its commands: one implementation of each, whatever the engine."""

from typing import Any, Unpack

from delvec import checking
from delvec._transport import ServiceClient, answer, request, table_path
from delvec.alterations import Alterations
from delvec.commands.append import append, is_repeatable
from delvec.commands.delete import delete
from delvec.commands.reruns import DEFAULT_RETRIES, checked, with_retries
from delvec.engines.engine import Engine
from delvec.protocol.wire import CheckpointRequest, CheckpointResponse, HealthResponse, TableResource
from delvec.reading import ReadableTable
from delvec.scan import Scan
from delvec.transaction import Metrics, Transaction, TransactionOptions, begin

__all__ = ["DeltaTable"]


class DeltaTable(ReadableTable):
    """A table, through its service, on one engine. Get one from a :class:`~delvec.Connection`.

    Every read is of one version: the latest when the method is called, or the one asked for. ``timestamp``
    takes ISO 8601 text or a datetime; without a time zone it is UTC. A predicate is a Boolean expression in
    Spark's SQL.

    Attributes:
        id: the service's own id, stable when the table is renamed.
        name: what URLs call the table.
        location: canonical URL, without a trailing slash.
        engine: what reads and writes the data files.
    """

    def __init__(
        self,
        service: ServiceClient,
        resource: TableResource,
        engine: Engine,
        retries: int = DEFAULT_RETRIES,
    ) -> None:
        super().__init__(service, resource, engine)
        self._retries = retries
        self._dv_feature: bool | None = None

    def __repr__(self) -> str:
        return f"DeltaTable(name={self.name!r}, location={self.location!r}, engine={self.engine.name!r})"

    @property
    def alter(self) -> Alterations:
        """Changes of the table itself: ``table.alter.add_columns("age int")``, and so on."""
        return Alterations(self._service, self)

    # --- upkeep -----------------------------------------------------------------------------------------

    def health(self) -> dict[str, Any]:
        """Return how much care the table needs, with recommendations; names are as on the wire."""
        body = self._service.get(table_path(self.id, "health"))
        return answer(HealthResponse, body).model_dump(by_alias=True)

    def check(self, *, data_files: bool = True) -> dict[str, Any]:
        """Check the log version by version, and the live files in storage; the table is sound without ``num-errors``.

        Args:
            data_files: also look up each live data file, one request each.
        """
        return checking.check(self._service, self.id, data_files=data_files)

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

    # --- writing --------------------------------------------------------------------------------------

    def append(self, data: Any, *, txn: tuple[str, int] | None = None, retries: int | None = None) -> Metrics:
        """Add rows; without any, nothing is committed.

        Args:
            data: an Arrow table or stream, a pandas or polars DataFrame, a list of dictionaries; on Spark also
                a Spark DataFrame.
            txn: an application's id and how far it has got, as a stream's query and batch: where the table has
                that or more, nothing is added, and ``.already_applied`` says so.
            retries: how often to write anew where the table was changed meanwhile in a way that matters; by default
                the connection's. Data that can be read only once is written once.

        Returns:
            Delta's metrics of a write, and the version in ``.version``.

        Raises:
            SchemaMismatch: the data does not fit the table's schema.
            UnsupportedWriterFeature: the table needs more of a writer than Delvec does.
            ConcurrentModification: or a subclass: another writer changed the table; ``.conflict`` says how.
            CommitOutcomeUnknown: the answer was lost, and the service does not know what became of the commit.
        """
        allowed = self._allowed(retries) if is_repeatable(data) else 0
        return with_retries(self._service, allowed, lambda: append(self._service, self, data, txn))

    def delete(self, predicate: str | None = None, *, retries: int | None = None) -> Metrics:
        """Delete the rows for which ``predicate`` is true; all rows without one.

        Files that lose all their rows are removed. Of the others the rows are marked in deletion vectors, or
        the files are written again where the table does not have deletion vectors enabled.

        Args:
            predicate: a Boolean expression in Spark's SQL.
            retries: how often to run again, on the new version, where another writer won and the service cannot
                pass the two; by default the connection's. ``.retries`` of what is returned says how often it was.

        Returns:
            Delta's metrics of a delete, and the version in ``.version``: None where no row matched, as then
            nothing is committed.

        Raises:
            InvalidPredicate: the predicate cannot be parsed.
            ConcurrentModification: or a subclass: another writer won, the last time too; ``.conflict`` says which.
            AppendOnlyTable: the table does not let rows be removed.
            CommitOutcomeUnknown: the answer was lost, and the service does not know what became of the commit.
        """
        return with_retries(
            self._service, self._allowed(retries), lambda: delete(self._service, self, predicate)
        )

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
            UnsupportedWriterFeature: the table needs more of a writer than Delvec does.
        """
        if read_version is None:
            begun, _ = begin(self._service, self.id, operation)
            read_version = begun.version
            options.setdefault("transaction_id", begun.transaction_id)
        options.setdefault("engine_info", self.engine.name)
        return Transaction(self._service, self.id, operation, read_version, **options)

    def _allowed(self, retries: int | None) -> int:
        return self._retries if retries is None else checked(retries)

    def deletes_by_vector(self, scan: Scan) -> bool:
        """Whether rows may be deleted by deletion vector: the property is on and the protocol has the feature.

        The protocol is asked for once: a feature that is dropped later makes the commit fail, not go wrong.
        """
        if scan.configuration.get("delta.enableDeletionVectors", "false").lower() != "true":
            return False
        if not self._dv_feature:
            features = self.snapshot(scan.version).protocol.get("writerFeatures") or ()
            self._dv_feature = "deletionVectors" in features
        return self._dv_feature
