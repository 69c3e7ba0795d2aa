"""The shell command ``delvec``: every command of the client, and ``serve``.

Results go to standard output: tables for people, and with ``--json`` one JSON document for programs. Errors
are one line on standard error (with ``--json`` the error envelope) and exit code 1; a misused command line is
exit code 2. ``DELVEC_DEBUG=1`` shows the traceback of a bug.
"""

import json
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version as distribution_version
from typing import Annotated, Any, Final

import typer

from delvec.cli.command_table import CommandGroup
from delvec.cli.options import ShellSession
from delvec_errors import DelvecError, InternalError
from delvec_service.startup import hide_pandas

__all__ = ["app", "main"]

_INTERRUPTED: Final = 130
"""The exit code that shells give to programs which Ctrl-C has ended."""

app = typer.Typer(
    cls=CommandGroup,
    name="delvec",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="A TABLE is a name, or a location such as ./people, /data/people or s3://bucket/people. "
    "--url, --token, --warehouse and --json may also follow the command.",
)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"delvec {distribution_version('delvec')}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    url: Annotated[
        str | None,
        typer.Option(
            help="URL of a running service; defaults to DELVEC_URL. Without it, the service runs in this process."
        ),
    ] = None,
    token: Annotated[
        str | None, typer.Option(help="Bearer token for the service; defaults to DELVEC_TOKEN.")
    ] = None,
    warehouse: Annotated[
        str | None,
        typer.Option(
            help="Directory or bucket for tables given by name, without a running service; defaults to "
            "DELVEC_WAREHOUSE, else the working directory."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print results and errors as one JSON document.")
    ] = False,
    _version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Read and change Delta Lake tables with deletion vectors."""
    context.obj = ShellSession(url=url, token=token, as_json=as_json, warehouse=warehouse)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line, by default that of this process, and exit."""
    if arguments is None:  # otherwise the process belongs to another program
        hide_pandas()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output has gone (``delvec read t | head``). Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run a command line; return the exit code."""
    as_json = "--json" in arguments
    try:
        code = app(arguments, prog_name="delvec", standalone_mode=False)
    except DelvecError as error:
        return _fail(error, as_json=as_json)
    except BrokenPipeError:
        raise
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    except Exception as error:
        # typer has its own copy of click's exceptions from some version on: recognised by their methods.
        if hasattr(error, "format_message") and hasattr(error, "show"):
            return _misused(error, as_json=as_json)
        if os.environ.get("DELVEC_DEBUG"):
            raise
        if isinstance(error, OSError):
            return _fail(DelvecError(str(error)), as_json=as_json)
        defect = InternalError(
            f"{type(error).__name__}: {error}; this is a bug in Delvec; set DELVEC_DEBUG=1 for the traceback"
        )
        return _fail(defect, as_json=as_json)
    if code == _INTERRUPTED:  # typer turns Ctrl-C into it without a word
        print("delvec: interrupted", file=sys.stderr)
    return code if isinstance(code, int) else 0


def _fail(error: DelvecError, *, as_json: bool) -> int:
    if as_json:
        print(json.dumps(error.to_wire(), default=str), file=sys.stderr)
    else:
        from delvec.cli.output import say  # takes time that commands without errors save

        say(f"delvec: {' '.join(error.message.split())}")
        if excerpt := error.details.get("excerpt"):
            say(str(excerpt))
    return 1


def _misused(error: Any, *, as_json: bool) -> int:
    if as_json:
        envelope = {"message": error.format_message(), "type": "UsageError", "code": "USAGE"}
        print(json.dumps({"error": {**envelope, "retryable": False, "details": {}}}), file=sys.stderr)
    else:
        error.show()
    return int(error.exit_code)
