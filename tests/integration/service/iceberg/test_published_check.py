"""The check of published Iceberg metadata: no findings if sound, and a finding for each kind of damage."""

import io
import json
from types import SimpleNamespace

import fastavro
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.support.iceberg_tables import assert_sound

import delvec
from delvec_errors import StorageError
from delvec_kernel.locations import canonical
from delvec_maintenance.checks.findings import INVARIANTS
from delvec_service.iceberg.conversion import IcebergConversion
from delvec_service.iceberg.published_check import check_published
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.objects import ObjectStore
from delvec_service.store.open_table import OpenTable
from delvec_storage.roots import Roots

DATA, DELETES = 0, 1


@pytest.fixture(params=[2, 3])
def people(tmp_path, monkeypatch, request):
    """A converted table of two partitions: one file of each has deleted rows, and one has none."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with delvec.connect() as lake:
        table = lake.create_table(tmp_path / "people", "id long, p string", partition_by=["p"])
        table.append([{"id": n, "p": "ab"[n % 2]} for n in range(20)])
        table.append([{"id": n, "p": "c"} for n in range(20, 25)])
        table.delete("id < 6")
        table.to_iceberg(format_version=request.param)
        yield Converted(table, tmp_path / "people", request.param)


class Converted:
    """Published Iceberg metadata, to be damaged."""

    def __init__(self, table, location, format_version):
        self.table = table
        self.location = location
        self.format_version = format_version
        self.directory = location / "_iceberg" / f"v{format_version}"

    def found(self):
        """(invariant, file's name) of each finding."""
        record = SimpleNamespace(name="people", location=canonical(str(self.location)))
        [done] = check_published(SnapshotLoader(), OpenTable(record, Roots(())))
        for one in done.findings:
            assert one.invariant in INVARIANTS
            assert one.message.endswith(".")
            assert "convert" in one.message
        return {(one.invariant, (one.file or "").rpartition("/")[2]) for one in done.findings}

    @property
    def invariants(self):
        return {invariant for invariant, _ in self.found()}

    @property
    def metadata_file(self):
        return max(self.directory.glob("metadata/v*.metadata.json"))

    def change_metadata(self, change):
        document = json.loads(self.metadata_file.read_text())
        change(document)
        self.metadata_file.write_text(json.dumps(document))

    def manifest_list(self):
        document = json.loads(self.metadata_file.read_text())
        return self.directory / "metadata" / document["snapshots"][-1]["manifest-list"].rpartition("/")[2]

    def change_list(self, change):
        rewrite(self.manifest_list(), change)

    def manifest(self, content):
        with self.manifest_list().open("rb") as file:
            [path] = [row["manifest_path"] for row in fastavro.reader(file) if row["content"] == content]
        return self.directory / "metadata" / path.rpartition("/")[2]

    def change_manifest(self, content, change):
        path = self.manifest(content)
        rewrite(path, change)
        size = path.stat().st_size

        def resize(rows):
            for row in rows:
                if row["manifest_path"].endswith(path.name):
                    row["manifest_length"] = size

        self.change_list(resize)

    def change_file(self, content, **values):
        """Change the first file of the manifest."""

        def change(entries):
            entries[0]["data_file"].update(values)

        self.change_manifest(content, change)

    def file(self, content):
        """The first file of the manifest."""
        with self.manifest(content).open("rb") as file:
            return next(fastavro.reader(file))["data_file"]

    def delete_files(self):
        return sorted(self.directory.glob("deletes/*"))


def rewrite(path, change):
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        schema, records = reader.writer_schema, list(reader)
        kept = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
    change(records)
    out = io.BytesIO()
    fastavro.writer(out, schema, records, metadata=kept)
    path.write_bytes(out.getvalue())


def test_what_was_converted_is_sound(people):
    assert people.found() == set()


# --- metadata and manifests -----------------------------------------------------------------------------


def test_metadata_that_is_no_json(people):
    people.metadata_file.write_text("{")
    assert people.found() == {("iceberg-metadata", "v1.metadata.json")}


def test_metadata_of_another_iceberg_table(people):
    people.change_metadata(lambda document: document["properties"].pop("delta-version"))
    record = SimpleNamespace(name="people", location=canonical(str(people.location)))
    [done] = check_published(SnapshotLoader(), OpenTable(record, Roots(())))
    assert [(one.invariant, one.severity) for one in done.findings] == [("iceberg-metadata", "warning")]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("location", "file:///elsewhere"),
        ("refs", {}),
        ("refs", []),
        ("current-snapshot-id", 5),
        ("snapshots", [{}]),
        ("schemas", []),
        ("partition-specs", []),
        ("format-version", 1),
        ("last-sequence-number", "ten"),
    ],
)
def test_metadata_that_contradict_themselves(people, name, value):
    people.change_metadata(lambda document: document.update({name: value}))
    assert "iceberg-metadata" in people.invariants


