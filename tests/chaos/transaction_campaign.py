"""Random transactions over several tables, with crashes and stalls, against what is serializable.

In the manner of Elle: every transaction leaves files of its own in the tables that it changes, so the log tells the order of
writers, and every read tells a version. From these follow the dependencies between transactions; a cycle among them, or a
transaction of which a part is missing, is an anomaly. Readers of several tables are transactions, too.

A crash is an exception that no handler of the service catches; the replica is then replaced by one that knows nothing. A
stall is longer than other commits wait, so they undo the transaction while its own thread goes on.

    python -m tests.chaos.transaction_campaign --histories 10000
"""

import argparse
import base64
import json
import random
import shutil
import sys
import tempfile
import threading
import time
import uuid
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from pyroaring import BitMap64

from delvec_contract.codec import checked
from delvec_contract.transactions import TransactionRequest
from delvec_errors import CommitOutcomeUnknown, ConcurrentModification, ServiceUnavailable
from delvec_kernel import locations
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, serialize_bitmap
from delvec_kernel.features.managed_tables import TABLE_ID
from delvec_kernel.transaction.group_commit import members_of
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_service.commits import commit_answers, fault_points
from delvec_service.config import Settings
from delvec_service.scans.describe import snapshots_answer
from delvec_service.service import assembled
from delvec_storage.files import read_deletion_vectors

PATIENCE = 0.03
TABLES = 3
THREADS = 3
STEPS = 3
REPLICAS = 2
ROWS = 64
FIRST = "first.parquet"
POINTS = sorted(fault_points.TRANSACTION_POINTS | {"before-put", "after-put", "after-deletion-vectors"})
FEATURES = ["catalogManaged", "deletionVectors", "inCommitTimestamp", "v2Checkpoint", "vacuumProtocolCheck"]
_mine = threading.local()


class Killed(BaseException):
    """The process of a replica ends here."""


@dataclass
class Transaction:
    """One transaction, or one read of several tables.

    Attributes:
        reads: the version that was read, by table; the commit depends on all of it.
        adds: the path of the file that it adds, by table.
        deletes: the row of the first file that it deletes, by table.
        outcome: committed, refused, or unknown.
        began: by the clock of the campaign.
        ended: likewise, once it is answered.
    """

    key: str
    reads: dict[int, int] = field(default_factory=dict)
    adds: dict[int, str] = field(default_factory=dict)
    deletes: dict[int, int] = field(default_factory=dict)
    outcome: str = "unknown"
    began: int = 0
    ended: int | None = None

    @property
    def writes(self):
        return self.adds.keys() | self.deletes.keys()


def reach(point):
    """Kill or stall the current thread if it is to be, at the passage that was drawn."""
    plan = getattr(_mine, "plan", None)
    if plan is None or plan[0] != point:
        return
    plan[1] -= 1
    if plan[1] > 0:
        return
    _mine.plan = None
    if plan[2]:
        raise Killed
    time.sleep(2.5 * PATIENCE)


