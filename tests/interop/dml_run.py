"""Runs one script: every writer on a table of its own, or the writers in turn on a shared table."""

import logging
import random
import shutil
from collections import Counter

from tests.interop.dml_creation import MODE, make
from tests.interop.dml_numbers import Numbers
from tests.interop.dml_scripts import Script
from tests.interop.dml_table import RefusedError
from tests.interop.dml_values import plain
from tests.interop.dml_writers import arrow_table

from delvec_errors import InvalidPredicate, UnsupportedWriterFeature

log = logging.getLogger(__name__)

__all__ = ["Run", "WrongError"]

MAPPINGS = ("none", "none", "none", "name", "id")
TOGETHER = "all in turn"
NOT_BY = "not by"


class WrongError(AssertionError):
    """A writer or a reader disagrees with the model; the message says how to reproduce it."""


class _SkippedError(Exception):
    """DuckDB refuses the statement, and no other writer can run it."""


class Run:
    """A run of one script.

    Args:
        campaign: the connection, session, writers and counts to use.
        seed: the script's.
        statements: how many to run.

    Attributes:
        folder: where its tables are.
    """

    def __init__(self, campaign, seed, statements):
        self.campaign, self.seed, self.statements = campaign, seed, statements
        self.random = random.Random(seed)
        self.script = Script(self.random, mappings=MAPPINGS if campaign.spark else MAPPINGS[:-1])
        self.done = []
        self.folder = campaign.folder / f"seed-{seed}"
        self.tables = {}
        self.versions = {}
        self.numbers = {}

    def __str__(self):
        lines = "".join(f"\n  {number}. {text}" for number, text in enumerate(self.done, 1))
        return (
            f"seed {self.seed}, {self.statements} statements; tables in {self.folder}\n  {self.script}{lines}"
        )

    def do(self):
        """Run it.

        Raises:
            WrongError: a writer or a reader disagrees with the model.
        """
        writers = self.campaign.writers
        shared = len(writers) > 1 and self.random.random() < 0.4
        self._create([TOGETHER] if shared else [writer.name for writer in writers])
        for _ in range(self.statements):
            before = self.script.rows, self.script.table
            statement, expected = self.script.statement()
            self.done.append(str(statement))
            log.info("seed %s: %s", self.seed, type(statement).__name__)
            try:
                if shared:
                    self._step(TOGETHER, self.random.choice(writers), statement, expected)
                else:
                    for writer in writers:
                        self._step(writer.name, writer, statement, expected)
            except _SkippedError:
                self.script.rows, self.script.table = before
                self.done[-1] += "  [DuckDB refuses it]"
            self.campaign.counts["statements"] += 1
            self.campaign.counts[f"statements, {type(statement).__name__}"] += 1
        for name, location in self.tables.items():
            self._read_by_all(name, location)

    def _create(self, names):
        script, first = self.script, self.folder / "first"
        table = make(self.campaign.lake, self.campaign.spark, script.table, first)
        for rows in script.first:
            table.append(arrow_table(rows.without(script.table.generated)))
        for name, check in script.table.checks.items():
            table.alter.add_constraint(name, check.sql)
        self.created = table.version()
        for number, name in enumerate(names):
            location = self.folder / f"table-{number}"
            shutil.copytree(first, location)
            self.tables[name] = location
            self.versions[name] = self._table(location).version()
            if script.table.identity is not None:
                self.numbers[name] = Numbers(script.table.identity)
            self._check_rows(name, "when it was made", script.rows, 0)

    # --- statements -------------------------------------------------------------------------------------------

    def _step(self, name, writer, statement, expected):
        counts = self.campaign.counts
        must_refuse = isinstance(expected, RefusedError)
        before = self.versions[name]
        told = self._told(name, writer, statement, must_refuse=must_refuse)
        if must_refuse:
            counts["refusals", writer.name] += 1
            return
        self.versions[name] = after = self._table(self.tables[name]).version()
        counts["statements", writer.name] += 1
        for what, count in (told or {}).items():
            if expected.counts[what] != count:
                raise self._wrong(name, writer, f"told {what} {count}, not", expected.counts[what])
        kept = len(expected.rows) - expected.counts["inserted"]
        self._check_rows(name, writer.name, expected.rows, kept)
        if self.script.has_feed:
            self._check_feed(name, writer, before, after, expected)

    def _told(self, name, writer, statement, *, must_refuse):
        """Run a statement; return the writer's counts, or nothing if it refuses as it must."""
        location = self.tables[name]
        try:
            told = writer.run(location, statement)
        except writer.refusals as error:
            if self._table(location).version() != self.versions[name]:
                raise self._wrong(name, writer, "changed the table, and raised", error) from error
            if must_refuse:
                return None
            if not _is_known_limit(writer, error):
                raise self._wrong(name, writer, "raised", repr(error)) from error
            self.campaign.counts[NOT_BY, _reason(writer, error)] += 1
            if self.campaign.spark is None:
                raise _SkippedError from error
            return self.campaign.writers[1].run(location, statement)
        if must_refuse:
            raise self._wrong(name, writer, "did not refuse the statement", "")
        return told

    def _table(self, location, engine="duckdb"):
        return self.campaign.lake.table(str(location), engine=engine)

    # --- reading -----------------------------------------------------------------------------------------

    @property
    def _names(self):
        return self.script.table.names

    def _check_rows(self, name, writer, expected, kept):
        table = self._table(self.tables[name]).to_arrow()
        self._compare(name, writer, "rows", _plain(table, self._names), _expected(self._names, expected))
        if name in self.numbers:
            wrong = self.numbers[name].wrong(table[self.script.table.identity.name].to_pylist(), kept)
            if wrong:
                raise self._wrong(name, writer, wrong, "")

    def _check_feed(self, name, writer, before, after, expected):
        found = []
        if after > before:
            changes = self._table(self.tables[name]).changes(before + 1, after)
            found = _plain(changes, [*self._names, "_change_type"])
            if name in self.numbers:
                numbers = changes[self.script.table.identity.name].to_pylist()
                kinds = changes["_change_type"].to_pylist()
                wrong = self.numbers[name].wrong_in_feed(zip(numbers, kinds, strict=True))
                if wrong:
                    raise self._wrong(name, writer, wrong, "")
        wanted = sorted(
            ((*(plain(row[each]) for each in self._names), kind) for kind, row in expected.changes), key=repr
        )
        self._compare(name, writer.name, "changes", found, wanted)
        self.campaign.counts["feeds", writer.name] += 1

    def _read_by_all(self, name, location):
        """Read rows and the whole change feed with every reader."""
        spark = self.campaign.spark
        if spark is None:
            return
        expected = _expected(self._names, self.script.rows)
        theirs = spark.read.format("delta").load(str(location)).toArrow()
        self._compare(name, "reader delta-spark", "rows", _plain(theirs, self._names), expected)
        ours = self._table(location, spark).to_arrow()
        self._compare(name, "reader Delvec on Spark", "rows", _plain(ours, self._names), expected)
        if not self.script.has_feed:
            return
        columns = [*self._names, "_change_type", "_commit_version"]
        reader = (
            spark.read.format("delta")
            .option("readChangeFeed", "true")
            .option("startingVersion", self.created)
        )
        feed = _plain(reader.load(str(location)).toArrow(), columns)
        for engine in ("duckdb", spark):
            found = _plain(self._table(location, engine).changes(self.created), columns)
            self._compare(name, f"reader Delvec on {engine}", "feed as delta-spark reads it", found, feed)
        self.campaign.counts["whole feeds, read by all"] += 1

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
        mapped = self.script.table.properties.get(MODE, "none")
        return WrongError(f"table of {name} (mapping {mapped}), {who}: {what} {more}\n{self}")


def _is_known_limit(writer, error):
    """Whether a writer may refuse what others run; one of them then runs it instead.

    delta-spark also computes values for rows that a clause does not apply to, and folds literals of
    clauses that apply to no row; an overflow there is an error.
    """
    if writer.name == "delta-spark":
        return type(error).__name__ == "ArithmeticException"
    return (
        getattr(writer, "engine", None) == "duckdb"
        and isinstance(error, (InvalidPredicate, UnsupportedWriterFeature))
        and "on Spark" in str(error)
    )


def _reason(writer, error):
    if writer.name == "delta-spark":
        return f"{writer.name}: {type(error).__name__}"
    return "DuckDB:" + str(error).partition("DuckDB")[2].split(";")[0][:90]


def _plain(table, names):
    columns = [table[name].to_pylist() for name in names]
    return sorted((tuple(map(plain, row)) for row in zip(*columns, strict=True)), key=repr)


def _expected(names, rows):
    return sorted((tuple(plain(row[name]) for name in names) for row in rows), key=repr)