def test_a_version_that_the_log_has_not(people):
    people.change_metadata(lambda document: document["properties"].update({"delta-version": "99"}))
    assert people.invariants == {"iceberg-version"}


def test_a_snapshot_of_a_later_version_than_the_metadata(people):
    people.change_metadata(lambda document: document["properties"].update({"delta-version": "1"}))
    assert "iceberg-version" in people.invariants


def test_metadata_of_the_table_that_was_here_before(people):
    people.change_metadata(lambda document: document["properties"].update({"delta-table-id": "another"}))
    assert people.invariants == {"iceberg-version"}


def test_a_version_that_is_gone_cannot_be_compared(people, monkeypatch):
    people.table.append([{"id": 1, "p": "z"}])
    people.table.checkpoint()
    for name in ("0", "1", "2", "3"):
        (people.location / "_delta_log" / f"{name:0>20}.json").unlink()
    assert people.found() == {("iceberg-version", "v1.metadata.json")}


@pytest.mark.parametrize("content", [DATA, DELETES])
def test_a_manifest_that_is_missing_or_damaged(people, content):
    path = people.manifest(content)
    before = path.read_bytes()
    path.write_bytes(before[:-20])
    assert ("iceberg-metadata", path.name) in people.found()
    path.unlink()
    assert ("iceberg-metadata", path.name) in people.found()


def test_a_manifest_list_that_is_missing(people):
    path = people.manifest_list()
    path.unlink()
    assert people.invariants == {"iceberg-metadata"}


@pytest.mark.parametrize(
    ("name", "invariant"),
    [
        ("added_files_count", "iceberg-counts"),
        ("added_rows_count", "iceberg-counts"),
        ("manifest_length", "iceberg-metadata"),
        ("min_sequence_number", "iceberg-sequence-numbers"),
        ("sequence_number", "iceberg-sequence-numbers"),
    ],
)
def test_a_manifest_list_that_is_not_true(people, name, invariant):
    def change(rows):
        rows[0][name] += 1

    people.change_list(change)
    assert invariant in people.invariants


@pytest.mark.parametrize(
    "name", ["total-data-files", "total-records", "total-delete-files", "total-position-deletes"]
)
def test_a_summary_that_is_not_true(people, name):
    people.change_metadata(lambda document: document["snapshots"][-1]["summary"].update({name: "77"}))
    assert people.invariants == {"iceberg-counts"}


# --- data files -----------------------------------------------------------------------------------------


def test_a_data_file_too_few_and_one_too_many(people):
    lost = people.file(DATA)["file_path"].rpartition("/")[2]
    people.change_file(DATA, file_path=f"file://{people.location}/ghost.parquet")
    assert {("iceberg-data-files", lost), ("iceberg-data-files", "ghost.parquet")} <= people.found()


def test_a_data_file_twice(people):
    def twice(entries):
        entries.append(entries[0])

    name = people.file(DATA)["file_path"].rpartition("/")[2]
    people.change_manifest(DATA, twice)
    assert ("iceberg-data-files", name) in people.found()


@pytest.mark.parametrize(
    ("values", "invariant"),
    [
        ({"file_size_in_bytes": 1}, "iceberg-data-files"),
        ({"record_count": 7}, "iceberg-record-counts"),
        ({"partition": {"p": "z"}}, "iceberg-data-files"),
    ],
)
def test_a_data_file_that_is_described_wrong(people, values, invariant):
    name = people.file(DATA)["file_path"].rpartition("/")[2]
    people.change_file(DATA, **values)
    assert (invariant, name) in people.found()


# --- deletes --------------------------------------------------------------------------------------------


def test_a_delete_file_that_is_gone(people):
    lost = people.delete_files()[0]
    lost.unlink()
    assert people.found() == {("iceberg-delete-file", lost.name)}


def test_a_delete_file_that_is_cut_off(people):
    cut = people.delete_files()[0]
    cut.write_bytes(cut.read_bytes()[:-3])
    assert people.found() == {("iceberg-delete-file", cut.name)}


def test_a_delete_file_of_no_bytes(people):
    cut = people.delete_files()[0]
    cut.write_bytes(b"")
    assert people.found() == {("iceberg-delete-file", cut.name)}


