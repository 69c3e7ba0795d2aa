"""Running a command again that lost a race: it reads the new version, and nothing of the first run is left."""

from collections.abc import Callable
from typing import Final

from delvec.http.backoff import pause
from delvec.http.service_client import ServiceClient
from delvec.transaction import Metrics
from delvec_kernel.errors import (
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
    """Return a number of retries that makes sense.

    Raises:
        BadRequest: it is negative.
    """
    if retries < 0:
        raise BadRequest(f"retries must be 0 or more (given: {retries})")
    return retries


def with_retries(service: ServiceClient, retries: int, command: Callable[[], Metrics]) -> Metrics:
    """Run a command until it does not lose, at most ``retries`` times more; ``.retries`` says how many it took.

    Only what is certain not to have taken effect is run again: an outcome that is not known never is.

    Args:
        service: does the waiting between runs.
        retries: 0 runs the command once.
        command: reads the newest version anew each time.

    Raises:
        ConcurrentModification: the last run lost, too.
    """
    for number in range(checked(retries)):
        try:
            metrics = command()
        except DelvecError as error:
            if not _may_win(error):
                raise
            service.wait(pause(error, number))
        else:
            metrics.retries = number
            return metrics
    metrics = command()
    metrics.retries = retries
    return metrics


def _may_win(error: DelvecError) -> bool:
    """Whether the command did not take effect, and may if it reads the table again."""
    # Of two runs of one application's transaction, and of a replaced commit, somebody has to know. Where only the version
    # that was read was replaced nothing of this command was committed, and it reads what is there now.
    if isinstance(error, CommitOverwritten):
        return error.details.get("replaced") == "read-version"
    if isinstance(error, ConcurrentTransaction):
        return False
    return isinstance(error, ConcurrentModification | StaleReadVersion)
