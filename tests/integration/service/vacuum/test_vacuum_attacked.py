"""VACUUM of random tables on local disk: foreign commits, shared vectors, old tombstones, clocks, versions to keep.

A few lines of Python that use nothing of Delvec read the log and say which files must stay.
"""

import json
import os
import random
import time
import uuid
from urllib.parse import quote

import pytest

from delvec_kernel.deletion_vectors.deletion_vector import encode_uuid

HOUR = 3_600_000
SEEDS = range(15)


class Writer:
    """Another writer of logs, independent of Delvec."""

    def __init__(self, table, dice):
        self.table, self.dice, self.now = table, dice, int(time.time() * 1000)
        self.live, self.versions, self.tombstones = {}, [], []
        self.version = table.version()
        self.versions.append((self.version, {}))

    def store(self, name, *, hours):
        path = self.table.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        moment = (self.now - hours * HOUR) / 1000
        os.utime(path, (moment, moment))
        return name

    def new_file(self):
        folder = self.dice.choice(["", "c=a b/", "c=%41/", "é/", "deep/er/"])
        return self.store(
            f"{folder}part-{self.dice.getrandbits(32)}.parquet", hours=self.dice.choice([1, 30, 500])
        )

    def new_vectors(self):
        identifier, prefix = uuid.UUID(int=self.dice.getrandbits(128)), self.dice.choice(["", "dv", "d v"])
        name = f"{prefix}/deletion_vector_{identifier}.bin" if prefix else f"deletion_vector_{identifier}.bin"
        self.store(name, hours=self.dice.choice([1, 30, 500]))
        if self.dice.random() < 0.2:
            return name, {"storageType": "p", "pathOrInlineDv": f"{self.table.folder.as_uri()}/{quote(name)}"}
        return name, {"storageType": "u", "pathOrInlineDv": encode_uuid(prefix, identifier)}

    def commit(self):
        lines = [{"commitInfo": {"timestamp": self.now, "operation": "WRITE"}}]
        shared = self.new_vectors()
        gone = self.dice.sample(sorted(self.live), self.dice.randint(0, min(3, len(self.live))))
        for offset, name in enumerate(gone):
            old = self.live.pop(name)
            removed = self.now - self.dice.choice([0, 1, 100, 169, 300]) * HOUR
            lines.append({"remove": self.action(name, old, deletionTimestamp=removed)})
            self.tombstones.append((name, old, removed, self.version + 1))
            if self.dice.random() < 0.7:
                self.live[name] = (*shared, 1 + offset * 50)
                lines.append({"add": self.action(name, self.live[name], size=1, modificationTime=0)})
        for _ in range(self.dice.randint(0, 3)):
            name = self.new_file()
            self.live[name] = None
            lines.append({"add": self.action(name, None, size=1, modificationTime=0)})
        self.version += 1
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (self.table.log / f"{self.version:020}.json").write_text(text)
        self.versions.append((self.version, dict(self.live)))

    def action(self, name, vector, **rest):
        spelled = self.dice.choice([quote(name), f"{self.table.folder.as_uri()}/{quote(name)}"])
        found = {"path": spelled, "partitionValues": {}, "dataChange": True, **rest}
        if vector is not None:
            found["deletionVector"] = {**vector[1], "offset": vector[2], "sizeInBytes": 34, "cardinality": 1}
        return found

    def needed(self, retention, kept):
        files = dict.fromkeys(self.live)
        for version, live in self.versions:
            if version == self.version or version in kept:
                files |= dict.fromkeys(live)
                files |= {vector[0]: None for vector in live.values() if vector is not None}
        for name, vector, removed, version in self.tombstones:
            # An add with the same vector would end a tombstone; this writer makes none.
            if removed >= self.now - retention * HOUR:
                files[name] = None
                if vector is not None:
                    files[vector[0]] = None
            assert version <= self.version
        return set(files)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_that_is_needed_goes_and_everything_else_that_is_old_does(table, seed):
    dice = random.Random(seed)
    writer = Writer(table, dice)
    for _ in range(dice.randint(1, 8)):
        writer.commit()
        if dice.random() < 0.2:
            assert table.client.post(f"{table.url}/checkpoint", json={}).status_code == 200
    for _ in range(dice.randint(0, 4)):
        writer.new_file()
        writer.new_vectors()
    retention = dice.choice([None, 168, 200])
    enforced = dice.random() < 0.7
    if not enforced:
        retention = dice.choice([0, 2, 50])
    kept = dice.sample(range(writer.version + 1), min(writer.version + 1, dice.randint(0, 2)))
    stored = _stored(table)
    body = {"retention-hours": retention, "enforce-retention-duration": enforced, "keep-versions": kept}
    body = {name: value for name, value in body.items() if value is not None}
    hours = 168 if retention is None else retention
    needed = writer.needed(hours, kept)
    age = max(hours, 24) if enforced else hours
    old = {name for name, modified in stored.items() if modified < writer.now - age * HOUR}
    answer = table.client.post(f"{table.url}/vacuum", json=body)
    assert answer.status_code == 200, answer.text
    left = set(_stored(table))
    assert not needed - left, "a file that is needed was deleted"
    assert not (set(stored) - left) - old, "a young file was deleted"
    assert set(answer.json()["files"]) <= {quote(name, safe="/!$&'()*,;=@+") for name in old - needed} | {
        "dv/",
        "d%20v/",
    }
    assert old - needed == set(stored) - left


def _stored(table):
    found = {}
    for path in table.folder.rglob("*"):
        relative = str(path.relative_to(table.folder))
        if path.is_file() and not relative.startswith("_delta_log"):
            found[relative] = path.stat().st_mtime_ns // 1_000_000
    return found
