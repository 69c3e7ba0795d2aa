"""VACUUM by Delvec and by delta-spark: both delete the same files and read the table afterwards."""

import os
from urllib.parse import unquote

import pyarrow as pa
import pytest

pytestmark = [
    pytest.mark.jars,
    pytest.mark.spark,
    pytest.mark.full_on_spark(
        "delta-spark takes seconds for each; the gate has both ways of reading and writing, and a race"
    ),
]


def names(location):
    found = (path.relative_to(location) for path in location.rglob("*") if path.is_file())
    return {str(path) for path in found if path.parts[0] != "_delta_log" and not path.name.startswith(".")}


def aged(location, days):
    for path in location.rglob("*"):
        if "_delta_log" not in path.parts:
            moment = path.stat().st_mtime - days * 86_400
            os.utime(path, (moment, moment))


CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"


@pytest.fixture
def unchecked(delta_spark):
    """Yield a function that turns delta-spark's retention check off or on; afterwards it is on."""
    yield lambda is_unchecked: delta_spark.conf.set(CHECK, str(not is_unchecked).lower())
    delta_spark.conf.unset(CHECK)


def test_delta_spark_would_delete_the_same_files_and_reads_the_rest(
    lake, delta_spark, unchecked, agreed, tmp_path
):
    location = tmp_path / "table"
    schema = pa.schema([("id", pa.int64()), ("_day", pa.string())])
    table = lake.create_table(
        location, schema, partition_by=["_day"], properties={"delta.enableChangeDataFeed": "true"}
    )
    for start in (0, 100):
        table.append(pa.table({"id": range(start, start + 100), "_day": ["a b", "%é"] * 50}, schema=schema))
    table.delete("id % 10 = 3")
    table.update({"id": "id + 1000"}, "id % 10 = 4")
    table.delete("id < 50")
    delta_spark.sql(f"DELETE FROM delta.`{location}` WHERE id % 10 = 5")
    for name in (
        "left over.parquet",
        "_day=x%2520/y.parquet",
        "_hidden/x.parquet",
        "_change_data/old.parquet",
    ):
        (location / name).parent.mkdir(exist_ok=True)
        (location / name).write_bytes(b"left over")
    aged(location, 20)
    (location / "young.parquet").write_bytes(b"young")
    rows = agreed(location)

    # delta-spark lists with as many tasks as this, however few directories there are.
    delta_spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")
    for retained in (None, 0):
        unchecked(retained is not None)
        retain = "" if retained is None else f"RETAIN {retained} HOURS"
        dry = delta_spark.sql(f"VACUUM delta.`{location}` {retain} DRY RUN").collect()
        theirs = {row.path.partition(f"{location}/")[2] for row in dry}
        if retained is None:
            found = table.vacuum(dry_run=True)
        else:
            found = table.vacuum(0, dry_run=True, enforce_retention_duration=False)
        ours = {unquote(path).rstrip("/") for path in found["files"]}
        assert ours == theirs
        assert "left over.parquet" in ours
        assert ("young.parquet" in ours) is (retained == 0)

    before = names(location)
    done = table.vacuum(0, enforce_retention_duration=False)
    assert before - names(location) == {unquote(path) for path in done["files"] if not path.endswith("/")}
    assert any(name.endswith(".bin") for name in before - names(location))
    assert any(name.endswith(".bin") for name in names(location))
    assert agreed(location) == rows
    assert table.check()["num-errors"] == 0
    history = delta_spark.sql(f"DESCRIBE HISTORY delta.`{location}` LIMIT 2").collect()
    assert [row.operation for row in history] == ["VACUUM END", "VACUUM START"]
    assert history[0].operationParameters == {"status": "COMPLETED"}
    assert history[1].operationParameters["specifiedRetentionMillis"] == "0"
    # delta-spark then deletes nothing that Delvec needs.
    delta_spark.sql(f"VACUUM delta.`{location}` RETAIN 0 HOURS")
    assert table.to_arrow().num_rows == len(rows)
    assert table.check()["num-errors"] == 0
