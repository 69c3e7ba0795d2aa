"""Retries of commands after a conflict: each run reads the newest version and starts from scratch."""

from collections.abc import Callable
from typing import Final

from delvec_commands.backoff import pause
from delvec_commands.failed_reads import reporting
from delvec_commands.table_service import TableService
from delvec_commands.transaction import Metrics
from delvec_engines import operation
from delvec_errors import (
    BadRequest,
    CommitOverwritten,
    ConcurrentModification,
    ConcurrentTransaction,
    DelvecError,
    StaleReadVersion,
)

__all__ = ["DEFAULT_RETRIES", "checked", "with_retries"]

DEFAULT_RETRIES: Final = 5
"""Default number of retries: about five seconds of waiting, at most thirteen."""


def checked(retries: int) -> int:
    """Return ``retries`` if it is valid.

    Raises:
        BadRequest: it is negative.
    """
    if retries < 0:
        raise BadRequest(f"retries must be 0 or more (given: {retries})")
    return retries


@operation.command()
def with_retries(service: TableService, retries: int, command: Callable[[], Metrics]) -> Metrics:
    """Run a command, and up to ``retries`` times again after conflicts; ``.retries`` of the result is their number.

    A command is only retried if it certainly had no effect, never if its outcome is unknown.

    Args:
        service: waits between runs.
        retries: 0 runs the command once.
        command: reads the newest version on each run.

    Raises:
        ConcurrentModification: the last run had a conflict, too.
    """
    for number in range(checked(retries)):
        try:
            metrics = _attempted(service, command)
        except DelvecError as error:
            if not _may_win(error):
                raise
            service.wait(pause(error, number))
        else:
            metrics.retries = number
            return metrics
    metrics = _attempted(service, command)
    metrics.retries = retries
    return metrics


def _attempted(service: TableService, command: Callable[[], Metrics]) -> Metrics:
    with reporting(service), operation.attempt() as executions:
        metrics = command()
    # A command in another one, such as a statement's, has its own attempts.
    if executions:
        metrics.executed_by = "; ".join(dict.fromkeys(map(str, executions)))
    return metrics


def _may_win(error: DelvecError) -> bool:
    """Whether the command had no effect and may succeed with the newest version."""
    # Concurrent runs of one ``txn`` and replaced commits must reach the user. If only the version read was replaced, this
    # command has committed nothing, and a retry is safe.
    if isinstance(error, CommitOverwritten):
        return error.details.get("replaced") == "read-version"
    if isinstance(error, ConcurrentTransaction):
        return False
    return isinstance(error, ConcurrentModification | StaleReadVersion)
