"""Repaired delta-spark tables: delta-spark then reads the right rows and can write, and its feed shows no change."""

import pytest
from tests.support.damaged_logs import adds, foreign, marking, newest, only_add, removing, vector_file

pytestmark = [
    pytest.mark.jars,
    pytest.mark.spark,
    pytest.mark.full_on_spark(
        "delta-spark takes seconds for each; the gate has both ways of reading and writing, and a race"
    ),
]

PROPERTIES = "'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true'"


@pytest.fixture
def table(lake, delta_spark, tmp_path):
    """Ids 3 to 9, in one file with a deletion vector, written by delta-spark."""
    where = tmp_path / "t"
    delta_spark.sql(
        f"CREATE TABLE delta.`{where}` (id bigint, v string) USING delta TBLPROPERTIES ({PROPERTIES})"
    )
    delta_spark.sql(f"INSERT INTO delta.`{where}` SELECT /*+ COALESCE(1) */ id, 'a' FROM range(10)")
    delta_spark.sql(f"DELETE FROM delta.`{where}` WHERE id < 3")
    return lake.table(str(where))


def by_delta_spark(delta_spark, table):
    return sorted(row.id for row in delta_spark.read.format("delta").load(table.location).collect())


def remove_without_vector(table):
    foreign(table, "DELETE", removing(only_add(table)))
    return []


def live_twice(table):
    foreign(table, "DELETE", marking(only_add(table), [0, 1, 2, 9]))
    return range(3, 9)


def two_deletes(table):
    old = only_add(table)
    before = {name: value for name, value in old.items() if name != "deletionVector"}
    foreign(table, "DELETE", removing(before), marking(old, [7, 8]), read_version=1)
    return [3, 4, 5, 6, 9]


@pytest.mark.parametrize("damage", [remove_without_vector, live_twice, two_deletes])
def test_delta_spark_reads_and_writes_a_repaired_table(delta_spark, table, damage):
    right = list(damage(table))
    damaged = newest(table)
    assert by_delta_spark(delta_spark, table) != right

    done = table.repair()

    assert done["unrepaired"] == []
    assert by_delta_spark(delta_spark, table) == right
    feed = delta_spark.read.format("delta").option("readChangeFeed", "true")
    assert feed.option("startingVersion", damaged + 1).load(table.location).count() == 0
    delta_spark.sql(f"DELETE FROM delta.`{table.location}` WHERE id = 4")
    left = [each for each in right if each != 4]
    assert by_delta_spark(delta_spark, table) == left
    assert sorted(table.to_arrow()["id"].to_pylist()) == left
    assert table.check()["num-errors"] == 0


def test_a_lost_vector_is_rebuilt_from_delta_sparks_change_feed(delta_spark, table):
    delta_spark.sql(f"UPDATE delta.`{table.location}` SET v = 'b' WHERE id > 7")
    (marked,) = [add for add in adds(table).values() if "deletionVector" in add]
    vector_file(table, marked).unlink()

    done = table.repair()

    assert [each["action"] for each in done["repaired"]] == ["rewrite-deletion-vector"]
    assert by_delta_spark(delta_spark, table) == list(range(3, 10))
    assert table.check()["num-errors"] == 0
