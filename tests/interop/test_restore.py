"""RESTORE compared with delta-spark's: both leave the same files, metadata, metrics and change feed."""

import json
import shutil

import pytest
from tests.support.checked import assert_sound

pytestmark = [
    pytest.mark.jars,
    pytest.mark.spark,
    pytest.mark.full_on_spark(
        "delta-spark takes seconds for each; the gate has both ways of reading and writing, and a race"
    ),
]

DVS = "'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true'"
OFF = "'delta.enableDeletionVectors' = 'false', 'delta.enableChangeDataFeed' = 'true'"
PLAIN = "id bigint, v string"
IDENTITY = "id bigint GENERATED ALWAYS AS IDENTITY, v string"
MORE = "INSERT INTO $t (v) SELECT 'b' FROM range(5)"
LESS = "DELETE FROM $t WHERE id < 3"

CASES = {
    "two deletion vectors of one file": (PLAIN, DVS, [LESS, "DELETE FROM $t WHERE id < 6"], 2),
    "rows that were updated and added": (PLAIN, DVS, [LESS, "UPDATE $t SET v = 'c' WHERE id > 7", MORE], 1),
    "before deletion vectors": (
        PLAIN,
        OFF,
        ["ALTER TABLE $t SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'a' = 'b')", LESS],
        1,
    ),
    "before columns were mapped, and one dropped": (
        PLAIN,
        OFF,
        [
            "ALTER TABLE $t SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
            "ALTER TABLE $t DROP COLUMN v",
        ],
        1,
    ),
    "a column that was dropped and another added": (
        PLAIN,
        f"{DVS}, 'delta.columnMapping.mode' = 'name'",
        ["ALTER TABLE $t ADD COLUMNS (x int)", "ALTER TABLE $t DROP COLUMN v"],
        1,
    ),
    "row ids": (PLAIN, f"{OFF}, 'delta.enableRowTracking' = 'true'", [MORE, LESS], 1),
    "before row ids": (
        PLAIN,
        OFF,
        ["ALTER TABLE $t SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')", MORE],
        1,
    ),
    "numbers of an identity column": (IDENTITY, OFF, [MORE], 1),
    "timestamps in commits": (
        PLAIN,
        OFF,
        ["ALTER TABLE $t SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')", MORE],
        1,
    ),
    "clustering columns": (PLAIN, DVS, ["ALTER TABLE $t CLUSTER BY (id)", MORE], 1),
}

FEEDS = ("two deletion vectors of one file", "rows that were updated and added")
FEED = ["_change_type", "id", "v"]


def newest(location):
    path = max((location / "_delta_log").glob("*.json"))
    return int(path.stem), [json.loads(line) for line in path.read_text().splitlines()]


def said(location):
    """Return the newest version without the values that differ between any two commits."""
    version, actions = newest(location)
    found = {"version": version, "add": set(), "remove": set()}
    for action in actions:
        ((name, value),) = action.items()
        if name in ("add", "remove"):
            vector = json.dumps(value.get("deletionVector"), sort_keys=True)
            found[name].add((value["path"], vector, value["dataChange"], value.get("baseRowId")))
        elif name == "commitInfo":
            names = (
                "operation",
                "operationParameters",
                "operationMetrics",
                "isBlindAppend",
                "isolationLevel",
            )
            found |= {each: value[each] for each in names}
            found["stamped"] = "inCommitTimestamp" in value
        elif name == "metaData":
            value["schemaString"] = json.loads(value["schemaString"])
            # The timestamp of the commit that enabled them.
            value["configuration"].pop("delta.inCommitTimestampEnablementTimestamp", None)
            found[name] = value
        elif name == "domainMetadata":
            found[value["domain"]] = json.loads(value["configuration"]) | {"removed": value["removed"]}
    return found


def features(table):
    protocol = table.snapshot().protocol
    return {name: sorted(value) if isinstance(value, list) else value for name, value in protocol.items()}


def rows_of(frame):
    return sorted(map(tuple, frame.collect()), key=repr)


def read(spark, location, **options):
    return spark.read.format("delta").options(**options).load(str(location))


@pytest.mark.parametrize("case", CASES)
def test_both_restore_the_same(lake, delta_spark, tmp_path, case):
    columns, properties, statements, version = CASES[case]
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    delta_spark.sql(f"CREATE TABLE delta.`{theirs}` ({columns}) USING delta TBLPROPERTIES ({properties})")
    values = "(v) SELECT 'a'" if columns == IDENTITY else "SELECT id, 'a'"
    delta_spark.sql(f"INSERT INTO delta.`{theirs}` {values} FROM range(10)")
    for statement in statements:
        delta_spark.sql(statement.replace("$t", f"delta.`{theirs}`"))
    shutil.copytree(theirs, ours)
    before = newest(theirs)[0]

    metrics = delta_spark.sql(f"RESTORE TABLE delta.`{theirs}` TO VERSION AS OF {version}").collect()
    table, other = lake.table(str(ours)), lake.table(str(theirs))
    done = table.restore(version)

    assert said(ours) == said(theirs)
    assert sorted(done.values()) == sorted(metrics[0])
    assert features(table) == features(other)
    restored = sorted((tuple(row.values()) for row in table.to_arrow().to_pylist()), key=repr)
    assert rows_of(read(delta_spark, ours)) == restored
    assert sorted((tuple(row.values()) for row in other.to_arrow().to_pylist()), key=repr) == restored
    if case in FEEDS:
        feeds = [each.changes(before + 1).select(FEED).to_pylist() for each in (table, other)]
        own = [sorted((tuple(row.values()) for row in feed), key=repr) for feed in feeds]
        options = {"readChangeFeed": "true", "startingVersion": str(before + 1)}
        assert own[0] == own[1] == rows_of(read(delta_spark, ours, **options).select(*FEED))
    # And each continues from the other's result.
    delta_spark.sql(f"RESTORE TABLE delta.`{ours}` TO VERSION AS OF {before}")
    other.restore(before)
    assert said(ours) == said(theirs)
    assert_sound(ours)
