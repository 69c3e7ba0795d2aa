"""The property ``delvec.iceberg.location``: where Iceberg metadata and delete files are, for every operation."""

import dataclasses
import json
import logging
import os
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from tests.support.iceberg_tables import assert_sound, delta_rows, iceberg_rows, iceberg_table
from tests.support.served import served

import delvec
from delvec.cli import main

BOTH = pytest.mark.parametrize("format_version", [2, 3])
LOCATION = "delvec.iceberg.location"
LEFT = f"{'0a' * 16}-00001-00000"
NOW = {"retention_hours": 0, "enforce_retention_duration": False}


@pytest.fixture
def lake(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    root = tmp_path / "a b%20c"
    root.mkdir()
    with delvec.connect(roots=[str(root)]) as lake:
        yield lake


@pytest.fixture
def root(tmp_path, lake):
    return tmp_path / "a b%20c"


@pytest.fixture
def people(lake, root):
    return made(lake, root / "people")


def made(lake, path):
    table = lake.create_table(path, "id long, p string", partition_by=["p"])
    table.append([{"id": n, "p": "ab"[n % 2]} for n in range(20)])
    table.delete("id < 3")
    return table


def put(table, value):
    table.alter.set_properties({LOCATION: str(value)})


def hostile(table, value):
    """Commit the property as another writer would, without our checks."""
    log = Path(table.location.removeprefix("file://").replace("%20", " ").replace("%25", "%")) / "_delta_log"
    [metadata] = [
        json.loads(line)["metaData"]
        for line in (log / f"{0:020}.json").read_text().splitlines()
        if "metaData" in line
    ]
    metadata["configuration"][LOCATION] = value
    version = len(list(log.glob("*.json")))
    actions = [{"commitInfo": {"timestamp": 1, "operation": "SET TBLPROPERTIES"}}, {"metaData": metadata}]
    (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def aged(folder):
    """Make files older than any retention."""
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (1_600_000_000, 1_600_000_000))


PLACES = pytest.mark.parametrize("place", ["_ice", ".", "metadata", "ice/deep", "elsewhere"])


@PLACES
@BOTH
def test_conversions_checks_lag_and_vacuum_follow_the_property(people, root, place, format_version):
    value = root / "iceberg" / "people" if place == "elsewhere" else place
    put(people, value)
    folder = root / "people" if place == "." else root / "people" / value / f"v{format_version}"

    done = people.to_iceberg(format_version=format_version)

    assert done["metadata-location"] == f"file://{folder}/metadata/v1.metadata.json"
    assert iceberg_rows(done) == delta_rows(people)
    assert (folder / "metadata" / "version-hint.text").read_text() == "1"
    assert any((folder / "deletes").iterdir())
    assert not (root / "people" / "_iceberg").exists()
    assert bool(done["warning"]) == (place in {".", "metadata", "ice/deep"})
    people.delete("id = 5")
    [lag] = people.health()["iceberg"]
    assert (lag["metadata-location"], lag["lag-versions"]) == (done["metadata-location"], 1)
    # An increment supersedes delete files; expiry is a matter of time, so the older snapshot is taken out here.
    done = people.to_iceberg(format_version=format_version)
    assert iceberg_rows(done) == delta_rows(people)
    assert [one["metadata-location"] for one in people.health()["iceberg"]] == [done["metadata-location"]]
    assert_sound(people)
    orphan = folder / "deletes" / f"{LEFT}.{'parquet' if format_version == 2 else 'puffin'}"
    orphan.write_bytes(b"PAR1")
    (folder / "deletes" / "not-ours.parquet").write_bytes(b"PAR1")
    needed = files(folder) - {str(orphan.relative_to(folder))}
    aged(root)
    listed = people.vacuum(dry_run=True, **NOW)["files"]
    assert len([path for path in listed if path.endswith(orphan.name)]) == 1

    people.vacuum(**NOW)

    assert not orphan.exists()
    assert needed - files(folder) == set()
    snapshots = iceberg_table(done).metadata.snapshots
    assert [len(iceberg_rows(done, snapshot_id=one.snapshot_id)) for one in snapshots] == [17, 16]
    assert_sound(people)


@pytest.mark.parametrize("place", ["ice", ".", "elsewhere"])
def test_lite_and_approved_vacuums_leave_iceberg_files(people, root, place):
    put(people, root / "iceberg" if place == "elsewhere" else place)
    done = people.to_iceberg(format_version=3)
    aged(root)
    before = files(root)
    people.vacuum(mode="lite", **NOW)
    folder = root / "iceberg" if place == "elsewhere" else root / "people" / place
    orphan = folder / ("" if place == "." else "v3") / "deletes" / f"{LEFT}.puffin"
    orphan.write_bytes(b"PFA1")
    aged(root)
    plan = people.plan_vacuum(**NOW)
    [listed] = [path for path in plan.files if path.endswith(f"{LEFT}.puffin")]
    if place != "elsewhere":
        names = [path.removeprefix("people/") for path in before if "/_delta_log/" not in path]
        plan = dataclasses.replace(plan, files=[listed, *names])
    people.vacuum(plan=plan)
    assert orphan.exists()
    assert before - files(root) == set()
    assert iceberg_rows(done) == delta_rows(people)


@pytest.mark.parametrize(
    ("place", "stays"), [("_ice", True), (".ice", True), ("ice", False), ("metadata", False)]
)
def test_deltalakes_vacuum_takes_what_the_warning_is_about(tmp_path, monkeypatch, place, stays):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with delvec.connect() as lake:
        people = lake.create_table(tmp_path / "people", "id long", properties={LOCATION: place})
        people.append([{"id": 1}])
        assert (people.to_iceberg()["warning"] is None) == stays
    folder = tmp_path / "people" / place
    aged(folder)
    before = files(folder)
    DeltaTable(tmp_path / "people").vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert files(folder) == (before if stays else set())


def test_changing_the_property_starts_over_in_the_new_directory(people, root):
    first = people.to_iceberg()
    put(people, "_ice")
    people.delete("id = 5")
    done = people.to_iceberg()
    assert done["metadata-location"].endswith("/people/_ice/v2/metadata/v1.metadata.json")
    assert iceberg_rows(done) == delta_rows(people)
    # The old directory keeps what it showed.
    assert len(iceberg_rows(first)) == 17
    people.alter.unset_properties([LOCATION])
    # It goes on where it was.
    done = people.to_iceberg()
    assert done["metadata-location"].endswith("/_iceberg/v2/metadata/v2.metadata.json")
    assert iceberg_rows(done) == delta_rows(people)


def test_the_tables_own_directory_takes_one_format_version(people):
    put(people, ".")
    people.to_iceberg(format_version=3)
    with pytest.raises(
        delvec.IcebergUnsupported, match=r"has the Iceberg table of format version 3 of table"
    ):
        people.to_iceberg(format_version=2)
    assert [one["format-version"] for one in people.health()["iceberg"]] == [3]
    assert_sound(people)


def test_a_directory_outside_the_roots_is_refused_by_every_operation(people, tmp_path, lake):
    outside = tmp_path / "outside"
    hostile(people, str(outside))
    people = lake.table(people.location)
    for operation in (people.to_iceberg, people.vacuum, lambda: people.vacuum(dry_run=True)):
        with pytest.raises(delvec.LocationNotAllowed, match=r"delvec\.iceberg\.location of table 'people'"):
            operation()
    assert people.health()["iceberg"] == []
    [finding] = people.check(iceberg=True)["findings"]
    assert "outside the roots" in finding["message"]
    assert not outside.exists()


@pytest.mark.parametrize("value", ["../other", "_delta_log", "a%2e%2e/b", "file:///x/../y", ""])
def test_an_invalid_value_in_a_log_is_refused_by_every_operation(people, value, lake):
    hostile(people, value)
    people = lake.table(people.location)
    for operation in (people.to_iceberg, people.vacuum):
        with pytest.raises(delvec.CorruptTable, match=r"delvec\.iceberg\.location of table 'people'"):
            operation()
    assert people.health()["iceberg"] == []
    [finding] = people.check(iceberg=True)["findings"]
    assert "Set it to a directory below the table" in finding["message"]


def test_an_invalid_value_cannot_be_set(people, lake, root):
    with pytest.raises(delvec.BadRequest, match=r"contains '\.\.'"):
        put(people, "../other")
    with pytest.raises(delvec.BadRequest, match="another purpose"):
        lake.create_table(root / "new", "id long", properties={LOCATION: "_delvec/x"})


def test_a_link_out_of_the_roots_is_refused(people, root, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "link").symlink_to(outside)
    put(people, root / "link")
    with pytest.raises(delvec.LocationNotAllowed):
        people.to_iceberg()
    put(people, "_ice")
    (root / "people" / "_ice").symlink_to(outside)
    with pytest.raises(delvec.DelvecError):
        people.to_iceberg()
    assert files(outside) == set()


@pytest.mark.parametrize("inside", ["other/ice", "people/nested/ice"])
def test_the_directory_of_another_table_is_refused(people, lake, root, inside):
    made(lake, root / "made")
    shutil.copytree(root / "made", root / Path(inside).parent)  # by another writer: it is not registered
    put(people, root / inside)
    with pytest.raises(delvec.LocationNotAllowed, match=r"(?s)cannot be in.*inside the Delta table at"):
        people.to_iceberg()
    assert not (root / inside).exists()


def test_two_tables_cannot_have_one_directory(people, lake, root):
    other = made(lake, root / "other")
    for table in (people, other):
        put(table, root / "ice")
    done = people.to_iceberg()
    aged(root)
    before = files(root / "ice")
    with pytest.raises(delvec.IcebergUnsupported, match="shows another Delta table, not table"):
        other.to_iceberg()
    assert other.health()["iceberg"] == []
    other.vacuum(**NOW)
    assert files(root / "ice") == before
    # A copy of the table has its id and its properties, too.
    shutil.copytree(root / "people", root / "copy")
    copy = lake.register(root / "copy")
    with pytest.raises(delvec.IcebergUnsupported, match="shows another Delta table, not table"):
        copy.to_iceberg()
    assert iceberg_rows(done) == delta_rows(people)


@pytest.mark.parametrize("name", ["v1.metadata.json", "00000-5d1c.metadata.json"])
def test_another_softwares_table_is_refused_and_kept(people, root, name):
    folder = root / "people" / "metadata"
    folder.mkdir()
    foreign = {"properties": {}, "schemas": [], "partition-specs": [], "snapshots": [], "location": "x"}
    (folder / name).write_text(json.dumps({**foreign, "last-sequence-number": 0}))
    (folder / "snap-1.avro").write_bytes(b"Obj")
    put(people, ".")
    aged(root)
    before = files(folder)
    with pytest.raises(delvec.IcebergUnsupported, match=name.replace(".", r"\.")):
        people.to_iceberg()
    people.vacuum(**NOW)
    assert files(folder) == before


def test_metadata_that_another_software_adds_stops_the_cleaning(people, root):
    put(people, ".")
    done = people.to_iceberg()
    folder = root / "people" / "metadata"
    (folder / "00000-5d1c.metadata.json").write_text("{}")
    (folder / f"{LEFT}.avro").write_bytes(b"Obj")
    aged(root)
    people.vacuum(**NOW)
    assert (folder / f"{LEFT}.avro").exists()
    assert iceberg_rows(done) == delta_rows(people)


def test_a_live_data_file_in_the_directory_is_never_taken(people, root):
    put(people, "ice")
    done = people.to_iceberg()
    [found, *_] = (root / "people" / "p=a").glob("*.parquet")
    live = f"p=a/{found.name}"
    log = root / "people" / "_delta_log"
    moved = f"ice/v2/deletes/{LEFT}.parquet"
    (root / "people" / live).rename(root / "people" / moved)
    for commit in log.glob("*.json"):
        commit.write_text(commit.read_text().replace(live, moved))
    aged(root)
    with delvec.connect() as lake:
        lake.table(root / "people").vacuum(**NOW)
    assert (root / "people" / moved).exists()
    assert Path(done["metadata-location"].removeprefix("file://")).exists()


def test_the_warning_is_in_the_answer_the_log_and_the_shell(people, root, capsys, caplog):
    put(people, "ice")
    with caplog.at_level(logging.WARNING), pytest.raises(SystemExit) as ended:
        main(["iceberg", "convert", str(root / "people")])
    assert ended.value.code == 0
    assert "warning: The Iceberg metadata of table 'people' is in" in capsys.readouterr().err
    assert "Iceberg metadata may be deleted" in caplog.text
    assert people.to_iceberg()["warning"].startswith(
        f"The Iceberg metadata of table 'people' is in 'file://{root}"
    )
    put(people, "_ice")
    assert people.to_iceberg()["warning"] is None


def test_the_rest_catalog_serves_it(tmp_path):
    with served(tmp_path, "s3cret") as url, delvec.connect(url, token="s3cret") as lake:
        people = lake.create_table("people", "id long", properties={LOCATION: "_ice"})
        people.append([{"id": n} for n in range(5)])
        people.delete("id = 1")
        found = load_catalog("d", type="rest", uri=f"{url}/iceberg", token="s3cret").load_table(
            "default.people"
        )
        assert "/_ice/v2/metadata/" in found.metadata_location
        assert sorted(found.scan().to_arrow()["id"].to_pylist()) == [0, 2, 3, 4]
        people.alter.set_properties({LOCATION: str(tmp_path.parent)})
        with pytest.raises(Exception, match="outside the roots"):
            load_catalog("d", type="rest", uri=f"{url}/iceberg", token="s3cret").load_table("default.people")
