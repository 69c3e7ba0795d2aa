"""``POST …/vacuum``: deleted and kept files, its commits, and failures."""

import json
import os
import shutil
import time

import pytest

from delvec_errors import StorageDenied
from delvec_service.store.models import Base
from delvec_service.vacuum import vacuum as running_vacuum

DAY = 86_400
NOW = {"retention-hours": 0, "enforce-retention-duration": False}


def aged(path, days):
    moment = time.time() - days * DAY
    os.utime(path, (moment, moment), follow_symlinks=False)
    return path


def file(table, name, *, days=30, content=b"left over"):
    path = table.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return aged(path, days)


def age_all(table, days=30):
    for path in table.folder.rglob("*"):
        if path.is_file() and "_delta_log" not in path.parts:
            aged(path, days)


def vacuum(table, **body):
    answer = table.client.post(f"{table.url}/vacuum", json={k.replace("_", "-"): v for k, v in body.items()})
    assert answer.status_code == 200, answer.text
    return answer.json()


def data(table):
    """The names of all files that are not the log's."""
    found = (path.relative_to(table.folder) for path in table.folder.rglob("*") if not path.is_dir())
    return {str(path) for path in found if path.parts[0] != "_delta_log"}


def vectors(table):
    return {name for name in data(table) if name.endswith(".bin")}


def rows(table):
    answer = table.client.post(f"{table.url}/plan", json={})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_dry_run_names_old_files_that_nothing_refers_to_and_deletes_nothing(filled):
    file(filled, "old.parquet")
    file(filled, "young.parquet", days=6)
    age_all_but = data(filled)
    found = vacuum(filled, dry_run=True)
    assert found["files"] == ["old.parquet"]
    assert (found["result"], found["num-files"], found["size-in-bytes"]) == ("dry-run", 1, 9)
    assert data(filled) == age_all_but
    assert filled.version() == 1


def test_vacuum_deletes_and_says_so_in_two_commits_as_delta_spark_does(filled):
    file(filled, "x/old.parquet")
    file(filled, "old.parquet")
    age_all(filled)
    done = vacuum(filled)
    assert data(filled) == {"a.parquet", "b.parquet"}
    assert done["result"] == "deleted"
    assert (done["start-version"], done["end-version"]) == (2, 3)
    start, end = filled.action(2, "commitInfo"), filled.action(3, "commitInfo")
    assert start["operation"] == "VACUUM START"
    assert start["operationParameters"] == {
        "retentionCheckEnabled": "true",
        "defaultRetentionMillis": str(7 * DAY * 1000),
    }
    assert start["operationMetrics"] == {"numFilesToDelete": "2", "sizeOfDataToDelete": "18"}
    assert end["operation"] == "VACUUM END"
    assert end["operationParameters"] == {"status": "COMPLETED"}
    assert end["operationMetrics"] == {"numDeletedFiles": "2", "numVacuumedDirectories": "2"}
    assert [list(action) for action in filled.actions(2)] == [["commitInfo"]]


def test_the_history_says_which_retention_was_asked_for(filled):
    file(filled, "old.parquet")
    vacuum(filled, **NOW)
    parameters = filled.action(2, "commitInfo")["operationParameters"]
    assert (parameters["specifiedRetentionMillis"], parameters["retentionCheckEnabled"]) == ("0", "false")


def test_where_there_is_nothing_to_delete_nothing_is_committed(filled):
    age_all(filled)
    assert vacuum(filled)["result"] == "nothing-to-delete"
    assert filled.version() == 1


def test_removed_files_stay_for_the_retention_of_the_table(filled):
    assert filled.delete({}, removes=["b.parquet"]).status_code == 200
    age_all(filled)
    assert vacuum(filled)["num-files"] == 0
    assert vacuum(filled, **NOW)["files"] == ["b.parquet"]
    assert data(filled) == {"a.parquet"}


