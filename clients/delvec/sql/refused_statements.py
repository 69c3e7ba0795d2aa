"""Statements of Spark's that Delvec has no use for, each with what to write instead.

Tested in `tests/integration/client/sql/test_refused_statements.py`.
"""

from typing import Final

from delvec.sql.tokens import Cursor, invalid

__all__ = ["check_known"]

_SESSION: Final = (
    "is about a Spark session, and Delvec keeps no state between statements: run it with spark.sql()."
)
_SCHEMA: Final = (
    "has nothing to do: a namespace is the part of a table's name before the last dot, and exists while a table is named "
    "in it, as by CREATE TABLE sales.orders (…)."
)
_USE: Final = "is not supported: there is no current namespace. Write names in full, as sales.orders."
_VIEW: Final = (
    "is not supported: Delvec has no views. Write WITH in the query, make a table with CREATE TABLE … AS SELECT, or use "
    "Spark's views with engine=spark."
)
_FUNCTION: Final = (
    "is not supported: queries call Spark's built-in functions, and with engine=spark those of the session that "
    "functions=[…] names."
)
_CATALOG: Final = "is not supported: a connection has one catalog, whose namespaces SHOW SCHEMAS lists."
_PARTITIONS: Final = (
    "is not needed: the log of a Delta table has its partitions. FSCK REPAIR TABLE repairs missing files."
)
_KINDS: Final = {
    "SCHEMA": _SCHEMA,
    "DATABASE": _SCHEMA,
    "NAMESPACE": _SCHEMA,
    "VIEW": _VIEW,
    "VIEWS": _VIEW,
    "FUNCTION": _FUNCTION,
    "FUNCTIONS": _FUNCTION,
    "CATALOG": _CATALOG,
    "CATALOGS": _CATALOG,
}
_FIRST: Final = {
    "USE": _USE,
    "SET": _SESSION,
    "RESET": _SESSION,
    "CACHE": _SESSION,
    "UNCACHE": _SESSION,
    "REFRESH": _SESSION,
    "CLEAR": _SESSION,
    "MSCK": _PARTITIONS,
}
_OF_KINDS: Final = frozenset({"CREATE", "DROP", "ALTER", "DESCRIBE", "DESC", "SHOW"})
_BEFORE_KINDS: Final = frozenset(
    {"OR", "REPLACE", "GLOBAL", "TEMP", "TEMPORARY", "USER", "SYSTEM", "ALL", "CURRENT"}
)


def check_known(cursor: Cursor) -> None:
    """Refuse a statement of Spark's that is none of Delvec's, with what to write instead.

    Raises:
        InvalidStatement: it is one.
    """
    first = cursor.word()
    words, reason = [first], _FIRST.get(first)
    if first in _OF_KINDS:
        place = 1
        while cursor.word(place) in _BEFORE_KINDS:
            words.append(cursor.word(place))
            place += 1
        kind = cursor.word(place)
        # DESCRIBE view describes a table of that name.
        is_name = first in ("DESCRIBE", "DESC") and not cursor.word(place + 1)
        reason = None if is_name else _KINDS.get(kind)
        words.append(kind)
    if reason is not None:
        raise invalid(cursor.text, cursor.position, f"{' '.join(words)} {reason}")
