"""Random histories: a checkpoint plus later commits gives the same state as all commits."""

import json
import shutil
import time
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delvec_kernel import locations
from delvec_kernel.statistics.file_statistics import with_plain_text
from delvec_service.maintenance.checkpoints import Checkpoints
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.objects import ObjectStore

NOW = time.time_ns() // 1_000_000
DAY = 86_400_000
PARTITIONS = {
    "string": ["NZ", "a=b/c %", "", None],
    "integer": ["1", "-7", None],
    "long": ["9223372036854775807", None],
    "short": ["-3"],
    "byte": ["1"],
    "boolean": ["true", "false", None],
    "date": ["2020-02-29", "0001-01-01"],
    "timestamp": ["2020-01-01T00:00:00.000001Z", "2020-01-01 00:00:00"],
    "timestamp_ntz": ["2020-01-01 00:00:00", "1500-01-01 01:02:03.5"],
    "decimal(10,2)": ["1.50", "-0.01"],
    "double": ["0.1", "NaN", "Infinity"],
    "float": ["1.5"],
    "binary": ["abc"],
}


def field(name, kind, physical, number):
    metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata if physical != name else {}}


@st.composite
def tables(draw):
    """A protocol, a metadata action and the partition columns' physical names and types."""
    mapped = draw(st.booleans())
    kinds = draw(st.lists(st.sampled_from(sorted(PARTITIONS)), max_size=3, unique=True))
    names = [
        (f"p {index}", f"col-{index}" if mapped else f"p {index}", kind) for index, kind in enumerate(kinds)
    ]
    inner = {"type": "struct", "fields": [field("z", "string", "in.z" if mapped else "z", 90)]}
    columns = [
        field("id", "long", "c-id" if mapped else "id", 91),
        field("nested", inner, "c-nested" if mapped else "nested", 92),
        field("price", "decimal(20,3)", "c-price" if mapped else "price", 93),
        field("at", "timestamp", "c-at" if mapped else "at", 94),
        *(field(name, kind, physical, index) for index, (name, physical, kind) in enumerate(names)),
    ]
    v2 = draw(st.booleans())
    features = ["deletionVectors", "columnMapping", "timestampNtz", *(["v2Checkpoint"] if v2 else [])]
    properties = {
        "delta.enableDeletionVectors": "true",
        **({"delta.columnMapping.mode": "name"} if mapped else {}),
        **({"delta.checkpointPolicy": "v2"} if v2 else {}),
        **draw(st.sampled_from([{}, {"delta.checkpoint.writeStatsAsStruct": "false"}])),
    }
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": [*features, "domainMetadata"],
    }
    metadata = {
        "id": "0c8e1c8a-7f8b-4cf5-8a0b-0f7c3c7a5f00",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": columns}),
        "partitionColumns": [name for name, _, _ in names],
        "configuration": properties,
        "createdTime": 1,
    }
    prefix = "c-" if mapped else ""
    return protocol, metadata, [(physical, kind) for _, physical, kind in names], prefix


