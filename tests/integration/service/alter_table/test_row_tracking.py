"""Enabling and disabling row tracking over HTTP: every row gets an id, even with concurrent writers."""

import json

from tests.support.between import in_between
from tests.support.checked import assert_sound

from delvec_service.alter_table import table_preparation

ON = {"delta.enableRowTracking": "true"}


def alter(table, *changes):
    return table.client.post(f"{table.url}/alter", json={"changes": list(changes)})


def put(**properties):
    return {
        "change": "set-properties",
        "properties": {f"delta.{name}": value for name, value in properties.items()},
    }


def operations(table, first):
    return [table.action(version, "commitInfo")["operation"] for version in range(first, table.version() + 1)]


def ids(table, version):
    """Return (path, base row id, commit version) of the files that a version adds."""
    adds = [action["add"] for action in table.actions(version) if "add" in action]
    return [(add["path"], add.get("baseRowId"), add.get("defaultRowCommitVersion")) for add in adds]


def mark(table, version):
    return json.loads(table.action(version, "domainMetadata")["configuration"])["rowIdHighWaterMark"]


def test_files_get_ids_before_the_table_says_that_it_has_them(filled):
    filled.delete({"a.parquet": [3]})

    answer = alter(filled, put(enableRowTracking="true"))

    assert answer.json()["version"] == 5
    assert operations(filled, 3) == ["SET TBLPROPERTIES", "ROW TRACKING BACKFILL", "SET TBLPROPERTIES"]
    assert filled.action(3, "protocol")["writerFeatures"][-2:] == ["domainMetadata", "rowTracking"]
    given = {path: (base, version) for path, base, version in ids(filled, 4)}
    assert sorted(given) == ["a.parquet", "b.parquet"]
    assert sorted(given.values()) in ([(0, 4), (5, 4)], [(0, 4), (10, 4)])
    assert mark(filled, 4) == 14
    adds = [action["add"] for action in filled.actions(4) if "add" in action]
    assert {add["dataChange"] for add in adds} == {False}
    assert sum(add.get("deletionVector", {}).get("cardinality", 0) for add in adds) == 1
    assert not any("remove" in action for action in filled.actions(4))
    configuration = filled.action(5, "metaData")["configuration"]
    assert configuration["delta.enableRowTracking"] == "true"
    assert configuration["delta.rowTracking.materializedRowIdColumnName"].startswith("_row-id-col-")

    filled.append(filled.write_file("c.parquet", [20, 21]))
    filled.delete({"a.parquet": [4]})
    assert ids(filled, 6) == [("c.parquet", 15, 6)]
    assert ids(filled, 7) == [("a.parquet", *given["a.parquet"])]
    assert_sound(filled.folder, data_files=False)


def test_a_commit_that_read_the_table_before_passes_and_gets_ids(filled):
    alter(filled, put(enableRowTracking="true"))

    deleted = filled.delete({"a.parquet": [3]}, read_version=1)
    appended = filled.append(filled.write_file("c.parquet", [20]), read_version=1)

    assert [answer.json()["result"] for answer in (deleted, appended)] == ["rebased", "rebased"]
    assert ids(filled, 6) == [("c.parquet", 15, 6)]
    assert ids(filled, 5)[0][1] is not None
    assert_sound(filled.folder, data_files=False)


def test_rows_that_were_written_again_without_ids_are_a_conflict_and_later_refused(filled, error):
    again = filled.write_file("again.parquet", range(1, 10))
    rewrite = {
        "adds": [again],
        "removes": [{"path": "a.parquet"}],
        "operation": "DELETE",
        "predicate": "id = 0",
    }
    alter(filled, put(enableRowTracking="true"))

    late = filled.commit(**rewrite, read_version=1)
    new = filled.commit(**rewrite)
    kept = filled.commit(**rewrite, keeps_row_ids=True)

    assert (late.status_code, error(late)["type"]) == (409, "MetadataChangedException")
    assert (new.status_code, error(new)["type"]) == (422, "UnsupportedWriterFeature")
    assert kept.status_code == 200
    assert filled.action(5, "commitInfo")["tags"]["delta.rowTracking.preserved"] == "true"