def test_less_retention_than_the_tables_is_refused(filled, error):
    answer = filled.client.post(f"{filled.url}/vacuum", json={"retention-hours": 167})
    found = error(answer)
    assert (answer.status_code, found["type"]) == (400, "RetentionTooShort")
    assert found["details"]["configured_hours"] == 168
    assert "168 hours" in found["message"]
    assert vacuum(filled, retention_hours=168)["result"] == "nothing-to-delete"


def test_the_property_decides_and_no_file_of_today_goes(client, create, tmp_path):
    table = create(
        client, tmp_path / "t", properties={"delta.deletedFileRetentionDuration": "interval 1 hour"}
    )
    file(table, "of-yesterday.parquet", days=1.1)
    file(table, "of-today.parquet", days=0.9)
    assert vacuum(table)["files"] == ["of-yesterday.parquet"]
    assert vacuum(table, **NOW)["files"] == ["of-today.parquet"]


def test_deletion_vectors_stay_as_long_as_anything_refers_to_them(filled):
    assert filled.delete({"a.parquet": [1], "b.parquet": [2]}).status_code == 200
    [shared] = vectors(filled)
    assert filled.delete({"a.parquet": [3]}).status_code == 200
    age_all(filled)
    assert vacuum(filled, **NOW)["num-files"] == 0, "b.parquet still has its vector in the first file"
    assert filled.delete({"b.parquet": [4]}).status_code == 200
    age_all(filled)
    assert vacuum(filled)["num-files"] == 0, "the tombstone of b.parquet has its old vector"
    assert vacuum(filled, **NOW)["files"] == [shared]
    assert len(vectors(filled)) == 2


def test_vectors_in_directories_with_odd_names_and_absolute_ones_stay(filled):
    assert filled.delete({"a.parquet": [1]}).status_code == 200
    (name,) = vectors(filled)
    (add,) = [line["add"] for line in filled.actions(2) if "add" in line]
    odd = "dir % é"
    (filled.folder / odd).mkdir()
    shutil.copy(filled.folder / name, filled.folder / odd / name)
    shutil.move(filled.folder / name, filled.folder / "x.bin")
    inside = {**add["deletionVector"], "pathOrInlineDv": odd + add["deletionVector"]["pathOrInlineDv"]}
    absolute = {
        **add["deletionVector"],
        "storageType": "p",
        "pathOrInlineDv": (filled.folder / "x.bin").as_uri(),
    }
    foreign(filled, {"add": {**add, "path": "b.parquet", "deletionVector": inside}})
    foreign(filled, {"add": {**add, "deletionVector": absolute}})
    age_all(filled)
    assert vacuum(filled, **NOW)["num-files"] == 0
    assert f"{odd}/{name}" in data(filled)


def foreign(table, *actions):
    """Commit as another writer, without the service."""
    version = table.version() + 1
    info = {"commitInfo": {"timestamp": int(time.time() * 1000), "operation": "WRITE"}}
    lines = "".join(json.dumps(action) + "\n" for action in (info, *actions))
    (table.log / f"{version:020}.json").write_text(lines)
    return version


def add(name, path):
    return {
        "add": {
            "path": name,
            "size": path.stat().st_size,
            "modificationTime": 0,
            "partitionValues": {},
            "dataChange": True,
        }
    }


def test_paths_in_any_spelling_protect_their_files(filled):
    names = ["a b.parquet", "100%.parquet", "raw%20name.parquet", "é.parquet", "plus+.parquet", "abs.parquet"]
    paths = {name: file(filled, name) for name in names}
    foreign(
        filled,
        add("a%20b.parquet", paths["a b.parquet"]),
        add("100%25.parquet", paths["100%.parquet"]),
        add("raw%20name.parquet", paths["raw%20name.parquet"]),  # by a writer that does not encode
        add("é.parquet", paths["é.parquet"]),
        add("plus%2B.parquet", paths["plus+.parquet"]),
        add(f"file:{paths['abs.parquet']}", paths["abs.parquet"]),
    )
    age_all(filled)
    assert vacuum(filled, **NOW)["num-files"] == 0


