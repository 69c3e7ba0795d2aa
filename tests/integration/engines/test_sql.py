"""``connection.sql`` on each engine; Spark Connect runs the same in ``tests/integration/spark``."""

import pytest
from tests.support.sql_statements import STATEMENTS


@pytest.mark.parametrize("statements", STATEMENTS, ids=lambda each: each.__name__)
def test_statements(lake, engine, tmp_path, statements):
    statements(lake, engine, tmp_path)
