"""Other readers behave as docs/readers.md says."""

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaProtocolError
from tests.support.duckdb_extensions import packages, query
from tests.support.packages import NotInstalledError

import delvec

pytestmark = pytest.mark.full_on_spark("delta-spark takes seconds for each; the gate has the main case")

LEFT = list(range(3, 10))


@pytest.fixture(params=[True, False], ids=["deletion vectors", "without"])
def written(request, tmp_path):
    """Yield a table with three of ten rows deleted, and whether it has deletion vectors."""
    with delvec.connect(tmp_path, database_url="sqlite://") as lake:
        vectors = {"delta.enableDeletionVectors": request.param}
        table = lake.create_table("t", "id long, name string", properties=vectors)
        table.append([{"id": number, "name": str(number)} for number in range(10)])
        table.delete("id < 3")
        yield table, str(tmp_path / "t"), request.param


def test_deltalakes_queries_and_scans_omit_deleted_rows(written):
    _, path, _ = written
    table = deltalake.DeltaTable(path)
    query = deltalake.QueryBuilder().register("t", table)
    assert sorted(pa.table(query.execute("select id from t").read_all())["id"].to_pylist()) == LEFT
    assert pa.table(table.scan()).num_rows == len(LEFT)


@pytest.mark.parametrize("method", ["to_pandas", "to_pyarrow_table", "to_pyarrow_dataset"])
def test_deltalakes_arrow_readers_refuse_deletion_vectors(written, method):
    _, path, has_vectors = written
    read = getattr(deltalake.DeltaTable(path), method)
    if has_vectors:
        with pytest.raises(DeltaProtocolError, match="deletionVectors"):
            read()
    else:
        found = read()
        assert (found.count_rows() if method.endswith("dataset") else len(found)) == len(LEFT)


def test_deltalakes_count_counts_deleted_rows(written):
    table, path, has_vectors = written
    assert deltalake.DeltaTable(path).count() == (10 if has_vectors else len(LEFT))
    assert table.count() == len(LEFT)


def test_deltalake_writes(written):
    table, path, _ = written
    deltalake.write_deltalake(path, pa.table({"id": [100], "name": ["x"]}), mode="append")
    deltalake.DeltaTable(path).delete("id = 5")
    deltalake.DeltaTable(path).update(updates={"name": "'y'"}, predicate="id = 6")
    expected = sorted({*LEFT, 100} - {5})
    assert sorted(table.to_arrow(["id"])["id"].to_pylist()) == expected
    assert table.count("name = 'y'") == 1


def test_polars_reads(written):
    _, path, _ = written
    assert pl.read_delta(path)["id"].sort().to_list() == LEFT
    assert pl.scan_delta(path).filter(pl.col("id") < 5).collect()["id"].sort().to_list() == [3, 4]
    assert pl.scan_delta(path).select(pl.len()).collect().item() == len(LEFT)


@pytest.mark.full("installs another DuckDB with its extensions")
def test_duckdbs_extension_reads(written, tmp_path):
    _, path, _ = written
    try:
        packages()
    except NotInstalledError as error:
        pytest.skip(f"no extensions of DuckDB: {error}")
    rows = query(f"SELECT id FROM delta_scan('{path}')", tmp_path)
    assert sorted(rows["id"].to_pylist()) == LEFT
    (counted,) = query(f"SELECT count(*) AS rows FROM delta_scan('{path}')", tmp_path).to_pylist()
    assert counted == {"rows": len(LEFT)}


def test_parquet_files_alone_are_not_the_table(written):
    _, path, _ = written
    with duckdb.connect() as database:
        (found,) = database.execute(f"SELECT count(*) FROM read_parquet('{path}/*.parquet')").fetchone()
    assert found > len(LEFT)


def test_delvec_reads_for_readers_that_refuse(written):
    table, _, _ = written
    assert sorted(table.to_pandas()["id"]) == LEFT
    assert table.to_polars()["id"].sort().to_list() == LEFT
    assert table.to_lazyframe().collect()["id"].sort().to_list() == LEFT
    assert sorted(id_ for id_, _ in table.to_duckdb().fetchall()) == LEFT


@pytest.mark.jars
@pytest.mark.spark
@pytest.mark.gate
def test_delta_spark_reads_and_writes(written, delta_spark):
    table, path, _ = written
    rows = delta_spark.read.format("delta").load(path)
    assert sorted(row["id"] for row in rows.collect()) == LEFT
    delta_spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 9")
    assert table.count() == len(LEFT) - 1