def test_a_file_named_by_way_of_a_link_is_protected(filled, tmp_path):
    path = file(filled, "linked.parquet")
    (tmp_path / "link").symlink_to(filled.folder)
    foreign(filled, add(f"file:{tmp_path / 'link' / 'linked.parquet'}", path))
    age_all(filled)
    assert vacuum(filled, **NOW)["num-files"] == 0


def test_links_are_not_followed_and_what_they_lead_to_stays(filled, tmp_path):
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    kept = aged(outside / "kept.parquet", 0) if (outside / "kept.parquet").write_bytes(b"x") else None
    aged(kept, 30)
    (filled.folder / "to-outside").symlink_to(outside)
    file(filled, "real/target.parquet")
    (filled.folder / "to-inside.parquet").symlink_to("real/target.parquet")
    age_all(filled)
    before = data(filled)
    assert vacuum(filled, **NOW)["num-files"] == 0
    assert kept.exists()
    assert data(filled) == before


def test_names_that_are_not_vacuums_stay(filled):
    stay = [
        "_delta_log/note.txt",
        "_hidden/x",
        ".hidden/x",
        "_x.parquet",
        ".a.parquet.crc",
        "metadata/v1.json",
        "inner/_delta_log/00000000000000000000.json",
        "inner/live.parquet",
        "inner/deeper/live.parquet",
    ]
    go = ["_change_data/cdc.parquet", "_delta_index/x", "plain/metadata/x", "c=1/x"]
    for name in [*stay, *go]:
        file(filled, name)
    age_all(filled)
    assert sorted(vacuum(filled, **NOW)["files"]) == sorted(go)
    assert all((filled.folder / name).exists() for name in stay)


def test_directories_of_partition_columns_with_an_underscore_are_looked_into(client, create, tmp_path):
    schema = {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "_day", "type": "string", "nullable": True, "metadata": {}},
        ],
    }
    table = create(client, tmp_path / "t", schema=schema, **{"partition-columns": ["_day"]})
    file(table, "_day=1/old.parquet")
    file(table, "_daylight=1/kept.parquet")
    assert vacuum(table)["files"] == ["_day=1/old.parquet"]


def test_empty_directories_go_once_they_are_old(filled):
    for name, days in {"empty": 30, "a/b": 30, "young": 1}.items():
        (filled.folder / name).mkdir(parents=True)
        aged(filled.folder / name, days)
    dry = vacuum(filled, dry_run=True)
    assert (sorted(dry["files"]), dry["num-empty-directories"]) == (["a/b/", "empty/"], 2)
    vacuum(filled)
    assert not (filled.folder / "empty").exists()
    assert not (filled.folder / "a/b").exists()
    assert (filled.folder / "young").exists()


def test_files_of_transactions_under_way_stay(filled):
    answer = filled.client.post(f"{filled.url}/deletion-vectors", json={"sizes": [34]})
    assert answer.status_code == 201, answer.text
    [announced] = [one.path for one in filled.client.service.ledger.files(table_id(filled))]
    file(filled, announced, days=0.01)
    file(filled, "other.bin", days=0.01)
    assert vacuum(filled, **NOW)["files"] == ["other.bin"]


def table_id(table):
    return table.client.get(table.url).json()["id"]


def test_kept_versions_can_still_be_read(filled):
    filled.delete({"a.parquet": [1]})
    [first] = vectors(filled)
    filled.delete({"a.parquet": [2]}, removes=["b.parquet"])
    filled.delete({}, removes=["a.parquet"])
    age_all(filled)
    dry = vacuum(filled, dry_run=True, keep_versions=[2], **NOW)
    assert set(data(filled)) - set(dry["files"]) == {"a.parquet", "b.parquet", first}
    assert vacuum(filled, dry_run=True, **NOW)["num-files"] == 4


def test_change_files_of_kept_versions_stay(filled):
    for number in (2, 3):
        name = f"_change_data/{number}.parquet"
        file(filled, name)
        foreign(filled, {"cdc": {"path": name, "partitionValues": {}, "size": 9, "dataChange": False}})

    found = vacuum(filled, dry_run=True, keep_versions=[3], **NOW)["files"]

    assert "_change_data/2.parquet" in found
    assert "_change_data/3.parquet" not in found


