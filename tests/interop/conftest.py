"""A Spark session with delta-spark's JARs, and the three readers that must agree."""

import deltalake
import pyarrow as pa
import pytest
from tests.interop.delta_session import delta_session


@pytest.fixture(scope="session")
def delta_spark(tmp_path_factory):
    session = delta_session(tmp_path_factory.mktemp("warehouse"))
    if session is None:
        pytest.skip("no JARs of delta-spark: `make test` fetches them where Maven is installed")
    yield session
    session.stop()


@pytest.fixture(params=["duckdb", "spark"])
def engine(request, delta_spark):
    return delta_spark if request.param == "spark" else request.param


@pytest.fixture
def readers(lake, delta_spark):
    """Return a function from a table's location to its rows by reader, each a sorted list of dicts."""

    def read(location):
        query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(location)))
        frames = {
            "deltalake": pa.table(query.execute("select * from t").read_all()),
            "delta-spark": delta_spark.read.format("delta").load(str(location)).toArrow(),
            "delvec on DuckDB": lake.table(str(location), engine="duckdb").to_arrow(),
            "delvec on Spark": lake.table(str(location), engine=delta_spark).to_arrow(),
        }
        return {name: sorted(frame.to_pylist(), key=repr) for name, frame in frames.items()}

    return read


@pytest.fixture
def agreed(readers):
    """Return a function from a table's location to its rows, on which all readers must agree."""

    def rows(location):
        found = readers(location)
        reference = found["delta-spark"]
        for name, answer in found.items():
            assert answer == reference, name
        return reference

    return rows
