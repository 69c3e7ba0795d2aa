"""``clone()``, ``CREATE TABLE … CLONE``, ``delvec clone``: shallow and deep, with deletion vectors, and VACUUM of sources."""

import json
import os
import shutil
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.between import during_deletes
from tests.support.checked import assert_sound

import delvec
import delvec_service.vacuum.vacuum as vacuuming
from delvec.cli import main
from delvec_service.store.clones import CloneStore
from delvec_service.vacuum.clone_files import CloneReferences

ID = "id long, name string, country string"


def ids(table, **moment):
    return sorted(table.to_arrow(columns=["id"], **moment)["id"].to_pylist())


def actions(table, version):
    log = Path(table.location.removeprefix("file://")) / "_delta_log" / f"{version:020}.json"
    return [json.loads(line) for line in log.read_text().splitlines()]


def adds(table, version=0):
    return [action["add"] for action in actions(table, version) if "add" in action]


def age(folder):
    """Make every file look a year old."""
    for path in Path(folder).rglob("*"):
        if path.is_file():
            os.utime(path, (path.stat().st_mtime - 365 * 86400,) * 2)


@pytest.fixture
def marked(people):
    """Versions: 1 all ten rows, 2 without 0 to 2 by a deletion vector, 3 with 100."""
    people.delete("id < 3")
    people.append([{"id": 100, "name": "new", "country": "NZ"}])
    return people


def test_a_shallow_clone_reads_its_sources_in_every_connection(marked, tmp_path):
    """Without roots a log may name files of the tables of which Delvec made it a clone, and no others."""
    database = f"sqlite:///{tmp_path / 'clones.db'}"
    with delvec.connect(database_url=database) as lake:
        first = lake.table(marked.location).clone(tmp_path / "first", shallow=True)
        first.delete("id = 9")
        first.clone(tmp_path / "second", shallow=True)
        other = lake.create_table(tmp_path / "replaced", ID)
        lake.sql(f"CREATE OR REPLACE TABLE delta.`{other.location}` SHALLOW CLONE delta.`{first.location}`")
    with delvec.connect(database_url=database) as lake:
        for name in ("first", "second", "replaced"):
            table = lake.table(tmp_path / name)
            assert ids(table) == [3, 4, 5, 6, 7, 8, 100]
            assert table.update({"id": "id + 1"}, "id = 3")["numUpdatedRows"] == 1
            assert table.check()["num-errors"] == 0
    with (
        delvec.connect(database_url="sqlite://") as elsewhere,
        pytest.raises(delvec.LocationNotAllowed, match="name it in DELVEC_ROOTS"),
    ):
        elsewhere.table(tmp_path / "second").to_arrow()


@pytest.fixture(params=["shallow", "deep"])
def shallow(request):
    return request.param == "shallow"


def test_a_clone_is_what_the_table_is(marked, tmp_path, shallow):
    clone = marked.clone(tmp_path / "clone", shallow=shallow, properties={"a": "b"})

    assert ids(clone) == ids(marked) == [3, 4, 5, 6, 7, 8, 9, 100]
    assert clone.to_arrow().schema == marked.to_arrow().schema
    assert clone.version() == 0
    assert clone.snapshot().configuration == {**marked.snapshot().configuration, "a": "b"}
    assert clone.snapshot().metadata_id != marked.snapshot().metadata_id
    info = actions(clone, 0)[0]["commitInfo"]
    assert (info["operation"], info["operationParameters"]) == (
        "CLONE",
        {"source": f"delta.`{marked.location}`", "sourceVersion": 3, "isShallow": shallow},
    )
    metrics = {name: int(value) for name, value in info["operationMetrics"].items()}
    files = marked.snapshot().num_files
    assert (metrics["sourceNumOfFiles"], metrics["numCopiedFiles"]) == (files, 0 if shallow else files)
    assert metrics["copiedFilesSize"] == (0 if shallow else metrics["sourceTableSize"])
    data = list((tmp_path / "clone").glob("*.parquet"))
    assert len(data) == (0 if shallow else files)
    assert all(add["path"].startswith("file:/") is shallow for add in adds(clone))
    (vector,) = [add["deletionVector"] for add in adds(clone) if "deletionVector" in add]
    assert vector["storageType"] == ("p" if shallow else "u")
    assert_sound(tmp_path / "clone")


