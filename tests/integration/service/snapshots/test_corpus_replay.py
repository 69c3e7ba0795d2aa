"""Real tables: at every version, the live files match the manifest, or the table is refused."""

import json
import os
import shutil
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest

from delvec_errors import (
    CorruptLog,
    CorruptTable,
    MissingLogFile,
    NotADeltaTable,
    NotFound,
    UnsupportedReaderFeature,
)
from delvec_kernel import locations
from delvec_service.maintenance.check import check as check_table
from delvec_service.scans.describe import history
from delvec_service.scans.plan import plan
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.objects import ObjectStore

ROOT = Path(__file__).resolve().parents[4]
CORPUS = Path(os.environ.get("DELVEC_CORPUS", ROOT.parent / "shared" / "corpus")) / "dev"
MANIFEST = CORPUS / "MANIFEST.json"
COUNTS = ("active_files", "files_with_dv", "deleted_rows")

# By the manifest's kind of error: what replay itself must raise. Missing data files are for engines to notice.
REFUSED = {
    "missing_commit": MissingLogFile,
    "missing_protocol": CorruptLog,
    "schema_absent": CorruptLog,
    "no_commits": NotADeltaTable,
    "unsupported_feature": UnsupportedReaderFeature,
    "unsupported_protocol": UnsupportedReaderFeature,
}
VARIANT = ("spark-variant-stable-feature-checkpoint",)


def pytest_generate_tests(metafunc):
    if "entry" in metafunc.fixturenames:
        tables = json.loads(MANIFEST.read_text())["tables"] if MANIFEST.exists() else []
        if metafunc.function.__name__ == "test_one_commit_at_a_time_gives_what_a_checkpoint_gives":
            tables = [entry for entry in tables if begins_with_its_first_commit(entry)]
        skip = pytest.mark.skip(reason=f"no corpus at {CORPUS}: set DELVEC_CORPUS to its folder")
        entries = [pytest.param(entry, id=entry["id"]) for entry in tables]
        metafunc.parametrize("entry", entries or [pytest.param(None, marks=skip)])


def begins_with_its_first_commit(entry):
    """Tables that both ways lead to; one has other metadata in its checkpoint than in its commits, as published."""
    readable = entry["expected"]["kind"] == "rows" and not refused_by_name(entry)
    if not readable or entry["id"] == "kernel-rs__parquet_row_group_skipping":
        return False
    return (CORPUS / entry["path"] / "_delta_log" / f"{0:020d}.json").exists()


@pytest.fixture
def store(entry, tmp_path):
    folder = CORPUS / entry["path"]
    if "prepare" in entry:
        folder = tmp_path / folder.name
        shutil.copytree(CORPUS / entry["path"], folder)
        place = quote(str(folder / "folder&with%special char"), safe="/&")
        for file in (folder / "_delta_log").glob("*.json"):
            file.chmod(0o644)
            file.write_text(file.read_text().replace(entry["prepare"]["token"], place))
    return ObjectStore(locations.canonical(str(folder)))


def refused_by_name(entry):
    """Tables that need a feature which Delvec does not read yet; the manifest lets a reader refuse them."""
    allowed = "unsupported_feature" in entry["expected"].get("also_acceptable", [])
    return allowed or entry["id"].endswith(VARIANT)


def check(snapshot, expected):
    found = (snapshot.num_files, snapshot.num_deletion_vectors, snapshot.num_deleted_rows)
    wanted = {name: expected[name] for name in COUNTS if expected.get(name) is not None}
    assert {name: count for name, count in zip(COUNTS, found, strict=True) if name in wanted} == wanted
    if "rows" in expected and snapshot.num_records is not None:
        assert snapshot.num_records - snapshot.num_deleted_rows == expected["rows"]
    assert snapshot.schema.to_arrow() is not None


def test_the_newest_version(entry, store):
    expected = entry["expected"]
    refusal = REFUSED.get(expected.get("error_kind"))
    loader = SnapshotLoader()
    if refusal is not None:
        with pytest.raises(refusal):
            loader.load(store, entry["id"])
        return
    try:
        snapshot = loader.load(store, entry["id"])
    except UnsupportedReaderFeature as error:
        assert refused_by_name(entry), error  # noqa: PT017
        assert error.details["features"]  # noqa: PT017
        return
    assert snapshot.version == entry["latest_version"]
    check(snapshot, expected)
    if expected["kind"] == "rows":
        planned = plan(snapshot, entry["id"], is_allowed=lambda _: True)
        assert planned.num_files == expected["active_files"]
        assert (
            planned.files.num_rows - planned.files["deletion_vector"].null_count == expected["files_with_dv"]
        )


def test_earlier_versions(entry, store):
    loader = SnapshotLoader()
    for version, expected in entry.get("history", {}).items():
        if "error" not in expected:
            try:
                check(loader.load(store, entry["id"], version=int(version)), expected)
            except UnsupportedReaderFeature:
                assert refused_by_name(entry) or entry["expected"].get("error_kind", "").startswith(
                    "unsupported"
                )
        elif "missing commit" in expected["error"] or "schemaString" in expected["error"]:
            with pytest.raises((CorruptTable, NotFound, UnsupportedReaderFeature)):
                loader.load(store, entry["id"], version=int(version))


def test_one_commit_at_a_time_gives_what_a_checkpoint_gives(entry, store, tmp_path):
    """Incremental replay with the cache, commit by commit, gives the same state as a fresh replay."""
    source = locations.local_path(store.location) / "_delta_log"
    commits = sorted(source.glob(f"{'[0-9]' * 20}.json"))
    target = tmp_path / "grown" / "_delta_log"
    target.mkdir(parents=True)
    grown, loader = ObjectStore(locations.canonical(str(target.parent))), SnapshotLoader()
    snapshot = None
    for commit in commits:
        shutil.copy2(commit, target / commit.name)
        try:
            snapshot = loader.load(grown, entry["id"])
        except CorruptLog:
            assert "error" in entry["history"].get(str(int(commit.stem)), {"error": "not told"})
    fresh = SnapshotLoader().load(store, entry["id"])
    columns = ["path", "partition_values", "size", "deletion_vector"]
    places = (f"{grown.location}/", f"{store.location}/")
    rows = [sorted(_rows(item.files.select(columns), places), key=str) for item in (snapshot, fresh)]
    assert rows[0] == rows[1]
    assert snapshot.schema == fresh.schema


def _rows(files: pa.Table, prefixes):
    for row in files.to_pylist():
        for prefix in prefixes:
            row["path"] = row["path"].removeprefix(prefix)
        row["partition_values"].sort()
        yield row


def test_the_check_has_errors_for_damaged_tables_and_for_no_other(entry, store):
    expected = entry["expected"]
    if expected.get("error_kind") == "no_commits":
        with pytest.raises(NotADeltaTable):
            check_table(SnapshotLoader(), store, entry["id"], is_allowed=lambda _: True)
        return
    findings = check_table(SnapshotLoader(), store, entry["id"], is_allowed=lambda _: True).findings
    errors = [finding for finding in findings if finding.severity == "error"]
    if expected["kind"] == "rows":
        assert errors == []
    elif expected["error_kind"].startswith("unsupported"):
        assert "readable-table" in {finding.invariant for finding in findings}
    else:
        assert errors


def test_history_is_told_of_every_table(entry, store):
    if entry["expected"].get("error_kind") == "no_commits":
        with pytest.raises(NotADeltaTable):
            history(store, entry["id"])
        return
    found = history(store, entry["id"])
    assert [item.version for item in found] == sorted({item.version for item in found}, reverse=True)
    assert all(item.timestamp >= 0 for item in found)
