"""ALTER TABLE compared with delta-spark's: the same change leaves the same metadata, protocol and history."""

import json
import re

import pytest

import delvec

pytestmark = [
    pytest.mark.jars,
    pytest.mark.spark,
    pytest.mark.full_on_spark(
        "delta-spark takes seconds for each; the gate has both ways of reading and writing, and a race"
    ),
]

COLUMNS = (
    "id bigint, name string, home struct<city: string, zip: int>, tags array<int>, born date, country string"
)
ROWS = (
    "SELECT id, concat('n', id) AS name, named_struct('city', 'c', 'zip', cast(id AS int)) AS home, "
    "array(cast(id AS int)) AS tags, date'2020-01-01' AS born, if(id < 5, 'NZ', 'DE') AS country FROM range(10)"
)
MAPPED = "'delta.columnMapping.mode' = 'name'"
MAPPED_OLD = f"{MAPPED}, 'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5'"
WIDENING = "'delta.enableTypeWidening' = 'true'"
DVS = "'delta.enableDeletionVectors' = 'true'"
OLD = "'delta.enableDeletionVectors' = 'false'"


def add_with_places(alter):
    first = {"name": "a", "type": "integer", "nullable": True, "metadata": {"comment": "first one"}}
    with alter.together() as together:
        together.add_columns({"type": "struct", "fields": [first]}, first=True)
        together.add_columns("b string", after="id")
        together.add_columns("street string", into="home", after="city")


CASES = {
    "add a column": (OLD, "ADD COLUMNS (age int)", lambda alter: alter.add_columns("age int")),
    "add columns with places and comments": (
        DVS,
        "ADD COLUMNS (a int COMMENT 'first one' FIRST, b string AFTER id, home.street string AFTER city)",
        add_with_places,
    ),
    "add a column to a mapped table": (
        MAPPED,
        "ADD COLUMNS (address struct<x: int, y: array<struct<z: string>>>)",
        lambda alter: alter.add_columns("address struct<x: int, y: array<struct<z: string>>>"),
    ),
    "map columns": (
        DVS,
        f"SET TBLPROPERTIES ({MAPPED})",
        lambda alter: alter.set_properties({"delta.columnMapping.mode": "name"}),
    ),
    "map columns of an old table": (
        OLD,
        f"SET TBLPROPERTIES ({MAPPED})",
        lambda alter: alter.set_properties({"delta.columnMapping.mode": "name"}),
    ),
    "rename a column": (
        MAPPED,
        "RENAME COLUMN name TO `full name`",
        lambda alter: alter.rename_column("name", "full name"),
    ),
    "rename a partition column": (
        MAPPED_OLD,
        "RENAME COLUMN country TO land",
        lambda alter: alter.rename_column("country", "land"),
    ),
    "rename a nested field": (
        MAPPED,
        "RENAME COLUMN home.zip TO code",
        lambda alter: alter.rename_column("home.zip", "code"),
    ),
    "drop columns": (
        MAPPED,
        "DROP COLUMNS (name, home.city)",
        lambda alter: alter.drop_columns(["name", "home.city"]),
    ),
    "allow wider types": (
        OLD,
        f"SET TBLPROPERTIES ({WIDENING})",
        lambda alter: alter.set_properties({"delta.enableTypeWidening": "true"}),
    ),
    "widen a nested type": (
        WIDENING,
        "ALTER COLUMN home.zip TYPE bigint",
        lambda alter: alter.change_type("home.zip", "bigint"),
    ),
    "widen an element": (
        WIDENING,
        "ALTER COLUMN tags.element TYPE decimal(12, 2)",
        lambda alter: alter.change_type("tags.element", "decimal(12,2)"),
    ),
    "comment a column": (
        OLD,
        "ALTER COLUMN name COMMENT 'who it is'",
        lambda alter: alter.comment_column("name", "who it is"),
    ),
    "move a column": (
        OLD,
        "ALTER COLUMN born AFTER id",
        lambda alter: alter.move_column("born", after="id"),
    ),
    "move a column to the front": (
        OLD,
        "ALTER COLUMN name FIRST",
        lambda alter: alter.move_column("name", first=True),
    ),
    "enable deletion vectors": (
        OLD,
        f"SET TBLPROPERTIES ({DVS})",
        lambda alter: alter.enable_deletion_vectors(),
    ),
    "enable deletion vectors on a mapped table": (
        MAPPED_OLD,
        f"SET TBLPROPERTIES ({DVS})",
        lambda alter: alter.enable_deletion_vectors(),
    ),
    "change data feed": (
        OLD,
        "SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', 'team' = 'red')",
        lambda alter: alter.set_properties({"delta.enableChangeDataFeed": "true", "team": "red"}),
    ),
    "V2 checkpoints": (
        DVS,
        "SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')",
        lambda alter: alter.set_properties({"delta.checkpointPolicy": "v2"}),
    ),
    "in-commit timestamps": (
        OLD,
        "SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
        lambda alter: alter.set_properties({"delta.enableInCommitTimestamps": "true"}),
    ),
    "unset a property": (
        "'team' = 'red', 'delta.appendOnly' = 'false'",
        "UNSET TBLPROPERTIES ('team', 'delta.appendOnly')",
        lambda alter: alter.unset_properties(["team", "delta.appendOnly"], if_exists=True),
    ),
    "add a constraint": (
        OLD,
        "ADD CONSTRAINT Young CHECK (id < 100)",
        lambda alter: alter.add_constraint("Young", "id < 100"),
    ),
    "comment the table": (
        OLD,
        "SET TBLPROPERTIES ('comment' = 'all of them')",
        lambda alter: alter.comment("all of them"),
    ),
}


