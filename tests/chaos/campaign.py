"""Rounds of writers and faults, and their outcomes."""

import math
import random
import re
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import deltalake
import httpx
import pyarrow as pa
from tests.chaos import oracle
from tests.chaos.oracle import BrokenPromiseError, Oracle
from tests.chaos.proxy import Chances, Proxy
from tests.chaos.replica import Replica
from tests.chaos.writer import Writer

from delvec.connection import Connection
from delvec.http.service_client import ServiceClient
from delvec_errors import ServiceUnavailable

WRITERS = 8
REPLICAS = 3
ROUNDS_PER_TABLE = 100
_ROWS_EVERY = 10
_POLL_SECONDS = 0.1
_READS = 10
_FILES_AT_ONCE = 200
_PATIENCE_SECONDS = 300
"""How long replicas may take to come back: on a busy machine a start takes a minute."""
_IN_REPLICA = (
    "",
    "before-put:delay=0.1%10,after-put:kill%1",
    "after-deletion-vectors:delay=0.2%10,before-put:kill%1",
    "begin:delay=0.2%5,after-ledger:kill%2",
    "before-put:error%3,before-close:kill%1",
    "after-put:lost%3,before-answer:kill%1",
    "after-put:delay=0.3%10,after-deletion-vectors:kill%2",
)
"""Faults inside a replica; each start draws one line."""
_TROUBLE = ("none", "none", "kill", "kill", "kill two", "wipe store", "drop store", "stop store")
"""Faults of the replicas and their store, one per round."""


@dataclass
class Report:
    """The results of a campaign.

    Attributes:
        faults: how often each fault struck.
        outcomes: counts of answers by kind of operation.
    """

    seed: int
    rounds: int = 0
    seconds: float = 0.0
    tables: int = 0
    versions: int = 0
    rows: int = 0
    faults: Counter = field(default_factory=Counter)
    outcomes: Counter = field(default_factory=Counter)

    def __str__(self):
        def listed(counts):
            return "\n".join(f"  {count:7} {name}" for name, count in sorted(counts.items()))

        return (
            f"chaos, seed {self.seed}: {self.rounds} rounds in {self.seconds:.0f} s on {self.tables} tables, "
            f"{self.versions} versions, {self.rows} rows at the end\n"
            f"answers:\n{listed(self.outcomes)}\nfaults:\n{listed(self.faults)}"
        )


