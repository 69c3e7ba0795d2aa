"""The check of a table: no errors if sound, and a finding for each kind of damage."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from tests.support.checked import assert_sound
from tests.support.log_by_hand import VECTORS, LogByHand, add, remove, vector

from delvec_errors import NotADeltaTable, ServiceUnavailable
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, inline
from delvec_maintenance.checks.findings import INVARIANTS
from delvec_service.maintenance.check import check
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.objects import ObjectStore

ROOT = Path(__file__).resolve().parents[4]
STATS = json.dumps({"numRecords": 5, "tightBounds": False})
TIMES = {"delta.enableInCommitTimestamps": "true"}
TRACKING = {
    "minReaderVersion": 1,
    "minWriterVersion": 7,
    "writerFeatures": ["rowTracking", "domainMetadata"],
}


def checked(log, *, data_files=False, **options):
    return check(
        SnapshotLoader(), log.store(), "people", is_allowed=lambda _: True, data_files=data_files, **options
    )


def found(log, **options):
    """Return (invariant, severity, version) of each finding."""
    findings = checked(log, **options).findings
    for finding in findings:
        assert finding.invariant in INVARIANTS
        assert finding.message.endswith(".")
    return [(finding.invariant, finding.severity, finding.version) for finding in findings]


def small_vector(*rows):
    return inline(BitMap64(rows)).to_json()


@pytest.fixture
def log(tmp_path):
    return LogByHand(tmp_path / "people", versions=3, protocol=VECTORS)


# --- the log ------------------------------------------------------------------------------------------


def test_a_sound_log_has_no_findings(log):
    log.commit(4, remove("f1"), add("f1", small_vector(1), stats=STATS))
    log.commit(5, remove("f1", small_vector(1)), add("f1", small_vector(1, 2), stats=STATS))
    log.commit(6, remove("f1", small_vector(1, 2)), remove("f2"))

    result = checked(log)

    assert list(result.findings) == []
    assert (result.version, result.first_version, result.commits, result.vectors) == (6, 0, 7, 0)


@pytest.mark.parametrize(
    ("actions", "invariant"),
    [
        ([add("f9"), add("f9", small_vector(1), stats=STATS)], "one-action-per-file"),
        ([remove("f1"), remove("f1")], "one-action-per-file"),
        ([remove("f1"), add("f1")], "one-action-per-file"),
        ([remove("f1", vector(1))], "remove-with-its-vector"),
        ([add("f1", small_vector(1), stats=STATS)], "one-live-file-per-path"),
        (
            [remove("f1", vector(9)), add("f1", small_vector(1), stats=STATS)],
            "remove-with-its-vector",
        ),
        ([remove("f1"), add("f1", small_vector(1))], "vector-needs-count"),
        (
            [remove("f1"), add("f1", vector(1, rows=6), stats=STATS), remove("f1", vector(1, rows=6))],
            "one-action-per-file",
        ),
        ([remove("f1"), add("f1", small_vector(5), stats=STATS)], "vector-within-file"),
        ([remove("f1"), add("f1", small_vector(*range(6)), stats=STATS)], "vector-within-file"),
        ([remove("f1"), add("f1", vector(1), stats=STATS)], "readable-vector"),
        ([add("../../elsewhere")], "readable-commit"),
    ],
)
def test_damage_of_one_version_is_an_error(log, actions, invariant):
    log.commit(4, *actions)

    assert (invariant, "error", 4) in found(log)


@pytest.mark.parametrize(
    ("actions", "invariant"),
    [
        ([remove("never")], "remove-of-live-file"),
        ([add("f9", {})], "no-empty-vector"),
        (
            [add("f9", small_vector(1), stats='{"numRecords":5,"minValues":{"id":1}}')],
            "vector-loosens-bounds",
        ),
    ],
)
def test_what_readers_cope_with_is_a_warning(log, actions, invariant):
    log.commit(4, *actions)

    assert found(log) == [(invariant, "warning", 4)]


@pytest.mark.parametrize(
    ("damage", "fix"),
    [
        ([remove("f1", vector(1))], [remove("f1")]),
        ([add("f1", small_vector(1), stats=STATS)], [remove("f1")]),
        ([remove("f1"), add("f1", small_vector(1))], [add("f1", small_vector(1), stats=STATS)]),
    ],
)
def test_what_a_later_version_fixes_is_a_warning(log, damage, fix):
    log.commit(4, *damage)
    (was,) = checked(log).findings
    log.commit(5, *fix)

    (now,) = checked(log).findings

    assert (was.severity, was.fixed_in) == ("error", None)
    assert (now.invariant, now.version, now.severity, now.fixed_in) == (was.invariant, 4, "warning", 5)
    assert now.message.endswith("This was fixed in version 5.")


def test_a_count_of_the_rows_that_are_left_is_an_error(log):
    pq.write_table(pa.table({"id": range(10)}), log.folder / "f1")
    size = (log.folder / "f1").stat().st_size
    log.commit(4, remove("f1"), remove("f2"), remove("f3"))
    stats = json.dumps({"numRecords": 8, "tightBounds": False})
    log.commit(5, add("f1", small_vector(1, 9), stats=stats, size=size))

    assert found(log, data_files=True) == [("physical-count", "error", 5)]


def test_statistics_that_were_computed_again_are_no_second_file(log):
    log.commit(4, add("f1", stats=STATS))

    assert found(log) == []


def test_a_vector_needs_the_feature(tmp_path):
    log = LogByHand(tmp_path / "people", versions=1)
    log.commit(2, remove("f1"), add("f1", small_vector(1), stats=STATS))

    assert found(log) == [("vector-feature", "error", 2)]


def test_a_gap_is_an_error_where_no_checkpoint_helps(log):
    log.forget(1, 2)

    assert found(log) == [("version-gap", "error", 1), ("readable-table", "error", 3)]


def test_a_gap_before_a_checkpoint_is_a_warning_and_the_rest_is_looked_at(log):
    log.forget(1)
    log.checkpoint(2, add("f1"), add("f2"))
    log.commit(4, remove("f2", vector(7)))

    assert found(log) == [("version-gap", "warning", 1), ("remove-with-its-vector", "error", 4)]


def test_a_commit_that_cannot_be_read_is_named(log):
    log.write(f"{2:020d}.json", '{"add":')

    result = checked(log)

    assert [finding.invariant for finding in result.findings] == ["readable-commit", "readable-table"]
    assert result.findings[0].file == f"{2:020d}.json"


def test_a_log_that_was_cleaned_up_is_checked_from_its_checkpoint_on(log):
    log.checkpoint(2, add("f1"), add("f2"))
    log.forget(0, 1)
    log.commit(4, remove("f1"))

    result = checked(log)

    assert list(result.findings) == []
    assert (result.first_version, result.commits) == (2, 2)


def test_a_log_of_which_nothing_can_be_read_is_told(log):
    log.forget(0)

    assert found(log)[0] == ("version-gap", "error", 0)


def test_a_checkpoint_that_says_something_else_than_the_commits_is_found(log):
    log.checkpoint(2, add("f1"), add("other"))

    assert ("checkpoint-agrees", "error", 2) in found(log)
    assert ("checkpoint-agrees", "error", 3) in found(log)


def test_a_damaged_checkpoint_is_a_warning_where_the_commits_are_there(log):
    log.checkpoint(2, add("f1"), add("f2")).write_bytes(b"PAR1")

    assert found(log) == [("readable-checkpoint", "warning", 2)]


def test_in_commit_timestamps_rise(tmp_path):
    log = LogByHand(tmp_path / "people", **TIMES)
    log.commit(0, log.protocol, log.metadata, info={"inCommitTimestamp": 50})
    log.commit(1, add("f1"), info={"inCommitTimestamp": 60})
    log.commit(2, add("f2"), info={"inCommitTimestamp": 60})
    log.commit(3, add("f3"))
    log.commit(4, add("f4"), info={"inCommitTimestamp": 61})

    assert found(log) == [("in-commit-timestamp", "warning", 2), ("in-commit-timestamp", "warning", 3)]


def test_an_application_that_goes_back_is_a_warning(log):
    for version, app_version in enumerate([1, 2, 2], start=4):
        log.commit(version, {"txn": {"appId": "stream", "version": app_version}})

    assert found(log) == [("application-version", "warning", 6)]


def test_row_ids_are_given_once(tmp_path):
    log = LogByHand(tmp_path / "people", protocol=TRACKING, **{"delta.enableRowTracking": "true"})
    mark = {
        "domainMetadata": {
            "domain": "delta.rowTracking",
            "configuration": '{"rowIdHighWaterMark":11}',
            "removed": False,
        }
    }
    commit = {"defaultRowCommitVersion": 1, "stats": STATS}
    log.commit(1, add("a", baseRowId=0, **commit), add("b", baseRowId=5, **commit), mark)
    assert found(log) == []

    log.commit(2, add("c", baseRowId=9, **commit), add("d", stats=STATS))

    assert found(log) == [
        ("row-ids", "error", 2),  # d has none
        ("row-ids", "error", 2),  # c has one that b has
        ("row-ids", "error", 2),  # c is above the mark
    ]


def test_a_log_that_is_cleaned_up_while_it_is_read_is_listed_again(log):
    class Vanishing(ObjectStore):
        times = 1

        def get(self, path):
            if self.times and path.endswith(f"{1:020d}.json"):
                self.times -= 1
                raise FileNotFoundError(path)
            return super().get(path)

    objects = Vanishing(log.location)
    assert not check(
        SnapshotLoader(), objects, "people", is_allowed=lambda _: True, data_files=False
    ).findings
    objects.times = 100
    with pytest.raises(ServiceUnavailable, match="cleaned up while it is checked"):
        check(SnapshotLoader(), objects, "people", is_allowed=lambda _: True)


def test_no_log_is_no_table(tmp_path):
    with pytest.raises(NotADeltaTable):
        assert_sound(tmp_path)


# --- files --------------------------------------------------------------------------------------------


def test_a_table_of_the_service_is_sound(filled):
    filled.delete({"a.parquet": [1, 2], "b.parquet": [0]})
    filled.delete({"a.parquet": [3]}, removes=["b.parquet"])

    result = assert_sound(filled.folder)

    assert (result.data_files, result.vectors, result.commits) == (1, 1, 4)


def test_data_files_that_are_gone_or_cut_off_are_errors(filled):
    (filled.folder / "a.parquet").unlink()
    (filled.folder / "b.parquet").write_bytes(b"short")

    answer = filled.client.get(f"{filled.url}/check").json()

    assert answer["num-errors"] == 2
    assert [entry["invariant"] for entry in answer["findings"]] == ["data-file"] * 2
    assert {entry["file"] for entry in answer["findings"]} == {"a.parquet", "b.parquet"}
    answer = filled.client.get(f"{filled.url}/check", params={"data-files": "false"}).json()
    assert (answer["num-errors"], answer["num-data-files"]) == (0, 0)


@pytest.mark.parametrize("damage", ["gone", "cut off", "flipped"])
def test_vectors_that_cannot_be_read_are_errors_and_the_others_are_still_looked_at(filled, damage):
    filled.delete({"a.parquet": [1]})
    filled.delete({"b.parquet": [1]})
    (vector_of_a,) = [action["add"]["deletionVector"] for action in filled.actions(2) if "add" in action]
    file = filled.folder / Descriptor.from_json(vector_of_a).relative_path()
    content = bytearray(file.read_bytes())
    if damage == "gone":
        file.unlink()
    elif damage == "cut off":
        file.write_bytes(content[:-6])
    else:
        content[-6] ^= 1
        file.write_bytes(content)

    answer = filled.client.get(f"{filled.url}/check").json()

    assert answer["num-deletion-vectors"] == 2
    assert [(entry["invariant"], entry["file"]) for entry in answer["findings"]] == [
        ("readable-vector", "a.parquet")
    ]


def test_a_file_that_no_version_refers_to_is_an_orphan_and_no_error(filled):
    filled.delete({"a.parquet": [1]}, transaction_id="good")
    filled.delete({"a.parquet": [2]}, transaction_id="later")
    ledger, table_id = filled.client.service.ledger, filled.client.get(filled.url).json()["id"]
    for number in range(2):
        ledger.announce(table_id, f"t{number}", "DELETE", [f"lost{number}.bin"])
    (filled.folder / "lost0.bin").write_bytes(b"12345")

    answer = filled.client.get(f"{filled.url}/check").json()

    assert answer["findings"] == []
    assert answer["orphans"] == [
        {"path": "lost0.bin", "size-in-bytes": 5, "transaction-id": "t0", "state": "open"}
    ]


def test_files_that_only_a_checkpoint_names_are_no_orphans(filled):
    filled.delete({"a.parquet": [1]})
    filled.client.post(f"{filled.url}/checkpoint", json={})
    for version in range(2):
        (filled.log / f"{version:020}.json").unlink()
    (filled.log / f"{2:020}.json").unlink()

    answer = filled.client.get(f"{filled.url}/check").json()

    assert (answer["num-errors"], answer["num-orphans"], answer["num-commits"]) == (0, 0, 0)
    assert answer["num-deletion-vectors"] == 1


def test_the_answer_shows_errors_before_warnings(filled):
    (filled.folder / "a.parquet").unlink()
    with (filled.log / f"{1:020}.json").open("a") as file:
        file.write(json.dumps(remove("never")) + "\n")

    answer = filled.client.get(f"{filled.url}/check").json()

    assert [entry["severity"] for entry in answer["findings"]] == ["error", "warning"]
    assert (answer["num-errors"], answer["num-warnings"]) == (1, 1)


def test_every_invariant_is_on_its_page():
    page = (ROOT / "docs" / "check.md").read_text()

    assert [f"| `{code}` | {text} |" in page for code, text in INVARIANTS.items()] == [True] * len(INVARIANTS)