def test_a_longer_retention_than_the_tables_holds_for_what_checkpoints_have_forgotten(filled):
    filled.delete({}, removes=["b.parquet"])
    age_all(filled, days=100)
    # Removed ten days ago; the checkpoint of today has forgotten it.
    path = filled.log / f"{2:020}.json"
    moment = int((time.time() - 10 * DAY) * 1000)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if "remove" in line:
            line["remove"]["deletionTimestamp"] = moment
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for version, days in ((0, 90), (1, 80), (2, 10)):
        aged(filled.log / f"{version:020}.json", days)
    filled.client.app.state.service.loader.forget(filled.folder.as_uri())
    assert filled.client.post(f"{filled.url}/checkpoint", json={}).json()["result"] == "written"
    assert vacuum(filled, retention_hours=24 * 20, dry_run=True)["num-files"] == 0
    assert vacuum(filled, dry_run=True)["files"] == ["b.parquet"]


def test_a_file_that_is_referred_to_again_before_it_is_deleted_stays(filled, monkeypatch):
    """RESTORE, between the plan and the deletes."""
    filled.delete({}, removes=["b.parquet"])
    age_all(filled)
    file(filled, "c.parquet")
    original = running_vacuum.make_plan

    def planned(*arguments):
        plan = original(*arguments)
        foreign(filled, add("b.parquet", filled.folder / "b.parquet"))
        return plan

    monkeypatch.setattr(running_vacuum, "make_plan", planned)
    assert vacuum(filled, **NOW)["files"] == ["c.parquet"]
    assert data(filled) == {"a.parquet", "b.parquet"}


def set_property(table, name, value):
    change = {"change": "set-properties", "properties": {name: value}}
    answer = table.client.post(f"{table.url}/alter", json={"changes": [change]})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(("days", "left"), [(1, {"a.parquet"}), (1000, {"a.parquet", "b.parquet"})])
def test_it_is_planned_again_after_a_change_of_the_table(filled, monkeypatch, days, left):
    filled.delete({}, removes=["b.parquet"])
    age_all(filled)
    file(filled, "c.parquet", days=400)
    monkeypatch.setattr(running_vacuum, "_SKEW_MS", 10**12)
    original, plans = running_vacuum.make_plan, []

    def planned(*arguments):
        plans.append(original(*arguments))
        if len(plans) == 1:
            set_property(filled, "delta.deletedFileRetentionDuration", f"interval {days} days")
        return plans[-1]

    monkeypatch.setattr(running_vacuum, "make_plan", planned)
    in_two_days = int((time.time() + 2 * DAY) * 1000)
    monkeypatch.setattr(running_vacuum.time, "time_ns", lambda: in_two_days * 1_000_000)
    vacuum(filled)
    assert len(plans) == 2
    assert data(filled) - {"c.parquet"} == left


def test_its_end_is_committed_whatever_happens_to_the_table_meanwhile(filled, monkeypatch):
    file(filled, "c.parquet")
    original = running_vacuum.delete_files

    def deleted(*arguments, **options):
        set_property(filled, "delta.appendOnly", "true")
        return original(*arguments, **options)

    monkeypatch.setattr(running_vacuum, "delete_files", deleted)
    done = vacuum(filled)
    assert (done["num-files"], done["end-version"]) == (1, filled.version())
    assert filled.action(filled.version(), "commitInfo")["operationParameters"] == {"status": "COMPLETED"}


def test_a_file_that_is_written_again_before_it_is_deleted_stays(filled, monkeypatch):
    path = file(filled, "c.parquet")
    original = running_vacuum.make_plan

    def planned(*arguments):
        plan = original(*arguments)
        path.write_bytes(b"new content")
        return plan

    monkeypatch.setattr(running_vacuum, "make_plan", planned)
    assert vacuum(filled)["num-files"] == 0
    assert path.exists()


