"""The schema of the service's database as one script, so that tests need not run all of Alembic's revisions each time."""

import pytest
from sqlalchemy import inspect

from delvec_service.store import database


@pytest.fixture(scope="session")
def schema_template():
    """Gives new SQLite databases the head's schema by a script: the revisions would cost each of thousands of tests 40 ms.

    Other databases, and other revisions than the head, are migrated by Alembic, as everywhere.
    """
    run_alembic, script = database._run_alembic, []

    def run(connection, revision):
        if connection.dialect.name != "sqlite" or revision != "head" or inspect(connection).get_table_names():
            run_alembic(connection, revision)
        elif not script:
            run_alembic(connection, revision)
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
