"""OPTIMIZE and REORG TABLE: statements that write files again and change no row."""

from typing import TYPE_CHECKING

from delvec.sql.tokens import Cursor, newest_version
from delvec.transaction import Metrics
from delvec_kernel.errors import UnsupportedOperation

if TYPE_CHECKING:
    from delvec.sql.changes import OpenTable

__all__ = ["optimize", "reorg"]


def optimize(cursor: Cursor, opened: "OpenTable") -> Metrics:
    """Run OPTIMIZE table [WHERE condition over partition columns].

    Raises:
        UnsupportedOperation: rows are to be put into another order, by FULL or ZORDER BY.
    """
    cursor.expect("OPTIMIZE")
    name = newest_version(cursor)
    if cursor.take("FULL"):
        raise UnsupportedOperation("OPTIMIZE ... FULL is not part of Delvec yet; leave FULL out.")
    where = cursor.expression("ZORDER") if cursor.take("WHERE") else None
    if cursor.take("ZORDER"):
        raise UnsupportedOperation(
            "OPTIMIZE ... ZORDER BY is not part of Delvec yet; leave it out, or order files with delta-spark."
        )
    cursor.end()
    return opened(name).optimize(where)


def reorg(cursor: Cursor, opened: "OpenTable") -> Metrics:
    """Run REORG TABLE table [WHERE condition over partition columns] APPLY (PURGE)."""
    cursor.expect("REORG")
    cursor.take("TABLE")
    name = newest_version(cursor)
    where = cursor.expression("APPLY") if cursor.take("WHERE") else None
    cursor.expect("APPLY", "(", "PURGE", ")")
    cursor.end()
    return opened(name).optimize.purge(where)
