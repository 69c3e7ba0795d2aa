"""``python -m tests.chaos.race_campaign --rounds 300``: row changes race maintenance, checked against a model.

In each round several writers change rows concurrently, each within its own range of ids, while one or two maintenance commands
run. The model applies acknowledged commands in version order; an independent reader follows the log. At every version
the two must have the same rows; no command may fail except as :func:`tests.chaos.race_operations.due` lists.
"""

import argparse
import math
import random
import shutil
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests.chaos.campaign import read_with_deltalake
from tests.chaos.oracle import BrokenPromiseError
from tests.chaos.race_operations import BLOCK, CHANGES, COPIES, MAINTENANCE, due, part_of
from tests.chaos.replica import Replica
from tests.integration.state_machine.small_reader import SmallReader

import delvec
from delvec_errors import DelvecError

__all__ = ["RaceCampaign"]

WRITERS = 4
REPLICAS = 2
ROUNDS_PER_TABLE = 15
_CHECKED_EVERY = 5
_RETRIES = 30
_NO_CHANGE = frozenset(
    {
        "OPTIMIZE",
        "REORG",
        "VACUUM START",
        "VACUUM END",
        "COMPUTE STATS",
        "COMPACT DELETION VECTORS",
        "RENAME COLUMN",
        "DROP COLUMNS",
        "ADD COLUMNS",
        "CLUSTER BY",
        "SET TBLPROPERTIES",
    }
)
_DELAYS = "before-put:delay=0.05%30,after-deletion-vectors:delay=0.05%20"


class Round:
    """The settings that a round's operations share, and their acknowledged commits.

    Attributes:
        retention: seconds for which VACUUM keeps removed files.
        target: the version that a RESTORE restores.
        column: the column for Z-order and clustering.
        is_clustered: whether the table has clustering columns.
        alteration: the ALTER TABLE to run.
    """

    def __init__(self, retention, target, column):
        self.retention, self.target, self.column = retention, target, column
        self.is_clustered, self.alteration = False, ""
        self.acknowledged = {}
        self.lock = threading.Lock()

    def acknowledge(self, version, effect, text):
        with self.lock:
            self.acknowledged.setdefault(version, []).append((text, effect))

    def restored(self, version):
        """Record a version committed by RESTORE; its rows are the target's."""
        if version is not None:
            self.acknowledge(version, None, f"RESTORE to {self.target}")


class RaceCampaign:
    """Runs rounds of races on one table after the other.

    Args:
        lakes: connections; writers use them in turn.
        folder: where tables are created.
        seed: for all random choices; the order of commits is up to the threads.
        engine: for row changes and rewrites: ``"duckdb"`` or a Spark session.
        retention: seconds for which VACUUM keeps removed files; longer than a command takes.

    Attributes:
        counts: how often each command ran.
        pairs: how often a change and a maintenance command met in a round.
    """

    def __init__(self, lakes, folder, seed, *, engine="duckdb", retention=20.0):
        self.lakes, self.folder, self.seed = lakes, Path(folder), seed
        self.engine, self.retention = engine, retention
        self.counts, self.pairs = Counter(), Counter()
        self._dice = random.Random(seed)
        self._turns = iter(())

    # --- rounds -----------------------------------------------------------------------------------------

    def run(self, rounds, *, rounds_per_table=ROUNDS_PER_TABLE, seconds=math.inf):
        """Run this many rounds, but begin none after this many seconds.

        Raises:
            BrokenPromiseError: a row was lost or resurrected, a command failed without a valid reason, or readers disagree.
        """
        end, left = time.monotonic() + seconds, rounds
        while left and time.monotonic() < end:
            some = min(left, rounds_per_table)
            left -= some
            self._one_table(some, end)

    def _one_table(self, rounds, end):
        self.counts["tables"] += 1
        location = self.folder / f"table-{self.counts['tables']}"
        table = _Table(self, location, self._dice)
        for number in range(rounds):
            if time.monotonic() > end:
                break
            table.race(self._changes(), [name for name in self._maintenance() if table.can(name)])
            self.counts["rounds"] += 1
            if number % _CHECKED_EVERY == _CHECKED_EVERY - 1:
                table.compare_readers()
        table.compare_readers()
        shutil.rmtree(location, ignore_errors=True)  # the service may still be writing to the log

    def _changes(self):
        return [self._dice.choice(list(CHANGES)) for _ in range(WRITERS)]

    def _maintenance(self):
        """Return the next command; in every third round a second one, but not two RESTOREs or two rewrites."""
        first = next(self._turns, None)
        if first is None:
            names = list(MAINTENANCE)
            self._dice.shuffle(names)
            self._turns = iter(names)
            first = next(self._turns)
        if self._dice.random() < 0.67:
            return [first]
        return [first, self._dice.choice([name for name in MAINTENANCE if name != first])]

    @property
    def report(self):
        lines = [
            f"races, seed {self.seed}, engine {self.engine if isinstance(self.engine, str) else 'spark'}"
        ]
        lines += [f"{count:8,}  {what}" for what, count in sorted(self.counts.items())]
        lines.append("rounds in which a change met a maintenance command:")
        width = max(map(len, MAINTENANCE))
        lines.append(" " * (width + 2) + "".join(f"{name:>14}" for name in CHANGES))
        for name in MAINTENANCE:
            lines.append(f"  {name:{width}}" + "".join(f"{self.pairs[each, name]:14,}" for each in CHANGES))
        return "\n".join(lines) + "\n"


