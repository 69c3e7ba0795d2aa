from urllib.parse import quote

import pytest

from delvec_engines.duckdb import DuckDBEngine


@pytest.fixture
def engine():
    made = DuckDBEngine()
    yield made
    made.close()


@pytest.fixture(params=["file", "memory"])
def location(request, tmp_path):
    if request.param == "file":
        return (tmp_path / "a table%[1]é").as_uri()
    return f"memory:///{quote(str(tmp_path).strip('/'))}"


@pytest.fixture
def local(tmp_path):
    return (tmp_path / "table").as_uri()
