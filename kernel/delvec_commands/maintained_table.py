"""A table that can be maintained: OPTIMIZE, VACUUM, checkpoints, and the health that says which of them it needs.

Tested in `tests/integration/client/test_maintenance.py`.
"""

from collections.abc import Sequence
from typing import Any, Literal

from delvec_commands.dml.optimize import Optimizer
from delvec_commands.dml.retry import DEFAULT_RETRIES
from delvec_commands.dml.self_reads import WritableTable
from delvec_commands.peer_names import VACUUM_ARGUMENTS, no_argument, vacuum_mode
from delvec_commands.table_service import TableService, request
from delvec_commands.vacuum import Vacuum, VacuumPlan
from delvec_contract import operations
from delvec_contract.maintenance import CheckpointRequest
from delvec_contract.tables import TableResource
from delvec_engines.input_data import to_arrow
from delvec_engines.protocol import Engine

__all__ = ["MaintainedTable"]


class MaintainedTable(WritableTable):
    """A table, as far as maintenance needs it."""

    def __init__(
        self,
        service: TableService,
        resource: TableResource,
        engine: Engine,
        retries: int = DEFAULT_RETRIES,
    ) -> None:
        super().__init__(service, resource, engine)
        self._retries = retries

    @property
    def optimize(self) -> Optimizer:
        """OPTIMIZE: ``table.optimize()`` compacts small files, ``table.optimize.purge()`` drops deleted rows."""
        return Optimizer(self._service, self, self._retries)

    def health(self, *, files: int = 0, partitions: int = 0, columns: Sequence[str] = ()) -> dict[str, Any]:
        """Return the table's health, with recommendations; names are as on the wire.

        Args:
            files: how many files each recommendation lists, costliest first.
            partitions: how many partitions to report, costliest first.
            columns: also report in ``overlaps`` how many files a lookup by these columns opens; clustering columns are
                always reported.

        Raises:
            UnknownColumn: it does not exist.
        """
        parameters = {
            "files": files or None,
            "partitions": partitions or None,
            "column": list(columns) or None,
        }
        answered = self._service.call(operations.GET_HEALTH, parameters=parameters, table=self.id)
        return answered.model_dump(by_alias=True)

    def checkpoint(self, *, clean_up: bool = False, dry_run: bool = False) -> dict[str, Any]:
        """Write a checkpoint of the newest version unless it has one; return what was done.

        Args:
            clean_up: also delete log files older than ``delta.logRetentionDuration``.
            dry_run: write and delete nothing; return what a clean-up would delete.

        Raises:
            UnsupportedWriterFeature: the table has features that Delvec does not support.
        """
        body = request(CheckpointRequest, clean_up=clean_up, dry_run=dry_run)
        return self._service.call(operations.CHECKPOINT, body, table=self.id).model_dump(by_alias=True)

    def vacuum(
        self,
        retention_hours: float | None = None,
        dry_run: bool = False,
        *,
        mode: Literal["full", "lite"] | None = None,
        enforce_retention_duration: bool = True,
        keep_versions: Sequence[int] | None = None,
        limit: int = 1000,
        plan: VacuumPlan | None = None,
        inventory: Any = None,
        quarantine: bool = False,
        full: bool | None = None,
        **others: Any,
    ) -> dict[str, Any]:
        """Delete files that no retained version and no commit in progress needs; return what was deleted.

        Args:
            retention_hours: how long to keep removed files; by default ``delta.deletedFileRetentionDuration``.
            dry_run: delete nothing; return what would be deleted.
            mode: ``"full"`` by default; ``"lite"`` reads the log instead of listing the directory: it finds files that
                versions removed, with deletion vectors and change files, but not the leftovers of failed commits.
            enforce_retention_duration: refuse a shorter retention than the table's, and keep files younger than 24 hours.
                Turn it off only if nothing else writes: files of commits in progress could be lost.
            keep_versions: versions to keep readable, however old.
            limit: how many paths to return in ``files``; counts include all files.
            plan: from :meth:`plan_vacuum`: delete only its files, with its settings, except those needed by now.
            inventory: take the paths from this Arrow table (or what converts to one) instead of listing: ``path``,
                ``length``, ``isDir`` and ``modificationTime``, as delta-spark's ``USING INVENTORY``.
            quarantine: move the files instead of deleting them; :meth:`undo_vacuum` takes the answer's ``["quarantine"]``.
            full: as in deltalake, instead of ``mode``; deltalake's own default is lite.
            others: other arguments of deltalake are refused; the error names the one to use.

        Raises:
            BadRequest: the plan belongs to another table, or the inventory lacks a column.
            RetentionTooShort: the table's retention is longer.
            VacuumIncomplete: storage did not delete everything; the message says what was deleted. Run it again.
            VacuumLiteImpossible: the log does not reach back to the last VACUUM LITE; run a full one.
            UnsupportedTable: or a subclass: the table has features that Delvec does not support.
        """
        no_argument("table.vacuum()", others, VACUUM_ARGUMENTS, self.vacuum)
        return self._vacuum.run(
            plan=plan,
            inventory=None if inventory is None else to_arrow(inventory),
            dry_run=dry_run,
            limit=limit,
            mode=vacuum_mode(mode, full),
            retention_hours=retention_hours,
            enforce_retention_duration=enforce_retention_duration,
            keep_versions=list(keep_versions or ()),
            quarantine=quarantine,
        )

    @property
    def _vacuum(self) -> Vacuum:
        return Vacuum(self._service, self.id, self.location)
