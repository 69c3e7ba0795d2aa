"""Manifests compared with delta-spark's: the same folders and lines, and each updates the other's."""

from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.jars,
    pytest.mark.spark,
    pytest.mark.full_on_spark(
        "delta-spark takes seconds for each; the gate has both ways of reading and writing, and a race"
    ),
]

FRESH = "delta.compatibility.symlinkFormatManifest.enabled"


def listed(folder):
    root = Path(folder) / "_symlink_format_manifest"
    return {
        str(path.parent.relative_to(root)): sorted(path.read_text().splitlines())
        for path in root.rglob("manifest")
    }


def test_folders_and_lines_equal_delta_sparks(lake, delta_spark, tmp_path):
    folder = tmp_path / "a table"
    delta_spark.sql(
        f"CREATE TABLE delta.`{folder}` (id int, p string, q date) USING delta PARTITIONED BY (p, q) "
        f"TBLPROPERTIES ('{FRESH}' = 'true')"
    )
    delta_spark.sql(
        f"INSERT INTO delta.`{folder}` VALUES (1, 'a b', DATE'2024-01-01'), (2, 'ä:/%', NULL), (3, NULL, NULL), (4, 'x=1#', NULL)"
    )
    theirs = listed(folder)
    table = lake.table(folder)

    table.generate()

    assert listed(folder) == theirs
    assert len(theirs) == 4
    # Delvec has removed Hadoop's checksum files; with stale ones this read would fail.
    assert delta_spark.read.text(f"{folder}/_symlink_format_manifest/p=a b/*/manifest").count() == 1

    table.append([{"id": 5, "p": "a b", "q": None}])
    table.delete("p = 'ä:/%'")
    ours = listed(folder)
    delta_spark.sql(f"GENERATE symlink_format_manifest FOR TABLE delta.`{folder}`")
    assert ours == listed(folder)


def test_delta_spark_and_delvec_refuse_the_same(lake, delta_spark, tmp_path):
    folder = tmp_path / "t"
    table = lake.create_table(folder, "id long")
    table.append([{"id": 1}, {"id": 2}])
    table.delete("id = 1")
    path = f"delta.`{folder}`"
    for statement in (
        f"GENERATE symlink_format_manifest FOR TABLE {path}",
        f"ALTER TABLE {path} SET TBLPROPERTIES ('{FRESH}' = 'true')",
    ):
        with pytest.raises(Exception, match=r"DELETION_VECTORS"):
            delta_spark.sql(statement)
    lake.sql(f"REORG TABLE {path} APPLY (PURGE)")
    delta_spark.sql(f"GENERATE symlink_format_manifest FOR TABLE {path}")
    theirs = listed(folder)
    table.generate()
    assert listed(folder) == theirs