def test_a_directory_that_becomes_a_link_leads_to_no_delete(filled, monkeypatch, tmp_path):
    file(filled, "old/x.parquet")
    file(filled, "live/x.parquet")
    original = running_vacuum.make_plan

    def planned(*arguments):
        plan = original(*arguments)
        shutil.rmtree(filled.folder / "old")
        (filled.folder / "old").symlink_to(filled.folder / "live")
        foreign(filled, add("live/x.parquet", filled.folder / "live/x.parquet"))
        return plan

    monkeypatch.setattr(running_vacuum, "make_plan", planned)
    assert vacuum(filled)["num-files"] == 0
    assert (filled.folder / "live/x.parquet").exists()


def test_storage_that_denies_deletes_is_one_error_that_says_what_is_gone(filled, monkeypatch, error):
    for number in range(30):
        file(filled, f"{number:02}.parquet")
    monkeypatch.setattr(running_vacuum, "_BATCH_FILES", 5)
    monkeypatch.setattr(running_vacuum, "_AT_ONCE", 1)
    calls = []
    original = running_vacuum.delete_files

    def denied(location, paths, **options):
        calls.append(paths)
        done = original(location, [] if len(calls) > 2 else paths, **options)
        if len(calls) > 2:
            done.failed, done.error = list(paths), StorageDenied("Cannot delete: permission denied.")
        return done

    monkeypatch.setattr(running_vacuum, "delete_files", denied)
    answer = filled.client.post(f"{filled.url}/vacuum", json={})
    found = error(answer)
    assert (answer.status_code, found["type"]) == (502, "VacuumIncomplete")
    assert found["details"] | {"failed": None} == {
        "table": filled.name,
        "version": 2,
        "deleted": 10,
        "deleted_bytes": 90,
        "remaining": 20,
        "failed": None,
        "cause": "StorageDenied",
    }
    assert "deleted 10 of 30 files" in found["message"]
    assert filled.action(3, "commitInfo")["operationParameters"] == {"status": "FAILED"}
    monkeypatch.undo()
    assert vacuum(filled)["num-files"] == 20
    assert data(filled) == {"a.parquet", "b.parquet"}


def test_one_batch_that_fails_is_told_if_others_after_it_do_not(filled, monkeypatch, error):
    for number in range(10):
        file(filled, f"{number:02}.parquet")
    monkeypatch.setattr(running_vacuum, "_BATCH_FILES", 5)
    original = running_vacuum.delete_files

    def denied(location, paths, **options):
        is_first = "00.parquet" in paths
        done = original(location, [] if is_first else paths, **options)
        if is_first:
            done.failed, done.error = list(paths), StorageDenied("Cannot delete: permission denied.")
        return done

    monkeypatch.setattr(running_vacuum, "delete_files", denied)
    found = error(filled.client.post(f"{filled.url}/vacuum", json={}))

    assert (found["type"], found["details"]["deleted"]) == ("VacuumIncomplete", 5)
    assert filled.action(3, "commitInfo")["operationParameters"] == {"status": "FAILED"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may delete everything")
def test_a_directory_without_the_right_to_delete_is_told(filled, error):
    path = file(filled, "sealed/x.parquet")
    path.parent.chmod(0o500)
    try:
        answer = filled.client.post(f"{filled.url}/vacuum", json={})
    finally:
        path.parent.chmod(0o700)
    assert error(answer)["details"]["failed"] == ["sealed/x.parquet"]


def test_it_is_right_with_an_empty_store(filled):
    filled.delete({"a.parquet": [1], "b.parquet": [2]})
    filled.delete({}, removes=["b.parquet"])
    age_all(filled)
    file(filled, "old.parquet")
    service = filled.client.app.state.service
    with service.database.write() as session:
        for each in reversed(Base.metadata.sorted_tables):
            session.execute(each.delete())
    service.loader.forget(filled.folder.as_uri())
    answer = filled.client.post("/v1/tables", json={"location": str(filled.folder)})
    assert answer.status_code in (200, 201), answer.text
    filled.name = answer.json()["name"]
    assert vacuum(filled)["files"] == ["old.parquet"]
    rows(filled)


@pytest.mark.parametrize(
    ("features", "kind"),
    [
        ({"writerFeatures": ["deletionVectors", "futureFeature"]}, "UnsupportedWriterFeature"),
        (
            {
                "readerFeatures": ["deletionVectors", "catalogManaged"],
                "writerFeatures": ["deletionVectors", "catalogManaged"],
            },
            "UnsupportedReaderFeature",
        ),
    ],
)
def test_tables_that_ask_for_more_than_delvec_knows_are_refused(filled, error, features, kind):
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}
    foreign(filled, {"protocol": protocol | features})
    file(filled, "old.parquet")
    for body in ({}, {"dry-run": True}):
        answer = filled.client.post(f"{filled.url}/vacuum", json=body)
        assert error(answer)["type"] == kind
    assert (filled.folder / "old.parquet").exists()


