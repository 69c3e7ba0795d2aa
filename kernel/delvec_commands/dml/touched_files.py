"""Decides for each file that loses rows: deletion vector, rewrite, or removal.

With a deletion vector, every later read still decodes the deleted rows; a rewrite pays once for the rows that stay. A file
that loses more than ``delvec.rewriteThreshold`` of its rows (0.9 by default, 1 for never) is rewritten.

Tested in `tests/integration/client/dml/test_row_commands.py` and
`tests/integration/client/dml/test_found_rows.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from pyroaring import BitMap64

from delvec_commands.transaction import Metrics, Transaction
from delvec_engines import row_ids
from delvec_engines.dv_files import SENT_BYTES
from delvec_engines.found_rows import FoundRows, serialized_bytes
from delvec_engines.protocol import Engine, WriteTarget
from delvec_engines.scan import Scan
from delvec_errors import BadRequest
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.statistics import file_statistics as statistics
from delvec_kernel.table_properties import REWRITE_THRESHOLD

__all__ = ["DryRun", "TouchedFile", "change", "rewrite_threshold", "touched_files", "written_vectors"]

_SURELY_SENT: Final = 1 << 18
"""Deleted rows below this number always fit into a commit request, wherever they are."""
_VECTORS_AT_ONCE: Final = 256
"""Deletion vectors encoded at a time."""

Means: TypeAlias = Literal["vector", "rewrite", "removal"]


@dataclass(frozen=True)
class TouchedFile:
    """A file that loses rows.

    Attributes:
        path: the path, as in the log.
        rows: number of its deleted or updated rows; None if neither statistics nor the footer give it.
        live_rows: number of its live rows before; None if that is unknown.
        means: ``vector`` marks the rows in a deletion vector; ``rewrite`` copies the other rows to a new file;
            ``removal`` removes the file, which has no other rows.
    """

    path: str
    rows: int | None
    live_rows: int | None
    means: Means


class DryRun(Metrics):
    """What a command would do, from its ``dry_run``; nothing was committed. ``str()`` describes it.

    Attributes:
        files: the files that would lose rows.
    """

    def __init__(self, values: Mapping[str, int | None], files: Sequence[TouchedFile]) -> None:
        super().__init__(values, None)
        self.files = tuple(files)

    def __str__(self) -> str:
        counts = ", ".join(f"{name}: {value}" for name, value in self.items() if value)
        lines = [f"dry run, nothing committed: {counts or 'nothing would change'}"]
        for file in self.files:
            of = "" if file.live_rows is None else f" of {file.live_rows}"
            rows = "all" if file.rows is None else file.rows
            plural = "" if (file.live_rows or file.rows) == 1 else "s"
            lines.append(f"  {file.means:<8} {file.path}: {rows}{of} row{plural}")
        return "\n".join(lines)


def rows_of(files: Iterable[TouchedFile]) -> int | None:
    """Return how many rows the files lose; None if that of any file is unknown."""
    counts = [file.rows for file in files]
    return None if None in counts else sum(count for count in counts if count is not None)


def rewrite_threshold(configuration: Mapping[str, str]) -> float:
    """Return the share of deleted rows above which a file is rewritten.

    Raises:
        BadRequest: the table's property is not a number above 0 and up to 1.
    """
    share = REWRITE_THRESHOLD.checked(configuration)
    if share is None:
        text = configuration[REWRITE_THRESHOLD.name]
        raise BadRequest(
            f"The table property {REWRITE_THRESHOLD.name} is {text[:100]!r}; set it to {REWRITE_THRESHOLD.takes}, or "
            "unset it."
        )
    return share


def touched_files(
    scan: Scan, row_deletes: Mapping[str, BitMap64], *, vectors: bool, may_rewrite: bool = True
) -> list[TouchedFile]:
    """Decide between deletion vector, rewrite and removal for each file.

    Args:
        scan: the files.
        row_deletes: rows to delete, by path; rows that are already deleted do not count.
        vectors: whether the table has deletion vectors enabled.
        may_rewrite: whether files above the threshold are rewritten.

    Raises:
        BadRequest: the property with the threshold is wrong.
    """
    threshold = rewrite_threshold(scan.configuration)
    if not may_rewrite:
        threshold = 1.0
    descriptors = written_vectors(row_deletes)
    files = []
    for part in scan.only(row_deletes).parts(SENT_BYTES):
        held = part.only(row_deletes.keys() - descriptors.keys()) if descriptors else part
        deletion_vectors = held.deletion_vectors if held.has_deletion_vectors else {}
        columns = (part.files[name].to_pylist() for name in ("path", "num_records", "deletion_vector"))
        for path, total, vector in zip(*columns, strict=True):
            before = vector["cardinality"] if vector else 0
            live = None if total is None else total - before
            if path in descriptors:
                # Tasks only write vectors of large bitmaps, and those leave many rows: never rewrite or remove.
                files.append(TouchedFile(path, descriptors[path].cardinality - before, live, "vector"))
                continue
            rows = row_deletes[path]
            count = len(rows - deletion_vectors[path]) if path in deletion_vectors else len(rows)
            if count:
                means = _means(count, live, vectors=vectors, threshold=threshold)
                files.append(TouchedFile(path, count, live, means))
    return files


def written_vectors(row_deletes: Mapping[str, BitMap64]) -> Mapping[str, Descriptor]:
    """Return the deletion vectors that the engine has already written."""
    return row_deletes.written if isinstance(row_deletes, FoundRows) else {}


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
    row_deletes: Mapping[str, BitMap64],
    files: Sequence[TouchedFile],
    target: WriteTarget | None,
    *,
    vectors: bool,
) -> int:
    """Delete the rows as decided by :func:`touched_files`; return the number of copied rows.

    Args:
        transaction: gets the changes.
        engine: copies the other rows.
        scan: the files.
        row_deletes: rows to delete, by path.
        files: the decisions.
        target: the target of new files; None if no file is rewritten.
        vectors: whether the table has deletion vectors enabled: then rows are also sent for removed files, so that a
            concurrent delete of some of them is no conflict.
    """
    by_means: dict[Means, list[str]] = {"vector": [], "rewrite": [], "removal": []}
    for file in files:
        by_means[file.means].append(file.path)
    _mark(transaction, scan, row_deletes, by_means["vector"])
    if vectors:
        transaction.delete_rows(_all_rows(scan.only(by_means["removal"])))
    else:
        transaction.remove(by_means["removal"])
    rewrite_paths = by_means["rewrite"]
    if not rewrite_paths or target is None:
        return 0
    rewritten, target = row_ids.add_to_rewrite(scan.only(rewrite_paths), target)
    adds = engine.copy_rows(rewritten, {path: row_deletes[path] for path in rewrite_paths}, target)
    transaction.keeps_row_ids = True
    transaction.add(adds)
    transaction.remove(rewrite_paths)
    return sum(statistics.num_records(add.stats) or 0 for add in adds)


def _mark(
    transaction: Transaction, scan: Scan, row_deletes: Mapping[str, BitMap64], paths: Sequence[str]
) -> None:
    """Mark rows as deleted: send them in the commit, or write deletion vectors if there are too many."""
    descriptors = written_vectors(row_deletes)
    transaction.delete_rows_written({path: descriptors[path] for path in paths if path in descriptors})
    rows_by_path = {path: row_deletes[path] for path in paths if path not in descriptors}
    few = sum(map(len, rows_by_path.values())) <= _SURELY_SENT
    if few or serialized_bytes(rows_by_path.values()) <= SENT_BYTES:
        transaction.delete_rows(rows_by_path)
        return
    for part in scan.only(rows_by_path).parts(SENT_BYTES):
        before = part.deletion_vectors if part.has_deletion_vectors else {}
        paths = part.files["path"].to_pylist()
        for start in range(0, len(paths), _VECTORS_AT_ONCE):
            some = paths[start : start + _VECTORS_AT_ONCE]
            complete = {path: rows_by_path[path] | before.get(path, BitMap64()) for path in some}
            transaction.delete_rows_by_vectors(scan.location, complete)


def _all_rows(scan: Scan) -> dict[str, BitMap64]:
    """Return all rows of each file, including deleted ones, so that each bitmap is a single run."""
    columns = (scan.files[name].to_pylist() for name in ("path", "num_records"))
    return {path: BitMap64(range(total)) for path, total in zip(*columns, strict=True)}