def vectors():
    inline = st.builds(
        lambda text: {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": 40, "cardinality": 6},
        st.sampled_from(["wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", "other"]),
    )
    stored = st.builds(
        lambda offset: {
            "storageType": "u",
            "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
            "offset": offset,
            "sizeInBytes": 36,
            "cardinality": 2,
        },
        st.integers(1, 3),
    )
    return st.one_of(st.none(), inline, stored)


@st.composite
def statistics(draw, prefix):
    nested = {f"{'in.' if prefix else ''}z": draw(st.sampled_from(["a", 'q"\\', "é\n"]))}
    bounds = {
        f"{prefix}id": draw(st.sampled_from([1, -5, 2**63 - 1])),
        f"{prefix}nested": nested,
        f"{prefix}price": 1.125,
        f"{prefix}at": draw(
            st.sampled_from(["2020-01-01T00:00:00.123Z", "2020-01-01T00:00:00.123+01:00", "x"])
        ),
    }
    document = {"numRecords": 10, "minValues": bounds, "maxValues": bounds, "nullCount": {f"{prefix}id": 0}}
    return draw(
        st.sampled_from(
            [
                json.dumps(document),
                json.dumps(document, indent=1),
                json.dumps({"numRecords": 10, "minValues": {f"{prefix}id": 1.5}, "tightBounds": False}),
                json.dumps({"tightBounds": True, "numRecords": 4}),
                "{}",
                None,
            ]
        )
    )


@st.composite
def histories(draw):
    """Commits as lists of actions, and the tables' first one."""
    protocol, metadata, partitions, prefix = draw(tables())
    live, commits = {}, [[{"protocol": protocol}, {"metaData": metadata}]]
    for number in range(draw(st.integers(1, 7))):
        actions = [{"commitInfo": {"timestamp": NOW, "operation": "WRITE"}}]
        for path in draw(st.lists(st.sampled_from([f"f%20{i}.parquet" for i in range(5)]), unique=True)):
            before, vector = live.get(path), draw(vectors())
            what = draw(st.sampled_from(["add", "remove", "change"])) if before else "add"
            if before and before.get("deletionVector") == vector:
                what = "remove"
            if before:
                aged = draw(st.sampled_from([{"deletionTimestamp": NOW - DAY}, {"deletionTimestamp": 5}, {}]))
                keys = ("path", "partitionValues", "size", "deletionVector")
                told = {key: before[key] for key in keys if key in before}
                actions.append({"remove": {"dataChange": True, "extendedFileMetadata": True, **told, **aged}})
                del live[path]
            if what == "remove" and before:
                continue
            add = {
                "path": path,
                "partitionValues": {
                    name: draw(st.sampled_from(PARTITIONS[kind])) for name, kind in partitions
                },
                "size": draw(st.integers(1, 2**40)),
                "modificationTime": number,
                "dataChange": True,
                "stats": draw(statistics(prefix)),
                "tags": draw(st.sampled_from([{"a": "b"}, {"c": None}, None])),
                "deletionVector": vector,
                "baseRowId": draw(st.sampled_from([None, 7])),
            }
            live[path] = {key: value for key, value in add.items() if value is not None}
            actions.append({"add": live[path]})
        actions += draw(
            st.lists(
                st.sampled_from(
                    [
                        {"txn": {"appId": "a", "version": number, "lastUpdated": 3}},
                        {"txn": {"appId": "b", "version": number}},
                        {"domainMetadata": {"domain": "d", "configuration": f"{number}", "removed": False}},
                        {"domainMetadata": {"domain": "d", "configuration": "", "removed": True}},
                    ]
                ),
                max_size=1,
            )
        )
        commits.append(actions)
    return commits


def unique(action):
    vector = action.get("deletionVector")
    return action["path"], None if vector is None else json.dumps(vector, sort_keys=True)


def tombstones_by_replay(commits):
    """What a checkpoint has to remember, by the letter of the protocol."""
    found = {}
    for actions in commits:
        for action in actions:
            if "remove" in action:
                found[unique(action["remove"])] = action["remove"]
        for action in actions:
            if "add" in action:
                found.pop(unique(action["add"]), None)
    return {key: item for key, item in found.items() if item.get("deletionTimestamp", 0) > NOW - 7 * DAY}


def sidecars_of(manifest):
    read = pq.ParquetFile(manifest)
    if "sidecar" not in read.schema_arrow.names:
        return []
    rows = read.read(columns=["sidecar"])["sidecar"].to_pylist()
    return [manifest.parent / "_sidecars" / row["path"] for row in rows if row]


def tombstones_in(log, version):
    (top,) = log.glob(f"{version:020}.checkpoint*.parquet")
    found = []
    for file in (top, *sidecars_of(top)):
        read = pq.ParquetFile(file)
        if "remove" in read.schema_arrow.names:
            found += [row["remove"] for row in read.read(columns=["remove"]).to_pylist() if row["remove"]]
    return found


def opened(folder):
    location = locations.canonical(str(folder))
    return SimpleNamespace(name="t", location=location, objects=ObjectStore(location))


def state(folder, version=None):
    table = opened(folder)
    snapshot = SnapshotLoader().load(table.objects, "t", version=version)
    files = sorted(map(plain, snapshot.files.to_pylist()))
    facts = (snapshot.protocol, snapshot.metadata, dict(snapshot.txns), dict(snapshot.domain_metadata))
    return snapshot.version, files, facts


def plain(row):
    # Checkpoints write text without escapes.
    row = dict(
        row,
        partition_values=sorted(row["partition_values"], key=repr),
        stats=with_plain_text(row["stats"]),
    )
    return json.dumps(row, sort_keys=True, default=lambda value: f"{Decimal(value)}")


@pytest.mark.parametrize("sidecar_actions", [1, 500_000])
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(commits=histories(), data=st.data())
def test_a_checkpoint_says_what_its_commits_said(tmp_path, sidecar_actions, commits, data):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    shutil.rmtree(whole, ignore_errors=True)
    shutil.rmtree(cut, ignore_errors=True)
    for folder in (whole, cut):
        (folder / "_delta_log").mkdir(parents=True)
    writer = Checkpoints(SnapshotLoader(), sidecar_actions=sidecar_actions)
    at = sorted(data.draw(st.sets(st.integers(0, len(commits) - 1), min_size=1, max_size=3)))
    for version, actions in enumerate(commits):
        text = "".join(json.dumps(action) + "\n" for action in actions)
        for folder in (whole, cut):
            (folder / "_delta_log" / f"{version:020}.json").write_text(text)
        if version in at:
            assert writer.write(opened(cut)).written
            _check_tombstones(cut / "_delta_log", version, commits[: version + 1])
            forget(cut / "_delta_log", version)
    assert state(cut) == state(whole)


def _check_tombstones(log, version, commits):
    expected = tombstones_by_replay(commits)
    found = {}
    for remove in tombstones_in(log, version):
        vector = remove["deletionVector"] and {
            k: v for k, v in remove["deletionVector"].items() if v is not None
        }
        found[unique({"path": remove["path"], "deletionVector": vector})] = remove
    assert found.keys() == expected.keys()
    for key, remove in expected.items():
        assert found[key]["deletionTimestamp"] == remove["deletionTimestamp"]
        assert found[key]["size"] == remove["size"]
        assert dict(found[key]["partitionValues"]) == remove["partitionValues"]
        assert found[key]["dataChange"] is False


def forget(log: Path, version):
    """Delete files of earlier versions, and sidecars that only they need."""
    for path in log.iterdir():
        if path.name[:20].isdecimal() and int(path.name[:20]) < version:
            path.unlink()
    named = {sidecar for manifest in log.glob("*.checkpoint.*") for sidecar in sidecars_of(manifest)}
    for sidecar in set(log.glob("_sidecars/*")) - named:
        sidecar.unlink()
