"""Clients of the catalog and Delvec's own commands race on one managed table, through two replicas on one database.

A model knows the rows: every id is inserted once, and every answer of 200 is a promise. At the end the log, read without
Delvec's snapshots, has exactly those rows, and every transaction once.
"""

import base64
import json
import random
import threading
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from tests.chaos.replica import Replica
from tests.support.catalog_client import ManagedTable
from tests.support.in_process_service import running_service

from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, inline, serialize_bitmap
from delvec_storage.files import read_deletion_vectors

ATTEMPTS = 300


@cache
def lines(entry):
    """Return the actions of a version, which never change."""
    return [json.loads(line) for line in entry.read_text().splitlines()]


@cache
def ids_of(file):
    return pq.read_table(file)["id"].to_pylist()


class State:
    """A version of the table, from its log alone: live files with their ids and deleted rows."""

    def __init__(self, table):
        self.table = table
        self.version = -1
        self.keys = []
        self.files = {}
        entry = Path(table.folder) / "_delta_log" / f"{0:020}.json"
        while entry.exists():
            self._take(self.version + 1, lines(entry))
            entry = entry.with_name(f"{self.version + 1:020}.json")

    def _take(self, version, actions):
        self.version = version
        info = actions[0]["commitInfo"]
        members = json.loads((info.get("tags") or {}).get("delvec.members", "[]"))
        self.keys += [member["key"] for member in members] or [info["txnId"]]
        for action in actions:
            if remove := action.get("remove"):
                gone = self.files.pop(remove["path"])
                assert gone.get("deletionVector") == remove.get("deletionVector"), (version, remove["path"])
        for action in actions:
            if add := action.get("add"):
                assert add["path"] not in self.files, (version, add["path"])
                self.files[add["path"]] = add

    def deleted(self, add):
        if not add.get("deletionVector"):
            return BitMap64()
        descriptor = Descriptor.from_json(add["deletionVector"])
        path = add["path"]
        return read_deletion_vectors(
            self.table.location, [(path, descriptor)], table="people", version=self.version
        )[path]

    def ids(self, add):
        return ids_of(Path(self.table.folder) / add["path"])

    def rows(self):
        """Return the ids of all live rows."""
        found = []
        for add in self.files.values():
            deleted = self.deleted(add)
            found += [id_ for row, id_ in enumerate(self.ids(add)) if row not in deleted]
        return sorted(found)

    def matches(self, ids):
        """Yield each file that has rows with these ids, with the new ones to delete and those deleted before."""
        for add in self.files.values():
            deleted = self.deleted(add)
            new = BitMap64(row for row, id_ in enumerate(self.ids(add)) if id_ in ids and row not in deleted)
            if new:
                yield add, new, deleted


class Race:
    """The model, and what the clients do.

    Args:
        https: clients of the replicas.
        seed: of all choices.
    """

    def __init__(self, https, seed):
        self.https = https
        self.random = random.Random(seed)
        self.table = ManagedTable(https[0], "people").create()
        self.counts = Counter()
        self.acknowledged = []
        self._lock = threading.Lock()
        self._next_id = 0
        self._rows = set()
        self._deleted = set()

    def expected(self):
        return sorted(self._rows - self._deleted)

    def client(self, kind, number, commands):
        """Run one client: a number of commands of its kind."""
        choices = random.Random(f"{self.random.random()}-{number}")
        for _ in range(commands):
            getattr(self, kind)(choices)

    def spark(self, choices):
        """Commit through the catalog, as delta-spark does."""
        key = str(uuid.uuid4())
        if choices.random() < 0.5 or len(self.expected()) < 5:
            ids = self._new_ids(choices.randint(1, 5))
            add = self.table.file(ids)
            self._staged(choices, key, lambda _: [add])
            with self._lock:
                self._rows.update(ids)
        else:
            ids = self._some_ids(choices)
            self._staged(choices, key, lambda state: list(vector_actions(state, ids)), operation="DELETE")
            with self._lock:
                self._deleted.update(ids)

    def delvec(self, choices):
        """Delete by predicate; the service finds the rows, and rebases."""
        ids = self._some_ids(choices)
        if not ids:
            return
        body = {"predicate": f"id IN ({', '.join(map(str, ids))})"}
        for _ in range(ATTEMPTS):
            headers = {"Idempotency-Key": str(uuid.uuid4())}
            answer = self._http(choices).post("/v1/tables/sales.people/delete", json=body, headers=headers)
            if choices.random() < 0.2:
                again = self._http(choices).post("/v1/tables/sales.people/delete", json=body, headers=headers)
                assert answer.status_code != 200 or again.json() == answer.json(), again.text
                self.counts["repeated"] += 1
            if self._done(answer, "delvec", retried=(409, 503)):
                break
        with self._lock:
            self._deleted.update(ids)

    def engine(self, choices):
        """Delete rows of a version that is soon an old one, as an engine does that computes for a while."""
        ids = self._some_ids(choices)
        for _ in range(ATTEMPTS):
            state = State(self.table)
            deletes = [
                {"path": add["path"], "rows": base64.b64encode(serialize_bitmap(new)).decode()}
                for add, new, _ in state.matches(ids)
            ]
            if not deletes:
                break
            time.sleep(choices.uniform(0, 0.3))
            body = {
                "operation": "DELETE",
                "read-version": state.version,
                "predicate": f"id IN ({', '.join(map(str, ids))})",
                "row-deletes": deletes,
            }
            key = str(uuid.uuid4())
            headers = {"Idempotency-Key": key}
            answer = self._http(choices).post("/v1/tables/sales.people/commits", json=body, headers=headers)
            if choices.random() < 0.3:
                again = self._http(choices).post(
                    "/v1/tables/sales.people/commits", json=body, headers=headers
                )
                assert answer.status_code != 200 or again.json()["version"] == answer.json()["version"], (
                    again.text
                )
                self.counts["repeated"] += 1
            if self._done(answer, "engine", retried=(409,)):
                if answer.json()["version"] is not None:
                    self.acknowledged.append(key)
                break
        with self._lock:
            self._deleted.update(ids)

    def _staged(self, choices, key, actions_of, operation="WRITE"):
        """Commit as the next version until that is accepted; some answers are lost."""
        for _ in range(ATTEMPTS):
            state = State(self.table)
            actions = actions_of(state)
            if not actions:
                return
            body = self.table.staged(actions, version=state.version + 1, operation=operation, txnId=key)
            answer = self._http(choices).post(self.table.url, json=body)
            if choices.random() < 0.3:
                again = self._http(choices).post(self.table.url, json=body)
                assert again.status_code == answer.status_code, (answer.text, again.text)
                self.counts["repeated"] += 1
            if answer.status_code == 409:
                assert answer.json()["error"]["type"] == "CommitVersionConflictException"
            if self._done(answer, "staged", retried=(409,)):
                self.acknowledged.append(key)
                return
        raise AssertionError(f"{ATTEMPTS} attempts lost the race")

    def _done(self, answer, what, *, retried):
        if answer.status_code in retried:
            self.counts[f"{what} lost"] += 1
            return False
        assert answer.status_code == 200, answer.text
        result = answer.json().get("result", "committed")
        self.counts[f"{what} {result}"] += 1
        return True

    def _http(self, choices):
        return choices.choice(self.https)

    def _new_ids(self, count):
        with self._lock:
            self._next_id += count
            return list(range(self._next_id - count, self._next_id))

    def _some_ids(self, choices):
        with self._lock:
            live = sorted(self._rows - self._deleted)
        return set(choices.sample(live, min(len(live), choices.randint(1, 4))))


