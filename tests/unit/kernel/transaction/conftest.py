import pytest
from tests.support.conflict_table import Table


@pytest.fixture
def table():
    return Table()
