"""OPTIMIZE and delta-spark's: each reads what the other compacted, and can compact it again."""

import deltalake
import pyarrow as pa
import pytest

pytestmark = [
    pytest.mark.jars,
    pytest.mark.spark,
    pytest.mark.full_on_spark("delta-spark takes seconds for each; the gate has the main case"),
]


def table_with_vectors(lake, location):
    table = lake.create_table(location, "id long, part int", partition_by=["part"])
    for number in range(4):
        ids = range(number * 50, number * 50 + 50)
        table.append(pa.table({"id": ids, "part": pa.array([each % 2 for each in ids], pa.int32())}))
    table.delete("id % 4 = 1")
    return table


@pytest.mark.gate
def test_compacted_files_are_read_by_every_reader_and_compacted_by_delta_spark(
    lake, delta_spark, agreed, tmp_path
):
    table = table_with_vectors(lake, tmp_path / "table")
    before = agreed(tmp_path / "table")

    table.optimize("part = 0")
    table.optimize.purge()

    assert agreed(tmp_path / "table") == before
    assert table.check()["num-errors"] == 0
    table.append(pa.table({"id": [1000, 1001], "part": pa.array([0, 1], pa.int32())}))
    delta_spark.sql(f"OPTIMIZE delta.`{tmp_path / 'table'}`").collect()
    assert table.to_arrow().num_rows == len(before) + 2
    assert table.check()["num-errors"] == 0


def test_compacted_deletion_vectors_are_read_by_every_reader(lake, delta_spark, agreed, tmp_path):
    table = table_with_vectors(lake, tmp_path / "table")
    table.delete("id % 50 = 2")
    before = agreed(tmp_path / "table")

    done = table.optimize.deletion_vectors()

    assert (done["result"], done["new-vector-files"]) == ("committed", 1)
    assert agreed(tmp_path / "table") == before
    delta_spark.sql(f"DELETE FROM delta.`{tmp_path / 'table'}` WHERE id = 4").collect()
    assert table.to_arrow().num_rows == len(before) - 1


def test_delta_sparks_files_are_compacted(lake, delta_spark, agreed, tmp_path):
    location = tmp_path / "table"
    name = f"delta.`{location}`"
    delta_spark.sql(
        f"CREATE TABLE {name} (id LONG, s STRUCT<a: INT>) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    for number in range(3):
        delta_spark.sql(
            f"INSERT INTO {name} SELECT id, named_struct('a', CAST(id AS INT)) FROM range({number * 10}, {number * 10 + 10})"
        )
    delta_spark.sql(f"DELETE FROM {name} WHERE id % 5 = 2")
    before = agreed(location)

    done = lake.table(location).optimize()

    assert done["numAddedFiles"] == 1
    assert agreed(location) == before
    metrics = delta_spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").collect()[0].operationMetrics
    assert metrics["numRemovedFiles"] == str(done["numRemovedFiles"])
    assert deltalake.DeltaTable(str(location)).version() == done.version


def test_both_recognise_each_others_clustered_files(lake, delta_spark, agreed, tmp_path):
    """Neither clusters again what the other has clustered, and each reads the other's files."""
    table = lake.create_table(tmp_path / "ours", "id long, x int", cluster_by=["x", "id"])
    for number in range(3):
        ids = range(number * 50, number * 50 + 50)
        table.append(pa.table({"id": ids, "x": pa.array([7 * each % 50 for each in ids], pa.int32())}))
    before = agreed(tmp_path / "ours")
    version = table.optimize().version
    name = f"delta.`{tmp_path / 'ours'}`"
    assert agreed(tmp_path / "ours") == before
    delta_spark.sql(f"OPTIMIZE {name}").collect()
    assert table.version() == version

    name = f"delta.`{tmp_path / 'theirs'}`"
    delta_spark.sql(f"CREATE TABLE {name} (id LONG, x INT) USING delta CLUSTER BY (x)")
    for number in range(3):
        delta_spark.sql(f"INSERT INTO {name} SELECT id, CAST(7 * id % 50 AS INT) FROM range({number}, 50)")
    delta_spark.sql(f"OPTIMIZE {name}").collect()
    theirs = lake.table(tmp_path / "theirs")
    assert theirs.optimize().version is None
    theirs.append(pa.table({"id": [1000], "x": pa.array([3], pa.int32())}))
    before = agreed(tmp_path / "theirs")
    assert theirs.optimize()["numAddedFiles"] == 1
    assert agreed(tmp_path / "theirs") == before
