"""The provenance of figures: machine, versions, commit and run."""

import functools
import os
import platform
import re
import subprocess
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

__all__ = ["machine", "measured_in", "section_head", "this_run", "unwrapped"]

_ROOT = Path(__file__).resolve().parent.parent


@functools.cache
def this_run() -> str:
    """Return the label of this process's run in the report: its start time and the measured commit.

    Figures with equal labels are from one run. ``+`` marks uncommitted changes.
    """
    commit = _git("rev-parse", "--short=9", "HEAD") or "no commit"
    changed = "+" if _git("status", "--porcelain", "--untracked-files=no") else ""
    return f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} at {commit}{changed}"


def measured_in(runs: Iterable[str]) -> str:
    """Return the sentence about the time and commit of a section's measurement, or an empty text."""
    found = sorted({run for run in runs if run})
    return f"Measured {'; '.join(found)}." if found else ""


def machine() -> str:
    """Return the machine and all relevant versions, as reported by each component."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    java = subprocess.run(["java", "-version"], check=False, capture_output=True, text=True).stderr
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}, local disk; "
        f"Python {platform.python_version()}, PySpark {version('pyspark')}, delta-spark {_delta_spark()}, "
        f"DuckDB {version('duckdb')}, deltalake {version('deltalake')}; {java.partition(chr(10))[0]}"
    )


def _delta_spark() -> str:
    jars = Path(os.environ.get("DELVEC_TEST_JARS", ""))
    found = [
        re.fullmatch(r"delta-spark_.+-(\d[^-]*)\.jar", jar.name) for jar in jars.glob("delta-spark_*.jar")
    ]
    return ", ".join(sorted(match[1] for match in found if match)) or "not found"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(_ROOT), *arguments], check=False, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def section_head(title: str, how: str, runs: Iterable[str] = ()) -> list[str]:
    """Return the first lines of a section of its own: title, method, machine, and the time of these runs, or this one."""
    measured = measured_in(runs) or f"Measured {this_run()}."
    return [title, "", *unwrapped(how), "", f"Machine: {machine()}.", "", measured, ""]


def unwrapped(text: str) -> list[str]:
    """Return the lines of a text in Markdown with each paragraph, and each item of a list, on a line of its own."""
    lines: list[str] = []
    for line in text.splitlines():
        if lines and lines[-1] and line and not line.startswith("- "):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return lines
