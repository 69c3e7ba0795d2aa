"""The connection that Spark programs use, which have none in their arguments."""

import threading
from typing import Final

from delvec.connection import Connection, connect

__all__ = ["current", "use"]

_lock: Final = threading.Lock()
_chosen: Connection | None = None


def use(connection: Connection | None) -> None:
    """Use this connection from now on; None goes back to the default, ``delvec.connect()``.

    The default is made when it is first needed: ``DELVEC_URL`` says where the service is, and without that it
    runs in this process. The connection before it is not closed: its owner does that.
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