def test_a_vector_of_an_unknown_kind_keeps_everything(filled, error):
    descriptor = {
        "storageType": "u",
        "pathOrInlineDv": "no uuid",
        "offset": 1,
        "sizeInBytes": 34,
        "cardinality": 1,
    }
    line = add("c.parquet", file(filled, "c.parquet"))
    line["add"]["deletionVector"] = descriptor
    foreign(filled, line)
    file(filled, "old.parquet")
    answer = filled.client.post(f"{filled.url}/vacuum", json={})
    assert error(answer)["type"] == "CorruptDeletionVector"
    assert (filled.folder / "old.parquet").exists()


def test_a_clock_that_is_ahead_deletes_nothing_too_early(filled, monkeypatch):
    path = file(filled, "young.parquet", days=5)
    ahead = time.time_ns() + 3 * DAY * 10**9
    monkeypatch.setattr(running_vacuum.time, "time_ns", lambda: ahead)
    assert vacuum(filled)["num-files"] == 0, "the storage's clock says that it is five days old"
    assert path.exists()


@pytest.mark.parametrize("moment", ["START", "END"])
def test_a_service_that_dies_at_a_commit_leaves_a_table_that_is_right(filled, monkeypatch, moment):
    file(filled, "old.parquet")
    age_all(filled)
    original = running_vacuum._Run._commit

    def dying(run, operation, *arguments):
        if operation.endswith(moment):
            raise KeyboardInterrupt
        return original(run, operation, *arguments)

    monkeypatch.setattr(running_vacuum._Run, "_commit", dying)
    service = filled.client.app.state.service
    table = service.tables.open(filled.name)
    with pytest.raises(KeyboardInterrupt):
        running_vacuum.vacuum(
            table,
            service.loader,
            service.ledger,
            service.clone_store,
            service.tables.roots.everywhere,
            service.commits,
            service.deletion_locks,
            running_vacuum.VacuumRequest(),
        )
    monkeypatch.undo()
    rows(filled)
    vacuum(filled)
    assert data(filled) == {"a.parquet", "b.parquet"}


def test_the_answer_lists_as_many_paths_as_asked_for(filled):
    for number in range(5):
        file(filled, f"{number}.parquet")
    found = vacuum(filled, dry_run=True, limit=2)
    assert (found["files"], found["num-files"]) == (["0.parquet", "1.parquet"], 5)


def age_log(table, *days):
    for version, ago in enumerate(days):
        aged(table.log / f"{version:020}.json", ago)


def expired(table, version, days=20):
    """Make a version's removes older than the retention."""
    path = table.log / f"{version:020}.json"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if "remove" in line:
            line["remove"]["deletionTimestamp"] = int((time.time() - days * DAY) * 1000)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    aged(path, days)
    table.client.service.loader.forget(table.folder.as_uri())