class History:
    """One random history, in a folder of its own.

    Args:
        seed: of everything that is random.
        folder: for the tables.
        pool: makes replicas.
    """

    def __init__(self, seed, folder, pool):
        self.random = random.Random(seed)
        self.folder = folder
        self.pool = pool
        self.transactions = []
        self.lock = threading.Lock()
        self.clock = 0
        self.folders = [folder / f"t{number}-{uuid.uuid4().hex[:8]}" for number in range(TABLES)]
        for each in self.folders:
            create(each)

    def tick(self):
        with self.lock:
            self.clock += 1
            return self.clock

    def run(self):
        """Run all threads, and return the anomalies."""
        seeds = [self.random.getrandbits(64) for _ in range(THREADS)]
        with ThreadPoolExecutor(THREADS) as threads:
            for each in [threads.submit(self.work, random.Random(seed)) for seed in seeds]:
                each.result()
        return self.anomalies()

    def work(self, dice):
        number = dice.randrange(REPLICAS)
        for _ in range(STEPS):
            service = self.pool.service(number)
            tables = [opened(service, each) for each in self.folders]
            if dice.random() < 0.45:
                _mine.plan = [dice.choice(POINTS), dice.randint(1, 4), dice.random() < 0.6]
            try:
                self.step(dice, service, tables)
            except Killed:
                self.pool.kill(service, tables)
            finally:
                _mine.plan = None

    def step(self, dice, service, tables):
        one = Transaction(f"x{uuid.uuid4().hex}", began=self.tick())
        with self.lock:
            self.transactions.append(one)
        kind = dice.random()
        try:
            if kind < 0.2:
                self.read(dice, service, tables, one)
            elif kind < 0.35:
                self.alone(dice, service, tables, one)
            else:
                self.together(dice, service, tables, one)
            one.outcome = "committed"
            one.ended = self.tick()
        except (CommitOutcomeUnknown, ServiceUnavailable):
            pass  # if it was sent twice, a busy database says nothing about the first time
        except ConcurrentModification:
            one.outcome = "refused"

    def read(self, dice, service, tables, one):
        numbers = dice.sample(range(TABLES), dice.randint(2, TABLES))
        snapshots = snapshots_answer(service.loader, [tables[number] for number in numbers]).snapshots
        one.reads = {number: each.version for number, each in zip(numbers, snapshots, strict=True)}

    def alone(self, dice, service, tables, one):
        number = dice.randrange(TABLES)
        body = self.commit_of(dice, service, tables, one, number, "append")
        request = checked(Changes, **body, transaction_id=one.key)
        commit_answers.commit(service.commits, service.answers, tables[number], request)

    def together(self, dice, service, tables, one):
        numbers = dice.sample(range(TABLES), dice.randint(2, TABLES))
        kinds = [dice.choice(("append", "append", "delete", "read", "read and append")) for _ in numbers]
        parts = [
            {"table": str(number), "commit": self.commit_of(dice, service, tables, one, number, kind)}
            for number, kind in zip(numbers, kinds, strict=True)
        ]
        request = TransactionRequest.model_validate({"transaction-id": one.key, "tables": parts})
        times = 2 if dice.random() < 0.1 else 1
        for _ in range(times):
            commit_answers.commit_transaction(
                service.multi_table, service.answers, [tables[number] for number in numbers], request
            )

    def commit_of(self, dice, service, tables, one, number, kind):
        table = tables[number]
        version = service.loader.load(table.objects, table.name, checkpoints=False).version
        body = {"read-version": version, "operation": "WRITE"}
        if kind.startswith("read"):
            one.reads[number] = version
            body |= {"operation": "READ", "reads": {"whole-table": True}}
        if kind.endswith("append"):
            path = f"{one.key}-{number}.parquet"
            one.adds[number] = path
            body |= {"operation": "WRITE", "adds": [added(self.folders[number], path)]}
        if kind == "delete":
            row = dice.randrange(ROWS)
            one.deletes[number] = row
            rows = base64.b64encode(serialize_bitmap(BitMap64([row]))).decode()
            body |= {"operation": "DELETE", "row-deletes": [{"path": FIRST, "rows": rows}]}
        return body

    # --- the judgement ------------------------------------------------------------------------------------

    def anomalies(self):
        """Return what a serializable history would not have."""
        service = self.pool.fresh()
        orders, problems = {}, []
        for number, folder in enumerate(self.folders):
            table = opened(service, folder)
            snapshot = service.loader.load(table.objects, table.name)
            commits = service.loader.commits(table.objects, table.name, range(snapshot.version + 1))
            orders[number] = [
                (version, key) for version, commit in enumerate(commits) for key in keys_of(commit)
            ]
            problems += self.lost(number, table, snapshot, orders[number])
        problems += torn(self.transactions, orders)
        return problems + cycles(self.transactions, orders)

    def lost(self, number, table, snapshot, order):
        """Compare the live rows with the transactions that the log says are committed."""
        keys = {key for _, key in order}
        here = [one for one in self.transactions if one.key in keys]
        live = {add.path: add for add in snapshot.live.find_all([FIRST, *self.paths(number)]).values()}
        expected = {FIRST, *(one.adds[number] for one in here if number in one.adds)}
        problems = []
        if live.keys() != expected:
            problems.append(f"table {number} has the files {sorted(live)}, not {sorted(expected)}")
        vector = live[FIRST].deletion_vector if FIRST in live else None
        gone = set() if vector is None else set(rows_of(table, vector))
        rows = {one.deletes[number] for one in here if number in one.deletes}
        if gone - rows or {row for row in rows if row not in gone}:
            problems.append(f"table {number} lacks the rows {sorted(gone)}, not {sorted(rows)}")
        return problems

    def paths(self, number):
        return [one.adds[number] for one in self.transactions if number in one.adds]