def test_a_new_table_may_have_it_from_the_start(client, create, tmp_path):
    table = create(client, tmp_path / "new", properties=ON)
    table.append(table.write_file("a.parquet", range(10)))

    assert {"domainMetadata", "rowTracking"} <= set(table.action(0, "protocol")["writerFeatures"])
    assert ids(table, 1) == [("a.parquet", 0, 1)]
    assert mark(table, 1) == 9


def test_it_is_turned_off_and_dropped_and_the_ids_go(filled):
    alter(filled, put(enableRowTracking="true"))
    alter(filled, put(enableRowTracking="false"))
    filled.append(filled.write_file("c.parquet", [20]))
    assert ids(filled, 6) == [("c.parquet", 15, 6)]

    answer = alter(filled, {"change": "drop-feature", "feature": "rowTracking"})

    assert operations(filled, 7) == ["SET TBLPROPERTIES", "ROW TRACKING UNBACKFILL", "DROP FEATURE"]
    assert {given[1:] for given in ids(filled, 8)} == {(None, None)}
    assert filled.action(9, "domainMetadata")["removed"] is True
    assert filled.action(9, "metaData")["configuration"] == {"delta.enableDeletionVectors": "true"}
    assert answer.json()["version"] == 9
    assert_sound(filled.folder, data_files=False)


def test_a_plan_tells_the_ids_of_rows_to_who_asks_for_them(filled):
    def first(**body):
        return filled.client.post(f"{filled.url}/plan", json=body).json()["files"][0]

    assert first(**{"row-ids": True})["baseRowId"] is None
    alter(filled, put(enableRowTracking="true"))
    assert first()["baseRowId"] is None
    told = first(**{"row-ids": True})
    assert (told["path"], told["baseRowId"], told["defaultRowCommitVersion"]) in ids(filled, 3)


def test_what_cannot_be_is_refused(filled, error):
    both = alter(filled, put(enableRowTracking="true", rowTrackingSuspended="true"))
    assert "Set it to false first" in error(both)["message"]
    bad = alter(filled, {"change": "set-properties", "properties": {**ON, "delta.nonsense": "1"}})
    assert "delta.nonsense" in error(bad)["message"]
    assert filled.version() == 1
    alter(filled, put(rowTrackingSuspended="true"))
    suspended = alter(filled, put(enableRowTracking="true"))
    assert "Set it to false first" in error(suspended)["message"]


def test_files_that_do_not_say_how_many_rows_they_have_are_named(client, create, tmp_path, error):
    table = create(client, tmp_path / "old", properties={"delta.enableDeletionVectors": "false"})
    table.append(table.write_file("a.parquet", range(3), stats=False))

    refused = alter(table, put(enableRowTracking="true"))

    assert refused.status_code == 400
    assert error(refused)["details"]["files"] == ["a.parquet"]


def test_files_are_not_numbered_for_ever_where_the_table_stops_to_give_ids(filled, running, error):
    suspend = lambda table: alter(table, put(rowTrackingSuspended="true"))  # noqa: E731
    with in_between(running, filled, suspend, point="after_put"):
        answer = alter(filled, put(enableRowTracking="true"))

    assert answer.status_code == 400
    assert "set delta.rowTrackingSuspended=false" in error(answer)["message"]
    assert operations(filled, 2) == ["SET TBLPROPERTIES", "SET TBLPROPERTIES"]


def test_ids_are_not_taken_for_ever_where_the_table_gives_them_again(filled, running, error, monkeypatch):
    monkeypatch.setattr(table_preparation, "_FILES_AT_ONCE", 1)
    alter(filled, put(enableRowTracking="true"))
    alter(filled, put(enableRowTracking="false", rowTrackingSuspended="true"))
    resume = lambda table: alter(table, put(rowTrackingSuspended="false"))  # noqa: E731

    with in_between(running, filled, resume, point="after_put"):
        answer = alter(filled, {"change": "drop-feature", "feature": "rowTracking"})

    assert answer.status_code == 400
    assert "set again in the meantime" in error(answer)["message"]
    assert operations(filled, filled.version() - 1) == ["ROW TRACKING UNBACKFILL", "SET TBLPROPERTIES"]


def test_files_without_counts_are_named_before_the_table_gets_the_feature(client, create, tmp_path):
    table = create(client, tmp_path / "old", properties={"delta.enableDeletionVectors": "false"})
    table.append(table.write_file("a.parquet", range(3), stats=False))

    assert alter(table, put(enableRowTracking="true")).status_code == 400
    assert table.version() == 1