def test_each_goes_its_own_way(marked, tmp_path, shallow):
    clone = marked.clone(tmp_path / "clone", shallow=shallow)
    clone.delete("id = 3")
    clone.update({"name": "'x'"}, "id = 4")
    clone.merge(
        pa.table({"id": [5, 200], "name": ["m", "m"], "country": ["a", "a"]}), "target.id = source.id"
    ).when_matched_update_all().when_not_matched_insert_all().execute()
    marked.delete("id = 9")

    assert ids(clone) == [4, 5, 6, 7, 8, 9, 100, 200]
    assert ids(marked) == [3, 4, 5, 6, 7, 8, 100]
    assert ids(clone, version=0) == [3, 4, 5, 6, 7, 8, 9, 100]
    clone.optimize.purge()
    assert ids(clone) == [4, 5, 6, 7, 8, 9, 100, 200]
    clone.restore(0)
    assert ids(clone) == [3, 4, 5, 6, 7, 8, 9, 100]
    assert_sound(tmp_path / "clone")
    assert_sound(tmp_path / "people")


def test_a_version_or_a_time(marked, tmp_path, shallow):
    assert ids(marked.clone(tmp_path / "a", shallow=shallow, version=1)) == list(range(10))
    moment = str(marked.snapshot(version=2).timestamp)
    assert ids(marked.clone(tmp_path / "b", shallow=shallow, timestamp=moment)) == list(range(3, 10))
    with pytest.raises(delvec.VersionNotFound):
        marked.clone(tmp_path / "c", shallow=shallow, version=9)
    with pytest.raises(delvec.BadRequest, match="not both"):
        marked.clone(tmp_path / "c", version=1, timestamp=moment)
    assert not (tmp_path / "c").exists()


def test_partitions_and_odd_names(lake, tmp_path, shallow):
    table = lake.create_table(tmp_path / "a table", "id long, p string", partition_by=["p"])
    table.append([{"id": n, "p": value} for n, value in enumerate(["a b", "ä:/%", None, "x=1#?"])])
    table.append([{"id": 9, "p": "a b"}])
    table.delete("id = 9 OR id = 2")
    clone = table.clone(tmp_path / "the clone ä", shallow=shallow)
    assert sorted(map(str, clone.to_arrow().to_pylist())) == sorted(map(str, table.to_arrow().to_pylist()))
    assert clone.count("p = 'ä:/%'") == 1
    again = clone.clone(tmp_path / "again", shallow=not shallow)
    assert ids(again) == [0, 1, 3]
    assert_sound(tmp_path / "again")


def test_a_table_that_is_there(marked, tmp_path, shallow, lake):
    other = lake.create_table(tmp_path / "other", "x int", properties={"old": "1"})
    other.append([{"x": 1}])
    with pytest.raises(delvec.TableAlreadyExists):
        marked.clone(tmp_path / "other", shallow=shallow)
    same = marked.clone(tmp_path / "other", shallow=shallow, if_not_exists=True)
    assert (same.id, same.version()) == (other.id, 1)

    clone = marked.clone(tmp_path / "other", shallow=shallow, replace=True, version=1)

    assert (clone.id, clone.version()) == (other.id, 2)
    assert ids(clone) == list(range(10))
    assert "old" not in clone.snapshot().configuration
    assert clone.snapshot().metadata_id == other.snapshot().metadata_id
    assert other.to_arrow(version=1).to_pydict() == {"x": [1]}
    assert clone.history(1)[0]["operationMetrics"]["numRemovedFiles"] == "1"

    marked.clone(tmp_path / "other", shallow=shallow, replace=True)
    assert ids(clone) == ids(marked)
    assert len(adds(clone, 3)) == (2 if not shallow else len(adds(clone, 3)))
    marked.clone(tmp_path / "other", shallow=shallow, replace=True)
    if shallow:
        assert adds(clone, 4) == []  # what is there already stays
    assert_sound(tmp_path / "other")
    with pytest.raises(delvec.BadRequest, match="RESTORE"):
        marked.clone(tmp_path / "people", replace=True)
    with pytest.raises(delvec.BadRequest, match="exclude each other"):
        marked.clone(tmp_path / "x", replace=True, if_not_exists=True)


