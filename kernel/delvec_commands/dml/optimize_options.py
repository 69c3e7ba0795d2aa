"""The options of OPTIMIZE, Z-order, clustering and PURGE.

Tested in `tests/integration/client/dml/test_optimize_run.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from delvec_commands.dml.rewrite_progress import Progress
from delvec_contract.commands import Rewrite
from delvec_engines.copy_plan import check_rewrite
from delvec_errors import BadRequest
from delvec_maintenance.compaction import MAX_DELETED_RATIO

__all__ = ["COMMIT_BYTES", "OptimizeOptions"]

COMMIT_BYTES: Final = 4 << 30
"""Approximate bytes of files per commit."""


@dataclass(frozen=True)
class OptimizeOptions:
    """What to rewrite, and how.

    Attributes:
        where: a predicate over partition columns; None for the whole table.
        purge: only files with deletion vectors.
        zorder_by: columns to sort rows by; if empty, the clustering columns of a clustered table.
        full: also recluster files that were clustered by other columns.
        target_size: bytes of new files; None for the table's setting.
        max_deleted_ratio: files with a larger share of deleted rows are rewritten regardless of size.
        commit_bytes: split the work into independent commits of about this many bytes.
        user_metadata: text for the table's history.
        progress: called while it runs; see :class:`~delvec_commands.dml.rewrite_progress.RewriteProgress`.
        min_deleted_ratio: purge only files with a larger share of deleted rows.
        max_bytes: rewrite at most this many bytes, by gain per byte; None for no limit.
        auto: only these partitions, by the rules of auto compaction; None for a command.
        max_memory: bytes of rows held in memory; None for the engine's default.
        rewrite: whether to decode and re-encode rows: see :meth:`Optimizer.__call__`.
        may_read: called with the bytes of the files to rewrite before the first is read; raises to refuse.
        dry_run: commit nothing, and return what would be rewritten.
        retries: how often to plan again after a conflict; None for the connection's.
    """

    where: str | None = None
    purge: bool = False
    zorder_by: Sequence[str] = ()
    full: bool = False
    target_size: int | None = None
    max_deleted_ratio: float = MAX_DELETED_RATIO
    commit_bytes: int = COMMIT_BYTES
    user_metadata: str | None = None
    progress: Progress | None = None
    min_deleted_ratio: float = 0.0
    max_bytes: int | None = None
    auto: Sequence[Mapping[str, str | None]] | None = None
    max_memory: int | None = None
    rewrite: Rewrite = "auto"
    may_read: Callable[[int], None] | None = None
    dry_run: bool = False
    retries: int | None = None

    @property
    def operation(self) -> str:
        """The operation's name in the log."""
        return "REORG" if self.purge else "OPTIMIZE"

    def check(self) -> None:
        """Refuse invalid numbers.

        Raises:
            BadRequest: names the argument.
        """
        for name in ("target_size", "commit_bytes", "max_bytes", "max_memory"):
            given = getattr(self, name)
            if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 1):
                raise BadRequest(f"{name} must be a number of bytes above 0 (given: {given!r})")
        check_rewrite(self.rewrite)
        for name in ("max_deleted_ratio", "min_deleted_ratio"):
            ratio = getattr(self, name)
            if not 0 <= ratio <= 1:
                raise BadRequest(
                    f"{name} must be between 0 and 1, a fraction of a file's rows (given: {ratio!r})"
                )