def vector_actions(state, ids):
    """Yield the actions of a DELETE by deletion vectors."""
    for add, new, deleted in state.matches(ids):
        path, before = add["path"], add.get("deletionVector")
        removed = {"path": path, "deletionTimestamp": 1, "dataChange": True}
        yield {"remove": removed | ({"deletionVector": before} if before else {})}
        if len(new | deleted) < json.loads(add["stats"])["numRecords"]:
            yield {"add": {**add, "dataChange": True, "deletionVector": inline(new | deleted).to_json()}}


def run(https, seed, *, commands, spark=2):
    """Run the clients at once, check the table against the model, and return the counts."""
    race = Race(https, seed)
    race.spark(random.Random(seed))
    kinds = ["spark"] * spark + ["delvec", "engine"]
    began = time.monotonic()
    with ThreadPoolExecutor(len(kinds)) as pool:
        clients = [pool.submit(race.client, kind, number, commands) for number, kind in enumerate(kinds)]
        for client in clients:
            client.result()
    state = State(race.table)
    assert state.rows() == race.expected()
    occurrences = Counter(state.keys)
    assert max(occurrences.values()) == 1
    assert set(race.acknowledged) <= occurrences.keys()
    for http in https:
        loaded = ManagedTable(http, "people").load()
        assert loaded["latest-table-version"] == state.version
    return race.counts | Counter(
        versions=state.version, rows=len(state.rows()), seconds=int(time.monotonic() - began)
    )


def settings(folder):
    lake = folder / "lake"
    lake.mkdir()
    return {"database_url": f"sqlite:///{folder / 'store.db'}", "roots": [str(lake)], "warehouse": str(lake)}


def test_racing_writers_lose_and_double_nothing(tmp_path):
    chosen = settings(tmp_path)
    with running_service(**chosen) as one, running_service(**chosen) as other:
        counts = run([one, other], seed=1, commands=4)
    assert counts["staged committed"] > 3


@pytest.mark.long("minutes of races over sockets")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
def test_racing_writers_lose_and_double_nothing_for_long(tmp_path, seed):
    lake = tmp_path / "lake"
    lake.mkdir()
    store = f"sqlite:///{tmp_path / 'store.db'}"
    replicas = [
        Replica(number, tmp_path, str(lake), store, DELVEC_WAREHOUSE=str(lake)) for number in range(2)
    ]
    with ExitStack() as stack:
        for replica in replicas:
            replica.start()
            stack.callback(replica.kill)
        assert all(replica.wait(180) for replica in replicas), replicas[0].tail()
        https = [stack.enter_context(httpx.Client(base_url=each.url, timeout=120)) for each in replicas]
        counts = run(https, seed, commands=40, spark=4)
    print(dict(sorted(counts.items())))  # noqa: T201 - the measure of this test