def test_a_restore_and_a_replacement_say_which_version_was_the_newest(tmp_path, monkeypatch):
    sent = []
    with delvec.connect(warehouse=tmp_path, database_url="sqlite://") as lake:
        people, other = lake.create_table("people", ID), lake.create_table("other", ID)
        people.append([{"id": 1, "name": "a", "country": "NZ"}])
        people.delete("id = 1")
        service = type(people._service)
        call = service.call

        def remembered(self, operation, body=None, *options, **path):
            sent.append(getattr(body, "read_version", None))
            return call(self, operation, body, *options, **path)

        monkeypatch.setattr(service, "call", remembered)
        people.restore(1)
        people.clone(other.location, replace=True)
        people.clone("other", replace=True, shallow=True)
        people.clone("new", replace=True)

    assert [version for version in sent if version is not None] == [2, 0, 1]


def test_column_mapping_row_ids_and_clustering(lake, tmp_path, shallow):
    table = lake.create_table(
        tmp_path / "t",
        "id long, `a b` string",
        properties={
            "delta.columnMapping.mode": "name",
            "delta.enableRowTracking": True,
            "delta.enableInCommitTimestamps": True,
            "delta.enableChangeDataFeed": True,
        },
        cluster_by=["id"],
    )
    table.append([{"id": 1, "a b": "x"}, {"id": 2, "a b": "y"}])
    table.delete("id = 1")
    clone = table.clone(tmp_path / "c", shallow=shallow)
    assert clone.to_arrow().to_pylist() == [{"id": 2, "a b": "y"}]
    assert clone.detail()["clusteringColumns"] == ["id"]
    (add,) = adds(clone)
    assert (add["baseRowId"], add["defaultRowCommitVersion"]) == (0, 0)
    names = [name for name in clone.snapshot().configuration if "materialized" in name]
    mine, theirs = clone.snapshot().configuration, table.snapshot().configuration
    assert len(names) == 2
    assert all(mine[name] != theirs[name] for name in names)
    clone.update({"`a b`": "'z'"}, "id = 2")
    clone.append([{"id": 3, "a b": "w"}])
    assert ids(clone) == [2, 3]
    assert clone.changes(1).num_rows == 3
    with pytest.raises(delvec.InvalidTableChange, match="columnMapping"):
        table.clone(tmp_path / "d", properties={"delta.columnMapping.mode": "none"})
    assert_sound(tmp_path / "c")


@pytest.fixture
def forgetful(marked, tmp_path, monkeypatch):
    """An old shallow clone whose newest version needs no file of its source, and that keeps none of those it had."""
    monkeypatch.setattr("delvec_service.vacuum.clone_files._BEING_MADE", delvec_service_zero())
    clone = marked.clone(tmp_path / "clone", shallow=True)
    clone.alter.set_properties({"delta.deletedFileRetentionDuration": "interval 0 hours"})
    clone.overwrite([{"id": 7, "name": "own", "country": "NZ"}])
    marked.overwrite([{"id": 8, "name": "own", "country": "NZ"}])
    return clone


def test_a_restore_of_a_clone_before_files_of_its_source_go_keeps_them(marked, forgetful, monkeypatch):
    plan = vacuuming.make_plan

    def then_restored(*given):
        found = plan(*given)
        forgetful.restore(0)
        return found

    monkeypatch.setattr(vacuuming, "make_plan", then_restored)
    marked.vacuum(0, enforce_retention_duration=False)
    assert ids(forgetful) == [3, 4, 5, 6, 7, 8, 9, 100]