def create(spark, location, properties, partitioned=True):
    partition = "PARTITIONED BY (country)" if partitioned else ""
    spark.sql(
        f"CREATE TABLE delta.`{location}` ({COLUMNS}) USING delta {partition} TBLPROPERTIES ({properties})"
    )


def fill(spark, location):
    spark.sql(f"INSERT INTO delta.`{location}` {ROWS}")


def changed(location, version=1):
    """Return a version's protocol, metadata and history, with random values made equal."""
    path = location / "_delta_log" / f"{version:020}.json"
    actions = {}
    for line in path.read_text().splitlines():
        (name,) = found = json.loads(line)
        actions[name] = found[name]
    info, metadata, protocol = (actions.get(name) for name in ("commitInfo", "metaData", "protocol"))
    if protocol is not None:
        for name in ("readerFeatures", "writerFeatures"):
            protocol[name] = sorted(protocol.get(name) or ())
    if metadata is not None:
        schema = re.sub(r"col-[0-9a-f-]{36}", "col-?", metadata["schemaString"])
        metadata = {
            "schema": json.loads(schema),
            "partitionColumns": metadata["partitionColumns"],
            "configuration": dict(metadata["configuration"]),
            "description": metadata.get("description"),
        }
        stamp = metadata["configuration"].pop("delta.inCommitTimestampEnablementTimestamp", None)
        assert stamp is None or int(stamp) == info["inCommitTimestamp"]
    parameters = {name: _read(value) for name, value in info["operationParameters"].items()}
    return {
        "protocol": protocol,
        "metadata": metadata,
        "domains": _read((actions.get("domainMetadata") or {}).get("configuration")),
        "operation": info["operation"],
        "parameters": parameters,
    }


def _read(value):
    try:
        return json.loads(value)
    except (TypeError, ValueError):
        return value


@pytest.mark.parametrize("case", CASES)
def test_the_same_change_leaves_the_same_table(lake, delta_spark, tmp_path, case):
    properties, sql, change = CASES[case]
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for location in (theirs, ours):
        create(delta_spark, location, properties)

    delta_spark.sql(f"ALTER TABLE delta.`{theirs}` {sql}")
    change(lake.table(str(ours)).alter)

    assert changed(ours) == changed(theirs)
    schemas = [delta_spark.read.format("delta").load(str(location)).schema for location in (ours, theirs)]
    assert schemas[0] == schemas[1]


def test_a_feature_is_added_as_delta_spark_does(lake, delta_spark, tmp_path):
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for location in (theirs, ours):
        create(delta_spark, location, OLD)

    delta_spark.sql(
        f"ALTER TABLE delta.`{theirs}` SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')"
    )
    lake.table(str(ours)).alter.add_feature("timestampNtz")

    # delta-spark also writes the metadata again, unchanged, and the name of the property in lower case.
    assert changed(ours)["protocol"] == changed(theirs)["protocol"]
    assert changed(ours)["operation"] == changed(theirs)["operation"]
    delta_spark.sql(f"ALTER TABLE delta.`{ours}` ADD COLUMNS (seen timestamp_ntz)")