@pytest.mark.parametrize(
    ("values", "invariant"),
    [
        ({"file_size_in_bytes": 1}, "iceberg-delete-file"),
        ({"record_count": 1}, "iceberg-deleted-rows"),
        ({"partition": {"p": "c"}}, "iceberg-dangling-delete"),
        ({"referenced_data_file": "file:///ghost.parquet"}, "iceberg-dangling-delete"),
        ({"referenced_data_file": None}, "iceberg-dangling-delete"),
        ({"file_format": "AVRO"}, "iceberg-dangling-delete"),
    ],
)
def test_deletes_that_are_described_wrong(people, values, invariant):
    people.change_file(DELETES, **values)
    assert invariant in people.invariants


def test_two_deletes_of_one_data_file(people):
    def twice(entries):
        entries.append(entries[0])

    people.change_manifest(DELETES, twice)
    assert "iceberg-one-delete-per-file" in people.invariants


def test_deletes_that_are_left_out(people):
    def without(entries):
        del entries[0]

    people.change_manifest(DELETES, without)
    assert "iceberg-deleted-rows" in people.invariants


def test_deletes_that_are_older_than_their_data_file(people):
    def older(entries):
        entries[0]["sequence_number"] = 1

    people.change_manifest(DELETES, older)
    assert "iceberg-sequence-numbers" in people.invariants


def test_a_delete_file_of_other_rows(people):
    """Each data file gets the deletes of the other: as many rows, of the same snapshot, and of the wrong file."""

    def swap(entries):
        files = [entry["data_file"] for entry in entries]
        for name in ("file_path", "content_offset", "content_size_in_bytes", "file_size_in_bytes"):
            if name in files[0]:
                files[0][name], files[1][name] = files[1][name], files[0][name]

    people.change_manifest(DELETES, swap)
    assert people.invariants == {"iceberg-delete-file"}


def test_a_vector_whose_rows_are_others_is_found_by_them(people):
    """The log is another than the one that was converted: as many rows are deleted, and different ones."""
    log = people.location / "_delta_log" / f"{3:020d}.json"
    before = log.read_text()
    people.table.restore(2)
    people.table.delete("id >= 6 and id < 12")
    after = (people.location / "_delta_log" / f"{5:020d}.json").read_text()
    assert before != after
    log.write_text(after)
    assert people.invariants == {"iceberg-deleted-rows"}


# --- delete files shared by a partition -------------------------------------------------------------------


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A converted table of two partitions, each with three data files, whose deleted rows share a delete file."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with delvec.connect() as lake:
        table = lake.create_table(
            tmp_path / "people",
            "id long, p string",
            partition_by=["p"],
            properties={"delvec.iceberg.deleteGranularity": "partition"},
        )
        for start in (0, 20, 40):
            table.append([{"id": n, "p": "ab"[n % 2]} for n in range(start, start + 20)])
        table.delete("id % 20 < 6")
        table.to_iceberg()
        yield Converted(table, tmp_path / "people", 2)


def test_shared_delete_files_are_sound(shared):
    assert len(shared.delete_files()) == 2
    assert shared.found() == set()


def test_a_shared_delete_file_that_is_gone(shared):
    lost = shared.delete_files()[0]
    lost.unlink()
    assert ("iceberg-delete-file", lost.name) in shared.found()


def test_a_shared_delete_file_that_is_cut_off(shared):
    cut = shared.delete_files()[0]
    cut.write_bytes(cut.read_bytes()[:-3])
    assert ("iceberg-delete-file", cut.name) in shared.found()


@pytest.mark.parametrize(
    ("values", "invariant"),
    [
        ({"file_size_in_bytes": 1}, "iceberg-delete-file"),
        ({"record_count": 1}, "iceberg-delete-file"),
        ({"partition": {"p": "c"}}, "iceberg-dangling-delete"),
        ({"referenced_data_file": "file:///ghost.parquet"}, "iceberg-dangling-delete"),
        ({"lower_bounds": [{"key": 2147483546, "value": b"file:///~"}]}, "iceberg-dangling-delete"),
        ({"upper_bounds": [{"key": 2147483546, "value": b"file:///"}]}, "iceberg-dangling-delete"),
    ],
)
def test_shared_deletes_that_are_described_wrong(shared, values, invariant):
    shared.change_file(DELETES, **values)
    assert invariant in shared.invariants


def test_a_data_file_in_two_shared_delete_files(shared):
    def twice(entries):
        entries.append(entries[0])

    shared.change_manifest(DELETES, twice)
    assert "iceberg-one-delete-per-file" in shared.invariants


