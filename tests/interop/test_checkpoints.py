"""Tables whose log starts at our checkpoint, read and written by delta-spark and deltalake.

deltalake reads with the Rust kernel, as does DuckDB's delta extension; the extension itself is
downloaded at run time, so tests cannot rely on it.
"""

import json
import time

import pyarrow as pa
import pytest

import delvec

pytestmark = [
    pytest.mark.jars,
    pytest.mark.spark,
    pytest.mark.full_on_spark("delta-spark takes seconds for each; the gate has the main case"),
]

TYPES = pa.schema(
    [
        ("id", pa.int64()),
        ("b", pa.int8()),
        ("s", pa.int16()),
        ("i", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("price", pa.decimal128(12, 3)),
        ("name", pa.string()),
        ("ok", pa.bool_()),
        ("born", pa.date32()),
        ("seen", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.int32()), ("deep", pa.struct([("z", pa.string())]))])),
        ("part", pa.string()),
    ]
)


def rows(start, count):
    return pa.Table.from_pylist(
        [
            {
                "id": i,
                "b": i % 100,
                "s": i,
                "i": i * 1000,
                "f": i / 8,
                "d": None if i % 5 == 0 else i / 3,
                "price": i,
                "name": "é" * 40 + str(i) if i % 2 else None,
                "ok": i % 3 == 0,
                "born": i * 17,
                "seen": i * 1_000_001,
                "local": i * 1_000_003,
                "raw": b"\x00\xff",
                "tags": ["a", None],
                "place": {"x": i, "deep": {"z": "q"}} if i % 4 else None,
                "part": ["NZ", "São Tomé/=%", None][i % 3],
            }
            for i in range(start, start + count)
        ],
        TYPES,
    )


def log_of(location):
    return location / "_delta_log"


def forget_before(location, version):
    """Delete every log file of an earlier version, as log clean-up would."""
    for path in log_of(location).iterdir():
        number = path.name.lstrip(".")[:20]
        if number.isdecimal() and int(number) < version:
            path.unlink()


def make_v2(location):
    """Request V2 checkpoints from the first version on."""
    awaited(log_of(location) / f"{0:020}.crc").unlink()
    first = log_of(location) / f"{0:020}.json"
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    for action in actions:
        for features in ("readerFeatures", "writerFeatures"):
            if "protocol" in action:
                action["protocol"][features].append("v2Checkpoint")
        if "metaData" in action:
            action["metaData"]["configuration"]["delta.checkpointPolicy"] = "v2"
    first.write_text("".join(json.dumps(action) + "\n" for action in actions))


def awaited(path):
    """Wait for a file that the service writes in the background."""
    for _ in range(600):
        if path.exists():
            return path
        time.sleep(0.05)
    raise AssertionError(path)


@pytest.mark.parametrize(("policy", "partitioned"), [("classic", False), ("v2", True)])
def test_a_table_read_from_our_checkpoint(lake, delta_spark, agreed, tmp_path, policy, partitioned):
    location = tmp_path / "table"
    table = lake.create_table(str(location), TYPES, partition_by=["part"] if partitioned else [])
    if policy == "v2":
        make_v2(location)
    table.append(rows(0, 60))
    table.append(rows(60, 40))
    table.delete("id % 10 = 3")
    table.delete("id >= 90")
    expected = [row for row in rows(0, 90).to_pylist() if row["id"] % 10 != 3]

    done = table.checkpoint()

    assert (done["result"], done["form"]) == ("written", policy)
    forget_before(location, done["version"])
    (log_of(location) / f"{done['version']:020}.crc").unlink(missing_ok=True)
    assert agreed(location) == sorted(expected, key=repr)

    delta_spark.sql(f"DELETE FROM delta.`{location}` WHERE id < 20")
    delta_spark.sql(f"INSERT INTO delta.`{location}` SELECT * FROM delta.`{location}` WHERE id = 20")
    left = [row for row in expected if row["id"] >= 20] + rows(20, 1).to_pylist()
    assert agreed(location) == sorted(left, key=repr)


def test_delta_spark_skips_files_by_our_checkpoints_statistics(lake, delta_spark, tmp_path):
    location = tmp_path / "table"
    properties = {"delta.checkpoint.writeStatsAsJson": "false"}
    table = lake.create_table(str(location), TYPES, properties=properties)
    for start in range(0, 50, 10):
        table.append(rows(start, 10))
    version = table.checkpoint()["version"]
    forget_before(location, version)

    for column in ("id", "b", "i", "f", "price", "born", "seen", "local"):
        low = rows(42, 1)[column][0]
        frame = delta_spark.read.format("delta").load(str(location))
        literal = delta_spark.createDataFrame(rows(42, 1)).select(column).first()[0]
        found = frame.where(frame[column] >= literal)
        assert low.is_valid
        assert found.count() == 8, column
        assert len(found.inputFiles()) == 1, column


