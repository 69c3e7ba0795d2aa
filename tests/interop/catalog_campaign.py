"""``python -m tests.interop.catalog_campaign --rounds 300``: delta-spark, DuckDB and Delvec race on one managed table, with kills.

Two replicas of the service on one database are its catalog. In each round, two statements of delta-spark, one of DuckDB and two
of Delvec run at once; each inserts rows, or deletes or updates some that no other one has chosen. Replicas die at the steps of a
commit, or from outside, and start again. A model knows the rows. DuckDB deletes the file of a commit whose answer it did not get;
then the table is repaired, and the statement has done nothing. A statement that was acknowledged has had its effect, one that
failed has had all of it or nothing; then the log, read without Delvec's snapshots, has exactly the model's rows, and every
transaction once. Every few rounds all three engines must read these rows, too.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tests.chaos.replica import Replica
from tests.integration.service.catalog.test_ratification_races import State
from tests.interop.delta_session import delta_session
from tests.interop.unity_catalog import shim_jar
from tests.support import duckdb_extensions

import delvec
from delvec_kernel import locations

TOKEN = "secret"
NAME = "sales.people"
FAULTS = "after-checks:kill%1.5,before-put:kill%1.5,after-put:kill%2,before-answer:kill%1.5"
ROUNDS_PER_TABLE = 20
READ_EVERY = 5
SPARK_ATTEMPTS = 5


@dataclass(frozen=True)
class Statement:
    """What one engine does in a round.

    Attributes:
        before: the values of its rows by id; None for a row that is not there.
        after: likewise, once it is done.
    """

    kind: str
    before: dict
    after: dict


class DuckDB:
    """Runs statements in processes of DuckDB."""

    def __init__(self, url):
        attach = (
            f"CREATE SECRET (TYPE unity_catalog, TOKEN '{TOKEN}', ENDPOINT '{url}'); "
            "ATTACH 'delvec' AS lake (TYPE unity_catalog, DEFAULT_SCHEMA 'sales'); "
        )
        self._attach = attach
        self._folder = tempfile.mkdtemp(prefix="duckdb-")

    def run(self, sql):
        """Return the rows of the last statement."""
        return duckdb_extensions.query(self._attach + sql, self._folder).to_pylist()


class Campaign:
    """One table after the other, and the model of its rows.

    Args:
        folder: for everything.
        seed: of all choices.
        spark: a session with delta-spark's JARs.
    """

    def __init__(self, folder, seed, spark):
        self.random = random.Random(seed)
        self.folder = folder
        lake = folder / "lake"
        lake.mkdir()
        store = f"sqlite:///{folder / 'store.db'}"
        settings = {"DELVEC_WAREHOUSE": str(lake), "DELVEC_TOKEN": TOKEN}
        self.replicas = [Replica(number, folder, str(lake), store, **settings) for number in range(2)]
        self.counts = Counter()
        self.errors = (folder / "errors.txt").open("a", buffering=1)
        self.rows = {}
        self._version = 0
        self._next = 0
        self._is_over, self._is_deadly = threading.Event(), threading.Event()
        for replica in self.replicas:
            replica.start(fault_points=FAULTS)
        self._wait()
        self._supervisor = threading.Thread(target=self._supervise)
        self._supervisor.start()
        self.lake = delvec.connect(self.replicas[1].url, token=TOKEN)
        self.duckdb = DuckDB(self.replicas[0].url)
        self.spark = spark.newSession()
        self.spark.sql(f"ADD JAR '{shim_jar(folder, spark)}'")
        self.spark.conf.set("spark.sql.catalog.delvec", "io.unitycatalog.spark.UCSingleCatalog")
        self.spark.conf.set("spark.sql.catalog.delvec.uri", self.replicas[0].url)
        self.spark.conf.set("spark.sql.catalog.delvec.token", TOKEN)

    def close(self):
        self._is_over.set()
        self._supervisor.join()
        self.lake.close()
        self.errors.close()
        for replica in self.replicas:
            replica.kill()

    def table(self):
        """Begin with a new table, which one engine or the other creates."""
        if self._exists():
            self._surely(lambda: self.lake.drop(NAME), lambda: not self._exists())
        if self.random.random() < 0.5:
            self._surely(lambda: self.lake.create_table(NAME, "id long, n long", managed=True), self._exists)
        else:
            create = f"CREATE TABLE delvec.{NAME} (id LONG, n LONG) USING DELTA"
            self._surely(lambda: self.spark.sql(create), self._exists)
        self.rows, self._version = {}, 0
        first = self._insert("delvec")
        is_acknowledged = self._run(first)
        self._wait()
        found = {row["id"]: row["n"] for row in self._read(State(self._facts()))}
        self._settle(first, found, is_acknowledged=is_acknowledged)

    def _exists(self):
        return any(each.name == NAME for each in self.lake.tables())

    def _surely(self, act, is_done):
        """Do something that replicas may die of, until it is done."""
        for _ in range(10):
            try:
                act()
            except Exception as error:  # noqa: BLE001 - the errors of three engines
                self.errors.write(f"the campaign: {error}\n\n")
                self._wait()
            if is_done():
                return
        raise AssertionError("ten attempts failed")

    def round(self, number):
        """Run five statements at once, while replicas die, and check the table."""
        if number % 3 == 0:
            self._is_deadly.set()
        free = set(self.rows)
        statements = [self._chosen(kind, free) for kind in ("spark", "spark", "duckdb", "delvec", "delvec")]
        with ThreadPoolExecutor(len(statements)) as pool:
            done = list(pool.map(self._run, statements))
        self._is_deadly.clear()
        self._wait()
        self._mend()
        state = State(self._facts())
        found = {row["id"]: row["n"] for row in self._read(state)}
        for statement, is_acknowledged in zip(statements, done, strict=True):
            self._settle(statement, found, is_acknowledged=is_acknowledged)
        assert found == self.rows, _difference(found, self.rows)
        assert max(Counter(state.keys).values()) == 1
        if number % READ_EVERY == 0:
            self._agree()
        self.counts["versions"] += state.version - self._version
        self._version = state.version

    def _settle(self, statement, found, *, is_acknowledged):
        """Take over what a statement did."""
        seen = {identifier: found.get(identifier) for identifier in statement.after}
        outcome = "acknowledged"
        if not is_acknowledged:
            assert seen in (statement.after, statement.before), (statement, seen)
            outcome = "failed, and is done" if seen == statement.after else "failed"
        self.counts[f"{statement.kind} {outcome}"] += 1
        if is_acknowledged or seen == statement.after:
            for identifier, value in statement.after.items():
                if value is None:
                    self.rows.pop(identifier, None)
                else:
                    self.rows[identifier] = value

    def _chosen(self, kind, free):
        """Return a statement, and take its rows from those that are free."""
        action = (
            "insert" if kind == "duckdb" else self.random.choice(["insert", "delete", "update", "delete"])
        )
        if action == "insert" or len(free) < 10:
            return self._insert(kind)
        chosen = self.random.sample(sorted(free), self.random.randint(1, 4))
        free.difference_update(chosen)
        before = {identifier: self.rows[identifier] for identifier in chosen}
        after = {each: None if action == "delete" else value + 1 for each, value in before.items()}
        return Statement(f"{kind} {action}", before, after)

    def _insert(self, kind):
        count = self.random.randint(3, 8)
        identifiers = range(self._next, self._next + count)
        self._next += count
        return Statement(f"{kind} insert", dict.fromkeys(identifiers), dict.fromkeys(identifiers, 0))

    def _run(self, statement):
        """Run a statement; return whether it was acknowledged."""
        engine, action = statement.kind.split()
        values = ", ".join(f"({identifier}, {value})" for identifier, value in statement.after.items())
        where = f"id IN ({', '.join(map(str, statement.after))})"
        try:
            if engine == "duckdb":
                self.duckdb.run(f"INSERT INTO lake.{NAME} VALUES {values}; SELECT 1")
            elif engine == "spark":
                self._on_spark(
                    {
                        "insert": f"INSERT INTO delvec.{NAME} VALUES {values}",
                        "delete": f"DELETE FROM delvec.{NAME} WHERE {where}",
                        "update": f"UPDATE delvec.{NAME} SET n = n + 1 WHERE {where}",
                    }[action]
                )
            else:
                table = self.lake.table(NAME)
                if action == "insert":
                    table.append(_table(statement.after))
                elif action == "delete":
                    table.delete(where)
                else:
                    table.update({"n": "n + 1"}, where)
        except Exception as error:  # noqa: BLE001 - the errors of three engines
            self.counts[f"{engine} {type(error).__name__}"] += 1
            self.errors.write(f"{statement.kind}: {error}\n\n")
            return False
        return True

    def _on_spark(self, statement):
        """Run a statement in Spark, again if it lost a race: delta-spark does not rebase by rows."""
        for attempt in range(SPARK_ATTEMPTS):
            try:
                self.spark.sql(statement).collect()
            except Exception as error:
                if "DELTA_CONCURRENT" not in str(error) or attempt + 1 == SPARK_ATTEMPTS:
                    raise
                self.counts["spark lost a race"] += 1
            else:
                return

    def _supervise(self):
        """Start replicas that died, and in a deadly round kill some, until the campaign ends."""
        choices = random.Random(self.random.random())
        while not self._is_over.wait(choices.uniform(0.2, 1)):
            if self._is_deadly.is_set() and all(replica.ready() for replica in self.replicas):
                self._is_deadly.clear()  # once in a round: they need a while to start
                time.sleep(choices.uniform(0, 2))
                self.counts["killed from outside"] += choices.choice(self.replicas).kill()
            for replica in self.replicas:
                if not replica.running:
                    self.counts["deaths"] += 1
                    replica.start(fault_points=FAULTS)

    def _wait(self):
        end = time.monotonic() + 180
        while not all(replica.wait(60) for replica in self.replicas):
            assert time.monotonic() < end, self.replicas[0].tail() + self.replicas[1].tail()
            time.sleep(0.2)

    def _facts(self):
        """Return what the reader of the log needs to know."""
        location = self.lake.table(NAME).location

        class Facts:
            folder = locations.local_path(location)

        Facts.location = location
        return Facts

    def _mend(self):
        """Remove from the table what DuckDB has committed and then deleted."""
        state = State(self._facts())
        missing = [path for path in state.files if not (Path(state.table.folder) / path).exists()]
        if missing:
            assert all(path.startswith("duckdb-") for path in missing), missing
            self._surely(
                lambda: self.lake.table(NAME).repair(drop_missing_files=True),
                lambda: not set(missing) & State(self._facts()).files.keys(),
            )
            self.counts["files that DuckDB deleted after their commit"] += len(missing)

    def _read(self, state):
        for add in state.files.values():
            deleted = state.deleted(add)
            rows = pq.read_table(Path(state.table.folder) / add["path"]).to_pylist()
            yield from (row for number, row in enumerate(rows) if number not in deleted)

    def _agree(self):
        """All engines read the model's rows."""
        every = f"SELECT id, n FROM delvec.{NAME}"
        by_spark = {row["id"]: row["n"] for row in self.spark.sql(every).collect()}
        by_duckdb = {row["id"]: row["n"] for row in self.duckdb.run(f"SELECT id, n FROM lake.{NAME}")}
        by_delvec = {row["id"]: row["n"] for row in self.lake.table(NAME).to_arrow().to_pylist()}
        assert by_spark == by_duckdb == by_delvec == self.rows
        self.counts["readings"] += 1