def keys_of(commit):
    """Return the transactions of a version: several appends may share one."""
    info = commit.actions[0]
    return [member.key for member in members_of(info)] or [info.txn_id]


def torn(transactions, orders):
    """Return the transactions that are not whole, are there twice, or contradict their answers."""
    problems = []
    where = defaultdict(list)
    for number, order in orders.items():
        for _, key in order:
            where[key].append(number)
    for one in transactions:
        found = where.get(one.key, [])
        if len(found) > len(set(found)):
            problems.append(f"{one} is in a table twice: {found}")
        # A row that another had deleted already leaves nothing to do.
        missing = one.adds.keys() - set(found)
        if found and missing:
            problems.append(f"{one} is in {found}, but not in {sorted(missing)}")
        if one.outcome == "committed" and one.adds.keys() - set(found):
            problems.append(f"{one} was acknowledged, and is not in {sorted(missing)}")
        if one.outcome == "refused" and found:
            problems.append(f"{one} was refused, and is in {found}")
    return problems


def cycles(transactions, orders):
    """Return a cycle of dependencies, if there is one: then no serial order explains what was read and written."""
    by_key = {one.key: one for one in transactions}
    after = defaultdict(set)
    for number, order in orders.items():
        writers = defaultdict(list)  # one version may have several, in no order
        for version, key in order:
            if key in by_key and number in by_key[key].writes:
                writers[version].append(key)
        for first, second in pairwise(writers.values()):
            for key in first:
                after[key].update(second)
        for one in transactions:
            if number not in one.reads or one.outcome != "committed":
                continue
            others = {version: [key for key in keys if key != one.key] for version, keys in writers.items()}
            seen = [keys for version, keys in others.items() if keys and version <= one.reads[number]]
            unseen = [keys for version, keys in others.items() if keys and version > one.reads[number]]
            for key in seen[-1] if seen else ():
                after[key].add(one.key)
            after[one.key].update(unseen[0] if unseen else ())
    done = [one for one in transactions if one.outcome == "committed"]
    for first in done:
        after[first.key].update(second.key for second in done if first.ended < second.began)
    cycle = _cycle(after)
    return [f"no serial order has {[by_key[key] for key in cycle]}"] if cycle else []


def _cycle(after):
    """Return the members of a cycle of a graph."""
    state, path = {}, []

    def visit(key):
        state[key] = "open"
        path.append(key)
        for following in after.get(key, ()):
            if state.get(following) == "open":
                return path[path.index(following) :]
            if following not in state and (found := visit(following)):
                return found
        state[key] = "closed"
        path.pop()
        return None

    for key in list(after):
        if key not in state and (found := visit(key)):
            return found
    return None


# --- replicas and tables ----------------------------------------------------------------------------------


class Pool:
    """Replicas: services in this process with the same warehouse, and each with a database of its own."""

    def __init__(self, warehouse):
        self.settings = Settings(
            database_url="sqlite://",
            roots=[str(warehouse)],
            warehouse=str(warehouse),
            transaction_seconds=PATIENCE,
            log_maintenance=False,
            commit_watch_seconds=0,
            metrics=False,
        )
        self.lock = threading.Lock()
        self.kills = 0
        self.services = [self.fresh_service() for _ in range(REPLICAS)]
        self.judge = self.fresh_service()

    def fresh_service(self):
        service = assembled(self.settings)
        service.start()
        return service

    def service(self, number):
        return self.services[number]

    def fresh(self):
        return self.judge

    def kill(self, service, tables):
        """Have a replica forget everything; every hundredth is a new one, with an empty database."""
        with self.lock:
            self.kills += 1
            for table in tables:
                service.loader.forget(table.location)
            if self.kills % 100 == 0 and service in self.services:
                self.services[self.services.index(service)] = self.fresh_service()