class Campaign:
    """Replicas on one PostgreSQL behind a proxy, and the writers; a context manager.

    Args:
        folder: for tables and logs.
        postgres: a running :class:`tests.support.postgres_server.PostgresServer`.
        seed: for all random choices. Threads still race, so a seed repeats the faults, not the history.
        chances: probabilities of the proxy's faults.
    """

    def __init__(self, folder, postgres, seed, *, chances=Chances(), settings=None):  # noqa: B008 - immutable
        self.folder = Path(folder)
        self.report = Report(seed)
        self._random = random.Random(f"campaign-{seed}")
        self._postgres = postgres
        self._wiped_at = 0.0
        self._deadline = math.inf
        roots = self.folder / "tables"
        roots.mkdir()
        self._roots = roots
        self.replicas = [
            Replica(number, self.folder, str(roots), postgres.url, **(settings or {}))
            for number in range(REPLICAS)
        ]
        self.proxy = Proxy([replica.port for replica in self.replicas], seed, chances)
        self._stopping = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)

    def __enter__(self):
        for replica in self.replicas:
            replica.start()
        if not all(replica.wait() for replica in self.replicas):
            raise BrokenPromiseError(f"a replica does not start: {self.replicas[0].tail()}")
        self._supervisor.start()
        self.proxy.__enter__()
        return self

    def __exit__(self, *_):
        self._stopping.set()
        if self._supervisor.is_alive():
            self._supervisor.join()
        self.proxy.__exit__()
        for replica in self.replicas:
            replica.kill()

    # --- the loop -----------------------------------------------------------------------------------------

    def run(self, rounds, rounds_per_table=ROUNDS_PER_TABLE, *, seconds=math.inf):
        """Run this many rounds, but begin none after this many seconds; return the last table's folder.

        Raises:
            BrokenPromiseError: a row was lost, doubled or resurrected; the message has the seed.
        """
        began = time.monotonic()
        self._deadline = began + seconds
        location = None
        try:
            while self.report.rounds < rounds and time.monotonic() < self._deadline:
                location = self._one_table(min(rounds_per_table, rounds - self.report.rounds))
        except Exception as error:
            logs = "\n".join(f"replica {replica.number}: {replica.tail()}" for replica in self.replicas)
            raise BrokenPromiseError(
                f"{type(error).__name__}: {error}\nseed {self.report.seed}, round {self.report.rounds}\n{logs}"
            ) from error
        finally:
            self.report.seconds += time.monotonic() - began
            self._count_faults()
        return location

    def _one_table(self, rounds):
        number = self.report.tables
        self.report.tables += 1
        location = self._roots / f"table-{number}"
        seed = f"{self.report.seed}-{number}"
        self.proxy.calm = True
        self._wait_for_all()
        with Connection(ServiceClient(self.proxy.url)) as lake:
            properties = {"delta.checkpointInterval": self._random.choice([5, 10, 100])}
            if self._random.random() < 0.5:
                properties["delta.enableInCommitTimestamps"] = True
            lake.create_table(str(location), "id BIGINT, text STRING", properties=properties)
        told = Oracle(location)
        writers = [Writer(one, seed, self.proxy.url, location, told) for one in range(WRITERS)]
        self._wiped_at = 0.0
        try:
            with ThreadPoolExecutor(WRITERS, "chaos-writer") as pool:
                for round_ in range(rounds):
                    if time.monotonic() > self._deadline:
                        break
                    self._round(pool, writers)
                    told.check_log()
                    if (round_ + 1) % _ROWS_EVERY == 0:
                        told.check_rows("deltalake", read_with_deltalake(location))
                    self.report.rounds += 1
            self._reckon(told, writers, location)
        finally:
            for writer in writers:
                writer.close()
        self.report.outcomes += told.outcomes()
        self.report.versions += len(told.log.versions)
        self.report.rows += len(told.expected())
        return location

    def _round(self, pool, writers):
        self._wait_for_one()
        self.proxy.calm = False
        trouble = pool.submit(self._make_trouble) if self._random.random() < 0.6 else None
        steps = [pool.submit(writer.step) for writer in writers]
        for step in steps:
            step.result()
        if trouble is not None:
            trouble.result()
        self.proxy.calm = True
        self.proxy.settle()

    def _make_trouble(self):
        kind = self._random.choice(_TROUBLE)
        time.sleep(self._random.uniform(0, 0.3))
        self.report.faults[f"round with: {kind}"] += 1
        if kind.startswith("kill"):
            for replica in self._random.sample(self.replicas, 2 if kind == "kill two" else 1):
                self.report.faults["replica killed from outside"] += replica.kill()
        elif kind == "wipe store":
            self._wiped_at = time.time()
            self._postgres.wipe()
        elif kind == "drop store":
            self._wiped_at = time.time()
            self._postgres.execute("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
        elif kind == "stop store":
            self._postgres.stop(how=self._random.choice([2, 3]))
            time.sleep(self._random.uniform(0, 0.5))
            self._postgres.start()

    # --- the end of a table -------------------------------------------------------------------------------

    def _reckon(self, told, writers, location):
        """Settle open operations, repeat settled ones, and read the table in every way."""
        self._wait_for_all()
        unknown = [one for one in told.operations if one.outcome == oracle.UNKNOWN]
        self.report.outcomes["outcome unknown until asked again"] += len(unknown)
        for operation in unknown:
            writers[0].settle_again(operation)
            if operation.outcome == oracle.UNKNOWN:
                raise BrokenPromiseError(f"{operation} stays unknown though nothing fails any more")
        known = [one for one in told.operations if one.outcome == oracle.ACKNOWLEDGED]
        for operation in self._random.sample(known, min(20, len(known))):
            version = operation.version
            writers[0].settle_again(operation)
            if (operation.outcome, operation.version) != (oracle.ACKNOWLEDGED, version):
                raise BrokenPromiseError(f"{operation} was acknowledged at version {version}, asked before")
            self.report.outcomes["acknowledged, asked again"] += 1
        told.check_log()
        told.check_rows("deltalake", read_with_deltalake(location))
        for replica in self.replicas:
            told.check_rows(f"replica {replica.number}", self._read_through(replica, location))
        self._check_ledger(told, location)

    def _read_through(self, replica, location):
        """Return the ids that a replica reads; a fault point may still kill it meanwhile."""
        for _ in range(_READS):
            self._wait_for_all()
            try:
                with Connection(ServiceClient(replica.url)) as lake:
                    rows = lake.table(str(location), engine="duckdb").to_arrow(columns=["id"])
                return rows["id"].to_pylist()
            except (httpx.TransportError, ServiceUnavailable):
                self.report.outcomes["read again, for the replica was gone"] += 1
        raise BrokenPromiseError(f"replica {replica.number} was gone {_READS} times when it was read")

    def _check_ledger(self, told, location):
        """Check that every file that no version names is in the ledger, and not as committed."""
        rows = self._postgres.query("SELECT path, state FROM ledger_files")
        ledgered = dict(rows)
        begun = {id_ for (id_,) in self._postgres.query("SELECT id FROM transactions")}
        for path in location.rglob("*"):
            name = path.relative_to(location).as_posix()
            if (
                path.suffix not in (".bin", ".parquet")
                or name.startswith("_delta_log")
                or name in told.log.named
            ):
                continue
            if path.stat().st_mtime <= self._wiped_at + 1:
                self.report.outcomes["orphan whose ledger was wiped"] += 1
                continue
            self.report.outcomes["orphan in the ledger"] += 1
            if path.suffix == ".parquet":
                if not any(id_ in name for id_ in begun):
                    raise BrokenPromiseError(f"no transaction of the ledger wrote {name}, an orphan")
            elif ledgered.get(name, "committed") == "committed":
                raise BrokenPromiseError(f"{name} is an orphan, and in the ledger {ledgered.get(name)}")

    # --- replicas -----------------------------------------------------------------------------------------

    def _supervise(self):
        """Restart ended processes, as an orchestrator would."""
        dice = random.Random(f"supervisor-{self.report.seed}")
        while not self._stopping.wait(_POLL_SECONDS):
            for replica in self.replicas:
                if not replica.running:
                    replica.revive(fault_points=dice.choice(_IN_REPLICA))

    def _wait_for_one(self):
        end = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < end:
            if any(replica.running and replica.wait(0.2) for replica in self.replicas):
                return
        raise BrokenPromiseError("no replica comes back")

    def _wait_for_all(self):
        end = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < end:
            if all(replica.wait(1) for replica in self.replicas):
                return
        raise BrokenPromiseError("a replica does not come back")

    def _count_faults(self):
        faults = self.report.faults
        faults.update({f"proxy: {name}": count for name, count in self.proxy.faults.items()})
        self.proxy.faults.clear()
        exits = Counter(code for replica in self.replicas for code in replica.exits)
        faults["replica killed at a fault point"] = exits[-9] - faults["replica killed from outside"]
        faults["replica that could not start, for its store was away"] = sum(exits.values()) - exits[-9]
        for replica in self.replicas:
            for point in re.findall(
                r'"event": "fault point (?:armed|acts)", "fault": "([^"]*)"', replica.tail(10**9)
            ):
                faults[f"in a replica: {point}"] += 1


def read_with_deltalake(location):
    """Return the ids that deltalake reads.

    Reads a few hundred files at a time: deltalake 1.6 hangs in a scan of 1,500 files with deletion vectors.
    """
    table = deltalake.DeltaTable(str(location))
    query = deltalake.QueryBuilder().register("t", table)
    files = pa.table(table.get_add_actions(flatten=True))
    lowest = sorted(files["min.id"].to_pylist()) if len(files) > _FILES_AT_ONCE else []
    borders = [None, *sorted(set(lowest[_FILES_AT_ONCE::_FILES_AT_ONCE])), None]
    found = []
    for start, end in pairwise(borders):
        bounds = [f"id >= {start}"] * (start is not None) + [f"id < {end}"] * (end is not None)
        rows = query.execute(f"select id from t where {' and '.join(bounds) or 'true'}").read_all()
        found += pa.table(rows)["id"].to_pylist()
    return found
