"""``python -m tests.interop.dml_campaign --scripts 200``: random statements by several writers, held against a model.

Every statement is run by each writer on a table of its own, or by one writer after the other on a table that all share. After
each, rows, change feed and counts must be the model's; at the end everybody reads what the others wrote.
"""

import argparse
import logging
import math
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter, deque
from pathlib import Path

from tests.interop.dml_model import RefusedError
from tests.interop.dml_scripts import Script
from tests.interop.dml_values import Column, plain
from tests.interop.dml_writers import DeltaSpark, Delvec, arrow_schema, arrow_table

import delvec
from delvec.protocol.errors import InvalidPredicate, UnsupportedWriterFeature

log = logging.getLogger(__name__)

__all__ = ["Campaign", "WrongError"]

KEPT = 10
MODE = "delta.columnMapping.mode"
MAPPINGS = ("none", "none", "name", "id")


class WrongError(AssertionError):
    """A writer or a reader is not of the model's opinion; says how to see it again."""


class Campaign:
    """Scripts, one after the other.

    Args:
        lake: a connection.
        folder: for tables.
        spark: a session with delta-spark, or None for Delvec on DuckDB alone.
    """

    def __init__(self, lake, folder, spark=None):
        self.lake, self.folder, self.spark = lake, Path(folder), spark
        self.writers = [Delvec(lake, "duckdb", "Delvec on DuckDB")]
        if spark is not None:
            self.writers += [Delvec(lake, spark, "Delvec on Spark"), DeltaSpark(spark)]
        self.counts = Counter()
        self._finished = deque()

    def run(self, seed, statements):
        """Run one script.

        Raises:
            WrongError: somebody is wrong.
        """
        run = _Run(self, seed, statements)
        try:
            run.do()
        except Exception as error:
            if isinstance(error, WrongError):
                raise
            raise WrongError(f"{traceback.format_exc()}\n{run}") from error
        self.counts["scripts"] += 1
        self._finished.append(run.folder)
        if len(self._finished) > KEPT:
            # Not at once: the service still looks after the log.
            shutil.rmtree(self._finished.popleft())

    @property
    def report(self):
        return "".join(f"{count:8,}  {what}\n" for what, count in sorted(self.counts.items()))


