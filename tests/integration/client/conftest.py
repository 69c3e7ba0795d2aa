import pyarrow as pa
import pytest

import delvec

PEOPLE = pa.table(
    {
        "id": pa.array(range(10), pa.int64()),
        "name": [f"n{number}" for number in range(10)],
        "country": ["NZ"] * 5 + ["DE"] * 5,
    }
)


@pytest.fixture(autouse=True)
def _own_state(tmp_path_factory, monkeypatch):
    """Keeps the user's own database and settings out of the tests."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    for name in ("DELVEC_URL", "DELVEC_TOKEN", "DELVEC_ROOTS", "DELVEC_DATABASE_URL", "DELVEC_WAREHOUSE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def lake():
    """A connection whose service forgets everything at its end: quicker than a database that another test could open."""
    with delvec.connect(database_url="sqlite://") as connection:
        yield connection


@pytest.fixture
def people(lake, tmp_path):
    table = lake.create_table(tmp_path / "people", PEOPLE.schema)
    table.append(PEOPLE)
    return table


@pytest.fixture
def by_country(lake, tmp_path):
    table = lake.create_table(tmp_path / "by_country", PEOPLE.schema, partition_by=["country"])
    table.append(PEOPLE)
    return table
