"""Logs with damaged, missing, stale and contradictory files: fallbacks are used where possible, else errors name the file."""

import json
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.log_by_hand import PROTOCOL, VECTORS, LogByHand, add, remove, vector

from delvec_errors import CorruptLog, LocationNotAllowed, MissingLogFile, UnsupportedReaderFeature
from delvec_service.snapshots.loader import SnapshotLoader

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
FILES = ["f1", "f2", "f3", "f4", "f5"]


@pytest.fixture
def log(tmp_path):
    """Five versions that add a file each."""
    return LogByHand(tmp_path / "t", 5)


def truncated(log):
    path = log.checkpoint(4, *map(add, FILES[:4]))
    path.write_bytes(path.read_bytes()[:-20])
    return path.name


def no_parquet(log):
    return log.write(f"{4:020d}.checkpoint.parquet", b"PAR1 or not").name


def empty(log):
    return log.write(f"{4:020d}.checkpoint.parquet", b"").name


def without_protocol(log):
    return log.checkpoint(4, *map(add, FILES[:4]), whole=False).name


def another_schema(log):
    path = log.log / f"{4:020d}.checkpoint.parquet"
    pq.write_table(pa.table({"add": [1, 2], "protocol": ["x", "y"]}), path)
    return path.name


def same_file_twice(log):
    return log.checkpoint(4, add("f1"), add("./f1")).name


def add_without_size(log):
    return log.checkpoint(4, add("f1", size=None)).name


def lost_sidecar(log):
    lines = [{"checkpointMetadata": {"version": 4}}, log.protocol, log.metadata]
    lines += [{"sidecar": {"path": "lost.parquet", "sizeInBytes": 1, "modificationTime": 1}}]
    log.write(f"{4:020d}.checkpoint.{UUID}.json", "\n".join(map(json.dumps, lines)))
    return "lost.parquet"


def damaged_sidecar(log):
    path = log.checkpoint(4, *map(add, FILES[:4]), name="_sidecars/one.parquet", whole=False)
    path.write_bytes(path.read_bytes()[:100])
    sidecar = {"sidecar": {"path": "one.parquet", "sizeInBytes": 1, "modificationTime": 1}}
    log.checkpoint(4, sidecar, name=f"{4:020d}.checkpoint.{UUID}.parquet")
    return "one.parquet"


def damaged_part(log):
    log.checkpoint(4, *map(add, FILES[:4]), name=f"{4:020d}.checkpoint.0000000001.0000000002.parquet")
    return log.write(f"{4:020d}.checkpoint.0000000002.0000000002.parquet", b"nothing").name


def truncated_manifest(log):
    return log.write(f"{4:020d}.checkpoint.{UUID}.json", '{"checkpointMetadata":{"version":4}}\n{"prot').name


DAMAGE = [
    truncated,
    no_parquet,
    empty,
    without_protocol,
    another_schema,
    same_file_twice,
    add_without_size,
    lost_sidecar,
    damaged_sidecar,
    damaged_part,
    truncated_manifest,
]
damages = pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)


@damages
def test_a_damaged_checkpoint_gives_way_to_the_commits(log, damage):
    damage(log)
    assert sorted(log.files()) == FILES
    assert sorted(log.files(version=4)) == FILES[:4]


@damages
def test_a_damaged_checkpoint_gives_way_to_an_older_one(log, damage):
    damage(log)
    log.checkpoint(2, *map(add, FILES[:2]))
    log.forget(0, 1)
    log.write("_last_checkpoint", '{"version":4,"size":6}')
    snapshot = log.load()
    assert sorted(snapshot.files["path"].to_pylist()) == FILES
    assert snapshot.checkpoint_version == 2


@damages
def test_a_damaged_checkpoint_that_nothing_can_replace_is_named(log, damage):
    name = damage(log)
    log.forget(0, 1, 2)
    with pytest.raises((CorruptLog, MissingLogFile), match=name) as caught:
        log.load()
    assert caught.value.details["table"] == "people"
    assert caught.value.details["version"] == 4
    assert caught.value.details["file"].endswith(name)


def test_another_checkpoint_of_the_same_version_replaces_a_damaged_one(log):
    log.write(f"{4:020d}.checkpoint.{UUID}.parquet", b"nothing")
    log.checkpoint(4, *map(add, FILES[:4]))
    log.forget(0, 1, 2, 3)
    assert sorted(log.files()) == FILES