@pytest.mark.parametrize("change", ["rows", "files", "footer"])
def test_a_shared_delete_file_of_other_rows(shared, change):
    path = shared.delete_files()[0]
    size = path.stat().st_size
    before = pq.read_table(path)
    listed = before.schema.metadata
    if change == "rows":
        before = before.set_column(1, "pos", pc.add(before["pos"], 4))
    elif change == "files":
        before = before.filter(pc.not_equal(before["file_path"], before["file_path"][0]))
    else:
        listed = {b"delvec.data-files": b"[[1]]"}
    pq.write_table(before.replace_schema_metadata(listed), path, compression="zstd")

    def resize(entries):
        for entry in entries:
            if entry["data_file"]["file_path"].endswith(path.name):
                entry["data_file"]["file_size_in_bytes"] = path.stat().st_size

    assert path.stat().st_size != size
    shared.change_manifest(DELETES, resize)
    [invariant] = {"rows": ["iceberg-deleted-rows"], "files": ["iceberg-delete-file"]}.get(
        change, ["iceberg-dangling-delete"]
    )
    assert (invariant, path.name) in shared.found()


def test_a_damaged_shared_delete_file_is_replaced_by_the_next_conversion(shared):
    for path in shared.delete_files():
        path.write_bytes(path.read_bytes()[:-3])
    shared.table.delete("id % 20 < 8")
    shared.table.to_iceberg()
    assert shared.found() == set()


# --- format version 3 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("people", [3], indirect=True)
@pytest.mark.parametrize("values", [{"content_offset": 5}, {"content_size_in_bytes": 9}])
def test_a_blob_that_is_elsewhere(people, values):
    people.change_file(DELETES, **values)
    assert people.found() == {("iceberg-delete-file", people.delete_files()[0].name)}


@pytest.mark.parametrize("people", [3], indirect=True)
def test_a_blob_with_a_flipped_bit(people):
    place = people.file(DELETES)["content_offset"] + 12
    [path] = people.delete_files()
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    assert people.found() == {("iceberg-delete-file", path.name)}


@pytest.mark.parametrize("people", [3], indirect=True)
def test_row_ids_that_are_given_again(people):
    people.change_metadata(lambda document: document.update({"next-row-id": 3}))
    assert people.invariants == {"iceberg-row-ids"}


@pytest.mark.parametrize("people", [3], indirect=True)
def test_row_ids_that_are_given_twice(people):
    def same(entries):
        for entry in entries:
            entry["data_file"]["first_row_id"] = 0

    people.change_manifest(DATA, same)
    assert people.invariants == {"iceberg-row-ids"}


def test_row_ids_that_are_not_deltas(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with delvec.connect() as lake:
        table = lake.create_table(
            tmp_path / "people", "id long, p string", properties={"delta.enableRowTracking": "true"}
        )
        table.append([{"id": n, "p": "a"} for n in range(20)])
        table.delete("id < 6")
        table.to_iceberg(format_version=3)
        assert_sound(table)
        converted = Converted(table, tmp_path / "people", 3)
        converted.change_file(DATA, first_row_id=1)
        assert "iceberg-row-ids" in converted.invariants


# --- history, and others --------------------------------------------------------------------------------


def test_a_delete_file_of_an_older_snapshot_is_a_warning(people):
    [*_, lost] = people.delete_files()
    people.table.delete("id < 12")
    people.table.to_iceberg(format_version=people.format_version)
    assert people.found() == set()
    lost.unlink()
    checked = people.table.check(iceberg=True)
    assert [(one["invariant"], one["severity"]) for one in checked["findings"]] == [
        ("iceberg-history", "warning")
    ]
    assert checked["num-errors"] == 0


def test_what_is_behind_delta_is_sound(people):
    people.table.append([{"id": 100, "p": "a"}])
    checked = people.table.check(iceberg=True)
    assert checked["findings"] == []
    assert [one["delta-version"] for one in checked["iceberg"]] == [3]


def test_storage_that_fails_is_no_finding(people, monkeypatch):
    def fails(self, path):
        raise StorageError("it is down")

    monkeypatch.setattr(ObjectStore, "open", fails)
    with pytest.raises(StorageError):
        people.found()


def test_nothing_is_looked_at_where_nothing_was_published(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with delvec.connect() as lake:
        table = lake.create_table(tmp_path / "people", "id long")
        assert table.check(iceberg=True)["iceberg"] == []


def test_converting_again_mends_it(people):
    people.change_file(DATA, record_count=7)
    assert people.invariants
    for path in sorted(people.directory.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    record = SimpleNamespace(name="people", location=canonical(str(people.location)))
    IcebergConversion(SnapshotLoader()).convert(
        OpenTable(record, Roots(())), format_version=people.format_version
    )
    assert people.found() == set()
