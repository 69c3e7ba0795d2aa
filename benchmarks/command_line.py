"""What the programs of the benchmarks that compare with delta-spark take from their command lines."""

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

__all__ = ["KEPT", "parsed"]

KEPT = Path(".build/benchmarks")
"""Tables and figures that are kept between runs."""


def parsed(parser: ArgumentParser, part: str | None = None) -> tuple[Namespace, Path]:
    """Return the arguments, with ``--quick`` and ``--out``, and the folder for the figures of this run.

    Args:
        parser: with the program's own arguments.
        part: its part of ``make bench``; None for the program of all.

    Raises:
        SystemExit: the arguments are wrong, or delta-spark is missing.
    """
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small tables and few runs, to see that everything works; the page goes to .build/benchmarks/quick",
    )
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks.md"))
    arguments = parser.parse_args()
    if "DELVEC_TEST_JARS" not in os.environ:
        command = "make bench" if part is None else f"make bench PART={part}"
        sys.exit(f"the JARs of delta-spark are missing: install Maven and run `{command}` again")
    if not arguments.quick:
        return arguments, KEPT
    arguments.out = KEPT / "quick" / "benchmarks.md"
    return arguments, KEPT / "quick"
