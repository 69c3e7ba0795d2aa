"""Tables written by delta-spark are read, deleted from, and read again by every reader."""

import pytest

import delvec

pytestmark = [
    pytest.mark.jars,
    pytest.mark.spark,
    pytest.mark.full_on_spark("delta-spark takes seconds for each; the gate has the main case"),
]


def create(spark, location, *, partitioned, properties, rows=3000):
    frame = spark.range(0, rows, 1, 3).selectExpr(
        "id",
        "concat('name ', id) as name",
        "cast(id % 3 as string) as part",
        "timestamp_micros(id * 1000001) as at",
        "named_struct('a', id, 'b', array(id, id + 1)) as nested",
    )
    writer = frame.write.format("delta").options(**properties)
    (writer.partitionBy("part") if partitioned else writer).save(str(location))


@pytest.mark.parametrize("partitioned", [False, True], ids=["flat", "partitioned"])
def test_deletion_vectors_and_checkpoints_of_delta_spark(
    lake, delta_spark, engine, agreed, tmp_path, partitioned
):
    location = tmp_path / "table"
    properties = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "3"}
    create(delta_spark, location, partitioned=partitioned, properties=properties)
    for residue in range(5):
        delta_spark.sql(f"DELETE FROM delta.`{location}` WHERE id % 50 = {residue}").collect()
    assert list((location / "_delta_log").glob("*.checkpoint*.parquet"))
    assert len(agreed(location)) == 2700

    metrics = lake.table(str(location), engine=engine).delete("id % 50 in (3, 4, 5, 6)")

    assert metrics["numDeletedRows"] == 120
    assert len(agreed(location)) == 2580
    delta_spark.sql(f"DELETE FROM delta.`{location}` WHERE id % 50 = 7").collect()
    assert len(agreed(location)) == 2520
    assert not [row for row in agreed(location) if row["id"] % 50 < 8]


@pytest.mark.gate
def test_delta_spark_deletes_after_delvec(lake, delta_spark, engine, agreed, tmp_path):
    location = tmp_path / "table"
    create(delta_spark, location, partitioned=False, properties={"delta.enableDeletionVectors": "true"})
    lake.table(str(location), engine=engine).delete("id < 100")

    delta_spark.sql(f"DELETE FROM delta.`{location}` WHERE id < 150").collect()
    delta_spark.sql(f"UPDATE delta.`{location}` SET name = 'x' WHERE id = 200").collect()

    rows = agreed(location)
    assert min(row["id"] for row in rows) == 150
    assert [row["name"] for row in rows if row["id"] == 200] == ["x"]


@pytest.mark.gate
def test_a_table_without_the_feature_is_rewritten_not_upgraded(lake, delta_spark, engine, agreed, tmp_path):
    location = tmp_path / "table"
    create(delta_spark, location, partitioned=True, properties={"delta.enableDeletionVectors": "false"})
    protocol = delta_spark.sql(f"DESCRIBE DETAIL delta.`{location}`").first().minReaderVersion

    lake.table(str(location), engine=engine).delete("id % 2 = 0")

    assert len(agreed(location)) == 1500
    assert delta_spark.sql(f"DESCRIBE DETAIL delta.`{location}`").first().minReaderVersion == protocol
    assert not list(location.rglob("deletion_vector_*.bin"))


def test_append_only_refuses(lake, delta_spark, engine, tmp_path):
    location = tmp_path / "table"
    create(delta_spark, location, partitioned=False, properties={"delta.appendOnly": "true"})

    with pytest.raises(delvec.AppendOnlyTable):
        lake.table(str(location), engine=engine).delete("id = 1")

    assert lake.table(str(location)).version() == 0


def test_time_travel_by_version(lake, delta_spark, engine, tmp_path):
    location = tmp_path / "table"
    create(delta_spark, location, partitioned=False, properties={"delta.enableDeletionVectors": "true"})
    delta_spark.sql(f"DELETE FROM delta.`{location}` WHERE id < 10").collect()
    table = lake.table(str(location), engine=engine)
    table.delete("id < 20")

    assert [table.to_arrow(version=version).num_rows for version in (0, 1, 2)] == [3000, 2990, 2980]
