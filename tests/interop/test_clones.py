"""CLONE compared with delta-spark's: the same log entry, and each reads, changes and vacuums the other's clone."""

import json

import pytest
from tests.support.checked import assert_sound

import delvec

pytestmark = [
    pytest.mark.jars,
    pytest.mark.spark,
    pytest.mark.full_on_spark(
        "delta-spark takes seconds for each; the gate has both ways of reading and writing, and a race"
    ),
]

PROPERTIES = (
    "'delta.enableDeletionVectors' = 'true', 'delta.enableRowTracking' = 'true', "
    "'delta.enableInCommitTimestamps' = 'true', 'a' = 'b'"
)


@pytest.fixture
def source(delta_spark, tmp_path):
    path = f"delta.`{tmp_path}/source`"
    delta_spark.sql(
        f"CREATE TABLE {path} (id bigint, v string) USING delta PARTITIONED BY (v) TBLPROPERTIES ({PROPERTIES})"
    )
    delta_spark.sql(f"INSERT INTO {path} SELECT id, 'a b:ä' FROM range(0, 10, 1, 1)")
    delta_spark.sql(f"DELETE FROM {path} WHERE id < 3")
    return tmp_path / "source"


def said(folder):
    """Return version 0 without the values that differ between any two clones."""
    lines = (folder / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    found = {}
    for line in lines:
        ((name, value),) = json.loads(line).items()
        for key in ("id", "timestamp", "inCommitTimestamp", "txnId", "engineInfo", "tags", "readVersion"):
            value.pop(key, None)
        if name == "metaData":
            value["configuration"] = {
                key: "" if "materialized" in key else text for key, text in value["configuration"].items()
            }
        if name == "commitInfo":
            value["operationParameters"] = value["operationParameters"]["sourceVersion"]
        if name == "protocol":
            value = {key: sorted(each) if isinstance(each, list) else each for key, each in value.items()}
        if name == "domainMetadata":
            value["configuration"] = json.loads(value["configuration"])["rowIdHighWaterMark"]
        if name == "add":
            value["stats"] = json.loads(value["stats"])
        found[name] = value
    return found


def test_the_log_equals_that_of_delta_sparks_clone(lake, delta_spark, source, tmp_path):
    delta_spark.sql(
        f"CREATE TABLE delta.`{tmp_path}/theirs` SHALLOW CLONE delta.`{source}` TBLPROPERTIES ('x' = 'y')"
    )
    lake.table(source).clone(tmp_path / "ours", shallow=True, properties={"x": "y"})
    assert said(tmp_path / "ours") == said(tmp_path / "theirs")


@pytest.mark.parametrize(
    "shallow",
    [
        True,
        pytest.param(False, marks=pytest.mark.full("copies the files, which tests of clones do on DuckDB")),
    ],
    ids=["shallow", "deep"],
)
def test_every_reader_reads_a_clone_and_delta_spark_changes_it(
    lake, delta_spark, agreed, source, tmp_path, shallow
):
    clone = lake.table(source, engine=delta_spark).clone(tmp_path / "clone", shallow=shallow)
    path = f"delta.`{tmp_path}/clone`"
    delta_spark.sql(f"DELETE FROM {path} WHERE id = 3")
    lake.table(tmp_path / "clone").delete("id = 4")
    clone.update({"v": "'new'"}, "id = 5")
    delta_spark.sql(f"VACUUM {path}")

    assert [row["id"] for row in agreed(tmp_path / "clone")] == [5, 6, 7, 8, 9]

    assert [row["id"] for row in agreed(source)] == [3, 4, 5, 6, 7, 8, 9]
    assert_sound(tmp_path / "clone")


def test_delvec_changes_delta_sparks_clone_and_clones_it(delta_spark, agreed, source, tmp_path):
    delta_spark.sql(f"CREATE TABLE delta.`{tmp_path}/theirs` SHALLOW CLONE delta.`{source}`")
    with delvec.connect(
        roots=[str(tmp_path)]
    ) as lake:  # of clones by others the user says where their sources are
        theirs = lake.table(tmp_path / "theirs")
        theirs.delete("id = 9")
        ours = theirs.clone(tmp_path / "ours")
        assert [row["id"] for row in agreed(tmp_path / "ours")] == [3, 4, 5, 6, 7, 8]
        ours.restore(0)
    assert_sound(tmp_path / "ours")
