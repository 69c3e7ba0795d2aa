"""What a lazy read says of itself: the table and the version, in a name that stays in the engine's plan or SQL.

Rows that replace others of their own table have to be of the version that they replace. Whoever gets a DataFrame or a
relation can only look at what it is made of, so the name of a list of files, or of a subquery, tells.
"""

import re
from typing import Final

from delvec.scan import Scan

__all__ = ["mark", "marked"]

_MARK: Final = re.compile(r"delvec-reads-([\w-]+?)-v(\d+)(?![\w-])")


def mark(scan: Scan) -> str:
    """Return the name for a read of the newest version; empty for one that somebody chose, and keeps on purpose."""
    return f"delvec-reads-{scan.table_id}-v{scan.version}" if scan.is_newest else ""


def marked(text: str) -> frozenset[tuple[str, int]]:
    """Return the ids of tables, and versions, that are named in a text."""
    return frozenset((found[1], int(found[2])) for found in _MARK.finditer(text))