@pytest.mark.full("waits for a lock")
def test_a_restore_of_a_clone_waits_while_files_of_its_source_go(marked, forgetful, monkeypatch):
    with during_deletes(monkeypatch, partial(forgetful.restore, 0), seconds=3) as restores:
        assert marked.vacuum(0, enforce_retention_duration=False)["num-files"] > 1
        with pytest.raises(delvec.MissingRestoreFiles):
            restores[0].result(300)
    assert ids(forgetful) == [7]


def test_vacuum_of_the_source_keeps_what_its_clones_need(lake, marked, tmp_path):
    clone = marked.clone(tmp_path / "clone", shallow=True)
    second = clone.clone(tmp_path / "second", shallow=True)
    old = marked.clone(tmp_path / "old", shallow=True, version=1)
    deep = marked.clone(tmp_path / "deep")
    clone.delete("id = 100")
    marked.overwrite([{"id": 1, "name": "only", "country": "NZ"}])
    age(tmp_path / "people")

    done = marked.vacuum(0, enforce_retention_duration=False)

    assert done["num-files"] == 0
    assert ids(old) == list(range(10))
    assert ids(clone) == [3, 4, 5, 6, 7, 8, 9]
    assert ids(second) == ids(deep) == [3, 4, 5, 6, 7, 8, 9, 100]
    assert ids(marked) == [1]
    assert clone.vacuum(0, enforce_retention_duration=False)["num-files"] == 0

    # One is gone, another needs nothing any more; the rest still do.
    shutil.rmtree(tmp_path / "old")
    age(tmp_path / "people")
    assert marked.vacuum(0, enforce_retention_duration=False)["num-files"] == 0
    assert ids(second) == [3, 4, 5, 6, 7, 8, 9, 100]


def test_clones_are_known_without_the_database_that_noted_them(marked, tmp_path, monkeypatch):
    clone = marked.clone(tmp_path / "clone", shallow=True)
    second = clone.clone(tmp_path / "second", shallow=True)
    clone.overwrite([{"id": 2, "name": "own", "country": "NZ"}])
    age(tmp_path / "clone")
    clone.vacuum(0, enforce_retention_duration=False)
    marked.overwrite([{"id": 1, "name": "only", "country": "NZ"}])
    age(tmp_path / "people")
    monkeypatch.setattr(CloneStore, "of", lambda _self, _location: [])

    assert marked.vacuum(0, enforce_retention_duration=False)["num-files"] == 0
    assert ids(second) == [3, 4, 5, 6, 7, 8, 9, 100]

    records = list((tmp_path / "people" / "_delvec" / "clones").iterdir())
    assert len(records) == 2
    records[0].write_text("{")
    with pytest.raises(delvec.CorruptTable, match="record of a shallow clone"):
        marked.vacuum(0, enforce_retention_duration=False)
    assert ids(second) == [3, 4, 5, 6, 7, 8, 9, 100]


def test_a_clone_of_a_clone_that_is_gone_is_known_without_the_database(marked, tmp_path, monkeypatch):
    middle = marked.clone(tmp_path / "middle", shallow=True)
    last = middle.clone(tmp_path / "last", shallow=True)
    shutil.rmtree(tmp_path / "middle")
    marked.overwrite([{"id": 1, "name": "only", "country": "NZ"}])
    age(tmp_path / "people")
    monkeypatch.setattr(CloneStore, "of", lambda _self, _location: [])
    monkeypatch.setattr("delvec_service.vacuum.clone_files._BEING_MADE", delvec_service_zero())
    assert marked.vacuum(0, enforce_retention_duration=False)["num-files"] == 0
    assert ids(last) == [3, 4, 5, 6, 7, 8, 9, 100]


