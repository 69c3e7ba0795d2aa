"""Startup, and the count of a whole table: ``python -m benchmarks.starts [--runs N] [--against CHECKOUT] [TABLE]``.

Each start is a separate process with compiled bytecode. CPU time is measured, which other work
on the machine affects least; two checkouts are measured in turn. TABLE is from ``benchmarks.large_table``.
"""

import argparse
import compileall
import http.client
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.dml_report import replaced
from benchmarks.provenance import this_run, unwrapped

_HERE = Path(__file__).resolve().parent.parent
_SOURCES = ("kernel", "clients", "service")
_TICKS = os.sysconf("SC_CLK_TCK")
_SHELL = "from delvec.cli import main; main({!r})"
_CONNECT = "import delvec, sys\nwith delvec.connect(warehouse=sys.argv[1]) as lake:\n    lake.tables()"
_COUNT = """
import statistics, sys, time
import delvec
with delvec.connect(warehouse=sys.argv[1]) as lake:
    table = lake.table(sys.argv[2])
    table.count()
    taken = []
    for _ in range(9):
        began = time.process_time()
        table.count()
        taken.append(time.process_time() - began)
print(statistics.median(taken))
"""
_HOW = """\
How much CPU time it takes to start.

- **Figures** are CPU time (user and system), because other work on the machine affects it least: the median, then the fastest and the
  slowest run. The machine was shared and busy, so single runs are up to 50 % slower than on an idle one.
- **Each start** is a separate process, with compiled bytecode and files cached by the system.
- **Ready**: `delvec serve` with an existing SQLite store, until `GET /readyz` answers. Warm-up that continues after that is excluded.
- **Before**, if there is such a column, is another checkout, measured alternately with this one.

Run it with `make bench PART=starts`."""


def main() -> None:
    """Measure, print, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, nargs="?")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--against", type=Path, help="another checkout of Delvec, measured in turn")
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks.md"))
    arguments = parser.parse_args()
    checkouts = [_HERE] if arguments.against is None else [_HERE, arguments.against.resolve()]
    for checkout in checkouts:
        for source in _SOURCES:
            compileall.compile_dir(checkout / source, quiet=2)
    jobs: dict[str, Callable[[Path, Path], float]] = {
        "`import delvec`": lambda checkout, _: _process(checkout, "import delvec"),
        "`delvec --help`": lambda checkout, _: _process(checkout, _SHELL.format(["--help"])),
        "`delvec serve`, ready": _ready,
        "`delvec.connect()` and a first request": lambda checkout, scratch: _process(
            checkout, _CONNECT, str(scratch), state=scratch
        ),
    }
    if arguments.table is not None:
        files = _files(arguments.table)
        jobs[f"`count()` of {files:,} files, warm"] = lambda checkout, scratch: _count(
            checkout, scratch, arguments.table
        )
    titles = ["now", "before", "ratio"] if len(checkouts) > 1 else ["now"]
    lines = ["## Starts", "", *unwrapped(_HOW), "", f"Measured {this_run()}.", ""]
    lines += [f"| | {' | '.join(titles)} |", f"|---|{'---:|' * len(titles)}"]
    for job, run in jobs.items():
        lines.append(f"| {job} | {' | '.join(_measured(run, checkouts, arguments.runs))} |")
        print(lines[-1], flush=True)
    arguments.out.write_text(replaced(arguments.out.read_text(), lines))


def _measured(run: Callable[[Path, Path], float], checkouts: list[Path], runs: int) -> list[str]:
    scratches = [Path(tempfile.mkdtemp(prefix="delvec-starts-")) for _ in checkouts]
    pairs = list(zip(checkouts, scratches, strict=True))
    try:
        for checkout, scratch in pairs:
            run(checkout, scratch)  # creates the database, and fills the caches
        taken = [[run(checkout, scratch) for checkout, scratch in pairs] for _ in range(runs)]
    finally:
        for scratch in scratches:
            shutil.rmtree(scratch, ignore_errors=True)
    cells = [
        f"{_said(statistics.median(each))}, {_said(min(each))} to {_said(max(each))} ({runs})"
        for each in zip(*taken, strict=True)
    ]
    if len(checkouts) > 1:
        cells.append(f"{statistics.median(after / before for after, before in taken):.2f}")
    return cells


def _said(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{1000 * seconds:.1f} ms"


def _environment(checkout: Path, state: Path | None = None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DELVEC_", "PYTHON"))}
    kept["PYTHONPATH"] = os.pathsep.join(str(checkout / source) for source in _SOURCES)
    return kept if state is None else kept | {"XDG_STATE_HOME": str(state)}


def _process(checkout: Path, code: str, *arguments: str, state: Path | None = None) -> float:
    """Return the CPU time of a process."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], env=_environment(checkout, state), stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{code} failed")
    return usage.ru_utime + usage.ru_stime


def _ready(checkout: Path, scratch: Path) -> float:
    """Return the CPU time of a service until it reports that it is ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given = ["serve", "--port", str(port), "--roots", str(scratch)]
    given += ["--database-url", f"sqlite:///{scratch / 'store.db'}"]
    command = [sys.executable, "-c", _SHELL.format(given)]
    process = subprocess.Popen(command, env=_environment(checkout), stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            try:
                asked = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                asked.request("GET", "/readyz")
                if asked.getresponse().status == http.client.OK:
                    times = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
                    return (int(times[11]) + int(times[12])) / _TICKS
            except OSError:
                time.sleep(0.005)
        raise SystemExit("the service did not start")
    finally:
        process.terminate()
        process.wait()


def _files(table: Path) -> int:
    """Return the number of live files of a table."""
    code = f"import delvec\nwith delvec.connect() as lake:\n    print(lake.table({str(table)!r}).snapshot().num_files)"
    return int(_output(_HERE, code))


def _count(checkout: Path, scratch: Path, table: Path) -> float:
    return float(_output(checkout, _COUNT, str(scratch), str(table), state=scratch))


def _output(checkout: Path, code: str, *arguments: str, state: Path | None = None) -> str:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, env=_environment(checkout, state), check=True, capture_output=True, text=True
    ).stdout


if __name__ == "__main__":
    main()
