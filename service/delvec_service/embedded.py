"""A service that lives in its client's process, for one connection.

Tested in `tests/integration/client/test_embedded.py`.
"""

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from delvec_contract.operations import Operation
from delvec_engines.interrupts import SideThread
from delvec_errors import DelvecError, InternalError, ServiceUnavailable
from delvec_service.auth.request_access import Access
from delvec_service.config import Settings
from delvec_service.in_process import InProcessService
from delvec_service.service import Service, assembled
from delvec_storage.roots import Roots

__all__ = ["EmbeddedService"]

_Answer = TypeVar("_Answer")


class EmbeddedService(InProcessService):
    """Starts a service, and stops it with :meth:`close`, at the latest when the interpreter exits.

    Its threads do not survive ``fork``. It refuses to work in a child process; open a connection there instead
    (``multiprocessing`` with the start method ``spawn`` never gets that far).

    Args:
        settings: the service's settings.
        roots: locations that tables and files of plans must be under; if empty, any location is allowed.
        names_by_folder: whether names belong to the warehouse; see :func:`~delvec_service.service.assembled`.
        shared: without roots, places whose files the log of any table may name.

    Raises:
        DelvecError: what the start raised, or InternalError around anything else.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        roots: Sequence[str] = (),
        names_by_folder: bool = False,
        shared: Sequence[str] = (),
    ) -> None:
        service = assembled(settings, names_by_folder=names_by_folder, shared=shared)
        try:
            service.start()
        except BaseException as error:
            service.close()
            if isinstance(error, DelvecError) or not isinstance(error, Exception):
                raise
            raise InternalError(f"the embedded service could not start: {error}") from error
        super().__init__(service, roots=Roots(roots))
        self._process = os.getpid()
        self._thread = SideThread("delvec-embedded")
        # Also runs at interpreter exit, so that a connection left open still shuts its service down.
        self._finalizer = weakref.finalize(self, _stop, service, self._process)

    def close(self) -> None:
        """Finish operations under way, and stop the service. Closing twice is fine."""
        if os.getpid() == self._process:
            super().close()
            self._finalizer()
            self._thread.close()

    def roots_of(self, location: str) -> Roots:
        """Return the locations that engines may open for a scan of the table at a canonical location."""
        tables = self.service.tables
        return self.roots or tables.roots_of_files(location, tables.roots.everywhere)

    def _run(self, operation: Operation[Any], path: Mapping[str, str], work: Callable[[], Any]) -> Any:
        if os.getpid() != self._process:
            raise ServiceUnavailable(
                "this connection was opened before a fork and cannot be used in the child; call delvec.connect() in "
                "the child process"
            )
        run = super()._run
        if threading.current_thread() is not threading.main_thread():
            return run(operation, path, work)
        return _shielded(self._thread, lambda: run(operation, path, work))

    def _answered(self, operation: Operation[Any], path: Mapping[str, str], status: int) -> None:
        """Record what changed in the audit log."""
        self.service.audit.answered(
            operation.method, operation.filled(path), status, Access(), is_admitted=True
        )


def _shielded(thread: SideThread, work: Callable[[], _Answer]) -> _Answer:
    """Return the result of an operation of the main thread: Ctrl-C must not stop a commit, or a load, half way.

    Python raises KeyboardInterrupt in the main thread only. It then leaves the operation to end by itself.
    """
    future = thread.submit(work)
    try:
        return future.result()
    except BaseException:
        if not future.done():  # interrupted: the next operation must not wait for this one
            thread.close()
        raise


def _stop(service: Service, process: int) -> None:
    if os.getpid() == process:
        service.close()
