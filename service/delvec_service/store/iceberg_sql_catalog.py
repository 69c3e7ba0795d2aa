"""The rows of PyIceberg's SQL catalogs: one per table, with the location of its metadata file."""

from typing import Any, cast

from sqlalchemy import CursorResult, select, update
from sqlalchemy.orm import Session

__all__ = ["exchange_metadata", "metadata_location"]


def metadata_location(catalog: Any, identifier: tuple[str, ...]) -> str | None:
    """Return the metadata file of a table, or None if the catalog does not have the table.

    Args:
        catalog: a ``pyiceberg.catalog.sql.SqlCatalog``.
        identifier: the identifier of the table, namespace first.
    """
    from pyiceberg.catalog.sql import IcebergTables

    with Session(catalog.engine) as session:
        return session.scalar(select(IcebergTables.metadata_location).where(*_of(catalog, identifier)))


def exchange_metadata(catalog: Any, identifier: tuple[str, ...], before: str, after: str) -> bool:
    """Replace a table's metadata file if it still is ``before``, and return whether it was.

    PyIceberg's own commit would write a metadata file, which it does not support for format version 3.
    """
    from pyiceberg.catalog.sql import IcebergTables

    with Session(catalog.engine) as session:
        update_result = session.execute(
            update(IcebergTables)
            .where(*_of(catalog, identifier), IcebergTables.metadata_location == before)
            .values(metadata_location=after, previous_metadata_location=before)
        )
        session.commit()
    return bool(cast("CursorResult[Any]", update_result).rowcount)


def _of(catalog: Any, identifier: tuple[str, ...]) -> tuple[Any, ...]:
    from pyiceberg.catalog.sql import IcebergTables

    return (
        IcebergTables.catalog_name == catalog.name,
        IcebergTables.table_namespace == ".".join(identifier[:-1]),
        IcebergTables.table_name == identifier[-1],
    )
