"""Single statements need no transaction, and leave none of their mode to the transactions after them."""

from contextlib import suppress

import pytest
from sqlalchemy import text

from delvec_service.store.registry import Registry

COUNT = text("SELECT count(*) FROM tables")
PEOPLE = "file:///data/people"


def test_a_single_statement_sees_what_was_committed_since_the_last(database, url):
    if url == "sqlite://":
        pytest.skip("a database in memory has one connection")
    with database.connection() as connection:
        assert connection.scalar(COUNT) == 0
        Registry(database).add(PEOPLE, "people", "people")
        assert connection.scalar(COUNT) == 1


def test_a_transaction_on_a_connection_of_single_statements_is_rolled_back(database):
    Registry(database).add(PEOPLE, "people", "people")
    for _ in range(20):
        with database.connection() as connection:
            assert connection.scalar(COUNT) == 1
        with suppress(ZeroDivisionError), database.transaction() as connection:
            connection.execute(text("DELETE FROM tables"))
            raise ZeroDivisionError
        with suppress(ZeroDivisionError), database.write() as session:
            session.execute(text("DELETE FROM tables"))
            raise ZeroDivisionError
