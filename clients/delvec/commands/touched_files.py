"""What becomes of each file that a command takes rows from: a deletion vector, a new file without them, or nothing.

The rule of cost. A vector costs every later read the rows that it skips; writing a file again costs the rows that
stay. Of a file that loses 9 rows in 10, what stays is a tenth, and a file of a tenth is read for ever after: from
there on it is written again. ``delvec.rewriteThreshold`` is that share; 1 means never.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from delvec.engines.engine import Engine, WriteTarget
from delvec.protocol import statistics
from delvec.protocol.errors import BadRequest
from delvec.scan import Scan
from delvec.transaction import Metrics, Transaction

__all__ = ["REWRITE_THRESHOLD", "Rehearsal", "TouchedFile", "change", "rewrite_threshold", "touched_files"]

REWRITE_THRESHOLD: Final = "delvec.rewriteThreshold"
"""Table property: of a file that loses a larger share of its live rows than this, the others are written again."""
_DEFAULT: Final = 0.9

Means: TypeAlias = Literal["vector", "rewrite", "removal"]


@dataclass(frozen=True)
class TouchedFile:
    """A file that a command takes rows from.

    Attributes:
        path: as in the log.
        rows: how many live rows it loses, be it because they are deleted or because they are updated.
        live_rows: how many it had; None where no statistics tell.
        means: ``vector``: they are marked in a deletion vector. ``rewrite``: the others are written again, and the
            file is removed. ``removal``: there are no others.
    """

    path: str
    rows: int
    live_rows: int | None
    means: Means


class Rehearsal(Metrics):
    """What a command would do, from its ``dry_run``; nothing was committed. ``str()`` of it is for people.

    Attributes:
        files: what would become of each file that it takes rows from.
    """

    def __init__(self, values: Mapping[str, int], files: Sequence[TouchedFile]) -> None:
        super().__init__(values, None)
        self.files = tuple(files)

    def __str__(self) -> str:
        counts = ", ".join(f"{name}: {value}" for name, value in self.items() if value)
        lines = [f"dry run, nothing was committed; {counts or 'nothing would change'}"]
        for file in self.files:
            of = "" if file.live_rows is None else f" of {file.live_rows}"
            lines.append(f"  {file.means:<8} {file.path}: {file.rows}{of} rows")
        return "\n".join(lines)


def rewrite_threshold(configuration: Mapping[str, str]) -> float:
    """Return the share of rows above which a file is written again.

    Raises:
        BadRequest: the table's property is no number above 0 and up to 1.
    """
    text = configuration.get(REWRITE_THRESHOLD)
    if text is None:
        return _DEFAULT
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise BadRequest(
            f"The table property {REWRITE_THRESHOLD} is {text[:100]!r}; give a number above 0 and up to 1, or unset it."
        )
    return share


def touched_files(
    scan: Scan, gone: Mapping[str, BitMap64], *, vectors: bool, may_rewrite: bool = True
) -> list[TouchedFile]:
    """Decide what becomes of each file.

    Args:
        scan: the files.
        gone: rows that go, by path; rows that are gone already do not count.
        vectors: whether the table takes deletion vectors.
        may_rewrite: whether a file may be written again where it need not.

    Raises:
        BadRequest: the property with the threshold is wrong.
    """
    threshold = rewrite_threshold(scan.configuration)
    # Rows of a table with row tracking would get other ids.
    if not may_rewrite or scan.configuration.get("delta.enableRowTracking", "false").lower() == "true":
        threshold = 1.0
    scan = only(scan, gone)
    deleted = scan.deletion_vectors if scan.has_deletion_vectors else {}
    found = []
    columns = (scan.files[name].to_pylist() for name in ("path", "num_records"))
    for path, total in zip(*columns, strict=True):
        rows, old = gone[path], deleted.get(path)
        count = len(rows) if old is None else len(rows - old)
        if not count:
            continue
        live = None if total is None else total - (0 if old is None else len(old))
        found.append(
            TouchedFile(path, count, live, _means(count, live, vectors=vectors, threshold=threshold))
        )
    return found


def _means(rows: int, live: int | None, *, vectors: bool, threshold: float) -> Means:
    if live is not None and rows >= live:
        return "removal"
    if not vectors:
        return "rewrite"
    return "vector" if live is None or rows <= threshold * live else "rewrite"


def change(
    transaction: Transaction,
    engine: Engine,
    scan: Scan,
    gone: Mapping[str, BitMap64],
    files: Sequence[TouchedFile],
    target: WriteTarget | None,
    *,
    vectors: bool,
) -> int:
    """Take the rows out of the files, as was decided; return how many rows were written again.

    Args:
        transaction: gets the changes.
        engine: writes what stays.
        scan: the files.
        gone: rows that go, by path.
        files: what becomes of each.
        target: for new files; None where no file is to be written again.
        vectors: whether the table takes deletion vectors: then rows are named also of a file that loses all of them, so
            that others may have taken some first.
    """
    by_means: dict[Means, list[str]] = {"vector": [], "rewrite": [], "removal": []}
    for file in files:
        by_means[file.means].append(file.path)
    by_rows = by_means["vector"] + (by_means["removal"] if vectors else [])
    transaction.delete_rows({path: gone[path] for path in by_rows})
    if not vectors:
        transaction.remove(by_means["removal"])
    copied = by_means["rewrite"]
    if not copied or target is None:
        return 0
    rewritten = only(scan, copied)
    adds = engine.copy_rows(rewritten, {path: gone[path] for path in copied}, target)
    transaction.add(adds)
    transaction.remove(copied)
    return sum(statistics.num_records(add.stats) or 0 for add in adds)


def only(scan: Scan, paths: Iterable[str]) -> Scan:
    """Return the scan of those files."""
    own = scan.files["path"].combine_chunks()
    return scan.filter(pc.is_in(own, value_set=pa.array(list(paths), own.type)))
