"""The campaign: ``python -m tests.fuzz --cases 100000``, or a single case: ``--case corpus-17``.

With ``--footers``, footers of Parquet files are damaged and given to everything that opens one.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.fuzz import tables
from tests.fuzz.campaign import FOOTER_WORKER, ROOT, WORKER, Summary, describe, run

_EVERY = 1000


def _say(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _arguments():
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000, help="how many, over all sources")
    parser.add_argument("--start", type=int, default=0, help="the number of the first one")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, help="stop after so long; a later run goes on from there")
    parser.add_argument(
        "--results", type=Path, default=ROOT / ".build" / "fuzz.jsonl", help="what was done already"
    )
    parser.add_argument("--footers", action="store_true", help="damage footers of Parquet files")
    parser.add_argument("--case", help="one case: run it here and keep the damaged table")
    return parser.parse_args()


def names(available, start, count):
    """Return case ids, alternating between sources."""
    return [f"{available[number % len(available)]}-{number}" for number in range(start, start + count)]


def _campaign(arguments):
    summary, done = Summary(), set()
    command = FOOTER_WORKER if arguments.footers else WORKER
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    if arguments.results.exists():
        for line in arguments.results.read_text().splitlines():
            result = json.loads(line)
            done.add(result["case"])
            summary.add(result)
    of = ["footer"] if arguments.footers else tables.sources()
    todo = [name for name in names(of, arguments.start, arguments.cases) if name not in done]
    _say(f"{len(todo)} cases to run, {len(done)} done before")
    with arguments.results.open("a") as results:
        for number, result in enumerate(
            run(todo, processes=arguments.processes, seconds=arguments.seconds, command=command), start=1
        ):
            summary.add(result)
            results.write(json.dumps(result) + "\n")
            if result["outcome"].startswith("WRONG"):
                _say(describe(result))
            if number % _EVERY == 0:
                _say(f"{number} of {len(todo)}, {len(summary.failures)} failures")
                results.flush()
    _say(summary)
    return 1 if summary.failures else 0


def _one(name):
    if name.startswith("footer-"):
        from tests.fuzz.footer_worker import Worker

        with tempfile.TemporaryDirectory() as base:
            worker = Worker(base)
            result = worker.run(name)
            worker.close()
        _say(json.dumps(result, indent=1))
        return 1 if result["outcome"].startswith("WRONG") else 0
    from tests.fuzz.case import make, write
    from tests.fuzz.worker import Worker

    folder = Path(tempfile.mkdtemp(prefix=f"delvec-{name}-"))
    with tempfile.TemporaryDirectory() as base:
        worker = Worker(base)
        case = make(name, worker.outside)
        write(case.draft, folder / "table")
        result = worker.run(name)
        worker.close()
    _say(json.dumps(result, indent=1))
    _say(f"the damaged table is in {folder / 'table'}")
    return 1 if result["outcome"].startswith("WRONG") else 0


if __name__ == "__main__":
    _chosen = _arguments()
    sys.exit(_one(_chosen.case) if _chosen.case else _campaign(_chosen))
