"""Streams compared with delta-spark's: both read the same tables, delta-spark reads Delvec's sink, and chains of both."""

import datetime as dt
import json
import os
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

pytestmark = [
    pytest.mark.jars,
    pytest.mark.spark,
    pytest.mark.full_on_spark(
        "delta-spark takes seconds for each; the gate has both ways of reading and writing, and a race"
    ),
]

_ATTEMPTS = 20
VECTORS = {"delta.enableDeletionVectors": "true"}


class Query:
    """A query that is restarted repeatedly with one checkpoint, and keeps the rows of its batches."""

    def __init__(self, spark, kind, location, checkpoint, options):
        self.spark, self.kind, self.location, self.options = spark, kind, str(location), options
        self.checkpoint = str(checkpoint)
        self.batches = {}

    def run(self):
        """Read all available rows; return them sorted."""
        known = set(self.batches)
        finish(lambda: self._started().start())
        found = [row for number in set(self.batches) - known for row in self.batches[number]]
        return sorted(found, key=repr)

    def position(self):
        """Return the last batch's end offset from the checkpoint."""
        offsets = {int(file.name): file for file in (Path(self.checkpoint) / "offsets").glob("[0-9]*")}
        return json.loads(offsets[max(offsets)].read_text().splitlines()[-1])

    def _started(self):
        frame = self.spark.readStream.format(self.kind).options(**self.options).load(self.location)
        writer = frame.writeStream.option("checkpointLocation", self.checkpoint).foreachBatch(self._keep)
        return writer.trigger(availableNow=True)

    def _keep(self, frame, number):
        self.batches[number] = frame.toArrow().to_pylist()


def finish(start):
    """Start a query and wait for its end; Spark gives its Python process ten seconds to start."""
    for attempt in range(_ATTEMPTS):
        query = start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error) or attempt + 1 == _ATTEMPTS:
                raise
        else:
            return query
    raise AssertionError


class Both:
    """The same table and options as a stream of delta-spark's and one of Delvec's."""

    def __init__(self, spark, location, folder, options):
        self.theirs = Query(spark, "delta", location, folder / "theirs", options)
        self.ours = Query(spark, "delvec", location, folder / "ours", options)

    def run(self):
        """Read all available rows with both, which must agree; return them."""
        theirs, ours = self.theirs.run(), self.ours.run()
        assert ours == theirs
        return theirs

    def ids(self):
        return sorted(row["id"] for row in self.run())

    def refuse(self, theirs, ours):
        """Check that both fail with an error."""
        with pytest.raises(StreamingQueryException, match=theirs):
            self.theirs.run()
        with pytest.raises(StreamingQueryException, match=ours):
            self.ours.run()


class Scene:
    """A table created by delta-spark."""

    def __init__(self, lake, spark, folder):
        self.lake, self.spark, self.folder = lake, spark, folder
        self.location = folder / "table é 100%"
        self._made = 0

    def create(self, *, partition_by=("part",), **properties):
        writer = self.rows(0, 20).write.format("delta").options(**VECTORS, **properties)
        writer.partitionBy(*partition_by).save(str(self.location))

    def rows(self, start, end):
        return self.spark.range(start, end, 1, 1).selectExpr(
            "id",
            "concat('n', id) AS name",
            "if(id % 3 = 0, NULL, concat('a=b/c ', id % 3)) AS part",
            "timestamp_micros(id * 1000001) AS at",
            "cast(id / 7 AS decimal(20, 3)) AS amount",
            "named_struct('list', array(id, NULL), 'day', date_add(DATE'2024-02-28', cast(id AS int))) AS nested",
        )

    def append(self, start, end):
        self.rows(start, end).write.format("delta").mode("append").save(str(self.location))

    def sql(self, text):
        self.spark.sql(text.replace("$t", f"delta.`{self.location}`")).collect()

    def streams(self, **options):
        self._made += 1
        return Both(self.spark, self.location, self.folder / f"checkpoints {self._made}", options)

    def table(self):
        return self.lake.table(str(self.location))


@pytest.fixture
def scene(lake, delta_spark, tmp_path):
    return Scene(lake, delta_spark, tmp_path)


def test_the_snapshot_comes_first_then_appends(scene):
    """Partitions with NULL and odd characters, deletion vectors of both; appends of both."""
    scene.create()
    scene.sql("DELETE FROM $t WHERE id IN (3, 4)")
    scene.table().delete("id = 5")
    streams = scene.streams()
    assert streams.ids() == [0, 1, 2, *range(6, 20)]
    assert streams.run() == []
    scene.append(100, 105)
    scene.table().append(scene.rows(200, 205).toArrow())
    scene.sql("OPTIMIZE $t")
    scene.append(300, 302)
    assert streams.ids() == [*range(100, 105), *range(200, 205), 300, 301]


