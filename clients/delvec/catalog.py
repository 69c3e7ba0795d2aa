"""The tables that SQL statements and maintenance look up by name."""

import os
from typing import Any, Protocol

from delvec.table import DeltaTable
from delvec_commands.dml.table_definition import TableDefinition
from delvec_commands.transaction import Metrics
from delvec_contract.tables import TableResource

__all__ = ["Catalog"]


class Catalog(Protocol):
    """What statements need of a :class:`~delvec.Connection`."""

    def table(self, name_or_location: str | os.PathLike[str], engine: Any = None) -> DeltaTable:
        """Return an existing table.

        Raises:
            TableNotFound: no table of that name is registered.
        """
        ...

    def tables(self, namespace: str | None = None) -> list[TableResource]:
        """Return the registered tables in the order of their names: all, or those of ``namespace``."""
        ...

    def undrop_table(self, dropped: str, name: str | None = None, engine: Any = None) -> DeltaTable:
        """Bring back a managed table that was dropped.

        Raises:
            TableNotFound: none of that name was.
        """
        ...

    def run_create(
        self,
        name_or_location: str | os.PathLike[str],
        definition: TableDefinition,
        rows: Any = None,
        engine: Any = None,
        *,
        name: str | None = None,
        replace: bool = False,
        if_not_exists: bool = False,
        operation: str = ...,
    ) -> tuple[DeltaTable, Metrics | None]:
        """Create a table, with rows if they are given; return it, and Delta's metrics of the write."""
        ...

    def register(
        self, location: str | os.PathLike[str], name: str | None = None, engine: Any = None
    ) -> DeltaTable:
        """Register the table at a location under a name."""
        ...

    def rename(self, name_or_location: str | os.PathLike[str], name: str, engine: Any = None) -> DeltaTable:
        """Give a registered table another name."""
        ...

    def drop(self, name_or_location: str | os.PathLike[str], *, purge: bool = False) -> None:
        """Unregister a table, and with ``purge`` delete its files."""
        ...

    def run_convert(
        self,
        location: str | os.PathLike[str],
        partition_by: Any = None,
        *,
        engine: Any = None,
        **options: Any,
    ) -> tuple[DeltaTable, Metrics]:
        """Convert a directory of Parquet files to a table; return it, and Delta's metrics."""
        ...

    def run_import_iceberg(
        self, source: str | os.PathLike[str], location: str | os.PathLike[str] | None = None, **options: Any
    ) -> tuple[DeltaTable, Metrics]:
        """Import an Iceberg table; return the table, and Delta's metrics."""
        ...
