import pytest
from tests.support import bad_input_cases


@pytest.fixture
def place(tmp_path):
    """A folder for a table, and the database of the service that has it."""
    return bad_input_cases.make(tmp_path, tmp_path / "records.db")