class _Run:
    """One script; see :class:`Campaign`."""

    def __init__(self, campaign, seed, statements):
        self.campaign, self.seed, self.statements = campaign, seed, statements
        self.random = random.Random(seed)
        self.script = Script(self.random, mappings=MAPPINGS if campaign.spark else MAPPINGS[:-1])
        self.done = []
        self.folder = campaign.folder / f"seed-{seed}"
        self.tables = {}
        self.versions = {}

    def __str__(self):
        lines = "".join(f"\n  {number}. {text}" for number, text in enumerate(self.done, 1))
        return (
            f"seed {self.seed}, {self.statements} statements; tables in {self.folder}\n  {self.script}{lines}"
        )

    def do(self):
        writers = self.campaign.writers
        shared = len(writers) > 1 and self.random.random() < 0.4
        self._create(["all in turn"] if shared else [writer.name for writer in writers])
        for _ in range(self.statements):
            before = self.script.rows
            statement, expected = self.script.statement()
            self.done.append(str(statement))
            log.info("seed %s: %s", self.seed, type(statement).__name__)
            if shared:
                self._step("all in turn", self.random.choice(writers), statement, expected)
            else:
                try:
                    for writer in writers:
                        self._step(writer.name, writer, statement, expected)
                except _SkippedError:
                    self.script.rows = before
                    self.done[-1] += "  [DuckDB refuses it]"
            self.campaign.counts["statements"] += 1
            self.campaign.counts[f"statements, {type(statement).__name__}"] += 1
        for name, location in self.tables.items():
            self._read_by_all(name, location)

    def _create(self, names):
        script, first = self.script, self.folder / "first"
        table = self._made_by_delvec(first) if script.mapping != "id" else self._made_by_delta_spark(first)
        for rows in script.first:
            table.append(arrow_table(rows))
        for name, check in script.table.checks.items():
            table.alter.add_constraint(name, check.sql)
        self.created = table.version()
        for number, name in enumerate(names):
            location = self.folder / f"table-{number}"
            shutil.copytree(first, location)
            self.tables[name] = location
            self.versions[name] = self._table(location).version()
            self._check_rows(name, "when it was made", self.script.rows)

    def _made_by_delvec(self, location):
        table, lake = self.script.table, self.campaign.lake
        properties = {name: value for name, value in table.properties.items() if name != MODE}
        if self.script.mapping == "none":
            schema = arrow_schema(table.columns)
            return lake.create_table(location, schema, list(table.partition_by), properties)
        # Only a table whose columns are mapped may have any names.
        names = {column.name: f"c{number}" for number, column in enumerate(table.columns)}
        schema = arrow_schema([Column(names[column.name], column.kind) for column in table.columns])
        made = lake.create_table(location, schema, [names[name] for name in table.partition_by], properties)
        made.alter.set_properties({MODE: self.script.mapping})
        for name, plain_name in names.items():
            made.alter.rename_column(plain_name, name)
        return made

    def _made_by_delta_spark(self, location):
        # Delvec makes no tables whose columns are found by their ids.
        table = self.script.table
        empty = self.campaign.spark.createDataFrame(arrow_schema(table.columns).empty_table())
        known = {name: value for name, value in table.properties.items() if not name.startswith("delvec.")}
        writer = empty.write.format("delta").options(**known).partitionBy(*table.partition_by)
        writer.save(str(location))
        return self._table(location)

    # --- statements -------------------------------------------------------------------------------------------

    def _step(self, name, writer, statement, expected):
        location, before = self.tables[name], self.versions[name]
        counts = self.campaign.counts
        try:
            told = writer.run(location, statement)
        except writer.refusals as error:
            self.versions[name] = self._table(location).version()
            if self.versions[name] != before:
                raise self._wrong(name, writer, "changed the table, and raised", error) from error
            if isinstance(expected, RefusedError):
                counts[f"refused as they must be, {writer.name}"] += 1
                return
            if not self._is_known_limit(writer, error):
                raise self._wrong(name, writer, "raised", repr(error)) from error
            counts[f"not on DuckDB: {_reason(error)}"] += 1
            told = self._elsewhere(location, statement)
        self.versions[name] = after = self._table(location).version()
        if isinstance(expected, RefusedError):
            raise self._wrong(name, writer, "did not refuse, though", expected)
        counts[f"run, {writer.name}"] += 1
        for what, count in (told or {}).items():
            if expected.counts[what] != count:
                raise self._wrong(name, writer, f"told {what} {count}, not", expected.counts[what])
        self._check_rows(name, writer.name, expected.rows)
        if self.script.has_feed:
            self._check_feed(name, writer, before, after, expected)

    def _is_known_limit(self, writer, error):
        return (
            getattr(writer, "engine", None) == "duckdb"
            and isinstance(error, (InvalidPredicate, UnsupportedWriterFeature))
            and "on Spark" in str(error)
        )

    def _elsewhere(self, location, statement):
        """Run on Spark what DuckDB is known to refuse."""
        if self.campaign.spark is not None:
            return self.campaign.writers[1].run(location, statement)
        raise _SkippedError

    def _table(self, location, engine="duckdb"):
        return self.campaign.lake.table(str(location), engine=engine)

    # --- what is read -----------------------------------------------------------------------------------------

    def _check_rows(self, name, writer, expected):
        found = _plain(self._table(self.tables[name]).to_arrow())
        self._compare(name, writer, "rows", found, _expected(self.script.table, expected))

    def _check_feed(self, name, writer, before, after, expected):
        found = []
        if after > before:
            changes = self._table(self.tables[name]).changes(before + 1, after)
            found = _plain(changes.select([*self._names, "_change_type"]))
        wanted = _expected_feed(self.script.table, expected.changes)
        self._compare(name, writer.name, "changes", found, wanted)

    @property
    def _names(self):
        return [column.name for column in self.script.table.columns]

    def _read_by_all(self, name, location):
        """Read rows and the whole feed by everyone."""
        spark = self.campaign.spark
        expected = _expected(self.script.table, self.script.rows)
        if spark is None:
            return
        theirs = spark.read.format("delta").load(str(location)).toArrow()
        self._compare(name, "reader delta-spark", "rows", _plain(theirs), expected)
        ours = self._table(location, spark)
        self._compare(name, "reader Delvec on Spark", "rows", _plain(ours.to_arrow()), expected)
        if not self.script.has_feed:
            return
        columns = [*self._names, "_change_type", "_commit_version"]
        reader = (
            spark.read.format("delta")
            .option("readChangeFeed", "true")
            .option("startingVersion", self.created)
        )
        feed = _plain(reader.load(str(location)).select(*(f"`{each}`" for each in columns)).toArrow())
        for engine in ("duckdb", spark):
            found = _plain(self._table(location, engine).changes(self.created).select(columns))
            self._compare(name, f"reader Delvec on {engine}", "feed as delta-spark reads it", found, feed)
        self.campaign.counts["feeds as delta-spark reads them"] += 1

    def _compare(self, name, writer, what, found, expected):
        if found == expected:
            return
        surplus, missing = (
            list((Counter(found) - Counter(expected)).elements()),
            list((Counter(expected) - Counter(found)).elements()),
        )
        lines = [f"    has and should not: {row}" for row in surplus[:10]]
        lines += [f"    lacks: {row}" for row in missing[:10]]
        raise self._wrong(name, writer, f"{what} differ", "\n" + "\n".join(lines))

    def _wrong(self, name, writer, what, more):
        who = getattr(writer, "name", writer)
        return WrongError(f"table of {name}, {who}: {what} {more}\n{self}")