def test_a_record_leads_nowhere_out_of_the_roots(tmp_path):
    lake = delvec.connect(tmp_path / "lake", roots=[tmp_path / "lake"])
    table = lake.create_table("people", "id long")
    table.append(pa.table({"id": [1]}))
    outside = tmp_path / "outside" / "_delvec" / "clones"
    outside.mkdir(parents=True)
    folder = tmp_path / "lake" / "people" / "_delvec" / "clones"
    folder.mkdir(parents=True)
    record = {
        "location": f"file://{tmp_path}/lake/gone",
        "source-location": f"file://{tmp_path}/outside",
        "source-version": 0,
        "created-at": "2020-01-01T00:00:00+00:00",
    }
    (folder / "h.json").write_text(json.dumps(record))
    (outside / "h.json").write_text("mine")
    for location in (record["source-location"], record["source-location"] + "/../outside"):
        (folder / "h.json").write_text(json.dumps(record | {"source-location": location}))
        with pytest.raises((delvec.LocationNotAllowed, delvec.CorruptTable)):
            table.vacuum(0, enforce_retention_duration=False)
    assert (outside / "h.json").read_text() == "mine"


def test_a_clone_that_is_made_again_is_not_forgotten_with_the_one_before(lake, marked, tmp_path, monkeypatch):
    """VACUUM has read the old record, and found no log, when the clone is made anew."""
    marked.clone(tmp_path / "clone", shallow=True)
    while (tmp_path / "clone").exists():  # the service may be writing there, after the commit
        shutil.rmtree(tmp_path / "clone", ignore_errors=True)
    monkeypatch.setattr("delvec_service.vacuum.clone_files._BEING_MADE", delvec_service_zero())
    forget = CloneReferences._forget

    def late(self, record):
        marked.clone(tmp_path / "clone", shallow=True)
        forget(self, record)

    monkeypatch.setattr(CloneReferences, "_forget", late)
    marked.vacuum(0, enforce_retention_duration=False)
    monkeypatch.undo()
    before = ids(lake.table(tmp_path / "clone"))
    marked.overwrite([{"id": 1, "name": "only", "country": "NZ"}])
    age(tmp_path / "people")
    marked.vacuum(0, enforce_retention_duration=False)
    assert ids(lake.table(tmp_path / "clone")) == before


@pytest.mark.parametrize("place", ["", "people/clone"])
def test_a_clone_above_or_below_its_source_is_refused(marked, tmp_path, shallow, place):
    with pytest.raises(delvec.LocationNotAllowed, match=r"(inside|above) table 'people'"):
        marked.clone(tmp_path / place, shallow=shallow)


def test_a_clone_that_asks_for_manifests_has_them(lake, tmp_path):
    table = lake.create_table(
        tmp_path / "plain", "id long", properties={"delta.enableDeletionVectors": "false"}
    )
    table.append(pa.table({"id": [1]}))
    wanted = {"delta.compatibility.symlinkFormatManifest.enabled": "true"}
    table.clone(tmp_path / "clone", properties=wanted)
    assert (tmp_path / "clone" / "_symlink_format_manifest" / "manifest").exists()


def test_vacuum_of_the_source_forgets_clones_that_are_gone(marked, tmp_path, monkeypatch):
    marked.clone(tmp_path / "clone", shallow=True)
    marked.overwrite([{"id": 1, "name": "only", "country": "NZ"}])
    shutil.rmtree(tmp_path / "clone")
    age(tmp_path / "people")
    assert marked.vacuum(0, enforce_retention_duration=False)["num-files"] == 0  # it may be about to be made
    monkeypatch.setattr("delvec_service.vacuum.clone_files._BEING_MADE", delvec_service_zero())
    assert marked.vacuum(0, enforce_retention_duration=False)["num-files"] == 3
    assert ids(marked) == [1]
    assert not list((tmp_path / "people" / "_delvec" / "clones").iterdir())


def delvec_service_zero():
    from datetime import timedelta

    return timedelta(0)


def test_files_of_an_old_version_that_are_gone_are_named(marked, tmp_path, shallow):
    marked.overwrite([{"id": 1, "name": "only", "country": "NZ"}])
    (path,) = [add["path"] for add in adds(marked, 1)]
    (tmp_path / "people" / path).unlink()
    with pytest.raises(delvec.MissingCloneFiles, match="cannot be cloned") as caught:
        marked.clone(tmp_path / "clone", shallow=shallow, version=3)
    assert caught.value.details["missing"] == [path]
    assert not list((tmp_path / "clone").rglob("*.json"))
    assert not list((tmp_path / "clone").rglob("*.parquet"))