def _kind(dice):
    """Return a table's properties, partition or clustering columns, and column mapping mode."""
    properties = {
        "delta.checkpointInterval": dice.choice(["3", "10", "100"]),
        "delta.targetFileSize": dice.choice(["4kb", "32kb", "1mb"]),
        "delta.logRetentionDuration": "interval 30 days",
    }
    mapping = dice.choice(["none", "name", "id", "name later"])
    if mapping in {"name", "id"}:
        properties["delta.columnMapping.mode"] = mapping
    has_vectors = dice.random() > 0.15
    if not has_vectors:
        properties["delta.enableDeletionVectors"] = "false"
    for name, likely in (
        # With a change feed, replacing part of a file needs deletion vectors.
        ("delta.enableChangeDataFeed", 0.4 * has_vectors),
        # With column mapping by id, files have no field id for the row id column.
        ("delta.enableRowTracking", 0.4 * (mapping != "id")),
        ("delta.enableInCommitTimestamps", 0.3),
    ):
        if dice.random() < likely:
            properties[name] = "true"
    layout = dice.choice([{}, {"partition_by": ["part"]}, {"cluster_by": ["id"]}])
    return properties, mapping, layout


class _Table:
    """One table, its model, and its log reader."""

    def __init__(self, campaign, location, dice):
        self._campaign, self._location, self._dice = campaign, location, dice
        # The same in all versions, so that a RESTORE changes only rows.
        self._properties, self._mapping, self._layout = _kind(dice)
        # Without deletion vectors writers copy files, and conflict where they copy the same one.
        self._retries = _RETRIES if "delta.enableDeletionVectors" in self._properties else 0
        copy = f"`{COPIES[0]}` long GENERATED ALWAYS AS (-id)"
        named = "worth" if self._mapping == "name later" else "value"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            created = campaign.lakes[0].create_table(
                str(location),
                f"id long, {named} long, part string, {copy}",
                properties=self._properties,
                **self._layout,
            )
        if self._mapping == "name later":
            created.alter.set_properties({"delta.columnMapping.mode": "name"})
            created.alter.rename_column(named, "value")
        self._tables = [
            campaign.lakes[number % len(campaign.lakes)].table(str(location), engine=campaign.engine)
            for number in range(WRITERS + 2)
        ]
        self._newest = [0] * WRITERS
        self._reader = SmallReader(f"file://{location}")
        self._rows = []
        self._row_ids = {}
        self._said = []
        self._catch_up({})
        self._first = len(self._rows) - 1
        filled = Round(0, 0, "")
        for block in range(WRITERS):
            change = CHANGES["append"](dice, block, 0)
            self._newest[block] += 2 * 40
            filled.acknowledge(
                change.run(self._tables[block], retries=_RETRIES).version, (change, None), change.text
            )
        self._catch_up(filled.acknowledged)

    def can(self, name):
        """Whether a maintenance command applies to this table."""
        return name != "ALTER TABLE" or self._mapping != "none" or "cluster_by" in self._layout

    def _alteration(self):
        choices = ["rename", "spare"] * (self._mapping != "none") + ["cluster"] * (
            "cluster_by" in self._layout
        )
        return self._dice.choice(choices) if choices else ""

    def race(self, changes, maintenance):
        """Run changes and maintenance concurrently, and check every version that they commit."""
        campaign, dice = self._campaign, self._dice
        newest = len(self._rows) - 1
        target = dice.randint(max(self._first, newest - 8), newest)
        round_ = Round(campaign.retention, target, dice.choice(["id", "value"]))
        round_.is_clustered, round_.alteration = "cluster_by" in self._layout, self._alteration()
        self._said = [
            f"round on {self._location.name} from version {newest}: {changes} against {maintenance}"
        ]
        work = []
        for block, name in enumerate(changes):
            change = CHANGES[name](dice, block, self._newest[block])
            self._newest[block] += 2 * 40 if name in {"append", "MERGE", "replaceWhere"} else 0
            work.append((name, lambda block=block, change=change: self._change(block, change, round_)))
        for number, name in enumerate(maintenance):
            table = self._tables[WRITERS + number]
            work.append((name, lambda table=table, name=name: MAINTENANCE[name](table, round_)))
        pauses = [dice.choice([0, 0, 0.05, 0.2]) for _ in work]
        start = threading.Barrier(len(work))
        began = time.monotonic()

        def run(number):
            name, act = work[number]
            start.wait(300)
            time.sleep(pauses[number])
            try:
                done = act()
            except DelvecError as error:
                return name, error
            campaign.counts["maintenance planned again"] += getattr(done, "retries", 0) or 0
            return name, None

        with ThreadPoolExecutor(len(work), "delvec-race") as pool:
            ended = [each.result() for each in [pool.submit(run, number) for number in range(len(work))]]
        for name, error in ended:
            self._said.append(f"  {name}: {'done' if error is None else error!r}")
            campaign.counts[f"{name}: {'done' if error is None else error.type}"] += 1
            if error is not None and not due(name, error):
                raise self._broken(f"{name} failed: {error.type}: {error} {error.details}")
        for name in changes:
            for other in maintenance:
                campaign.pairs[name, other] += 1
        self._catch_up(round_.acknowledged)
        took = time.monotonic() - began
        campaign.counts["rounds that took longer than VACUUM keeps files"] += took > campaign.retention

    def _change(self, block, change, round_):
        done = change.run(self._tables[block], retries=self._retries)
        self._campaign.counts["changes run again"] += getattr(done, "retries", 0) or 0
        if done.version is not None:
            round_.acknowledge(done.version, (change, done), change.text)
        return done

    # --- the model --------------------------------------------------------------------------------------

    def _catch_up(self, acknowledged):
        """Follow the log; each version must be the one before it with the acknowledged effect applied."""
        seen = set()
        for version in self._reader.catch_up():
            before = self._rows[-1] if self._rows else {}
            rows = before
            said = acknowledged.get(version.number, [])
            for text, effect in said:
                rows = self._after(rows, before, text, effect, version)
            operation = version.info.get("operation")
            if not said and operation not in _NO_CHANGE and version.number:
                raise self._broken(f"version {version.number}, {operation}, was acknowledged to nobody")
            found = {row.id: (row.value, row.part) for row in version.rows}
            if len(found) != len(version.rows):
                raise self._broken(f"version {version.number}, {operation}, has rows twice")
            if found != rows:
                raise self._broken(_difference(version.number, operation, found, rows))
            self._compare_row_ids(version, said, rows)
            if acknowledged:
                self._compare_feed(version.number, before, rows)
            self._rows.append(rows)
            seen.add(version.number)
            self._campaign.counts["versions compared"] += 1
        if acknowledged.keys() - seen:
            raise self._broken(f"acknowledged, and not in the log: {sorted(acknowledged.keys() - seen)}")

    def _after(self, rows, before, text, effect, version):
        if effect is None:
            return self._rows[int(text.rpartition(" ")[2])]
        if not isinstance(effect, tuple):
            return effect(rows)
        change, done = effect
        if change.count is not None and done is not None:
            name, count = change.count
            if done[name] != count(before):
                raise self._broken(
                    f"version {version.number}: {text} says {name} {done[name]}, and there were {count(before)}"
                )
        return change.effect(rows)

    def _compare_row_ids(self, version, said, rows):
        """Check that a row keeps its row id for as long as it exists."""
        if self._properties.get("delta.enableRowTracking") != "true":
            return
        found = row_ids(self._reader, version)
        if len(set(found.values())) != len(found):
            raise self._broken(f"version {version.number} has row ids twice")
        is_new = set[int]()
        for _, effect in said:
            # A RESTORE brings back the row ids of a version that this model has not kept.
            is_new |= rows.keys() if effect is None else effect[0].inserts
        known = self._row_ids
        changed = [each for each in found.keys() & known.keys() - is_new if found[each] != known[each]]
        if changed:
            raise self._broken(
                f"version {version.number}, {version.info.get('operation')}: {len(changed)} row ids changed, {changed[:5]}"
            )
        self._row_ids = found

    def _compare_feed(self, number, before, after):
        """Check that the change feed leads from the version before to this one."""
        if self._properties.get("delta.enableChangeDataFeed") != "true":
            return
        changes = self._tables[0].changes(number, number, columns=["id", "value", "part", "_change_type"])
        gone, new = Counter(), Counter()
        for id_, value, part, kind in zip(
            *(changes[name].to_pylist() for name in changes.column_names), strict=True
        ):
            (gone if kind in {"delete", "update_preimage"} else new)[id_, value, part] += 1
        made = Counter((id_, *row) for id_, row in before.items())
        made.subtract(gone)
        made.update(new)
        if {row: count for row, count in made.items() if count} != dict.fromkeys(
            ((id_, *row) for id_, row in after.items()), 1
        ):
            raise self._broken(
                f"version {number}: the change feed, -{len(gone)} +{len(new)}, does not make its rows of those before"
            )
        self._campaign.counts["change feeds compared"] += 1

    def compare_readers(self):
        """Check that every reader finds the model's rows."""
        expected, newest = self._rows[-1], len(self._rows) - 1
        wanted = sorted((id_, *row) for id_, row in expected.items())
        for number, table in enumerate(self._tables[: len(self._campaign.lakes)]):
            read = table.to_arrow()
            copies = next(read[name] for name in COPIES if name in read.column_names)
            if copies.to_pylist() != [-id_ for id_ in read["id"].to_pylist()]:
                raise self._broken(f"connection {number} reads other copies of the ids")
            found = sorted(zip(*(read[name].to_pylist() for name in ("id", "value", "part")), strict=True))
            if found != wanted:
                raise self._broken(
                    f"connection {number} reads {len(found)} rows, and there are {len(wanted)}"
                )
        if sorted(read_with_deltalake(self._location)) != sorted(expected):
            raise self._broken("deltalake reads other rows")
        errors = [one for one in self._tables[0].check()["findings"] if one["severity"] == "error"]
        # Files of older versions that VACUUM has deleted are not damage.
        if errors:
            raise self._broken(f"check of version {newest}: {errors[:3]}")
        if any(part != part_of(id_) for id_, (_, part) in expected.items()):
            raise self._broken("a row is in another partition")
        self._campaign.counts["comparisons of readers"] += 1

    def _broken(self, what):
        said = "\n".join(self._said)
        return BrokenPromiseError(
            f"{what}\n{said}\n{self._properties} {self._mapping} {self._layout}\nseed {self._campaign.seed}"
        )