def opened(service, folder):
    return service.tables.unregistered(locations.canonical(str(folder)), folder.name)


def create(folder):
    """Write version 0 of a managed table: one file of 64 rows."""
    (folder / "_delta_log").mkdir(parents=True)
    actions = [*first_version(locations.canonical(str(folder))), {"add": added(folder, FIRST)}]
    text = "".join(f"{json.dumps(action)}\n" for action in actions)
    (folder / "_delta_log" / f"{0:020}.json").write_text(text)


def first_version(location):
    """Return the actions of version 0 of an empty managed table."""
    configuration = {
        TABLE_ID: locations.table_id(location),
        "delta.enableDeletionVectors": "true",
        "delta.enableInCommitTimestamps": "true",
    }
    schema = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
    readers = [name for name in FEATURES if name != "inCommitTimestamp"]
    return [
        {"commitInfo": {"inCommitTimestamp": 1, "timestamp": 1, "operation": "CREATE TABLE", "txnId": "t0"}},
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": readers,
                "writerFeatures": FEATURES,
            }
        },
        {
            "metaData": {
                "id": str(uuid.uuid4()),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": schema,
                "partitionColumns": [],
                "configuration": configuration,
            }
        },
    ]


def added(folder, path):
    """Write a file, which nobody reads; return its add."""
    (folder / path).write_bytes(b"PAR1")
    return {
        "path": path,
        "partitionValues": {},
        "size": 4,
        "modificationTime": time.time_ns() // 1_000_000,
        "dataChange": True,
        "stats": json.dumps({"numRecords": ROWS}),
    }


def rows_of(table, vector):
    found = [(FIRST, Descriptor.from_json(vector.to_json()))]
    return read_deletion_vectors(table.location, found, table=table.name, version=None)[FIRST]


def campaign(histories, seed, seconds=None):
    """Run histories; return how many, how many kills, the outcomes of their transactions, and the anomalies by seed."""
    folder = Path(tempfile.mkdtemp(prefix="delvec-transactions-"))
    end = None if seconds is None else time.monotonic() + seconds
    anomalies, outcomes, number = {}, defaultdict(int), 0
    with fault_points.armed(
        **{point.replace("-", "_"): lambda point=point: reach(point) for point in POINTS}
    ):
        pool = Pool(folder)
        for number in range(1, histories + 1):
            place = folder / f"h{number}"
            history = History(seed + number, place, pool)
            if problems := history.run():
                anomalies[seed + number] = problems
                break
            for one in history.transactions:
                outcomes[one.outcome] += 1
            shutil.rmtree(place)
            if number % 100 == 0:
                sys.stdout.write(f"{number} histories, {pool.kills} kills, {dict(outcomes)}\n")
                sys.stdout.flush()
            if end is not None and time.monotonic() > end:
                break
    if not anomalies:
        with suppress(OSError):
            shutil.rmtree(folder)
    return number, pool.kills, dict(outcomes), anomalies


def main():
    """Run a campaign."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=time.time_ns() // 1_000_000)
    parser.add_argument("--seconds", type=float)
    options = parser.parse_args()
    number, kills, outcomes, anomalies = campaign(options.histories, options.seed, options.seconds)
    sys.stdout.write(f"{number} histories from seed {options.seed}, {kills} kills, {outcomes}\n")
    for seed, problems in anomalies.items():
        sys.stdout.write("\n  ".join([f"seed {seed}:", *problems, ""]))
    sys.exit(bool(anomalies))


if __name__ == "__main__":
    main()
