"""``generate()``, ``GENERATE``, ``delvec generate``, and manifests that commits keep up to date."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pd
import pytest

import delvec
from delvec.cli import main

FRESH = {"delta.compatibility.symlinkFormatManifest.enabled": True}
ODD = ["a b", "ä:/%", None, "x=1", "y\nz"]


def listed(folder):
    """The rows of the manifests by directory, read as Hive does: whole files, with partition values from directories."""
    root = Path(folder) / "_symlink_format_manifest"
    return {
        str(path.parent.relative_to(root)): path.read_text().splitlines() for path in root.rglob("manifest")
    }


def rows(folder):
    files = [line.removeprefix("file:") for lines in listed(folder).values() for line in lines]
    return sum(pd.dataset(file, format="parquet").count_rows() for file in files)


@pytest.fixture
def plain(lake, tmp_path):
    table = lake.create_table(
        tmp_path / "plain", "id long, p string", partition_by=["p"], properties=FRESH, name="plain"
    )
    table.append([{"id": n, "p": value} for n, value in enumerate(ODD)])
    return table


def test_a_table_without_partitions_has_one_manifest(lake, tmp_path):
    table = lake.create_table(tmp_path / "t e", "id long", properties={"delta.enableDeletionVectors": False})
    assert table.generate()["num-manifests"] == 1
    assert listed(tmp_path / "t e") == {".": []}
    table.append([{"id": 1}])
    table.append([{"id": 2}])
    done = table.generate("symlink_format_manifest")
    assert (done["version"], done["num-files"], done["num-deleted-manifests"]) == (2, 2, 0)
    (lines,) = listed(tmp_path / "t e").values()
    assert all(line.startswith(f"file:{tmp_path}/t e/part-") for line in lines)
    assert rows(tmp_path / "t e") == 2
    with pytest.raises(delvec.BadRequest, match="symlink_format_manifest"):
        table.generate("other")


def test_deletion_vectors_are_in_the_way_until_they_are_purged(people, tmp_path):
    people.delete("id < 3")
    with pytest.raises(delvec.ManifestUnsupported, match=r"REORG TABLE people APPLY \(PURGE\)"):
        people.generate()
    assert not (tmp_path / "people" / "_symlink_format_manifest").exists()
    people.optimize.purge()
    people.generate()
    assert rows(tmp_path / "people") == 7


def test_mapped_columns_are_refused(lake, tmp_path):
    table = lake.create_table(tmp_path / "t", "id long", properties={"delta.columnMapping.mode": "name"})
    with pytest.raises(delvec.ManifestUnsupported, match="column mapping"):
        table.generate()


def test_commits_keep_the_manifests_of_their_partitions_fresh(plain, tmp_path):
    folder = tmp_path / "plain"
    assert plain.snapshot().configuration.get("delta.enableDeletionVectors") is None
    found = listed(folder)
    assert set(found) == {
        "p=a b",
        "p=ä%3A%2F%25",
        "p=__HIVE_DEFAULT_PARTITION__",
        "p=x%3D1",
        "p=y%0Az",
    }
    assert rows(folder) == 5
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("manifest")}

    plain.append([{"id": 7, "p": "a b"}])
    plain.delete("p = 'x=1'")

    assert len(listed(folder)["p=a b"]) == 2
    assert "p=x%3D1" not in listed(folder)
    assert not (folder / "_symlink_format_manifest" / "p=x%3D1").exists()
    assert rows(folder) == 5
    untouched = [path for path in before if path.exists() and "a b" not in str(path)]
    assert {path: path.stat().st_mtime_ns for path in untouched} == {path: before[path] for path in untouched}

    plain.restore(1)
    assert rows(folder) == 5
    assert len(listed(folder)["p=a b"]) == 1


def test_stale_manifests_go_and_so_do_checksums_of_hadoop(plain, tmp_path):
    root = tmp_path / "plain" / "_symlink_format_manifest"
    (root / "p=gone").mkdir()
    (root / "p=gone" / "manifest").write_text("file:/nothing\n")
    (root / "manifest").write_text("file:/nothing\n")
    (root / "p=a b" / ".manifest.crc").write_bytes(b"old")

    assert plain.generate()["num-deleted-manifests"] == 2

    assert not (root / "p=gone").exists()
    assert not (root / "manifest").exists()
    assert not (root / "p=a b" / ".manifest.crc").exists()
    assert rows(tmp_path / "plain") == 5


def test_what_others_committed_is_in_them_after_the_next_commit(plain, tmp_path):
    """Even after a restart, when the service does not know its earlier manifests."""
    with delvec.connect(database_url="sqlite://") as other:
        other.table(str(tmp_path / "plain")).append([{"id": 8, "p": "b"}])
        plain.append([{"id": 9, "p": "c"}])
    assert {"p=b", "p=c"} <= set(listed(tmp_path / "plain"))
    assert rows(tmp_path / "plain") == 7


def test_deletion_vectors_and_the_property_refuse_each_other(lake, people, tmp_path):
    name, value = next(iter(FRESH.items()))
    with pytest.raises(delvec.InvalidTableChange, match="cannot both be true"):
        people.alter.set_properties({name: "true"})
    people.delete("id = 1")
    people.alter.set_properties({"delta.enableDeletionVectors": "false"})
    with pytest.raises(delvec.InvalidTableChange, match="PURGE"):
        people.alter.set_properties({name: "true"})
    people.optimize.purge()
    people.alter.set_properties({name: "true"})
    assert rows(tmp_path / "people") == 9
    with pytest.raises(delvec.InvalidTableChange, match="cannot both be true"):
        people.alter.enable_deletion_vectors()
    both = {name: value, "delta.enableDeletionVectors": True}
    with pytest.raises(delvec.InvalidTableChange, match="cannot both be true"):
        lake.create_table(tmp_path / "both", "id long", properties=both)


def test_a_commit_is_done_though_its_manifests_cannot_be_written(plain, tmp_path):
    root = tmp_path / "plain" / "_symlink_format_manifest"
    (root / "p=d").write_text("in the way")
    assert plain.append([{"id": 10, "p": "d"}]).version == 2
    assert plain.count() == 6
    (root / "p=d").unlink()
    plain.append([{"id": 11, "p": "e"}])
    assert rows(tmp_path / "plain") == 7


def test_hostile_paths_do_not_get_into_a_manifest(lake, tmp_path):
    table = lake.create_table(tmp_path / "t", "id long", properties={"delta.enableDeletionVectors": False})
    log = tmp_path / "t" / "_delta_log" / f"{1:020}.json"
    add = {
        "path": "a%0Afile:/etc/passwd",
        "partitionValues": {},
        "size": 1,
        "modificationTime": 1,
        "dataChange": True,
    }
    log.write_text(json.dumps({"add": add}) + "\n")
    with pytest.raises(delvec.CorruptTable, match="line break"):
        table.generate()


def test_files_outside_the_roots_do_not_get_into_a_manifest(tmp_path):
    inside = tmp_path / "in"
    with delvec.connect(roots=inside) as lake:
        table = lake.create_table(inside / "t", "id long", properties={"delta.enableDeletionVectors": False})
        add = {
            "path": f"file://{tmp_path}/x.parquet",
            "partitionValues": {},
            "size": 1,
            "modificationTime": 1,
        }
        log = inside / "t" / "_delta_log" / f"{1:020}.json"
        log.write_text(json.dumps({"add": {**add, "dataChange": True}}) + "\n")
        with pytest.raises(delvec.LocationNotAllowed):
            table.generate()


def test_in_sql_and_in_the_shell(lake, plain, tmp_path, capsys):
    assert lake.sql("GENERATE symlink_format_manifest FOR TABLE plain").num_rows == 0
    for wrong in ("GENERATE parquet FOR TABLE plain", "GENERATE symlink_format_manifest FOR plain"):
        with pytest.raises(delvec.InvalidStatement):
            lake.sql(wrong)
    with pytest.raises(SystemExit) as ended:
        main(["generate", str(tmp_path / "plain"), "--json"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["num-manifests"] == 5
    with pytest.raises(SystemExit):
        main(["generate", str(tmp_path / "plain")])
    assert "5 manifests of 5 files" in "".join(capsys.readouterr())


def test_many_partitions_are_grouped_once(lake, tmp_path):
    table = lake.create_table(
        tmp_path / "t", "id long, p int, q date", partition_by=["p", "q"], properties=FRESH
    )
    rows_ = {
        "id": range(60),
        "p": [n % 6 for n in range(60)],
        "q": pa.array([n % 3 for n in range(60)], pa.date32()),
    }
    table.append(
        pa.table({**rows_, "id": pa.array(range(60), pa.int64()), "p": pa.array(rows_["p"], pa.int32())})
    )
    assert len(listed(tmp_path / "t")) == 6
    assert rows(tmp_path / "t") == 60


def test_a_table_that_is_made_again_has_its_own_manifests(lake, tmp_path):
    for turn in range(2):
        table = lake.create_table(tmp_path / "t", "id long", properties=FRESH)
        assert listed(tmp_path / "t") == {".": []}
        for number in range(3 - 2 * turn):
            table.append([{"id": number}])
        assert rows(tmp_path / "t") == 3 - 2 * turn
        if not turn:
            lake.drop(table.name)
            shutil.rmtree(tmp_path / "t")


def test_null_and_the_name_of_its_directory_are_one_manifest(lake, tmp_path):
    table = lake.create_table(tmp_path / "t", "id long, p string", partition_by=["p"], properties=FRESH)
    table.append([{"id": 1, "p": None}, {"id": 2, "p": "__HIVE_DEFAULT_PARTITION__"}])
    table.generate()
    assert rows(tmp_path / "t") == 2
