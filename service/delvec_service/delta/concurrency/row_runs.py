"""Where a compaction put each row: the record of it in the log, and the mapping of rows by it.

A compaction that keeps the order of rows is described by runs: so many neighbouring live rows of a source are
neighbouring rows of an output. They stand in ``commitInfo.tags["delvec.rowRuns"]`` as JSON text:
``{output: [[source, first rank, count, first output row], ...]}``, paths as in the log.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from delvec.protocol import locations
from delvec.protocol.errors import DelvecError
from delvec_service.delta.changes import RowRun

__all__ = ["TAG", "decode", "encode"]

TAG: Final = "delvec.rowRuns"


def encode(rewritten: Mapping[str, Sequence[RowRun]]) -> str:
    """Return the runs of each output as the text of the tag."""
    return json.dumps(
        {
            output: [[run.source, run.first_rank, run.count, run.first_output_row] for run in runs]
            for output, runs in rewritten.items()
        },
        separators=(",", ":"),
    )


def decode(text: str, location: str) -> dict[str, list[RowRun]]:
    """Return the runs that a tag holds, all paths canonical; nothing where the text is not what encode writes."""
    try:
        found = json.loads(text)
        return {
            locations.canonical_log_path(output, location): [_run(entry, location) for entry in runs]
            for output, runs in found.items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError, DelvecError):
        return {}


def _run(entry: Any, location: str) -> RowRun:
    source, *numbers = entry
    first_rank, count, first_output_row = numbers
    if any(type(each) is not int or not 0 <= each < 2**62 for each in numbers) or count < 1:
        raise ValueError("not counts of rows")
    return RowRun(locations.canonical_log_path(source, location), first_rank, count, first_output_row)
