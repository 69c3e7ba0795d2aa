"""Tables created by Delvec with properties of every kind: as delta-spark creates them, and readable by it."""

import json

import pytest

from delvec.spark import DeltaTable, use

pytestmark = [
    pytest.mark.spark,
    pytest.mark.jars,
    pytest.mark.full_on_spark(
        "delta-spark takes seconds for each; the gate has both ways of reading and writing, and a race"
    ),
]

COLUMNS = "id BIGINT, `name` STRING, place STRUCT<city: STRING, zip: INT>"
DEFINITIONS = {
    "names": {"delta.columnMapping.mode": "name"},
    "ids": {"delta.columnMapping.mode": "id"},
    "names and a feed": {"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": "true"},
    "row ids": {"delta.enableRowTracking": "true"},
    "wider types": {"delta.enableTypeWidening": "true"},
    "v2": {"delta.checkpointPolicy": "v2"},
    "timestamps": {"delta.enableInCommitTimestamps": "true"},
    "a feature": {"delta.feature.vacuumProtocolCheck": "supported"},
    "no vectors": {"delta.enableDeletionVectors": "false", "delta.columnMapping.mode": "name"},
}
WITHOUT_TWIN = {
    "delta.rowTracking.materializedRowIdColumnName",
    "delta.rowTracking.materializedRowCommitVersionColumnName",
}


def protocol_and_metadata(folder, version=0):
    lines = (folder / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    actions = {}
    for line in lines:
        actions.update(json.loads(line))
    protocol = actions.get("protocol")
    return protocol, actions["metaData"], actions


def features(protocol):
    return set(protocol.get("writerFeatures") or ()), set(protocol.get("readerFeatures") or ())


@pytest.mark.parametrize("properties", DEFINITIONS.values(), ids=DEFINITIONS)
def test_a_new_table_is_as_delta_spark_creates_it(lake, delta_spark, tmp_path, agreed_by_spark, properties):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    wanted = {"delta.enableDeletionVectors": "true", **properties}
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in wanted.items())
    delta_spark.sql(f"CREATE TABLE delta.`{theirs}` ({COLUMNS}) USING delta TBLPROPERTIES ({listed})")
    table = lake.create_table(
        ours, "id long, name string, place struct<city: string, zip: int>", properties=properties
    )

    (protocol, metadata, _), (expected, twin, _) = protocol_and_metadata(ours), protocol_and_metadata(theirs)

    assert features(protocol) == features(expected)
    assert (protocol["minReaderVersion"], protocol["minWriterVersion"]) == (
        expected["minReaderVersion"],
        expected["minWriterVersion"],
    )
    for name in WITHOUT_TWIN:
        assert (name in metadata["configuration"]) == (name in twin["configuration"])
    mine = {key: value for key, value in metadata["configuration"].items() if key not in WITHOUT_TWIN}
    assert mine == {key: value for key, value in twin["configuration"].items() if key not in WITHOUT_TWIN}
    table.append([{"id": n, "name": f"n{n}", "place": {"city": "Rome", "zip": n}} for n in range(5)])
    table.delete("id = 1")
    delta_spark.sql(
        f"INSERT INTO delta.`{ours}` VALUES (9, 'theirs', named_struct('city', 'Oslo', 'zip', 1))"
    )
    delta_spark.sql(f"UPDATE delta.`{ours}` SET name = 'x' WHERE id = 2")
    table.update({"name": "'y'"}, "id = 3")
    rows = agreed_by_spark(ours)
    assert [(row["id"], row["name"], row["place"]["zip"]) for row in rows] == [
        (0, "n0", 0),
        (2, "x", 2),
        (3, "y", 3),
        (4, "n4", 4),
        (9, "theirs", 1),
    ]


@pytest.fixture
def agreed_by_spark(lake, delta_spark):
    """Return a function from a folder to the table's rows, on which delta-spark and Delvec must agree."""

    def rows(folder):
        theirs = delta_spark.read.format("delta").load(str(folder)).toArrow().to_pylist()
        ours = lake.table(folder).to_arrow().to_pylist()
        assert sorted(theirs, key=repr) == sorted(ours, key=repr)
        return sorted(ours, key=repr)

    return rows


