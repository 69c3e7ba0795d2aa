"""The schema of the service's database as one script, so that tests need not run Alembic each time."""

import pytest
from sqlalchemy import MetaData, inspect, text

from delvec_service.store import database


@pytest.fixture(scope="session")
def schema_template():
    """Gives new SQLite databases the schema by a script: Alembic would cost each of thousands of tests 40 ms.

    Other databases are migrated by Alembic, as everywhere.
    """
    run_alembic, script = database._run_alembic, []

    def run(connection):
        if connection.dialect.name != "sqlite" or inspect(connection).get_table_names():
            run_alembic(connection)
        elif not script:
            run_alembic(connection)
            dump = list(connection.connection.driver_connection.iterdump())
            script.extend(line for line in dump if line not in ("BEGIN TRANSACTION;", "COMMIT;"))
        else:
            for statement in script:
                connection.exec_driver_sql(statement)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_run_alembic", run)
        yield run_alembic


@pytest.fixture
def alembic(schema_template, monkeypatch):
    """Has Alembic migrate every database, for tests of its revisions."""
    monkeypatch.setattr(database, "_run_alembic", schema_template)


def drop_schema(store):
    """Drop everything that a :class:`Database` has, as if somebody had deleted it."""
    with store.transaction() as connection:
        for view in inspect(connection).get_view_names():
            connection.execute(text(f"DROP VIEW {view}"))
        existing = MetaData()
        existing.reflect(connection)
        existing.drop_all(connection)
