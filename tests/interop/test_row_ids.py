"""Row ids and dropped features compared with delta-spark: both read the same ids, and leave the same table."""

import json

import pytest
from tests.integration.engines.test_row_ids import ids

pytestmark = [
    pytest.mark.jars,
    pytest.mark.spark,
    pytest.mark.full_on_spark(
        "delta-spark takes seconds for each; the gate has both ways of reading and writing, and a race"
    ),
]


def theirs(spark, location):
    """Return (row id, row commit version) by key, as delta-spark reads them."""
    frame = spark.read.format("delta").load(str(location))
    rows = frame.select("id", "_metadata.row_id", "_metadata.row_commit_version").collect()
    return {row.id: (row.row_id, row.row_commit_version) for row in rows}


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_both_read_ids_kept_by_the_other(lake, delta_spark, tmp_path, vectors):
    location = tmp_path / "t"
    delta_spark.sql(
        f"CREATE TABLE delta.`{location}` (id bigint, name string) USING delta "
        f"TBLPROPERTIES ('delta.enableDeletionVectors' = '{vectors}')"
    )
    delta_spark.sql(f"INSERT INTO delta.`{location}` SELECT id, 'x' FROM range(20)")
    table = lake.table(str(location))

    table.alter.set_properties({"delta.enableRowTracking": "true"})
    before = ids(table)
    assert before == theirs(delta_spark, location)

    table.update({"name": "'y'"}, "id IN (3, 4)")
    table.delete("id < 3")
    source = [{"id": i, "name": "z"} for i in (4, 5, 50)]
    merge = table.merge(source, "source.id = target.id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    kept = ids(table)
    assert kept == theirs(delta_spark, location)
    # Which file got which ids is not guaranteed.
    assert [kept[key][0] for key in (3, 4, 5)] == [before[key][0] for key in (3, 4, 5)]

    delta_spark.sql(f"UPDATE delta.`{location}` SET name = 'w' WHERE id IN (5, 6)")
    delta_spark.sql(f"DELETE FROM delta.`{location}` WHERE id = 7")
    after = ids(table)
    assert after == theirs(delta_spark, location)
    assert {key: found[0] for key, found in after.items()} == {
        key: found[0] for key, found in kept.items() if key != 7
    }
    assert table.check()["num-errors"] == 0


FEATURES = {
    "deletionVectors": "'delta.enableDeletionVectors' = 'true'",
    "v2Checkpoint": "'delta.checkpointPolicy' = 'v2'",
    "checkConstraints": "'delta.feature.checkConstraints' = 'supported'",
    "inCommitTimestamp": "'delta.enableInCommitTimestamps' = 'true'",
    "rowTracking": "'delta.enableRowTracking' = 'true'",
}


@pytest.mark.parametrize("feature", FEATURES)
def test_a_dropped_feature_leaves_the_table_that_delta_spark_leaves(lake, delta_spark, tmp_path, feature):
    ends = []
    for name in ("theirs", "ours"):
        location = tmp_path / name
        delta_spark.sql(
            f"CREATE TABLE delta.`{location}` (id bigint) USING delta TBLPROPERTIES ({FEATURES[feature]})"
        )
        delta_spark.sql(f"INSERT INTO delta.`{location}` SELECT id FROM range(3)")
        if name == "ours":
            lake.table(str(location)).alter.drop_feature(feature)
        else:
            delta_spark.sql(f"ALTER TABLE delta.`{location}` DROP FEATURE {feature}")
        delta_spark.sql(f"INSERT INTO delta.`{location}` VALUES (9)")
        table = lake.table(str(location))
        assert table.to_arrow().num_rows == 4
        snapshot = table.snapshot()
        # delta-spark sets some properties to false that Delvec removes.
        configuration = {name: value for name, value in snapshot.configuration.items() if value != "false"}
        protected = int(configuration.pop("delta.requireCheckpointProtectionBeforeVersion", "-1"))
        assert protected in (-1, snapshot.version - 1)
        protocol = json.loads(json.dumps(snapshot.protocol))
        ends.append(
            (configuration, protocol | {"writerFeatures": sorted(protocol.get("writerFeatures") or ())})
        )
    assert ends[0] == ends[1]