def test_where_a_stream_begins(scene):
    scene.create(partition_by=())
    for number in range(1, 4):
        scene.append(number * 100, number * 100 + 2)
    for number, file in enumerate(sorted((scene.location / "_delta_log").glob("*.json"))):
        at = dt.datetime(2024, 1, 1 + number, tzinfo=dt.UTC).timestamp()
        os.utime(file, (at, at))
    latest = scene.streams(startingVersion="latest")
    assert latest.run() == []
    assert scene.streams(startingVersion="2").ids() == [200, 201, 300, 301]
    assert scene.streams(startingTimestamp="2024-01-03 00:00:00").ids() == [200, 201, 300, 301]
    assert scene.streams(startingTimestamp="2024-01-02 12:00:00").ids() == [200, 201, 300, 301]
    scene.append(400, 401)
    # Delvec's query recorded its start; with nothing to read, delta-spark's did not, and starts over.
    assert [row["id"] for row in latest.ours.run()] == [400]
    assert latest.theirs.run() == []


def test_versions_that_delete_rows(scene):
    """Whole files: as delta-spark. By deletion vector: a change to delta-spark, but not to Delvec."""
    scene.create()
    plain, deletes = scene.streams(), scene.streams(ignoreDeletes="true")
    for streams in (plain, deletes):
        assert len(streams.run()) == 20
    scene.sql("DELETE FROM $t WHERE part IS NULL")
    scene.append(100, 103)
    plain.refuse("DELTA_SOURCE_IGNORE_DELETE", "ignoreDeletes")
    assert deletes.ids() == [100, 101, 102]
    scene.sql("DELETE FROM $t WHERE id = 1")
    scene.append(200, 202)
    with pytest.raises(StreamingQueryException, match="DELTA_SOURCE_TABLE_IGNORE_CHANGES"):
        deletes.theirs.run()
    assert [row["id"] for row in deletes.ours.run()] == [200, 201]


def test_positions_move_past_versions_that_add_nothing(scene):
    """As delta-spark's do, so that log clean-up does not overtake them."""
    scene.create()
    streams = scene.streams(ignoreDeletes="true")
    assert len(streams.run()) == 20
    scene.sql("DELETE FROM $t WHERE part IS NULL")
    scene.sql("ALTER TABLE $t SET TBLPROPERTIES ('some' = 'property')")
    assert streams.run() == []
    version = scene.table().version()
    assert streams.ours.position()["version"] == version + 1
    assert streams.theirs.position()["reservoirVersion"] == version + 1


def test_versions_that_change_rows(scene):
    scene.create()
    deletes, changes = scene.streams(ignoreDeletes="true"), scene.streams(skipChangeCommits="true")
    for streams in (deletes, changes):
        assert len(streams.run()) == 20
    scene.sql("UPDATE $t SET name = 'x' WHERE id < 4")
    scene.append(100, 103)
    scene.sql(
        "MERGE INTO $t t USING (SELECT 7L AS id UNION ALL SELECT 500L) s ON t.id = s.id "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, 'merged')"
    )
    scene.table().update({"name": "'y'"}, "id = 8")
    scene.sql("DELETE FROM $t WHERE id = 9")
    scene.append(200, 202)
    deletes.refuse("DELTA_SOURCE_TABLE_IGNORE_CHANGES", "skipChangeCommits")
    assert changes.ids() == [100, 101, 102, 200, 201]
    scene.rows(900, 910).write.format("delta").mode("overwrite").save(str(scene.location))
    assert changes.run() == []


def test_the_change_feed(scene):
    scene.create(**{"delta.enableChangeDataFeed": "true"})
    whole = scene.streams(readChangeFeed="true")
    first = whole.run()
    assert {row["_change_type"] for row in first} == {"insert"}
    assert len(first) == 20
    scene.sql("DELETE FROM $t WHERE id IN (3, 4)")
    scene.table().update({"name": "'x'"}, "id < 2")
    scene.sql("UPDATE $t SET name = 'y' WHERE id = 1")
    scene.append(100, 102)
    scene.table().delete("part is null")
    kinds = [row["_change_type"] for row in whole.run()]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "insert": 2,
        "delete": 8,
        "update_preimage": 3,
        "update_postimage": 3,
    }
    assert len(scene.streams(readChangeFeed="true", startingVersion="2").run()) == len(kinds) - 2


