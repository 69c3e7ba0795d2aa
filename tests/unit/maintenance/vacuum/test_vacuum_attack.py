"""VACUUM with random tables, clocks, retentions, commits in progress and foreign writers: no needed file is deleted.

All in memory: storage is a dictionary, the log a list. A model that knows files by their names in storage, and nothing of
path encodings in logs, decides which files are needed. ``make attack ON=vacuum`` runs 100,000 cases.
"""

import os
import random
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import PurePosixPath
from urllib.parse import quote
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.random_cases import share_of

from delvec_errors import LocationNotAllowed, RetentionTooShort
from delvec_kernel.actions.action_json import LogFile
from delvec_kernel.actions.actions import AddFile, Cdc, RemoveFile
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, encode_uuid, file_name
from delvec_kernel.file_index.file_rows import DELETION_VECTOR
from delvec_kernel.locations import canonical_relative
from delvec_kernel.log.tombstones import Changes
from delvec_kernel.snapshot.replay import Commit
from delvec_maintenance.vacuum.candidates import (
    given_paths,
    old_and_unreferenced,
    outside,
    unreferenced,
    visible,
)
from delvec_maintenance.vacuum.references import References
from delvec_maintenance.vacuum.retention import Retention, hidden_names
from delvec_storage.trees import LISTED

LOCATION = "file:///data/my%20table"
HOUR = 3_600_000
NOW = 1_800_000_000_000
CASES = int(os.environ.get("DELVEC_VACUUM_CASES", share_of(300)))
FOLDERS = ["", "c=a b/", "c=%41/", "é/", "deep/er/", "inner/"]


@dataclass
class Table:
    """A table and its storage, as they really are.

    Attributes:
        stored: when each file was written, by the storage's clock.
        live: the deletion vector and its file's name by live file; None without one.
        needed: files that must never be deleted.
    """

    dice: random.Random
    stored: dict = field(default_factory=dict)
    live: dict = field(default_factory=dict)
    history: list = field(default_factory=list)
    commits: list = field(default_factory=list)
    tombstones: list = field(default_factory=list)

    def file(self, age):
        name = f"{self.dice.choice(FOLDERS[:-1])}part-{self.dice.getrandbits(40):x}.parquet"
        self.stored[name] = NOW - age
        return name

    def vectors(self, age):
        prefix, identifier = self.dice.choice(["", "dv", "d v"]), UUID(int=self.dice.getrandbits(128))
        name = f"{prefix}/{file_name(identifier)}" if prefix else file_name(identifier)
        self.stored[name] = NOW - age
        if self.dice.random() < 0.2:
            return name, ("p", f"{LOCATION}/{quote(name)}")
        return name, ("u", encode_uuid(prefix, identifier))

    def spelled(self, name):
        return self.dice.choice(
            [quote(name), f"{LOCATION}/{quote(name)}", f"file:/data/my%20table/{quote(name)}"]
        )

    def commit(self, age):
        """Commit like any writer: remove files, replace deletion vectors, add files, restore a removed one."""
        dice, actions = self.dice, []
        shared = self.vectors(age)
        for offset, name in enumerate(
            dice.sample(sorted(self.live), min(len(self.live), dice.randint(0, 3)))
        ):
            old, removed = self.live.pop(name), NOW - max(0, age - dice.choice([0, 0, HOUR]))
            actions.append(RemoveFile(self.spelled(name), removed, deletion_vector=old and descriptor(old)))
            self.tombstones.append((name, old, removed))
            if dice.random() < 0.6:
                self.live[name] = (*shared, 1 + 40 * offset)
        back = [name for name, _, _ in self.tombstones if name not in self.live and name in self.stored]
        if back and dice.random() < 0.3:
            name = dice.choice(back)
            self.live[name] = dice.choice([old for one, old, _ in self.tombstones if one == name])
            if self.live[name] is not None and self.live[name][0] not in self.stored:
                self.live[name] = None
            actions.append(self.add(name))
        for _ in range(dice.randint(0, 2)):
            name = self.file(age)
            self.live[name] = None
            actions.append(self.add(name))
        actions += [
            self.add(action_name)
            for action_name in self.live
            if self.live[action_name] is not None and self.live[action_name][0] == shared[0]
        ]
        changed = None
        if dice.random() < 0.2:
            changed = f"_change_data/cdc-{dice.getrandbits(40):x}.parquet"
            self.stored[changed] = NOW - age
            actions.append(Cdc(self.spelled(changed), {}, 1))
        version = len(self.commits)
        self.commits.append(Commit(LogFile("t", version, f"{version:020}.json"), actions))
        self.history.append((dict(self.live), changed))
        return actions

    def add(self, name):
        vector = self.live[name]
        return AddFile(self.spelled(name), {}, 1, 0, deletion_vector=vector and descriptor(vector))

    def listing(self):
        """Return a listing, without hidden files and directories of other tables."""
        is_hidden = hidden_names([])
        shown = [name for name in self.stored if not any(map(is_hidden, name.split("/")))]
        rows = [(canonical_relative(name), 1, self.stored[name]) for name in shown]
        return pa.RecordBatch.from_arrays(
            [
                pa.array(column, kind.type)
                for column, kind in zip(zip(*rows, strict=True), LISTED, strict=True)
            ]
            if rows
            else [pa.array([], kind.type) for kind in LISTED],
            schema=LISTED,
        )