def test_clones_stay_within_the_roots(tmp_path):
    inside = tmp_path / "in"
    with delvec.connect(roots=inside) as lake:
        table = lake.create_table(inside / "t", "id long")
        table.append([{"id": 1}])
        with pytest.raises(delvec.LocationNotAllowed):
            table.clone(tmp_path / "out", shallow=True)
        secret = tmp_path / "secret.parquet"
        shutil.copy(next((inside / "t").glob("*.parquet")), secret)
        log = inside / "t" / "_delta_log" / f"{2:020}.json"
        add = {"path": secret.as_uri(), "partitionValues": {}, "size": secret.stat().st_size}
        log.write_text(json.dumps({"add": {**add, "modificationTime": 1, "dataChange": True}}) + "\n")
        with pytest.raises(delvec.LocationNotAllowed):
            table.clone(inside / "deep")
        with pytest.raises(delvec.LocationNotAllowed, match="DELVEC_ROOTS"):
            table.clone(inside / "shallow", shallow=True)
    assert not list((inside / "deep").rglob("*.parquet"))
    assert not (inside / "shallow").exists()


def test_a_table_that_does_not_let_go_of_rows_is_not_replaced(lake, marked, tmp_path):
    keep = lake.create_table(tmp_path / "keep", ID, properties={"delta.appendOnly": True})
    keep.append([{"id": 1, "name": "a", "country": "b"}])
    with pytest.raises(delvec.AppendOnlyTable):
        marked.clone(tmp_path / "keep", shallow=True, replace=True)


def test_by_name_in_sql(tmp_path):
    with delvec.connect(warehouse=tmp_path) as lake:
        lake.create_table("people", "id long")
        lake.sql("INSERT INTO people VALUES (1), (2)")
        lake.sql("DELETE FROM people WHERE id = 1")
        done = lake.sql("CREATE TABLE copy SHALLOW CLONE people TBLPROPERTIES ('a.b' = '1', c = 2)")
        assert (done["sourceNumOfFiles"], done.version) == (1, 0)
        copied = lake.table("copy").snapshot().configuration
        assert (copied["a.b"], copied["c"]) == ("1", "2")
        assert lake.sql("SELECT * FROM copy").to_pydict() == {"id": [2]}
        assert lake.sql("CREATE TABLE IF NOT EXISTS copy DEEP CLONE people").version is None
        with pytest.raises(delvec.TableAlreadyExists):
            lake.sql("CREATE TABLE copy DEEP CLONE people")
        done = lake.sql(f"CREATE OR REPLACE TABLE copy DEEP CLONE delta.`{tmp_path}/people` VERSION AS OF 1")
        assert (done["numCopiedFiles"], done["numRemovedFiles"], done.version) == (1, 1, 1)
        assert lake.sql("SELECT count(*) AS n FROM copy").to_pydict() == {"n": [2]}
        lake.sql(f"CREATE TABLE third SHALLOW CLONE people LOCATION '{tmp_path}/elsewhere/third'")
        assert lake.table("third").location.endswith("/elsewhere/third")
        for wrong in (
            "CREATE TABLE x SHALLOW people",
            "CREATE TABLE x SHALLOW CLONE people WHERE id = 1",
            "CREATE TABLE x SHALLOW CLONE people TBLPROPERTIES (a)",
        ):
            with pytest.raises(delvec.InvalidStatement):
                lake.sql(wrong)


def test_in_the_shell(people, tmp_path, capsys):
    for arguments in (["--shallow"], ["--replace", "--version", "0"], ["--if-not-exists"]):
        with pytest.raises(SystemExit) as ended:
            main(["clone", str(tmp_path / "people"), str(tmp_path / "c"), *arguments])
        assert ended.value.code == 0
    said = "".join(capsys.readouterr())
    assert "cloned 'people' (shallow, 1 file)" in said
    assert "cloned 'people' (deep, 0 files)" in said
    assert "nothing done" in said
    with pytest.raises(SystemExit):
        main(["--json", "clone", str(tmp_path / "people"), str(tmp_path / "d")])
    assert json.loads(capsys.readouterr().out)["version"] == 0
