"""Checks of a table, and repairs of what they find."""

from typing import Any

from delvec.dml.self_reads import WritableTable
from delvec.http.service_client import answer, request, table_path
from delvec_kernel.wire import CheckResponse, RepairRequest, RepairResponse

__all__ = ["CheckedTable"]


class CheckedTable(WritableTable):
    """A table that can be checked and repaired."""

    def check(self, *, data_files: bool = True, iceberg: bool = False) -> dict[str, Any]:
        """Check the log version by version, and the live files in storage; the table is sound without ``num-errors``.

        Args:
            data_files: also look up each live data file, one request each.
            iceberg: also compare what :meth:`~delvec.table.DeltaTable.to_iceberg` published with Delta: files, deleted rows, and
                what Iceberg demands.
        """
        query = ({} if data_files else {"data-files": "false"}) | ({"iceberg": "true"} if iceberg else {})
        found = self._service.get(table_path(self.id, "check"), query)
        return answer(CheckResponse, found).model_dump(by_alias=True)

    def repair(
        self,
        *,
        dry_run: bool = False,
        drop_missing_files: bool = False,
        user_metadata: str | None = None,
    ) -> dict[str, Any]:
        """Put right what :meth:`check` finds and has one right answer, in one commit; returns what was done and what is left.

        Findings without one right answer are listed with the reason, and left alone.

        Args:
            dry_run: only say what would be done, and why that is right.
            drop_missing_files: take data files that are not in storage out of the table. Their rows are lost.
            user_metadata: text for the table's history.

        Returns:
            ``repaired`` and ``unrepaired``, names are as on the wire; ``version`` is that of the commit, None where there is
            nothing to repair.

        Raises:
            AppendOnlyTable: missing files would be dropped, and the table does not let go of rows.
            UnsupportedTable: or a subclass: Delvec must not write the table.
            ConcurrentModification: or a subclass: others change the same files all the time.
            CommitOutcomeUnknown: the response was lost, and the service does not know the outcome of the commit.
        """
        body = request(
            RepairRequest,
            dry_run=dry_run,
            drop_missing_files=drop_missing_files,
            user_metadata=user_metadata,
            engine_info=self.engine.name,
        )
        answered = self._service.post(table_path(self.id, "repair"), body)
        return answer(RepairResponse, answered).model_dump(by_alias=True)