def descriptor(vector):
    _, (kind, text), offset = vector
    return Descriptor(kind, text, offset, 34, 1)


def keep(kept, live):
    """Add a snapshot's paths and deletion vectors to ``kept`` in columnar form."""
    kept.add_paths(pa.array([quote(name) for name in live], pa.string()))
    vectors = [vector and descriptor(vector).to_json() for vector in live.values()]
    kept.add_vectors(pa.array(vectors, DELETION_VECTOR))


def names_of(live):
    return {*live, *(vector[0] for vector in live.values() if vector is not None)}


def made(dice):
    """Return a table after random commits, with files of failed commits and of commits in progress."""
    table = Table(dice)
    ages = [dice.choice([0, 1, 23, 30, 100, 167, 169, 300, 2000]) * HOUR for _ in range(dice.randint(1, 6))]
    for age in sorted(ages, reverse=True):
        table.commit(age)
    for _ in range(dice.randint(0, 3)):
        table.file(dice.choice([0, 2, 23, 25, 169, 3000]) * HOUR)
        table.vectors(dice.choice([0, 2, 23, 25, 169, 3000]) * HOUR)
    return table


@dataclass
class Attacked:
    """One VACUUM, assembled from the kernel's parts like in the service.

    Attributes:
        service_clock: any time; the storage's clock is NOW.
        taken: names of files that it deletes.
    """

    table: Table
    retention: Retention
    service_clock: int
    versions: list
    announced: set
    is_whole: bool = True
    listed: set = field(default_factory=set)
    taken: set = field(default_factory=set)

    def __post_init__(self):
        self.changes = Changes.of(self.table.commits, LOCATION)
        self.now = min(self.service_clock, NOW)

    def run(self, shielded):
        dice, table, retention = self.table.dice, self.table, self.retention
        kept, listing = self.references(), table.listing()
        before = retention.written_before(self.service_clock)
        self.is_whole = dice.random() < 0.7
        if self.is_whole:
            planned = pa.Table.from_batches(old_and_unreferenced([listing], kept, before), LISTED)
        else:
            planned = self.named(listing, kept, before)
        planned = outside(planned, shielded)
        # VACUUM START gives the storage's clock. Meanwhile others commit, and may restore unreferenced files.
        newer = References(LOCATION)
        if self.now < self.service_clock:
            self.keep_tombstones(self.now, newer)
        newer.add_actions(self.meanwhile())
        files = planned.filter(pc.less(planned["modified"], retention.written_before(self.now)))
        names = {canonical_relative(name): name for name in table.stored}
        self.listed = {names[path] for path in listing["path"].to_pylist()}
        doomed = unreferenced(files["path"].combine_chunks(), newer)
        self.taken = {names[path] for path in doomed.to_pylist()}

    def references(self):
        kept = References(LOCATION)
        keep(kept, self.table.live)
        for version in self.versions:
            live, changed = self.table.history[version]
            keep(kept, live)
            kept.add_paths(pa.array([changed] if changed else [], pa.string()))
        self.keep_tombstones(self.service_clock, kept)
        kept.add_paths(pa.array([quote(name) for name in self.announced], pa.string()))
        return kept

    def keep_tombstones(self, now, kept):
        since = self.retention.removed_before(now) - 1
        kept.add_files([self.changes.tombstones(since)], "deletionVector")

    def named(self, listing, kept, before):
        """Return the plan for arbitrary files given by a user."""
        stored = sorted(self.table.stored)
        some = [quote(name) for name in self.table.dice.sample(stored, len(stored) // 2)]
        paths = pa.array(visible(given_paths(some, LOCATION), hidden_names([])), pa.string())
        known = {row["path"]: row for row in listing.to_pylist()}
        rows = [known[path] for path in unreferenced(paths, kept).to_pylist()]
        return pa.Table.from_pylist([row for row in rows if row["modified"] < before], LISTED)

    def meanwhile(self):
        """Return what foreign writers commit between plan and deletion, including RESTOREs of any file."""
        table, dice = self.table, self.table.dice
        actions = [action for _ in range(dice.randint(0, 2)) for action in table.commit(0)]
        gone = sorted(name for name in {*table.stored} - {*table.live} if "_" not in name)
        if gone and dice.random() < 0.2:
            name = dice.choice(gone)
            table.live[name] = None
            actions.append(table.add(name))
        return actions

    def needed(self):
        """Return the files that must not be deleted."""
        table, keeps = self.table, self.retention.milliseconds
        found = names_of(table.live) | self.announced
        for version in self.versions:
            live, changed = table.history[version]
            found |= names_of(live) | ({changed} if changed else set())
        for name, vector, removed in table.tombstones:
            last = self.changes.last.get((canonical_relative(name), vector and descriptor(vector).unique_id))
            if removed >= NOW - keeps and last is not None and last.deletion_timestamp == removed:
                found |= {name} | ({vector[0]} if vector else set())
        youngest = max(keeps, 24 * HOUR) if self.retention.is_enforced else keeps
        found |= {name for name, written in table.stored.items() if written >= NOW - youngest}
        hidden = {name for name in table.stored if any(map(hidden_names([]), PurePosixPath(name).parts))}
        return found | hidden | {name for name in table.stored if name.startswith("inner/")}

    def may_go(self):
        """Return the files that must be deleted, or else a VACUUM that deletes nothing would pass."""
        if not self.is_whole or self.service_clock != NOW or any("%" in name for name in self.table.stored):
            return set()
        removed = [{name} | ({vector[0]} if vector else set()) for name, vector, _ in self.table.tombstones]
        return self.listed - self.needed() - set().union(*removed)


def attack(seed):
    """Run one VACUUM; None if its retention is rejected."""
    dice = random.Random(seed)
    table = made(dice)
    shielded = ["inner"] if dice.random() < 0.3 else []
    if shielded:
        table.stored |= {f"inner/{name}": NOW - 3000 * HOUR for name in ("a.parquet", "_delta_log/0.json")}
    announced = {table.file(dice.choice([1, 3000]) * HOUR) for _ in range(dice.randint(0, 2))}
    configured = timedelta(hours=dice.choice([0, 1, 24, 168, 720]))
    hours, enforce = dice.choice([None, 0, 2, 168, 1000]), dice.random() < 0.7
    try:
        retention = Retention.of(configured, hours, enforce=enforce, table="t")
    except RetentionTooShort:
        return None
    versions = dice.sample(range(len(table.history)), dice.randint(0, min(2, len(table.history))))
    clock = NOW + dice.choice([0, 0, -400, -1, 1, 30, 400, 10_000]) * HOUR
    found = Attacked(table, retention, clock, versions, announced)
    found.run(shielded)
    return found


def test_needed_files_are_kept_and_others_deleted():
    taken = refused = 0
    for seed in range(CASES):
        found = attack(seed)
        if found is None:
            refused += 1
            continue
        assert not found.taken & found.needed(), f"seed {seed}: {sorted(found.taken & found.needed())}"
        assert found.may_go() <= found.taken, f"seed {seed}: {sorted(found.may_go() - found.taken)}"
        taken += len(found.taken)
    assert taken > CASES / 2, "attacks without prey prove nothing"
    assert refused < CASES / 2


def test_given_files_outside_the_table_are_refused():
    given = [
        *("../x.parquet", "..%2Fx.parquet", "a%00b", "file:///data/../x.parquet", "http://x/y", ""),
        *("file:///data/other/x.parquet", "s3://bucket/x.parquet", LOCATION),
    ]
    for path in given:
        with pytest.raises(LocationNotAllowed, match=r"VACUUM .* was given the file") as caught:
            given_paths(["a.parquet", path], LOCATION)
        assert caught.value.details["file"] in (path, "")


def test_hidden_given_files_are_ignored():
    given = ["_delta_log/0.json", "metadata/v1.json", "a/_x/b", ".c", "%5Fdelta_log/0.json", "a.parquet"]
    assert visible(given_paths(given, LOCATION), hidden_names([])) == ["a.parquet"]