def test_constraints_and_clustering_of_a_new_table(lake, delta_spark, tmp_path):
    folder = tmp_path / "t"
    table = lake.create_table(
        folder,
        "id long, name string",
        properties={"delta.constraints.positive": "id > 0", "delta.columnMapping.mode": "name"},
        cluster_by=["name"],
    )
    table.append([{"id": 1, "name": "a"}])
    with pytest.raises(Exception, match="positive"):
        delta_spark.sql(f"INSERT INTO delta.`{folder}` VALUES (-1, 'b')")
    detail = delta_spark.sql(f"DESCRIBE DETAIL delta.`{folder}`").first()
    assert detail.clusteringColumns == ["name"]
    delta_spark.sql(f"INSERT INTO delta.`{folder}` VALUES (2, 'b')")
    delta_spark.sql(f"OPTIMIZE delta.`{folder}`")
    assert table.count() == 2


REPLACEMENTS = {
    "columns": (
        lambda builder: builder.addColumn("name", "string", comment="who").addColumn(
            "id", "int", nullable=False
        ),
        "(name STRING COMMENT 'who', id INT NOT NULL) USING delta",
    ),
    "partitions": (
        lambda builder: builder.addColumn("id", "long").addColumn("day", "date").partitionedBy("day"),
        "(id BIGINT, day DATE) USING delta PARTITIONED BY (day)",
    ),
    "clusters": (
        lambda builder: builder.addColumn("id", "long").addColumn("k", "int").clusterBy("k"),
        "(id BIGINT, k INT) USING delta CLUSTER BY (k)",
    ),
    "a mapping": (
        lambda builder: builder.addColumn("id", "long").property("delta.columnMapping.mode", "name"),
        "(id BIGINT) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    ),
    "a feed": (
        lambda builder: (
            builder.addColumn("id", "long")
            .property("delta.enableChangeDataFeed", "true")
            .property("team", "red")
            .comment("new")
        ),
        "(id BIGINT) USING delta COMMENT 'new' TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', 'team' = 'red')",
    ),
    "a computed column": (
        lambda builder: builder.addColumn("id", "long").addColumn(
            "twice", "long", generatedAlwaysAs="id * 2"
        ),
        "(id BIGINT, twice BIGINT GENERATED ALWAYS AS (id * 2)) USING delta",
    ),
}


@pytest.mark.parametrize("begin", ["replace", "createOrReplace"])
@pytest.mark.parametrize(("define", "statement"), REPLACEMENTS.values(), ids=REPLACEMENTS)
def test_a_replaced_table_is_as_delta_spark_replaces_it(
    lake, delta_spark, tmp_path, agreed_by_spark, define, statement, begin
):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        delta_spark.sql(
            f"CREATE TABLE delta.`{folder}` (id BIGINT, country STRING) USING delta PARTITIONED BY (country) "
            "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name', 'mine' = 'x')"
        )
        delta_spark.sql(f"INSERT INTO delta.`{folder}` VALUES (1, 'NZ'), (2, 'NZ'), (3, NULL)")
        delta_spark.sql(f"DELETE FROM delta.`{folder}` WHERE id = 2")
    use(lake)
    define(getattr(DeltaTable, begin)(delta_spark).location(str(ours))).execute()
    # Its CREATE OR REPLACE of a path without a catalog entry requires the existing definition.
    delta_spark.sql(f"REPLACE TABLE delta.`{theirs}` {statement}")

    found, expected = (protocol_and_metadata(folder, 3) for folder in (ours, theirs))
    newest = [delta_spark.sql(f"DESCRIBE DETAIL delta.`{folder}`").first() for folder in (ours, theirs)]
    for fact in (
        "description",
        "partitionColumns",
        "clusteringColumns",
        "minReaderVersion",
        "minWriterVersion",
    ):
        assert newest[0][fact] == newest[1][fact], fact
    assert set(newest[0].tableFeatures) == set(newest[1].tableFeatures)
    assert _plain(newest[0].properties) == _plain(newest[1].properties)
    schemas = [delta_spark.read.format("delta").load(str(folder)).schema for folder in (ours, theirs)]
    assert schemas[0].simpleString() == schemas[1].simpleString()
    assert [field.nullable for field in schemas[0]] == [field.nullable for field in schemas[1]]
    if begin == "replace":
        assert found[2]["commitInfo"]["operation"] == expected[2]["commitInfo"]["operation"]
    assert found[1]["id"] == protocol_and_metadata(ours, 0)[1]["id"]
    assert agreed_by_spark(ours) == []
    if schemas[0].names[0] == "id":
        for folder in (ours, theirs):
            delta_spark.sql(f"INSERT INTO delta.`{folder}` (id) VALUES (7)")
    assert agreed_by_spark(ours) == agreed_by_spark(theirs)


def _plain(properties):
    """Return the properties without values that differ from table to table."""
    return {name: value for name, value in properties.items() if "maxColumnId" not in name}
