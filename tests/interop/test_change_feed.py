"""The change data feed: of delta-spark's tables, row for row as delta-spark reads it; of Delvec's, read by delta-spark."""

import pyarrow as pa
import pytest

from delvec_engines.change_files import ChangeFileWriter
from delvec_engines.parquet_writer import write_data_files
from delvec_engines.protocol import WriteTarget

pytestmark = [
    pytest.mark.jars,
    pytest.mark.spark,
    pytest.mark.full_on_spark(
        "delta-spark takes seconds for each; the gate has both ways of reading and writing, and a race"
    ),
]

FEED = {"delta.enableChangeDataFeed": "true"}


class Scene:
    """A table that delta-spark changes, and its feed as each reader returns it."""

    def __init__(self, lake, delta_spark, location):
        self.lake, self.spark, self.location = lake, delta_spark, location
        self.name = f"delta.`{location}`"

    def create(self, *, vectors=True, partition_by=(), **properties):
        properties = {**FEED, "delta.enableDeletionVectors": str(vectors).lower(), **properties}
        self.rows(0, 20).write.format("delta").options(**properties).partitionBy(*partition_by).save(
            str(self.location)
        )

    def rows(self, start, end):
        return self.spark.range(start, end, 1, 1).selectExpr(
            "id", "concat('name ', id) as name", "id % 2 as part", "timestamp_micros(id * 1000001) as at"
        )

    def sql(self, text):
        return self.spark.sql(text.replace("$t", self.name)).collect()

    def theirs(self, start=0, end=None):
        reader = (
            self.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", start)
        )
        reader = reader if end is None else reader.option("endingVersion", end)
        return plain(reader.load(str(self.location)).toArrow())

    def ours(self, start=0, end=None, engine="duckdb", **options):
        return plain(self.lake.table(str(self.location), engine=engine).changes(start, end, **options))

    def check(self, start=0, end=None, *, engines=("duckdb", "spark")):
        expected = self.theirs(start, end)
        for engine in engines:
            found = self.ours(start, end, self.spark if engine == "spark" else engine)
            assert found == expected, engine
        return expected


def plain(table):
    """Return the columns, and the rows as sorted tuples."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.columns
    ]
    return table.column_names, sorted(zip(*(column.to_pylist() for column in columns), strict=True), key=repr)


@pytest.fixture
def scene(lake, delta_spark, tmp_path):
    return Scene(lake, delta_spark, tmp_path / "table")


def change_everything(scene):
    """Versions 1 to 7: two deletes in one file, an update, a merge, an overwrite, a RESTORE, another column."""
    scene.sql("DELETE FROM $t WHERE id IN (3, 4)")
    scene.sql("DELETE FROM $t WHERE id IN (5, 8)")
    scene.sql("UPDATE $t SET name = 'new' WHERE id < 3")
    scene.sql(
        "MERGE INTO $t AS t USING (SELECT explode(array(0L, 1L, 4L, 9L, 50L)) AS id) AS s ON t.id = s.id "
        "WHEN MATCHED AND t.id = 9 THEN DELETE WHEN MATCHED THEN UPDATE SET name = 'merged' "
        "WHEN NOT MATCHED THEN INSERT (id, name, part, at) VALUES (s.id, 'merged', s.id % 2, NULL)"
    )
    scene.rows(100, 103).write.format("delta").mode("overwrite").save(str(scene.location))
    scene.sql("RESTORE TABLE $t TO VERSION AS OF 1")
    scene.sql("ALTER TABLE $t ADD COLUMNS (extra string)")
    scene.sql("INSERT INTO $t VALUES (200, 'x', 0, NULL, 'more')")


@pytest.mark.full("every kind of change once more: minutes on Spark")
def test_every_change_of_delta_spark_with_deletion_vectors(scene):
    scene.create()
    change_everything(scene)
    names, rows = scene.check()
    assert names[-4:] == ["extra", "_change_type", "_commit_version", "_commit_timestamp"]
    assert len(rows) > 60
    scene.check(1, 2, engines=["duckdb"])  # computed only from the differences between deletion vectors


def test_delta_spark_reads_the_feed_of_what_delvec_wrote(scene):
    """Committed without the client: deletes by vector, a whole file, and an update with change files."""
    scene.create()
    table = scene.lake.table(str(scene.location))
    table.delete("id IN (3, 4)")
    table.delete("id IN (5, 8)")
    update(table, "id < 3", "new")
    table.append(pa.table({"id": [300], "name": ["appended"]}))
    table.delete("id < 100")
    names, rows = scene.check(engines=["duckdb"])
    kinds = [row[names.index("_change_type")] for row in rows]
    counts = {kind: kinds.count(kind) for kind in set(kinds)}
    assert counts == {"insert": 21, "delete": 20, "update_preimage": 3, "update_postimage": 3}


def update(table, where, name):
    """Set a name with the engine's parts: find rows, write new rows and both images, commit once."""
    with table.transaction("UPDATE", predicate=where) as change:
        scan, predicate = table.plan(predicate=where, version=change.read_version)
        target = WriteTarget(
            scan.location, scan.schema, scan.partition_columns, scan.configuration, change.transaction_id
        )
        before = table.engine.read(scan, None, predicate)
        names = pa.array([name] * before.num_rows)
        after = before.set_column(1, "name", names)
        with ChangeFileWriter(target) as writer:
            for kind, rows in (("update_preimage", before), ("update_postimage", after)):
                kinds = pa.array([kind] * rows.num_rows)
                for batch in rows.append_column("_change_type", kinds).to_batches():
                    writer.write(batch)
            files = writer.finish()
        change.delete_rows(table.engine.find_rows(scan, predicate))
        change.add(write_data_files(after.to_batches(), target))
        change.add_change_files(files)
