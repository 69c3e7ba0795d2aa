"""Listing and deleting files below a table's location: on local disk, in memory and on S3."""

import numpy as np
import pyarrow as pa
import pytest

from delvec_errors import StorageError
from delvec_kernel.locations import canonical_relative
from delvec_maintenance.vacuum.retention import hidden_names
from delvec_storage import trees
from delvec_storage.files import stat, write_file
from delvec_storage.moves import move_files
from delvec_storage.trees import TreeListing, delete_files, inner_tables, look_up_files

FILES = [
    "a.parquet",
    "a b.parquet",
    "100%.parquet",
    "raw%20.parquet",
    "é 漢字.parquet",
    "c=1/x.parquet",
    "c=2/deep/er/x.parquet",
    "c=a%3Ab/x#y?z.parquet",
    "_change_data/c=1/cdc.parquet",
    "_day=1/x.parquet",
]
HIDDEN = ["_delta_log/00000000000000000000.json", "_x/y", ".z", "c=1/_hidden/y", "c=1/.w", "metadata/v1.json"]
NESTED = ["inner/a.parquet", "inner/z/b.parquet", "inner/_delta_log/00000000000000000000.json"]
NEVER = 2**62


def listing(location):
    return TreeListing(location, hidden_names(["_day"]))


def listed(found):
    batches = list(found.batches())
    rows = pa.Table.from_batches(batches, trees.LISTED).to_pylist()
    return {row["path"]: row for row in rows}


def visible(found, rows):
    return {path for path in rows if not any(path == s or path.startswith(f"{s}/") for s in found.shielded)}


@pytest.fixture
def stored(location):
    for name in [*FILES, *HIDDEN, *NESTED]:
        write_file(location, canonical_relative(name), b"four")
    return location


def test_files_that_are_not_hidden_are_listed_under_their_name_in_the_log(stored):
    found = listing(stored)
    rows = listed(found)
    assert visible(found, rows) == {canonical_relative(name) for name in FILES}
    assert {row["size"] for row in rows.values()} == {4}
    assert all(row["modified"] == stat(stored, path).last_modified_ms for path, row in rows.items())
    assert "inner" in found.shielded


def test_listed_files_can_be_deleted(stored):
    found = listing(stored)
    paths = sorted(visible(found, listed(found)))
    kept, doomed = paths[0], paths[1:]
    done = delete_files(stored, [*doomed, "not-there.parquet", "nor/there.parquet"], NEVER)
    assert sorted(done.deleted) == sorted([*doomed, "not-there.parquet", "nor/there.parquet"])
    assert (done.failed, done.kept, done.error) == ([], [], None)
    after = listing(stored)
    assert visible(after, listed(after)) == {kept}
    assert all(stat(stored, canonical_relative(name)) for name in [*HIDDEN, *NESTED])


def test_a_location_without_files_has_none(location):
    assert listed(listing(location)) == {}


def test_local_files_that_are_filtered_out_are_not_inspected(tmp_path, monkeypatch):
    monkeypatch.setattr(trees, "_ENTRIES", 7)
    names = [f"{n}.parquet" for n in range(40)]
    for name in ["a b.parquet", "é.parquet", *names]:
        write_file(f"file://{tmp_path}", canonical_relative(name), b"four")
    wanted = {canonical_relative("é.parquet"), "a%20b.parquet", "3.parquet"}

    def chosen(paths):
        return np.array([path in wanted for path in paths.to_pylist()])

    rows = listed(TreeListing(f"file://{tmp_path}", hidden_names([]), wanted=chosen))
    assert set(rows) == wanted
    assert {row["size"] for row in rows.values()} == {4}
    assert set(listed(TreeListing(f"file://{tmp_path}", hidden_names([])))) == wanted | set(names)


def test_many_files_in_many_directories_are_listed_once(memory_location):
    names = [f"d={n % 40}/f-{n}" for n in range(4000)]
    for name in names:
        write_file(memory_location, name, b"")
    found = listing(memory_location)
    assert set(listed(found)) == set(names)
    assert sum(batch.num_rows for batch in listing(memory_location).batches()) == 4000
    assert found.directories == 41


def test_s3_deletes_many_files_with_one_request(s3_location, s3_server):
    names = [f"f-{n}" for n in range(50)]
    for name in names:
        write_file(s3_location, name, b"")
    s3_server.requests.clear()
    assert len(delete_files(s3_location, names, NEVER).deleted) == 50
    assert [request.kind for request in s3_server.requests] == ["POST"]
    assert listed(listing(s3_location)) == {}


def test_if_an_object_store_fails_to_delete_some_files_the_others_are_known(memory_location, monkeypatch):
    names = [f"f-{n}" for n in range(10)]
    for name in names:
        write_file(memory_location, name, b"")
    original = trees.obstore.delete

    def denied(store, paths):
        if isinstance(paths, list) or int(paths.removeprefix("f-")) >= 4:
            raise PermissionError(13, "denied")
        return original(store, paths)

    monkeypatch.setattr(trees.obstore, "delete", denied)
    done = delete_files(memory_location, names, NEVER)
    assert (done.deleted, done.failed) == (names[:4], names[4:])
    assert isinstance(done.error, StorageError)
    monkeypatch.undo()
    assert set(listed(listing(memory_location))) == set(names[4:])


def test_files_are_looked_up_by_name(stored):
    names = ["a b.parquet", "c=a%3Ab/x#y?z.parquet", "gone.parquet", "gone/x.parquet", "c=2"]
    found = look_up_files(stored, sorted(map(canonical_relative, names)))
    assert found["path"].to_pylist() == [canonical_relative(name) for name in sorted(names[:2])]
    assert found["size"].to_pylist() == [4, 4]
    assert all(found["modified"].to_pylist())


def test_nested_tables_are_found_from_their_files(stored):
    paths = ["inner/z/b.parquet", "c=1/x.parquet", "a.parquet"]
    assert inner_tables(stored, paths) == ["inner"]


def test_files_move_to_another_directory_and_back(stored):
    names = ["a b.parquet", "c=a%3Ab/x#y?z.parquet", "é 漢字.parquet"]
    paths = sorted(map(canonical_relative, names))
    moved = move_files(stored, [*paths, "gone/gone.parquet"], "", "_kept/1", before=NEVER)
    assert (sorted(moved.deleted), moved.kept, moved.failed) == (paths, ["gone/gone.parquet"], [])
    for path in paths:
        assert stat(stored, path) is None
        assert stat(stored, f"_kept/1/{path}").size == 4
    write_file(stored, paths[0], b"another")
    back = move_files(stored, paths, "_kept/1", "")
    assert (sorted(back.deleted), back.kept) == (paths[1:], paths[:1])
    assert stat(stored, paths[0]).size == 7
    assert move_files(stored, paths[1:], "_kept/1", "").kept == paths[1:]
