"""SQLAlchemy's compiled statements, for all the databases of a test run."""

import pytest
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

from delvec_service.store import database

STATEMENTS = 5000


@pytest.fixture(scope="session", autouse=True)
def compiled_statements():
    """Compiles a statement once in a run: SQLAlchemy would do so for each engine, and each test has one of its own.

    That took a fifth of the CPU time of a small test. Statements are cached by dialect, so all dialects of a class have
    to be equal; they are, because the tests give none of them arguments.
    """
    make_engine, compiled = database._engine, LRUCache(STATEMENTS)

    def engine(url):
        made = make_engine(url)
        made._compiled_cache = compiled
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_engine", engine)
        for dialect in (SQLiteDialect_pysqlite, PGDialect_psycopg):
            patch.setattr(dialect, "__eq__", lambda one, other: type(one) is type(other))
            patch.setattr(dialect, "__hash__", lambda one: hash(type(one)))
        yield