def test_a_sidecar_outside_the_table_is_not_read(log, tmp_path):
    outside = log.checkpoint(4, add("secret"), name="_sidecars/x.parquet", whole=False)
    outside.rename(tmp_path / "outside.parquet")
    for path in ("../../outside.parquet", f"file://{tmp_path}/outside.parquet"):
        sidecar = {"sidecar": {"path": path, "sizeInBytes": 1, "modificationTime": 1}}
        log.checkpoint(4, sidecar, name=f"{4:020d}.checkpoint.{UUID}.parquet")
        assert sorted(log.files()) == FILES
    log.forget(0)
    with pytest.raises((CorruptLog, LocationNotAllowed), match="outside"):
        log.load()


# --- hints ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hint",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"4",
        b"null",
        b'{"version":null}',
        b'{"version":true}',
        b'{"version":-1}',
        b'{"version":4.0}',
        b'{"version":"4"}',
        b'{"version":99}',
        b'{"version":99999999999999999999999}',
        b'{"version":1' + b"0" * 6000 + b"}",
        b'{"version":0}',
        b'{"version":2,"size":1}',
        b'{"version":3,"size":1}',
        b'{"version":4,"size":1,"parts":7}',
        b'{"version":4,"size":1,"checksum":"00000000000000000000000000000000"}',
        b'{"version":4,"size":1,"v2Checkpoint":{"path":"gone.parquet","sidecarFiles":[]}}',
        b'{"version":5,"size":1}',
        b"[" * 200_000,
        b'{"version":4,"x":"' + b"x" * 5_000_000 + b'"}',
        b'{"version":4}' + b" " * 5_000_000,
    ],
    ids=lambda hint: repr(hint[:40]) + str(len(hint)),
)
def test_a_hint_neither_fails_nor_hides_a_version(log, hint):
    log.checkpoint(2, *map(add, FILES[:2]))
    log.checkpoint(4, *map(add, FILES[:4]))
    log.write("_last_checkpoint", hint)
    snapshot = log.load()
    assert (snapshot.version, snapshot.checkpoint_version) == (5, 4)
    assert sorted(snapshot.files["path"].to_pylist()) == FILES


def test_a_hint_that_is_a_directory_is_none(log):
    (log.log / "_last_checkpoint").mkdir()
    assert log.load().version == 5


# --- compactions ----------------------------------------------------------------------------------------


@pytest.fixture
def changing(tmp_path):
    """Versions that add and remove files and deletion vectors."""
    log = LogByHand(tmp_path / "t", 2, protocol=VECTORS)
    log.commit(3, remove("f1"), add("f1", vector(1)))
    log.commit(4, remove("f2"), add("f4"), {"txn": {"appId": "a", "version": 4}})
    log.commit(5, remove("f1", vector(1)), add("f1", vector(2)), remove("f4"))
    log.commit(6, add("f6"))
    return log


def compact(log):
    """Write the log compaction of versions 3 to 5."""
    return log.compaction(
        3,
        5,
        add("f1", vector(2)),
        remove("f1", vector(1)),
        remove("f1"),
        remove("f2"),
        remove("f4"),
        {"txn": {"appId": "a", "version": 4}},
    )


def test_a_compaction_saves_reads_and_changes_nothing(changing):
    before = {version: changing.files(version=version) for version in range(7)}
    name = compact(changing).name
    assert {version: changing.files(version=version) for version in range(7)} == before
    store = changing.store()
    snapshot = changing.load(store=store)
    assert snapshot.txns["a"].version == 4
    assert [one for one in store.names if one.endswith("json")] == [
        name,
        *(f"{version:020d}.json" for version in (0, 1, 2, 6)),
    ]


def test_versions_within_a_compaction_are_read_from_commits(changing):
    name = compact(changing).name
    for version in (3, 4):
        store = changing.store()
        changing.load(store=store, version=version)
        assert name not in store.names


def test_a_compaction_at_the_end_keeps_the_commit_time(tmp_path):
    log = LogByHand(tmp_path / "t", **{"delta.enableInCommitTimestamps": "true"})
    for version in (1, 2, 3):
        log.commit(version, add(f"f{version}"), info={"inCommitTimestamp": 1000 + version})
    log.compaction(1, 3, add("f1"), add("f2"), add("f3"))
    snapshot = log.load()
    assert (snapshot.timestamp, snapshot.in_commit_timestamp) == (1003, 1003)
    assert sorted(log.files()) == ["f1", "f2", "f3"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        '{"add":{"path":"f',
        "\n".join(map(json.dumps, [add("f1"), add("./f1")])),
        "\n".join(map(json.dumps, [add("f1", vector(1)), remove("f1", vector(1))])),
        json.dumps(add("../f1")),
        '{"add":{"path":"f1"}}',
    ],
)
def test_a_damaged_compaction_gives_way_to_the_commits(changing, content):
    before = changing.files()
    changing.write(f"{3:020d}.{5:020d}.compacted.json", content)
    assert changing.files() == before == {"f1": 2, "f6": None}


