"""The connection of programs that use delta-spark's API, which has no argument for it."""

import threading
from typing import Final

from delvec.connection import Connection
from delvec.entry_point import connect

__all__ = ["current", "use"]

_lock: Final = threading.Lock()
_chosen: Connection | None = None


def use(connection: Connection | None) -> None:
    """Use this connection from now on; None restores the default, ``delvec.connect()``.

    The default is made when it is first needed: ``DELVEC_URL`` is the service's URL; without it the service runs in
    this process. The previous connection is not closed; that is up to its owner.
    """
    global _chosen  # noqa: PLW0603 - delta-spark's signatures leave no other place
    with _lock:
        _chosen = connection


def current() -> Connection:
    """Return the connection to use."""
    global _chosen  # noqa: PLW0603
    with _lock:
        if _chosen is None:
            _chosen = connect()
        return _chosen