def test_mapped_columns(scene):
    scene.create(**{"delta.columnMapping.mode": "name"})
    scene.sql("ALTER TABLE $t RENAME COLUMN name TO `called so`")
    scene.sql("ALTER TABLE $t ADD COLUMNS (more int)")
    scene.sql("DELETE FROM $t WHERE id = 2")
    streams = scene.streams()
    first = streams.run()
    assert {row["called so"] for row in first} == {f"n{number}" for number in range(20) if number != 2}
    scene.sql(
        "INSERT INTO $t (id, `called so`, part, more) VALUES (100, 'x', 'p', 1), (101, NULL, NULL, NULL)"
    )
    assert streams.ids() == [100, 101]
    scene.sql("ALTER TABLE $t RENAME COLUMN `called so` TO name")
    scene.sql("INSERT INTO $t (id, name) VALUES (200, 'after')")
    # Restarted, both continue with the new name, but delta-spark must be allowed to by an option.
    assert [row["name"] for row in streams.ours.run()] == ["after"]
    with pytest.raises(StreamingQueryException, match="DELTA_STREAMING"):
        streams.theirs.run()


def hop(spark, kind, source, target, checkpoint, *, mode="append", change=None, **options):
    """Write a table's new rows into another one with Delvec."""

    def start():
        frame = spark.readStream.format(kind).options(**options).load(str(source))
        frame = frame if change is None else change(frame)
        writer = frame.writeStream.format("delvec").outputMode(mode).trigger(availableNow=True)
        return writer.option("checkpointLocation", str(checkpoint)).start(str(target))

    return finish(start)


def test_a_chain_of_streams_has_every_row_once(scene, agreed, tmp_path):
    """delta-spark reads a Delta table into Delvec's sink, whose table Delvec reads into the next one."""
    scene.create()
    spark, first, second = scene.spark, tmp_path / "first", tmp_path / "second"

    def go_on():
        hop(spark, "delta", scene.location, first, tmp_path / "one", skipChangeCommits="true")
        hop(spark, "delvec", first, second, tmp_path / "two")
        hop(spark, "delta", first, tmp_path / "third", tmp_path / "three")

    go_on()
    scene.append(100, 110)
    scene.sql("DELETE FROM $t WHERE id = 0")
    scene.append(200, 201)
    go_on()
    go_on()
    expected = sorted([*range(20), *range(100, 110), 200])
    whole = sorted(
        scene.rows(0, 20).union(scene.rows(100, 110)).union(scene.rows(200, 201)).toArrow().to_pylist(),
        key=repr,
    )
    for place in (first, second, tmp_path / "third"):
        rows = agreed(place)
        assert sorted(row["id"] for row in rows) == expected
        assert rows == whole
    history = spark.sql(f"DESCRIBE HISTORY delta.`{second}`").collect()
    assert [row.operation for row in history] == ["STREAMING UPDATE", "STREAMING UPDATE"]


def test_counts_that_are_replaced_with_each_batch(scene, agreed, tmp_path):
    scene.create()
    target = tmp_path / "counts"

    def counted(frame):
        return frame.groupBy("part").count()

    for start in (100, 200):
        hop(scene.spark, "delta", scene.location, target, tmp_path / "c", mode="complete", change=counted)
        scene.append(start, start + 3)
    hop(scene.spark, "delta", scene.location, target, tmp_path / "c", mode="complete", change=counted)
    found = {row["part"]: row["count"] for row in agreed(target)}
    rows = scene.spark.read.format("delta").load(str(scene.location)).groupBy("part").count().collect()
    assert found == {row["part"]: row["count"] for row in rows}


def test_delta_spark_and_delvec_write_streams_into_one_table(scene, agreed, tmp_path):
    scene.create()
    target = tmp_path / "both"

    def by_delta_spark():
        frame = scene.spark.readStream.format("delvec").load(str(scene.location))
        writer = frame.writeStream.format("delta").trigger(availableNow=True)
        return writer.option("checkpointLocation", str(tmp_path / "theirs")).start(str(target))

    for start in (100, 200):
        finish(by_delta_spark)
        hop(scene.spark, "delvec", scene.location, target, tmp_path / "ours")
        scene.append(start, start + 2)
    ids = sorted(row["id"] for row in agreed(target))
    assert ids == sorted([*range(20), 100, 101] * 2)
