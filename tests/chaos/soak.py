"""``python -m tests.chaos.soak --minutes 60``: clients work while replicas are replaced and the database restarts.

The answers that clients got are compared with the tables, and the memory of a long-lived replica is watched.
"""

import argparse
import json
import multiprocessing
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import Figure
from benchmarks.process_tree import ProcessTree
from tests.chaos.campaign import read_with_deltalake
from tests.chaos.replica import Replica
from tests.chaos.soak_clients import SCHEMA, work
from tests.support.postgres_server import PostgresServer

from delvec.connection import Connection
from delvec.http.service_client import ServiceClient

TABLES = 3
_SAMPLE_SECONDS = 5.0
_GRACE_SECONDS = 15.0
"""How long after the database is back errors from the outage may still arrive."""


@dataclass
class Report:
    """The results of a soak.

    Attributes:
        broken: broken promises, in words; any makes the soak fail.
        seconds: durations of successful commands, by kind.
        errors: failed commands, by kind, error, and whether the database was down.
        memory: times and bytes of the replica that is never replaced.
    """

    clients: int
    length: float = 0.0
    broken: list = field(default_factory=list)
    seconds: dict = field(default_factory=lambda: defaultdict(list))
    errors: Counter = field(default_factory=Counter)
    memory: list = field(default_factory=list)
    replaced: int = 0
    restarts: int = 0
    versions: int = 0
    rows: int = 0

    def memory_by_quarter(self):
        """Return the median bytes in each quarter of the run."""
        size = max(1, len(self.memory) // 4)
        return [statistics.median(self.memory[at : at + size]) for at in range(0, 4 * size, size)]

    def __str__(self):
        lines = [
            f"soak: {self.clients} clients for {self.length:.0f} s, {self.versions} versions, {self.rows} rows",
            f"  {self.replaced} replicas replaced, {self.restarts} restarts of the database",
        ]
        for kind, seconds in sorted(self.seconds.items()):
            figure = Figure(kind, "", seconds)
            p50, p99 = 1000 * figure.median, 1000 * figure.percentile(99)
            lines.append(f"  {kind:8} {len(seconds):7}  p50 {p50:6.0f} ms  p99 {p99:6.0f} ms")
        lines += [f"  failed: {count} {name}" for name, count in sorted(self.errors.items())]
        lines.append(
            "  memory by quarter: "
            + ", ".join(f"{each / 2**20:.0f} MiB" for each in self.memory_by_quarter())
        )
        return "\n".join([*lines, *(f"  BROKEN: {each}" for each in self.broken)])


class Soak:
    """A service of three replicas under load; a context manager.

    Args:
        folder: where tables and logs go.
        postgres: a running :class:`tests.support.postgres_server.PostgresServer`.
        clients: how many to run.
        seed: for their random choices.
    """

    def __init__(self, folder, postgres, clients, seed):
        self._folder = Path(folder)
        self._postgres = postgres
        self._clients = clients
        self._seed = seed
        self._roots = self._folder / "tables"
        self._roots.mkdir()
        self._locations = [str(self._roots / f"t{number}") for number in range(TABLES)]
        self._listed = self._folder / "replicas.json"
        self._started = 0
        self._away = []
        self._replicas = []

    def __enter__(self):
        self._replicas = [self._replica() for _ in range(3)]
        self._publish()
        with Connection(ServiceClient(self._replicas[0].url)) as lake:
            for location in self._locations:
                lake.create_table(location, SCHEMA, properties={"delta.checkpointInterval": "50"})
        return self

    def __exit__(self, *_):
        for replica in self._replicas:
            replica.kill()

    def run(self, seconds, *, trouble_every):
        """Run for this long, alternately replacing a replica and restarting the database, each at least once."""
        began = time.time()
        report = Report(self._clients)
        context = multiprocessing.get_context("spawn")
        answers = context.Queue()
        ended = context.Event()
        processes = [
            context.Process(
                target=work,
                args=(number, self._listed, self._locations, self._seed, ended, answers),
                daemon=True,
            )
            for number in range(self._clients)
        ]
        for process in processes:
            process.start()
        self._trouble(report, began + seconds, trouble_every)
        ended.set()
        report.length = time.time() - began
        told = []
        for _ in processes:
            found, failed = answers.get(timeout=300)
            told.append(found)
            report.broken += [failed] if failed else []
        for process in processes:
            process.join(60)
        self._count(report, told)
        self._check(report, told)
        return report

    # --- during the run ------------------------------------------------------------------------------------

    def _trouble(self, report, until, every):
        veteran = ProcessTree(self._replicas[0].process_id)
        due = time.time() + every
        while (now := time.time()) < until or not report.restarts:
            report.memory.append(veteran.resident())
            if now >= due:
                if report.replaced <= report.restarts:
                    self._replace()
                    report.replaced += 1
                else:
                    self._restart_database()
                    report.restarts += 1
                due = time.time() + every
            time.sleep(min(_SAMPLE_SECONDS, every / 4))

    def _replace(self):
        """Start a replica, and end the oldest one except the first."""
        self._replicas.append(self._replica())
        self._publish()
        old = self._replicas.pop(1)
        old.send(signal.SIGTERM)
        old.ended(120)
        self._publish()

    def _restart_database(self):
        began = time.time()
        self._postgres.stop()
        time.sleep(1)
        self._postgres.start()
        self._away.append((began, time.time() + _GRACE_SECONDS))

    def _replica(self):
        replica = Replica(
            self._started, self._folder, str(self._roots), self._postgres.url, DELVEC_DRAIN_SECONDS="2"
        )
        self._started += 1
        replica.start()
        if not replica.wait(120):
            raise AssertionError(f"a replica does not start: {replica.tail()}")
        return replica

    def _publish(self):
        new = self._listed.with_suffix(".new")
        new.write_text(json.dumps([replica.port for replica in self._replicas]))
        new.replace(self._listed)

    # --- afterwards ---------------------------------------------------------------------------------------

    def _count(self, report, told):
        for each in told:
            for began, kind, seconds, error in each.requests:
                if not error:
                    report.seconds[kind].append(seconds)
                    continue
                away = any(start <= began + seconds and began <= end for start, end in self._away)
                report.errors[f"{kind}: {error}{', the database was away' if away else ''}"] += 1
                if not away:
                    report.broken.append(f"{kind} failed with {error} while the database was there")

    def _check(self, report, told):
        values = {name: value for each in told for name, value in each.values.items()}
        unsure = set().union(*(each.unsure for each in told))
        with Connection(ServiceClient(self._replicas[0].url, timeout=120)) as lake:
            for place, location in enumerate(self._locations):
                table = lake.table(location)
                rows = table.to_arrow()
                report.versions += table.version()
                report.rows += rows.num_rows
                found = dict(zip(rows["id"].to_pylist(), rows["value"].to_pylist(), strict=True))
                expected = {each: value for (at, each), value in values.items() if at == place}
                perhaps = {each for at, each in unsure if at == place}
                wrong = {
                    "twice": rows.num_rows - len(found),
                    "lost": len(expected.keys() - found.keys()),
                    "there again": len(found.keys() - expected.keys() - perhaps),
                    "with another value": sum(
                        value is not None and found.get(each, value) != value
                        for each, value in expected.items()
                    ),
                    "else by deltalake": len(found.keys() ^ set(read_with_deltalake(location))),
                }
                report.broken += [f"t{place}: {count} rows {how}" for how, count in wrong.items() if count]
                errors = table.check()["num-errors"]
                report.broken += [f"t{place}: {errors} errors by delvec check"] if errors else []


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument(
        "--trouble-every", type=float, default=60, help="seconds between a restart and the next"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="delvec-soak-"))
    with PostgresServer() as postgres, Soak(folder, postgres, given.clients, given.seed) as soak:
        report = soak.run(given.minutes * 60, trouble_every=given.trouble_every)
    sys.stdout.write(f"{report}\n")
    if report.broken:
        sys.stdout.write(f"tables and logs are in {folder}\n")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
