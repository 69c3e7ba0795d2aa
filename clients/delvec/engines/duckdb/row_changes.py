"""UPDATE and MERGE."""

from delvec.engines.duckdb.statements import Session
from delvec.engines.engine import WriteTarget
from delvec.engines.row_changes import ChangedRows, RowChange
from delvec.protocol.errors import UnsupportedTable
from delvec.scan import Scan

__all__ = ["change_rows"]


def change_rows(session: Session, scan: Scan, change: RowChange, target: WriteTarget) -> ChangedRows:
    """Change rows."""
    del session, change, target
    raise UnsupportedTable(f"UPDATE and MERGE of {scan.name} are not there yet.")
