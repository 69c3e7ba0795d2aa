"""New tables: created empty or with rows, or found where one of that name or place exists already.

Tested in `tests/integration/client/test_connection.py` and `tests/integration/engines/test_first_rows.py`.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from delvec.table import DeltaTable
from delvec_commands.dml.first_rows import CREATING, FirstWrite
from delvec_commands.dml.retry import with_retries
from delvec_commands.dml.table_definition import REPLACING, TableDefinition, location_of
from delvec_commands.table_service import TableService, request
from delvec_commands.transaction import Metrics
from delvec_contract import operations
from delvec_contract.tables import TableRequest, TableResource
from delvec_engines.operation import running
from delvec_engines.protocol import Engine
from delvec_errors import BadRequest, InvalidTableChange, NotFound, TableAlreadyExists
from delvec_kernel.features.managed_tables import MANAGED

__all__ = ["Creation"]


@dataclass(frozen=True)
class Creation:
    """A table to create.

    Attributes:
        name_or_location: the table's name or location.
        definition: the table's columns, partitioning, properties and comment.
        rows: the first rows; None for none.
        name: the table's name, if a location is given.
        replace: replace an existing table.
        if_not_exists: leave an existing table as it is.
        managed: let the catalog manage its commits.
        operation: the name of a creation with rows in the table's history.
        user_metadata: text for the history of a creation with rows.

    Raises:
        BadRequest: the options contradict each other.
    """

    name_or_location: str | os.PathLike[str]
    definition: TableDefinition
    rows: Any = None
    name: str | None = None
    replace: bool = False
    if_not_exists: bool = False
    managed: bool = False
    operation: str = CREATING
    user_metadata: str | None = None

    def __post_init__(self) -> None:
        if self.replace and self.if_not_exists:
            raise BadRequest("give replace or if_not_exists, not both")

    def run(
        self,
        service: TableService,
        engine: Engine,
        open_table: Callable[[TableResource], DeltaTable],
    ) -> tuple[DeltaTable, Metrics | None]:
        """Create the table; return it, and the metrics of writing the rows, None if there were none.

        Args:
            service: creates it.
            engine: writes the rows.
            open_table: returns a registered table.
        """
        location = location_of(self.name_or_location)
        body = self.definition.creation(
            location, self.name if location else os.fspath(self.name_or_location), is_managed=self.managed
        )
        first, made = None, None
        try:
            first = None if self.rows is None else FirstWrite.begin(service, body)
            if first is None:
                made = service.call(operations.REGISTER_TABLE, body)
        except TableAlreadyExists as error:
            there = self._existing(service, error) if self.replace or self.if_not_exists else None
            if there is None:
                raise
            return self._instead(open_table(there), error)
        metrics: Metrics | None = None
        if first is not None:
            made, metrics = self._with_rows(service, first, engine)
        assert made is not None  # noqa: S101 - one of both has created it
        if location is not None:
            service.opened_by_location(made, request(TableRequest, location=location, name=self.name))
        table = open_table(made)
        if self.rows is not None and first is None:
            metrics = table.append(self.rows, user_metadata=self.user_metadata)
        return table, metrics

    def _instead(self, there: DeltaTable, error: TableAlreadyExists) -> tuple[DeltaTable, Metrics | None]:
        """Return the table that exists, replaced if that is wanted."""
        if self.managed and MANAGED not in there.detail()["tableFeatures"]:
            raise InvalidTableChange(
                f"Table '{there.name}' exists, and the catalog does not manage it: register it with managed=True first.",
                table=there.name,
            ) from error
        if not self.replace:
            return there, None
        if self.rows is None:
            return there, there.replace_with(self.definition)
        return there, there.replace_with(self.definition, f"{REPLACING} AS SELECT", self.rows)

    def _with_rows(
        self, service: TableService, first: FirstWrite, engine: Engine
    ) -> tuple[TableResource, Metrics]:
        """Write the first rows, and create the table with them. Nothing is repeated: rows may be readable only once."""
        created: list[TableResource] = []

        def write() -> Metrics:
            adds = first.write(engine, self.rows)
            table, metrics = first.create(
                service, adds, self.operation, engine_info=engine.name, user_metadata=self.user_metadata
            )
            created.append(table)
            return metrics

        with running(self.operation):
            metrics = with_retries(service, 0, write)
        return created[0], metrics

    def _existing(self, service: TableService, error: TableAlreadyExists) -> TableResource | None:
        """Return the existing table under the requested name; None if another table has the name."""
        location, name = location_of(self.name_or_location), self.name
        if location is None:
            name = os.fspath(self.name_or_location)
            with suppress(NotFound):
                return service.call(operations.GET_TABLE, table=name)
            # A table that exists, but is not registered.
            location = error.details.get("location")
        if location is None:
            return None
        resource = service.resolve(location)
        if resource is not None and name is not None and resource.name != name:
            return None
        if resource is None:
            body = request(TableRequest, location=location, name=name)
            try:
                resource = service.call(operations.REGISTER_TABLE, body)
            except (NotFound, TableAlreadyExists):
                return None
        return resource
