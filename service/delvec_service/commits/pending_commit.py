"""One transaction on its way to a version, alone or in a group.

Tested in `tests/integration/service/commits/test_commit_loop.py` and
`tests/integration/service/commits/test_commit_queue.py`.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from delvec_errors import DelvecError, ServiceUnavailable, StorageError
from delvec_kernel.snapshot.replay import Commit
from delvec_kernel.transaction.conflict_checker import CurrentTransaction, WinningCommit
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_service.commits.commit_result import CommitResult, Committed, Rebased

__all__ = ["PendingCommit"]

_LONG_SECONDS: Final = 10.0


@dataclass(eq=False)
class PendingCommit:
    """A transaction and its progress.

    Attributes:
        principal: its principal, if known.
        checked_to: the newest version that was searched for it.
        last: its commit as it was last read.
        winners: the commits since the version that it read.
        ours: in the form of the conflict check, once it was checked.
        looked_at: when its new files were last verified in storage, by the monotonic clock.
        found: the commit that contains it, if another request with its key came first.
        result: its answer.
        error: why it was rejected, or failed.
    """

    changes: Changes
    principal: str | None = None
    checked_to: int = field(init=False)
    last: Commit | None = None
    winners: list[WinningCommit] = field(default_factory=list)
    ours: CurrentTransaction | None = None
    looked_at: float | None = None
    found: WinningCommit | None = None
    result: CommitResult | None = None
    error: DelvecError | None = None

    def __post_init__(self) -> None:
        self.checked_to = self.changes.read_version

    @property
    def key(self) -> str:
        """Its transaction id."""
        return self.changes.transaction_id

    @property
    def is_done(self) -> bool:
        """Whether it has an answer."""
        return self.result is not None or self.error is not None

    @contextmanager
    def own_errors(self) -> Iterator[None]:
        """Use an error of this member's own work as its answer; the other members of the group continue.

        Raises:
            StorageError: storage did not answer for so long that every other member would wait as long.
            ServiceUnavailable: the database did not answer.
        """
        began = time.monotonic()
        try:
            yield
        except ServiceUnavailable:
            raise
        except StorageError as error:
            if time.monotonic() - began > _LONG_SECONDS:
                raise
            self.error = error
        except DelvecError as error:
            self.error = error

    def answer(self) -> CommitResult:
        """Return the result.

        Raises:
            DelvecError: the member failed.
        """
        if self.error is not None:
            raise self.error
        assert self.result is not None  # noqa: S101 - asked once it is done
        return self.result

    def committed(
        self,
        version: int,
        metrics: Mapping[str, int],
        read_version: int | None = None,
        *,
        is_replayed: bool = False,
    ) -> None:
        """Mark it as committed; pass ``read_version`` as the log has it, if the commit was found there."""
        read = self.changes.read_version if read_version is None else read_version
        winners = tuple(range(read + 1, version))
        kind = Rebased if winners else Committed
        self.result = kind(version, self.changes.read_version, self.key, metrics, winners, is_replayed)
