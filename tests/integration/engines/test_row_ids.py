"""Row tracking: rewritten rows keep their ids in UPDATE, MERGE and DELETE, with and without deletion vectors, on both engines."""

from dataclasses import replace

import pytest

import delvec
from delvec_engines import row_ids
from delvec_engines.protocol import WriteTarget

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")

TRACKED = {"delta.enableRowTracking": "true", "delvec.rewriteThreshold": "0.5"}
KINDS = {
    "vectors": {},
    "files": {"delta.enableDeletionVectors": "false"},
    "a change feed": {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "false"},
    "mapped columns": {},
}


def ids(table):
    """Return (row id, commit version) by key, as the next command reads them."""
    scan, _ = table.plan(row_ids=True)
    target = WriteTarget(scan.location, scan.schema, scan.partition_columns, scan.configuration, "none")
    tracked, _ = row_ids.add_to_rewrite(scan, target)
    rows = table.engine.read(tracked, None, None).to_pylist()
    names = [item.name for item in tracked.schema.fields[-2:]]
    found = {row["id"]: tuple(row[name] for name in names) for row in rows}
    assert len(found) == len({row_id for row_id, _ in found.values()}) == len(rows)
    return found


@pytest.fixture(params=KINDS)
def tracked(request, lake, tmp_path, engine):
    properties = TRACKED | KINDS[request.param]
    table = lake.create_table(
        str(tmp_path / "tracked"),
        "id bigint, name string, country string",
        ["country"],
        properties=properties,
    )
    table = lake.table(str(tmp_path / "tracked"), engine=engine)
    if request.param == "mapped columns":
        table.alter.set_properties({"delta.columnMapping.mode": "name"})
        table.alter.rename_column("name", "full name")
        table.alter.rename_column("full name", "name")
    table.append([{"id": i, "name": f"n{i}", "country": "NZ"} for i in range(10)])
    table.append([{"id": i, "name": f"n{i}", "country": "FI"} for i in range(10, 14)])
    return table


def test_rows_keep_their_ids_through_every_command(tracked):
    first = ids(tracked)
    made = [tracked.version() - 1, tracked.version()]
    assert first == {i: (i, made[0] if i < 10 else made[1]) for i in range(14)}

    updated = tracked.update({"name": "upper(name)"}, "id IN (3, 12)").version
    expected = first | {3: (3, updated), 12: (12, updated)}
    assert ids(tracked) == expected

    tracked.delete("id < 7 AND id <> 3")
    expected = {key: value for key, value in expected.items() if key == 3 or key >= 7}
    assert ids(tracked) == expected

    source = [{"id": i, "name": "new", "country": "NZ"} for i in (3, 8, 100)]
    merge = tracked.merge(source, "source.id = target.id").when_matched_update_all()
    merged = merge.when_not_matched_insert_all().when_not_matched_by_source_delete("target.id = 13").execute()
    now = ids(tracked)
    new = now.pop(100)
    del expected[13]
    assert now == expected | {3: (3, merged.version), 8: (8, merged.version)}
    assert new[0] > 13
    assert new[1] == merged.version

    names = {row["id"]: row["name"] for row in tracked.to_arrow().to_pylist()}
    assert names == {3: "new", 7: "n7", 8: "new", 9: "n9", 10: "n10", 11: "n11", 12: "N12", 100: "new"}
    tags = [entry.get("tags") for entry in tracked.history()]
    assert not any("false" in str(each) for each in tags)
    assert tracked.check()["num-errors"] == 0


def test_what_is_overwritten_by_condition_leaves_the_ids_of_the_others(tracked):
    before = ids(tracked)
    rows = [{"id": 5, "name": "new", "country": "NZ"}]
    if tracked.detail()["properties"].get("delta.enableChangeDataFeed"):
        with pytest.raises(delvec.UnsupportedWriterFeature, match="does not rewrite such files"):
            tracked.overwrite(rows, replace_where="id IN (4, 5)")
        return
    tracked.overwrite(rows, replace_where="id IN (4, 5)")

    after = ids(tracked)
    assert after.pop(5)[0] not in {row_id for row_id, _ in before.values()}
    assert after == {key: value for key, value in before.items() if key not in (4, 5)}


@pytest.mark.gate
def test_the_feed_does_not_tell_of_ids(lake, tmp_path, engine):
    properties = TRACKED | {"delta.enableChangeDataFeed": "true"}
    lake.create_table(str(tmp_path / "fed"), "id bigint, name string", properties=properties)
    table = lake.table(str(tmp_path / "fed"), engine=engine)
    table.append([{"id": i, "name": "x"} for i in range(4)])
    table.update({"name": "'y'"}, "id = 1")

    changes = table.changes(2)
    assert changes.column_names == ["id", "name", "_change_type", "_commit_version", "_commit_timestamp"]
    assert sorted(changes["_change_type"].to_pylist()) == ["update_postimage", "update_preimage"]
    assert ids(table)[1] == (1, 2)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"delta.columnMapping.mode": "id"}, "column mapping by field id"),
        ({"delta.rowTracking.materializedRowIdColumnName": None}, "lacks the property"),
    ],
)
def test_a_table_in_which_ids_cannot_be_kept_is_not_written_again(lake, tmp_path, wrong, why):
    table = lake.create_table(str(tmp_path / "t"), "id bigint", properties=TRACKED)
    table.append([{"id": 1}, {"id": 2}])
    scan, _ = table.plan(row_ids=True)
    told = {name: value for name, value in {**scan.configuration, **wrong}.items() if value is not None}
    scan = replace(scan, configuration=told)
    target = WriteTarget(scan.location, scan.schema, (), scan.configuration, "none")
    with pytest.raises(delvec.UnsupportedWriterFeature, match=why):
        row_ids.add_to_rewrite(scan, target)


def test_what_marks_columns_of_row_ids_means_nothing_in_the_metadata_of_a_table(
    lake, tmp_path, engine, write_table
):
    """Otherwise its column would be dropped on writes, and read as a row id."""
    marked = {row_ids.FILE_DEFAULT: "base_row_id"}
    schema = {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "size", "type": "long", "nullable": True, "metadata": marked},
        ],
    }
    folder = write_table("marked", schema, [], features=["appendOnly", "invariants"])
    table = lake.table(str(folder), engine=engine)

    table.append([{"id": 1, "size": 10}, {"id": 2, "size": None}])
    table.update({"id": "id + 10"}, "id = 2")

    rows = [{"id": 1, "size": 10}, {"id": 12, "size": None}]
    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"]) == rows
    assert [row["size"] for row in table.to_arrow(predicate="size = 10").to_pylist()] == [10]
