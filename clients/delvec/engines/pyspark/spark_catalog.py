"""Why a table of Spark's catalog cannot be ``USING delvec``."""

from collections.abc import Iterable
from typing import Final

from delvec.protocol.errors import UnsupportedOperation

__all__ = ["NOT_IN_CATALOGS", "refuse_catalog"]

NOT_IN_CATALOGS: Final = (
    "A table of Spark's catalog cannot be USING delvec (CREATE TABLE, saveAsTable, insertInto, writeTo, toTable): Spark does "
    "not tell Python data sources which table it is. Use CREATE TEMPORARY VIEW v USING delvec OPTIONS (path '/path/to/table'), "
    "which SELECT and INSERT take, the path itself, or delvec.spark.DeltaTable.forName(spark, name), which finds an entry that "
    "saveAsTable made with the option path."
)
_PROPERTIES: Final = frozenset({"owner", "provider", "is_managed_location"})


def refuse_catalog(options: Iterable[str]) -> None:
    """Refuse what Spark asks on behalf of its catalog, which is told by the properties that tables have there.

    Raises:
        UnsupportedOperation: says what to do instead.
    """
    if _PROPERTIES & {name.lower() for name in options}:
        raise UnsupportedOperation(NOT_IN_CATALOGS)
