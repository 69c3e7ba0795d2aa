"""Checks of a table, and repairs of their findings."""

from typing import Any

from delvec_commands.maintained_table import MaintainedTable
from delvec_commands.table_service import request
from delvec_contract import operations
from delvec_contract.maintenance import RepairRequest

__all__ = ["CheckedTable"]


class CheckedTable(MaintainedTable):
    """A table that can be checked and repaired."""

    def check(self, *, data_files: bool = True, iceberg: bool = False) -> dict[str, Any]:
        """Check every version of the log and the live files in storage; the table is sound if ``num-errors`` is 0.

        Args:
            data_files: also check that each live data file exists, with one request per file.
            iceberg: also compare what :meth:`~delvec.table.DeltaTable.to_iceberg` published with Delta: files, deleted
                rows, and Iceberg's own rules.
        """
        query = ({} if data_files else {"data-files": "false"}) | ({"iceberg": "true"} if iceberg else {})
        answered = self._service.call(operations.CHECK_TABLE, parameters=query, table=self.id)
        return answered.model_dump(by_alias=True)

    def repair(
        self,
        *,
        dry_run: bool = False,
        drop_missing_files: bool = False,
        user_metadata: str | None = None,
    ) -> dict[str, Any]:
        """Repair findings of :meth:`check` that have one safe fix, in one commit.

        Other findings are listed with the reason, and left alone.

        Args:
            dry_run: only return what would be repaired, and why.
            drop_missing_files: remove missing data files from the table. Their rows are lost.
            user_metadata: text for the table's history.

        Returns:
            ``repaired`` and ``unrepaired``, names are as on the wire; ``version`` is that of the commit, None if there
            is nothing to repair.

        Raises:
            AppendOnlyTable: missing files would be dropped, but the table does not allow rows to be removed.
            UnsupportedTable: or a subclass: Delvec must not write the table.
            ConcurrentModification: or a subclass: other writers keep changing the same files.
            CommitOutcomeUnknown: the response was lost, and the service does not know the outcome of the commit.
        """
        body = request(
            RepairRequest,
            dry_run=dry_run,
            drop_missing_files=drop_missing_files,
            user_metadata=user_metadata,
            engine_info=self.engine.name,
        )
        answered = self._service.call(operations.REPAIR_TABLE, body, table=self.id)
        return answered.model_dump(by_alias=True)
