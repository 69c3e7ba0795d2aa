"""Tells the service which file an engine could not read, so that the table's health shows it to everybody."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from delvec_commands.table_service import TableService
from delvec_contract import operations
from delvec_errors import CorruptTable

__all__ = ["reporting"]


@contextmanager
def reporting(service: TableService | None, table: str | None = None) -> Iterator[None]:
    """Run reads of a table; a file that is missing or damaged is reported, and the error passes on.

    The service looks for itself before it believes a report, and ignores files that are not live.

    Args:
        service: None reports nothing.
        table: name or id; by default the name in the error.
    """
    try:
        yield
    except CorruptTable as error:
        file, name = error.details.get("file"), table or error.details.get("table")
        if service is not None and isinstance(file, str) and isinstance(name, str):
            with suppress(Exception):  # the error matters more
                service.call(operations.GET_HEALTH, parameters={"file": [file]}, table=name)
        raise
