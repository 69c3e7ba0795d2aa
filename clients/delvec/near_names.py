"""Tables that perhaps were meant, in errors about tables that are not there.

Tested in `tests/integration/client/test_near_names.py`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches

from delvec_commands.table_service import TableService, listed
from delvec_contract import operations
from delvec_errors import DelvecError, TableNotFound

__all__ = ["near_names"]


@contextmanager
def near_names(service: TableService, *, among_dropped: bool = False) -> Iterator[None]:
    """Let an error of the block also say which tables have nearly the name that none has.

    Args:
        service: whose tables.
        among_dropped: the name is one of a table that was dropped.

    Raises:
        TableNotFound: of the block; ``suggestions`` in its details are the names.
    """
    try:
        yield
    except TableNotFound as error:
        name = error.details.get("table")
        near = [] if not isinstance(name, str) else _near(service, name, among_dropped=among_dropped)
        if not near:
            raise
        hint = " or ".join(f"'{each}'" for each in near)
        message = f"{error.message} Did you mean {hint}?"
        raise TableNotFound(message, **error.details | {"suggestions": near}) from None


def _near(service: TableService, name: str, *, among_dropped: bool) -> list[str]:
    """Return the most similar names first; none if the tables cannot be listed."""
    operation = operations.LIST_DROPPED if among_dropped else operations.LIST_TABLES
    try:
        tables = listed(service, operation, lambda page: page.tables, {})
    except DelvecError:
        return []
    names = {each.name.lower(): each.name for each in tables}
    return [names[each] for each in get_close_matches(name.lower(), names)]