def _table(rows):
    return pa.table({"id": pa.array(list(rows), pa.int64()), "n": pa.array(list(rows.values()), pa.int64())})


def _difference(found, expected):
    return {
        identifier: (found.get(identifier), expected.get(identifier))
        for identifier in found.keys() | expected.keys()
        if found.get(identifier) != expected.get(identifier)
    }


def run(rounds, seed, seconds, spark, *, say=print):
    """Run rounds; return how many, and the counts.

    Raises:
        AssertionError: a promise was broken; the folder stays.
    """
    folder = Path(tempfile.mkdtemp(prefix="delvec-catalog-races-"))
    end = time.monotonic() + seconds
    campaign = Campaign(folder, seed, spark)
    number = 0
    with closing(campaign):
        while number < rounds and time.monotonic() < end:
            if number % ROUNDS_PER_TABLE == 0:
                campaign.table()
            number += 1
            try:
                campaign.round(number)
            except BaseException:
                say(f"round {number} of seed {seed} failed; see {folder}\n{traceback.format_exc()}")
                raise
            if number % 10 == 0:
                say(f"{number} rounds, {dict(sorted(campaign.counts.items()))}")
    shutil.rmtree(folder, ignore_errors=True)
    return number, campaign.counts


def main():
    """Run a campaign."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=time.time_ns() // 1_000_000)
    parser.add_argument("--seconds", type=float, default=3600)
    options = parser.parse_args()

    def say(text):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory() as warehouse:
        spark = delta_session(warehouse)
        assert spark is not None, "no JARs of delta-spark: set DELVEC_TEST_JARS"
        number, counts = run(options.rounds, options.seed, options.seconds, spark, say=say)
        spark.stop()
    say(f"{number} rounds of seed {options.seed}, {json.dumps(dict(sorted(counts.items())))}")


if __name__ == "__main__":
    main()