class _SkippedError(Exception):
    """DuckDB refuses the statement, and there is nobody else to run it."""


def _plain(table):
    columns = [column.to_pylist() for column in table.columns]
    return sorted((tuple(map(plain, row)) for row in zip(*columns, strict=True)), key=repr)


def _expected(table, rows):
    names = [column.name for column in table.columns]
    return sorted((tuple(plain(row[name]) for name in names) for row in rows), key=repr)


def _expected_feed(table, changes):
    names = [column.name for column in table.columns]
    return sorted(((*(plain(row[name]) for name in names), kind) for kind, row in changes), key=repr)


def _reason(error):
    return str(error).partition("DuckDB")[2].split(";")[0][:90]


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.interop.dml_campaign", description=__doc__)
    parser.add_argument("--scripts", type=int, default=200)
    parser.add_argument("--statements", type=int, default=6, help="in each script")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the first script")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no script after so many")
    parser.add_argument("--duckdb", action="store_true", help="Delvec on DuckDB alone: quick, without Java")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    parser.add_argument("--verbose", action="store_true", help="tell of each statement")
    given = parser.parse_args()
    if given.verbose:
        logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
        log.setLevel(logging.INFO)
    folder = Path(tempfile.mkdtemp(prefix="delvec-dml-"))
    end = time.monotonic() + given.minutes * 60
    failures = 0
    spark = None
    if not given.duckdb:
        from tests.interop.delta_session import delta_session

        spark = delta_session(folder / "warehouse")
    with delvec.connect(database_url=f"sqlite:///{folder / 'records.db'}") as lake:
        campaign = Campaign(lake, folder, spark)
        for seed in range(given.seed, given.seed + given.scripts):
            if time.monotonic() > end:
                break
            try:
                campaign.run(seed, given.statements)
            except KeyboardInterrupt:
                break
            except WrongError as error:
                failures += 1
                sys.stdout.write(f"{error}\n\n")
                sys.stdout.flush()
                if not given.keep_going:
                    break
    sys.stdout.write(f"{campaign.report}{failures:8,}  failures\n")
    if not failures:
        shutil.rmtree(folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
