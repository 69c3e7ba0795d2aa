"""Tables that Delvec wrote are ordinary tables to delta-spark and deltalake."""

import json

import pyarrow as pa
import pytest

pytestmark = [
    pytest.mark.jars,
    pytest.mark.spark,
    pytest.mark.full_on_spark("delta-spark takes seconds for each; the gate has the main case"),
]

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("country", pa.string()),
        ("score", pa.float64()),
        ("born", pa.date32()),
        ("price", pa.decimal128(10, 2)),
    ]
)


def some_rows(start, count):
    ids = range(start, start + count)
    return pa.table(
        {
            "id": list(ids),
            "country": [["NZ", "DE", None, "São Tomé/=%"][i % 4] for i in ids],
            "score": [None if i % 7 == 0 else i / 3 for i in ids],
            "born": pa.array([i * 13 for i in ids], pa.int32()).cast(pa.date32()),
            "price": pa.array(list(ids), pa.int64()).cast(pa.decimal128(19, 0)).cast(pa.decimal128(10, 2)),
        },
        schema=SCHEMA,
    )


def handed_over(engine, rows):
    return rows if engine == "duckdb" else engine.createDataFrame(rows)


@pytest.mark.parametrize("partition_by", [[], ["country"]], ids=["flat", "partitioned"])
@pytest.mark.gate
def test_append_and_delete(lake, engine, agreed, tmp_path, partition_by):
    location = tmp_path / "table"
    table = lake.create_table(str(location), SCHEMA, partition_by=partition_by, engine=engine)
    table.append(handed_over(engine, some_rows(0, 1000)))
    table.append(handed_over(engine, some_rows(1000, 1000)))

    first = table.delete("id % 10 = 3")
    second = table.delete("id % 10 = 4 or score is null")

    assert first["numDeletedRows"] == 200
    left = agreed(location)
    expected = [
        r for r in some_rows(0, 2000).to_pylist() if r["id"] % 10 not in (3, 4) and r["score"] is not None
    ]
    assert left == sorted(expected, key=repr)
    assert second["numDeletedRows"] == 1800 - len(expected)
    assert list(location.rglob("deletion_vector_*.bin"))


def test_a_file_deleted_in_steps_becomes_a_plain_remove(lake, engine, agreed, tmp_path):
    location = tmp_path / "table"
    table = lake.create_table(str(location), SCHEMA, engine=engine)
    table.append(some_rows(0, 100))
    table.append(some_rows(100, 100))
    table.delete("id < 60")

    table.delete("id < 100")

    assert len(agreed(location)) == 100
    last = max((location / "_delta_log").glob("*.json")).read_text().splitlines()
    actions = [json.loads(line) for line in last]
    assert not [action for action in actions if "add" in action]
    (remove,) = [action["remove"] for action in actions if "remove" in action]
    assert remove["deletionVector"]["cardinality"] == 60


def test_rewriting_where_deletion_vectors_are_off(lake, engine, agreed, tmp_path):
    location = tmp_path / "table"
    off = {"delta.enableDeletionVectors": "false"}
    table = lake.create_table(str(location), SCHEMA, partition_by=["country"], properties=off, engine=engine)
    table.append(some_rows(0, 400))

    metrics = table.delete("id % 2 = 1")

    assert metrics["numDeletedRows"] == 200
    assert len(agreed(location)) == 200
    assert not list(location.rglob("deletion_vector_*.bin"))


def test_partitions_deleted_without_reading(lake, engine, agreed, tmp_path):
    location = tmp_path / "table"
    table = lake.create_table(str(location), SCHEMA, partition_by=["country"], engine=engine)
    table.append(some_rows(0, 400))

    metrics = table.delete("country = 'NZ' or country is null")

    assert metrics["numDeletedRows"] == 200
    assert {row["country"] for row in agreed(location)} == {"DE", "São Tomé/=%"}
    assert not list(location.rglob("deletion_vector_*.bin"))


@pytest.mark.gate
def test_history_reads_like_delta_sparks_own(lake, delta_spark, tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    table = lake.create_table(str(ours), SCHEMA, engine="duckdb")
    table.append(some_rows(0, 100))
    frame = delta_spark.createDataFrame(some_rows(0, 100)).coalesce(1)
    frame.write.format("delta").option("delta.enableDeletionVectors", "true").save(str(theirs))

    table.delete("id = 5")
    delta_spark.sql(f"DELETE FROM delta.`{theirs}` WHERE id = 5").collect()

    def newest(location):
        return delta_spark.sql(f"DESCRIBE HISTORY delta.`{location}` LIMIT 1").first()

    own, peer = newest(ours), newest(theirs)
    assert own.operation == peer.operation == "DELETE"
    assert own.operationParameters.keys() == peer.operationParameters.keys()
    assert own.isBlindAppend == peer.isBlindAppend
    assert own.isolationLevel == peer.isolationLevel
    counts = {name for name in peer.operationMetrics if name.startswith("num") and not name.endswith("Bytes")}
    assert {name: own.operationMetrics.get(name) for name in counts} == {
        name: peer.operationMetrics[name] for name in counts
    }