def checked(delta_spark, location):
    """Have delta-spark verify a checksum against its own state; return the checksum."""
    jvm = delta_spark._jvm
    deltas = jvm.org.apache.spark.sql.delta.DeltaLog
    deltas.clearCache()
    snapshot = deltas.forTable(delta_spark._jsparkSession, str(location)).update(
        False, jvm.scala.Option.empty(), jvm.scala.Option.empty()
    )
    assert snapshot.checksumOpt().isDefined()
    assert snapshot.validateChecksum(jvm.PythonUtils.toScalaMap(jvm.java.util.HashMap()))
    return snapshot.version()


@pytest.mark.gate
def test_delta_spark_agrees_with_our_checksums(lake, delta_spark, agreed, tmp_path):
    location = tmp_path / "table"
    table = lake.create_table(
        str(location), TYPES, partition_by=["part"], properties={"delta.enableInCommitTimestamps": "true"}
    )
    table.append(rows(0, 60))
    table.delete("id % 7 = 0")
    mine = awaited(log_of(location) / f"{2:020}.crc")

    assert checked(delta_spark, location) == 2

    delta_spark.sql(f"DELETE FROM delta.`{location}` WHERE id = 5")
    theirs = json.loads((log_of(location) / f"{3:020}.crc").read_text())
    ours = json.loads(mine.read_text())
    assert theirs["numDeletedRecordsOpt"] == ours["numDeletedRecordsOpt"] + 1
    assert theirs["metadata"] == ours["metadata"]
    assert len(agreed(location)) == len(range(60)) - 9 - 1


def test_our_hint_replaces_delta_sparks(lake, delta_spark, agreed, tmp_path):
    location = tmp_path / "table"
    delta_spark.createDataFrame(rows(0, 10)).write.format("delta").option(
        "delta.enableDeletionVectors", "true"
    ).option("delta.checkpointInterval", "1").save(str(location))
    delta_spark.createDataFrame(rows(10, 10)).write.format("delta").mode("append").save(str(location))
    hint = log_of(location) / "_last_checkpoint"
    assert json.loads(hint.read_text())["version"] == 1
    table = lake.table(str(location))
    table.delete("id = 3")
    awaited(log_of(location) / f"{2:020}.checkpoint.parquet")
    table.checkpoint()  # whichever was first has written the hint when this returns

    assert json.loads(hint.read_text())["version"] == 2
    jvm = delta_spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    deltas = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(delta_spark._jsparkSession, str(location))
    found = deltas.readLastCheckpointFile()
    assert found.get().version() == 2
    assert len(agreed(location)) == 19


def test_tombstones_of_delta_sparks_checkpoints_stay(lake, delta_spark, tmp_path):
    location = tmp_path / "table"
    delta_spark.createDataFrame(rows(0, 10)).write.format("delta").option(
        "delta.enableDeletionVectors", "true"
    ).save(str(location))
    delta_spark.sql(f"DELETE FROM delta.`{location}` WHERE id < 4")
    delta_spark.sql(f"DELETE FROM delta.`{location}` WHERE id < 5")
    lake.table(str(location)).append(rows(10, 5))
    version = lake.table(str(location)).checkpoint()["version"]
    jvm = delta_spark._jvm
    deltas = jvm.org.apache.spark.sql.delta.DeltaLog

    def tombstones():
        deltas.clearCache()
        snapshot = deltas.forTable(delta_spark._jsparkSession, str(location)).update(
            False, jvm.scala.Option.empty(), jvm.scala.Option.empty()
        )
        return sorted(str(item) for item in snapshot.tombstones().toDF().toJSON().collect())

    before = tombstones()
    forget_before(location, version)
    assert before
    assert tombstones() == before


def test_a_table_with_deletion_vectors_read_from_deltalakes_checkpoint(lake, tmp_path):
    deltalake = pytest.importorskip("deltalake")
    people = lake.create_table(str(tmp_path / "people"), pa.schema([("id", pa.int64())]))
    people.append(pa.table({"id": range(10)}))
    people.delete("id % 3 = 0")

    deltalake.DeltaTable(str(tmp_path / "people")).create_checkpoint()
    forget_before(tmp_path / "people", 2)

    with delvec.connect(database_url=f"sqlite:///{tmp_path / 'other.db'}") as other:
        again = other.table(str(tmp_path / "people"))
        assert sorted(again.to_arrow()["id"].to_pylist()) == [1, 2, 4, 5, 7, 8]
        again.delete("id = 4")
        assert again.count() == 5