def row_ids(reader, version):
    """Return row ids by the ``id`` column, computed as in PROTOCOL.md, "Row Tracking"."""
    column = version.metadata["configuration"]["delta.rowTracking.materializedRowIdColumnName"]
    found = {}
    for file in version.files.values():
        given = reader.column(file.path, column)
        for place, row in file.live:
            own = given[place] if given is not None else None
            found[row.id] = file.add["baseRowId"] + place if own is None else own
    return found


def _difference(number, operation, found, rows):
    lost, back = sorted(rows.keys() - found.keys()), sorted(found.keys() - rows.keys())
    other = sorted(id_ for id_ in rows.keys() & found.keys() if rows[id_] != found[id_])
    blocks = sorted({id_ // BLOCK for id_ in (*lost, *back, *other)})
    return (
        f"version {number}, {operation}: {len(lost)} rows lost {lost[:5]}, {len(back)} that must not be there {back[:5]}, "
        f"{len(other)} with another value {other[:5]}; writers {blocks}"
    )


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.race_campaign", description=__doc__)
    parser.add_argument("--rounds", type=int, default=300, help="of each way to connect")
    parser.add_argument("--spark-rounds", type=int, default=0, help="with Spark as the engine")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no round after so many")
    parser.add_argument("--only", choices=["embedded", "served"], help="one way to connect")
    parser.add_argument("--retention", type=float, default=20, help="seconds that VACUUM keeps removed files")
    given = parser.parse_args()
    seconds = given.minutes * 60
    failed = False
    for way in ("embedded", "served"):
        if given.only in {None, way} and given.rounds:
            failed |= not _campaign(way, given, given.rounds, "duckdb", seconds)
    if given.spark_rounds:
        from tests.interop.delta_session import delta_session

        folder = tempfile.mkdtemp(prefix="delvec-races-")
        spark = delta_session(Path(folder) / "warehouse")
        if spark is None:
            parser.error("DELVEC_TEST_JARS does not name a folder of JARs: `make attack ON=races` sets it")
        failed |= not _campaign("embedded", given, given.spark_rounds, spark, seconds)
    return int(failed)


def _campaign(way, given, rounds, engine, seconds):
    folder = Path(tempfile.mkdtemp(prefix="delvec-races-"))
    with ExitStack() as stack:
        lakes = connections(way, folder, stack)
        campaign = RaceCampaign(
            lakes, folder / "tables", given.seed, engine=engine, retention=given.retention
        )
        try:
            campaign.run(rounds, seconds=seconds)
        except Exception as error:  # noqa: BLE001 - told, with what the campaign has done
            told = error if isinstance(error, BrokenPromiseError) else traceback.format_exc()
            sys.stdout.write(f"{way}: {told}\n{campaign.report}tables are in {folder}\n")
            return False
        sys.stdout.write(f"{way}: {campaign.report}\n")
        sys.stdout.flush()
    shutil.rmtree(folder)
    return True


def connections(way, folder, stack):
    """Open two connections: to in-process services, or to processes that share a store."""
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    store = f"sqlite:///{folder / 'store.db'}"
    if way == "embedded":
        return [stack.enter_context(delvec.connect(database_url=store)) for _ in range(REPLICAS)]
    replicas = [Replica(number, folder, str(folder / "tables"), store) for number in range(REPLICAS)]
    lakes = []
    for replica in replicas:
        replica.start(fault_points=_DELAYS)
        stack.callback(replica.kill)
        if not replica.wait(300):
            raise BrokenPromiseError(f"a replica does not start: {replica.tail()}")
        lakes.append(stack.enter_context(delvec.connect(replica.url)))
    return lakes


if __name__ == "__main__":
    sys.exit(main())
