"""``connection.sql`` on each engine; Spark Connect runs the same in ``tests/integration/spark``."""

import pytest
from tests.support.sql_statements import STATEMENTS

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")


@pytest.mark.parametrize("statements", STATEMENTS, ids=lambda each: each.__name__)
@pytest.mark.gate
def test_statements(lake, engine, tmp_path, statements):
    statements(lake, engine, tmp_path)
