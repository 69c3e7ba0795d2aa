"""The global options, and the arguments that commands share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

import delvec
from delvec_service.startup import garbage_collection_paused

if TYPE_CHECKING:
    from delvec.connection import Connection
    from delvec.table import DeltaTable

__all__ = ["ShellSession", "Table", "session"]

Table: TypeAlias = Annotated[
    str, typer.Argument(metavar="TABLE", help="Table name or location (./people, /data/people, s3://...).")
]


@dataclass(frozen=True)
class ShellSession:
    """One run of the command.

    Attributes:
        url: the service, or None for ``DELVEC_URL`` or one in this process.
        token: the bearer token, or None for ``DELVEC_TOKEN``.
        as_json: whether a program reads the output.
        warehouse: where a service in this process looks tables up by name; None for the default.
    """

    url: str | None
    token: str | None
    as_json: bool
    warehouse: str | None = None

    def connect(self) -> "Connection":
        """Connect as the options say."""
        with garbage_collection_paused():
            return delvec.connect(self.url, token=self.token, warehouse=self.warehouse)

    @contextmanager
    def table(
        self,
        name_or_location: str,
        *,
        doing: str | None = None,
        ready: Callable[[], float | None] = lambda: None,
        detail: Callable[[], str] = lambda: "",
    ) -> Iterator["DeltaTable"]:
        """Open a table for one command.

        Args:
            name_or_location: the table.
            doing: the activity to show while it runs; None for quick commands and those that print as they go.
            ready: how much of it is done, from 0 to 1; with None, the progress of the engine's statement is shown.
            detail: what is shown behind the bar.
        """
        from delvec.cli.output import working

        with self.connect() as lake:
            table = lake.table(name_or_location)

            def fraction() -> float | None:
                statement, whole = lake.progress(), ready()
                return statement if whole is None else whole

            with (
                nullcontext()
                if doing is None
                else working(doing, fraction, as_json=self.as_json, detail=detail)
            ):
                yield table


def session(context: typer.Context) -> ShellSession:
    """Return the session of a command."""
    found = context.obj
    assert isinstance(found, ShellSession)  # noqa: S101 - the callback has set it
    return found