def test_lite_deletes_what_the_log_says_was_removed_with_vectors_and_change_files(filled):
    filled.delete({"a.parquet": [1], "b.parquet": [2]})
    [shared] = vectors(filled)
    filled.delete({"a.parquet": [3]}, removes=["b.parquet"])
    cdc = file(filled, "_change_data/cdc.parquet")
    foreign(
        filled,
        {"cdc": {"path": "_change_data/cdc.parquet", "partitionValues": {}, "size": 9, "dataChange": False}},
    )
    file(filled, "never-in-the-log.parquet")
    for version, days in enumerate([40, 30, 25, 20, 20]):
        expired(filled, version, days)
    age_all(filled)
    assert sorted(vacuum(filled, mode="lite", dry_run=True)["files"]) == sorted(
        ["_change_data/cdc.parquet", "b.parquet", shared]
    )
    assert not (filled.log / "_last_vacuum_info").exists()
    done = vacuum(filled, mode="lite")
    assert done["num-files"] == 3
    assert not cdc.exists()
    assert (filled.folder / "never-in-the-log.parquet").exists()
    noted = json.loads((filled.log / "_last_vacuum_info").read_text())
    assert noted == {"latestCommitVersionOutsideOfRetentionWindow": 4}
    assert vacuum(filled, mode="lite")["result"] == "nothing-to-delete"
    rows(filled)


def test_lite_keeps_what_is_within_the_retention_or_live_again(filled):
    filled.delete({}, removes=["a.parquet"])
    filled.delete({}, removes=["b.parquet"])
    foreign(filled, add("a.parquet", filled.folder / "a.parquet"))
    for version, days in enumerate([40, 30, 25]):
        expired(filled, version, days)
    age_all(filled)
    assert vacuum(filled, mode="lite")["num-files"] == 0
    assert json.loads((filled.log / "_last_vacuum_info").read_text()) == {
        "latestCommitVersionOutsideOfRetentionWindow": 2
    }


def test_lite_deletes_later_what_a_kept_version_needed(filled):
    filled.delete({}, removes=["b.parquet"])
    for version, days in enumerate([40, 30, 25]):
        expired(filled, version, days)
    age_all(filled)

    assert vacuum(filled, mode="lite", keep_versions=[1])["num-files"] == 0
    assert vacuum(filled, mode="lite")["files"] == ["b.parquet"]


def test_lite_reaches_only_commits_beyond_the_retention(filled):
    filled.delete({}, removes=["b.parquet"])
    for version, days in enumerate([40, 30, 3]):
        expired(filled, version, days)
    age_all(filled)

    assert vacuum(filled, mode="lite")["num-files"] == 0
    assert json.loads((filled.log / "_last_vacuum_info").read_text()) == {
        "latestCommitVersionOutsideOfRetentionWindow": 1
    }


def test_lite_touches_nothing_that_is_not_the_tables_whatever_the_log_says(filled):
    names = ["_delta_log/00000000000000000000.json", "_other/x", ".x", "c/_y/x", "metadata/x"]
    for name in names[1:]:
        file(filled, name)
    foreign(filled, *({"remove": {"path": name, "dataChange": True}} for name in [*names, "s3://other/x"]))
    for version, days in enumerate([40, 30, 25]):
        expired(filled, version, days)
    assert vacuum(filled, mode="lite", dry_run=True)["num-files"] == 0


def test_lite_needs_a_log_that_reaches_back(filled, error):
    filled.delete({}, removes=["b.parquet"])
    for version, days in enumerate([40, 30, 25]):
        expired(filled, version, days)
    age_all(filled)
    filled.client.post(f"{filled.url}/checkpoint", json={})
    (filled.log / f"{0:020}.json").unlink()
    filled.client.service.loader.forget(filled.folder.as_uri())
    answer = filled.client.post(f"{filled.url}/vacuum", json={"mode": "lite"})
    assert (answer.status_code, error(answer)["type"]) == (400, "VacuumLiteImpossible")
    (filled.log / "_last_vacuum_info").write_text('{"latestCommitVersionOutsideOfRetentionWindow":0}')
    assert vacuum(filled, mode="lite")["files"] == ["b.parquet"]
