"""For the tests of programs that use Delvec: pytest fixtures, and tables from literals.

::

    pytest_plugins = ["delvec.testing"]  # in the top-level conftest.py

Tested in `tests/integration/client/test_testing.py`.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import delvec
from delvec.connection import Connection
from delvec.http.embedded import served
from delvec.table import DeltaTable

__all__ = ["assert_rows", "delvec_lake", "delvec_remote", "delvec_service", "table_of"]


@pytest.fixture
def delvec_lake(tmp_path: Path) -> Iterator[Connection]:
    """Yield a connection to an empty lake in a temporary directory; nothing of it is left after the test."""
    with delvec.connect(tmp_path / "lake", database_url="sqlite://") as lake:
        yield lake


@pytest.fixture
def delvec_service(tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a service in a thread of this process, over an empty lake in a temporary directory."""
    folder = tmp_path / "service"
    folder.mkdir()
    with served(
        database_url=f"sqlite:///{folder / 'service.db'}", roots=(str(folder),), warehouse=str(folder)
    ) as url:
        yield url


@pytest.fixture
def delvec_remote(delvec_service: str) -> Iterator[Connection]:
    """Yield a connection to that service."""
    with delvec.connect(delvec_service) as lake:
        yield lake


def table_of(
    lake: Connection,
    name: str,
    rows: Iterable[Mapping[str, Any]] | pa.Table,
    schema: str | None = None,
    **options: Any,
) -> DeltaTable:
    """Create a table with rows.

    ::

        people = table_of(delvec_lake, "people", [{"id": 1, "country": "NZ"}], "id long, country string")

    Args:
        lake: where.
        name: the name of the table.
        rows: dictionaries, or an Arrow table.
        schema: the columns, as in CREATE TABLE; by default those of the rows.
        options: as for :meth:`~delvec.connection.Connection.create_table`.
    """
    data = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist([dict(row) for row in rows])
    columns = data.schema if schema is None else schema
    return lake.create_table(name, columns, rows=data if data.num_rows else None, **options)


def assert_rows(table: DeltaTable, rows: Iterable[Mapping[str, Any]], **reading: Any) -> None:
    """Check that a table has exactly these rows, in any order.

    Args:
        table: the table.
        rows: dictionaries with all columns, or with those that ``columns`` names.
        reading: as for :meth:`~delvec.table.DeltaTable.to_arrow`, such as ``version``, ``where`` and ``columns``.
    """
    found = sorted(table.to_arrow(**reading).to_pylist(), key=_order)
    expected = sorted(map(dict, rows), key=_order)
    assert found == expected, f"{table.name} has other rows"  # noqa: S101 - for tests


def _order(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, repr(row[name])) for name in sorted(row)]
