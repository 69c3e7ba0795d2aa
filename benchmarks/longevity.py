"""A table that lives: ``python -m benchmarks.longevity [--scale N] [--contenders NAME ...] [--quick] [--minutes N] [--out FILE]``.

After LST-Bench's longevity package: rounds of a refresh like TPC-DS's data maintenance, of each contender's maintenance, and of
the same queries. Every contender has its own process, and they take turns in each round.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import delvec
from benchmarks.command_line import KEPT, parsed
from benchmarks.dml_tables import listing, listing_once_settled, put_since, row_state
from benchmarks.dml_worker import Failed, Worker
from benchmarks.longevity_contenders import LIVING, Living, living
from benchmarks.longevity_figures import Life, Lives, Round, total
from benchmarks.longevity_report import write_page
from benchmarks.measure import say, timed
from benchmarks.sales import QUERIES, Refresh, make_tables, refreshes, staying_ticket
from benchmarks.tables import clone


@dataclass(frozen=True)
class Effort:
    """The size of the measurement.

    Attributes:
        scale: of the table: 1 is 2.9 million rows, as in TPC-DS.
        files: of the table in round 0.
        rounds: number of rounds.
        warm: untimed runs of the queries before round 0.
        runs: measured runs of the queries in each round, and twice as many of both tables at the end.
        limit: seconds after which no further run begins, once there are two, or at the end three of each table.
    """

    scale: float = 1.0
    files: int = 32
    rounds: int = 10
    warm: int = 4
    runs: int = 7
    limit: float = 4.0


QUICK = Effort(scale=0.02, files=8, rounds=2, warm=1, runs=1, limit=0.0)


@dataclass(frozen=True)
class Race:
    """The shared state of all rounds.

    Attributes:
        workers: worker processes by contender; those that failed are removed.
        tables: the table of each contender.
        item: the dimension.
        lives: the figures.
        effort: the size of the measurement.
    """

    workers: dict[str, Worker]
    tables: Mapping[str, Path]
    item: Path
    lives: Lives
    effort: Effort


def main() -> None:
    """Measure and write the section of the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = tuple(LIVING)
    parser.add_argument("--scale", type=float, default=Effort.scale, help="1 is 2.9 million rows")
    parser.add_argument(
        "--contenders", nargs="+", choices=names, default=names, help="keep the figures of the others"
    )
    parser.add_argument("--minutes", type=float, default=13.0, help="after as many no further round begins")
    arguments, kept = parsed(parser, "longevity")
    effort = QUICK if arguments.quick else Effort(scale=arguments.scale)
    scratch = Path(tempfile.mkdtemp(prefix="delvec-bench-"))
    os.environ["XDG_STATE_HOME"] = str(scratch)
    lives = Lives(kept / f"longevity-{effort.scale:g}.json")
    stop = time.monotonic() + 60 * arguments.minutes
    try:
        templates = make_tables(KEPT, scratch, effort.scale, effort.files)
        with ExitStack() as stack:
            workers = {
                name: stack.enter_context(Worker(name, scratch / f"worker-{number}", living))
                for number, name in enumerate(arguments.contenders)
            }
            tables = {name: scratch / f"worker-{number}" / "sales" for number, name in enumerate(workers)}
            race = Race(workers, tables, templates["item"], lives, effort)
            wrong = _measure(race, templates, scratch, stop)
        write_page(arguments.out, lives, effort, row_state(templates["dv"])[0])
        say(f"written to {arguments.out}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if wrong:
        sys.exit("not all contenders have the same rows after all rounds: " + "; ".join(wrong))


def _measure(race: Race, templates: Mapping[str, Path], scratch: Path, stop: float) -> list[str]:
    """Run all rounds; return what went wrong."""
    effort = race.effort
    for name in list(race.workers):
        race.lives.begin(name)
        clone(templates[LIVING[name].template], race.tables[name])
        _guarded(race, name, partial(_first, race, name))
    wrong = _compare(race, 0)
    for number, refresh in enumerate(refreshes(scratch / "refreshes", effort.scale, effort.rounds), 1):
        if time.monotonic() > stop:
            say(f"the time is up after {number - 1} rounds")
            break
        for name in list(race.workers):
            _guarded(race, name, partial(_round, race, name, refresh))
        wrong += _compare(race, number)
    for name in list(race.workers):
        _guarded(race, name, partial(_last, race, name, templates[LIVING[name].template]))
    race.lives.save()
    lives = [life for name in race.tables if (life := race.lives.get(name)) is not None]
    return wrong + [f"{life.contender}: {life.failure}" for life in lives if life.failure]


def _guarded(race: Race, name: str, work: partial[None]) -> None:
    """Do a contender's part; one that fails takes no further part."""
    try:
        work()
    except Failed as error:
        say(str(error))
        _life(race, name).failure = str(error)
        del race.workers[name]


def _life(race: Race, name: str) -> Life:
    life = race.lives.get(name)
    assert life is not None
    return life


def _first(race: Race, name: str) -> None:
    """Begin, and query the table of round 0."""
    effort = race.effort
    race.workers[name].call(_begin, race.tables[name])
    [queries] = _queried(race, name, [race.tables[name]], effort.warm, effort.runs)
    _life(race, name).rounds.append(Round(queries))
    say(f"{name}, round 0: {total(queries):.2f} s")


def _round(race: Race, name: str, refresh: Refresh) -> None:
    life, table = _life(race, name), race.tables[name]
    done, peak = race.workers[name].call(_refreshed, table, refresh)
    life.peak = max(life.peak, peak)
    [done.queries] = _queried(race, name, [table], 1, race.effort.runs)
    life.rounds.append(done)
    say(
        f"{name}, round {len(life.rounds) - 1}: {total(done.queries):.2f} s, refresh {sum(done.refresh.values()):.1f} s, "
        f"maintenance {done.upkeep:.1f} s, {done.put[1] + done.upkeep_put[1]:,} bytes, {'; '.join(done.did)}"
    )


def _last(race: Race, name: str, template: Path) -> None:
    """Query the table in turns with a copy of the table of round 0."""
    life, table = _life(race, name), race.tables[name]
    fresh = clone(template, table.with_name("fresh"))
    life.fresh, life.aged = _queried(race, name, [fresh, table], 1, 2 * race.effort.runs)
    with delvec.connect() as lake:
        opened = lake.table(str(table))
        detail = opened.detail()
        life.files, life.size = int(detail["numFiles"]), int(detail["sizeInBytes"])
        operations = (str(each["operation"]) for each in reversed(opened.history()) if each["version"])
        life.operations = dict(Counter(operations))
    say(f"{name}: {life.degradation or 0:+.1%} slower")


def _queried(
    race: Race, name: str, tables: Sequence[Path], untimed: int, runs: int
) -> list[dict[str, list[float]]]:
    """Return the runs of each query on each table."""
    ticket, limit = staying_ticket(race.effort.scale), race.effort.limit
    found, peak = race.workers[name].call(_queries, tables, race.item, ticket, untimed, runs, limit)
    life = _life(race, name)
    life.peak = max(life.peak, peak)
    return found


def _compare(race: Race, number: int) -> list[str]:
    """Store each table's rows, and return which contenders differ from the others."""
    for name in race.workers:
        _life(race, name).rounds[number].state = str(row_state(race.tables[name]))
    race.lives.save()
    lives = [life for name in LIVING if (life := race.lives.get(name)) and len(life.rounds) > number]
    counts = Counter(life.rounds[number].state for life in lives)
    if len(counts) < 2:
        return []
    differing = [life.contender for life in lives if counts[life.rounds[number].state] < max(counts.values())]
    return [f"round {number}: {', '.join(differing or [life.contender for life in lives])}"]


def _begin(contender: Living, scratch: Path, table: Path) -> None:
    """Run in the worker."""
    del scratch
    contender.begin(table)


def _refreshed(contender: Living, scratch: Path, table: Path, refresh: Refresh) -> Round:
    """Refresh and maintain the table, and list what that wrote; runs in the worker."""
    del scratch
    contender.settle()
    found, before = Round(), listing(table)
    days, returned = refresh.conditions
    commands = {
        "INSERT": partial(contender.append, table, refresh.inserted),
        "DELETE of days": partial(contender.delete, table, days),
        "DELETE of returns": partial(contender.delete, table, returned),
        "MERGE": partial(contender.merge, table, refresh.corrections),
    }
    found.refresh = {name: timed(command) for name, command in commands.items()}
    between = listing_once_settled(table)
    found.put = put_since(before, between)
    found.upkeep = timed(lambda: found.did.extend(contender.upkeep(table)))
    found.upkeep_put = put_since(between, listing_once_settled(table))
    return found


def _queries(
    contender: Living,
    scratch: Path,
    tables: Sequence[Path],
    item: Path,
    ticket: int,
    untimed: int,
    runs: int,
    limit: float,
) -> list[dict[str, list[float]]]:
    """Return the runs of each query, on the tables in turns; runs in the worker."""
    del scratch
    texts = {name: text.replace("{ticket}", str(ticket)) for name, text in QUERIES.items()}
    found: list[dict[str, list[float]]] = [{name: [] for name in texts} for _ in tables]
    started = time.perf_counter()
    for number in range(untimed + runs):
        if number == untimed:
            started = time.perf_counter()
        if number > untimed + len(tables) and time.perf_counter() - started > limit * len(tables):
            break
        for seconds, table in zip(found, tables, strict=True):
            places = {"sales": table, "item": item}
            for name, text in texts.items():
                taken = timed(partial(contender.query, text, places))
                if number >= untimed:
                    seconds[name].append(taken)
    return found


if __name__ == "__main__":
    main()