def test_a_compaction_that_contradicts_the_checksum_gives_way_to_the_commits(changing):
    before = changing.files()
    changing.compaction(3, 5, add("other"))
    changing.checksum(6, 2)
    assert changing.files() == before


def test_a_compaction_does_not_hide_a_damaged_commit_for_ever(changing):
    compact(changing)
    loader = SnapshotLoader()
    assert changing.load(loader=loader).version == 6
    changing.commit(7, remove("f6"))
    changing.compaction(6, 7, remove("f6"))
    snapshot = changing.load(loader=loader)
    assert snapshot.files["path"].to_pylist() == ["f1"]


# --- unknown features explain what looks like damage -----------------------------------------------------

STRANGE = {"storageType": "r", "pathOrInlineDv": "dv/x.bin", "offset": 1, "sizeInBytes": 1, "cardinality": 1}
FUTURE = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors", "tomorrow"],
        "writerFeatures": ["deletionVectors", "tomorrow"],
    }
}


def test_an_unknown_feature_is_named_before_what_it_brings(tmp_path):
    log = LogByHand(tmp_path / "same", 1, protocol=VECTORS)
    log.commit(2, add("f", STRANGE), FUTURE)
    with pytest.raises(UnsupportedReaderFeature, match="tomorrow"):
        log.load()
    log = LogByHand(tmp_path / "before", 1, protocol=FUTURE["protocol"])
    log.commit(2, add("f", STRANGE))
    with pytest.raises(UnsupportedReaderFeature, match="tomorrow"):
        log.load()
    with pytest.raises(UnsupportedReaderFeature, match="tomorrow"):
        log.load(version=1)


def test_an_unknown_feature_is_named_when_it_comes_to_a_known_table(tmp_path):
    log = LogByHand(tmp_path / "t", 1, protocol=VECTORS)
    loader = SnapshotLoader()
    assert log.load(loader=loader).version == 1
    log.commit(2, FUTURE)
    log.commit(3, add("f", STRANGE), add("g"), add("g"))
    with pytest.raises(UnsupportedReaderFeature, match="tomorrow"):
        log.load(loader=loader)


def test_an_unknown_feature_is_named_where_only_a_checkpoint_tells_it(tmp_path):
    log = LogByHand(tmp_path / "t", 2, protocol=FUTURE["protocol"])
    log.checkpoint(2, add("f1", STRANGE))
    log.commit(3, add("f3"))
    log.forget(0, 1, 2)
    with pytest.raises(UnsupportedReaderFeature, match="tomorrow"):
        log.load()


def test_a_strange_vector_without_an_unknown_feature_is_damage(tmp_path):
    log = LogByHand(tmp_path / "t", 1, protocol=VECTORS)
    log.commit(2, add("f", STRANGE))
    with pytest.raises(CorruptLog, match="storage type 'r'") as caught:
        log.load()
    assert caught.value.details == {"table": "people", "version": 2, "file": f"{2:020d}.json", "line": 2}


# --- gaps -----------------------------------------------------------------------------------------------


def test_a_listing_that_missed_a_commit_is_repeated(log):
    store = log.store()
    listed = store.list_from

    def list_from(prefix, start_after=""):
        found = listed(prefix, start_after)
        late = store.asked["list"] == 1
        return [one for one in found if not (late and one.name == f"{4:020d}.json")]

    store.list_from = list_from
    assert log.load(store=store).version == 5


def test_a_real_gap_is_named(log):
    log.forget(3)
    with pytest.raises(MissingLogFile, match=f"{3:020d}.json") as caught:
        log.load()
    assert caught.value.details == {"table": "people", "version": 3, "file": f"{3:020d}.json"}
    assert sorted(log.files(version=2)) == ["f1", "f2"]


@pytest.mark.parametrize("lost", ["protocol", "metaData"])
def test_a_commit_that_brings_what_was_missing_is_enough(tmp_path, lost):
    log = LogByHand(tmp_path / "t")
    both = [log.protocol, log.metadata]
    log.commit(0, *[one for one in both if lost not in one])
    with pytest.raises(CorruptLog, match=lost.lower()[:8]):
        log.load()
    log.commit(1, *[one for one in both if lost in one])
    assert log.load().version == 1


def test_an_id_of_a_removed_table_is_of_no_interest(log):
    log.commit(6, {"metaData": log.metadata["metaData"] | {"id": str(uuid.uuid4())}}, {"protocol": PROTOCOL})
    assert log.load().version == 6