def tombstones(location):
    """Return the removes of deletion vector tombstone commits, and the operations of all versions."""
    found, operations = [], []
    for path in sorted((location / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        (operation,) = (each["commitInfo"]["operation"] for each in actions if "commitInfo" in each)
        operations.append(operation)
        if operation == "Deletion Vector Tombstones":
            found += [each["remove"] for each in actions if "remove" in each]
    return found, operations


def test_deletion_vectors_leave_the_same_tombstones_as_delta_sparks(lake, delta_spark, tmp_path):
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    left = {}
    for location in (theirs, ours):
        create(delta_spark, location, DVS, partitioned=False)
        fill(delta_spark, location)
        delta_spark.sql(f"DELETE FROM delta.`{location}` WHERE id = 3")
        delta_spark.sql(f"DELETE FROM delta.`{location}` WHERE id = 4")
        rows = "SELECT id + 10 AS id, name, home, tags, born, country"
        delta_spark.sql(f"INSERT OVERWRITE delta.`{location}` {rows} FROM delta.`{location}`")

    delta_spark.sql(f"ALTER TABLE delta.`{theirs}` DROP FEATURE deletionVectors")
    lake.table(str(ours)).alter.drop_feature("deletionVectors")

    for location in (theirs, ours):
        removed, operations = tombstones(location)
        files = {path.name for path in location.glob("deletion_vector_*.bin")}
        assert files
        assert {each["path"] for each in removed} == files
        assert all(each["dataChange"] is False and each["deletionTimestamp"] for each in removed)
        left[location] = [{name for name, value in each.items() if value is not None} for each in removed]
        assert operations[-1] == "DROP FEATURE"
        old = delta_spark.read.format("delta").option("versionAsOf", 3).load(str(location))
        assert sorted(row.id for row in old.collect()) == [0, 1, 2, 5, 6, 7, 8, 9]
    assert left[ours] == left[theirs]


def test_clustering_columns_are_written_as_delta_spark_does(lake, delta_spark, tmp_path):
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for location in (theirs, ours):
        create(delta_spark, location, OLD, partitioned=False)

    delta_spark.sql(f"ALTER TABLE delta.`{theirs}` CLUSTER BY (id, home.zip)")
    lake.table(str(ours)).alter.cluster_by(["id", "home.zip"])

    assert {**changed(ours), "metadata": None} == {**changed(theirs), "metadata": None}
    detail = delta_spark.sql(f"DESCRIBE DETAIL delta.`{ours}`").first()
    assert detail.clusteringColumns == ["id", "home.zip"]
    lake.table(str(ours)).append(lake.table(str(ours)).to_arrow())


def test_a_mapped_table_is_appended_to_and_deleted_from_by_both(lake, delta_spark, engine, tmp_path):
    location = tmp_path / "table"
    create(delta_spark, location, DVS)
    fill(delta_spark, location)
    table = lake.table(str(location), engine=engine)
    with table.alter.together() as alter:
        alter.set_properties({"delta.columnMapping.mode": "name"})
        alter.rename_column("name", "full name")
        alter.rename_column("country", "land")
        alter.rename_column("home.zip", "code")
        alter.drop_columns(["born", "home.city"])
        alter.add_columns("born int")

    table.append(table.to_arrow().slice(0, 4))
    table.delete("`full name` = 'n2'")
    delta_spark.sql(f"DELETE FROM delta.`{location}` WHERE home.code = 3")
    table.delete("land = 'DE' AND id = 7")
    delta_spark.sql(f"INSERT INTO delta.`{location}` SELECT * FROM delta.`{location}` WHERE id = 1")

    rows = delta_spark.read.format("delta").load(str(location)).collect()
    spark = [row.asDict(recursive=True) for row in rows]
    for reader in ("duckdb", delta_spark):
        found = lake.table(str(location), engine=reader).to_arrow().to_pylist()
        assert sorted(found, key=repr) == sorted(spark, key=repr)
    assert sorted({row["id"] for row in spark}) == [0, 1, 4, 5, 6, 8, 9]


def test_the_engine_counts_rows_that_violate_a_constraint(lake, delta_spark, engine, tmp_path):
    location = tmp_path / "table"
    create(delta_spark, location, DVS)
    fill(delta_spark, location)
    table = lake.table(str(location), engine=engine)

    with pytest.raises(delvec.ConstraintViolation, match="1 row of table"):
        table.alter.add_constraint("not_seven", "name <> 'n7'")
    table.delete("id = 7")
    table.alter.add_constraint("not_seven", "name <> 'n7'")
    table.alter.set_not_null("name")

    with pytest.raises(Exception, match="not_seven"):
        delta_spark.sql(f"INSERT INTO delta.`{location}` (id, name) VALUES (7, 'n7')")
    with pytest.raises(Exception, match="name"):
        delta_spark.sql(f"INSERT INTO delta.`{location}` (id, name) VALUES (7, NULL)")


@pytest.mark.parametrize(
    ("numbers", "given"),
    [
        ("START WITH 1 INCREMENT BY 1", "7, 3"),
        ("START WITH 10 INCREMENT BY 3", "14, 11"),
        ("START WITH 10 INCREMENT BY 3", "5"),
        ("START WITH -1 INCREMENT BY -2", "-8, 30"),
    ],
)
def test_an_identity_column_is_synced_as_delta_spark_does(
    lake, delta_spark, engine, tmp_path, numbers, given
):
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for location in (theirs, ours):
        column = f"id bigint GENERATED BY DEFAULT AS IDENTITY ({numbers})"
        builder = f"CREATE TABLE delta.`{location}` ({column}, name string) USING delta TBLPROPERTIES ({DVS})"
        delta_spark.sql(builder)
        values = ", ".join(f"({number}, 'given')" for number in given.split(", "))
        delta_spark.sql(f"INSERT INTO delta.`{location}` VALUES {values}")

    delta_spark.sql(f"ALTER TABLE delta.`{theirs}` ALTER COLUMN id SYNC IDENTITY")
    table = lake.table(str(ours), engine=engine)
    done = table.alter.sync_identity("id")

    if done.version is not None:  # otherwise delta-spark commits a version that changes nothing
        assert changed(ours, 2) == changed(theirs, 2)
    for location in (theirs, ours):
        delta_spark.sql(f"INSERT INTO delta.`{location}` (name) VALUES ('next')")
    rows = [
        delta_spark.sql(f"SELECT id FROM delta.`{location}` WHERE name = 'next'").first().id
        for location in (theirs, ours)
    ]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_delta_spark_works_with_ids_of_elements_keys_and_values(lake, delta_spark, tmp_path, mode):
    """Tables that are converted to Iceberg have them, and delta-spark keeps them only for ``icebergCompatV2``."""
    location = tmp_path / "table"
    properties = {"delta.columnMapping.mode": mode, "delvec.iceberg.formatVersions": "2"}
    columns = "id long, tags array<int>, m map<string, array<string>>, s struct<l: array<int>>"
    table = lake.create_table(location, columns, properties=properties)
    row = {"tags": [1, None], "m": [("k", ["v"])], "s": {"l": [2]}}
    table.append([{"id": number, **row} for number in range(4)])
    name = f"delta.`{location}`"

    delta_spark.sql(f"INSERT INTO {name} SELECT id + 10, tags, m, s FROM {name}")
    delta_spark.sql(f"UPDATE {name} SET tags = array(7) WHERE id = 11")
    delta_spark.sql(f"ALTER TABLE {name} ADD COLUMNS (later array<string>)")
    table.delete("id = 0")
    table.update({"tags": "NULL"}, "id = 1")

    rows = [
        row.asDict(recursive=True) for row in delta_spark.sql(f"SELECT * FROM {name} ORDER BY id").collect()
    ]
    found = lake.table(location).to_arrow().sort_by("id").to_pylist()
    assert [{**each, "m": dict(each["m"])} for each in found] == rows
    assert {row["id"]: row["tags"] for row in rows if row["id"] % 10 == 1} == {1: None, 11: [7]}
    fields = {field["name"]: field["metadata"] for field in metadata(location)["fields"]}
    assert len(fields["m"]["delta.columnMapping.nested.ids"]) == 3
    ids = [row[0] for row in delta_spark.sql(f"SELECT count(*) FROM {name} WHERE m['k'][0] = 'v'").collect()]
    assert ids == [7]


def metadata(location):
    """Return the newest schema in the log."""
    for path in sorted((location / "_delta_log").glob("*.json"), reverse=True):
        for line in path.read_text().splitlines():
            if "metaData" in (action := json.loads(line)):
                return json.loads(action["metaData"]["schemaString"])
    raise AssertionError(location)
