"""Terminal output: JSON, tables, messages, and a progress bar for commands that take long."""

import base64
import io
import json
import math
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from delvec_errors.texts import counted
from delvec_kernel.table_properties import byte_size_text

__all__ = [
    "instant",
    "moment",
    "number",
    "plain",
    "print_json",
    "print_pairs",
    "print_table",
    "printable",
    "rows_of",
    "say",
    "show",
    "size_of",
    "span_of",
    "working",
]

_QUICK_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.2
_CONTROLS: Final = re.compile(r"[\x7f-\x9f]")
"""Characters that steer terminals, and that JSON does not escape."""


@contextmanager
def working(
    what: str,
    fraction: Callable[[], float | None],
    *,
    as_json: bool,
    detail: Callable[[], str] = lambda: "",
) -> Iterator[None]:
    """Show a progress bar once a second has passed; it is erased at the end.

    Args:
        what: the activity: ``deleting rows``.
        fraction: how much of the current step is done, from 0 to 1; None if unknown.
        as_json: a program reads the output; nothing is shown then, nor if standard error is not a terminal.
        detail: what is shown behind the bar.
    """
    if as_json or not sys.stderr.isatty():
        yield
        return
    fraction()  # the first call makes sources report progress
    stop_event = threading.Event()
    thread = threading.Thread(target=_show, args=(what, fraction, detail, stop_event), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop_event.set()
        thread.join()


def _show(
    what: str, fraction: Callable[[], float | None], detail: Callable[[], str], stop_event: threading.Event
) -> None:
    if stop_event.wait(_QUICK_SECONDS):
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None, detail="")
        while not stop_event.wait(_LOOK_SECONDS):
            done = fraction()
            # Without a number the bar pulses.
            bar.update(task, total=None if done is None else 1.0, completed=done or 0.0, detail=detail())


_PIPE_WIDTH = 10_000  # a pipe has no width: nothing is folded or cut


def print_json(value: Any) -> None:
    """Print one JSON document."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False)
    print(_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def say(message: str) -> None:
    """Print a message for people on standard error, apart from the result."""
    sys.stdout.flush()  # into a pipe it would come after the message
    print("\n".join(map(printable, message.split("\n"))), file=sys.stderr)


def show(line: str) -> None:
    """Print a line of the result, which may have names from a log."""
    print(printable(line), flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Sequence[str] = ()) -> None:
    """Print rows under a header; the columns in ``right`` are aligned to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            _text(column), justify="right" if column in right else "left", overflow="fold", no_wrap=False
        )
    for row in rows:
        table.add_row(*(_text(value) for value in row))
    _print(table)


def print_pairs(pairs: Mapping[str, Any]) -> None:
    """Print names and values, one pair per line."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs.items():
        table.add_row(_text(name), _text(value))
    _print(table)


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it.

    Dates and times are ISO 8601, decimals are text so that no digit is lost, bytes are base64, and numbers
    that JSON lacks are ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {_key(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value)


def _key(value: Any) -> str:
    converted = plain(value)
    return converted if isinstance(converted, str) else json.dumps(converted)


def instant(milliseconds: int | None) -> str:
    """Format milliseconds since the epoch as a UTC date and time."""
    if milliseconds is None:
        return ""
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def moment(text: str) -> str:
    """Format ISO 8601 text as a UTC date and time."""
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def number(value: float | None) -> str:
    """Return a number with thousands separated."""
    return "" if value is None else f"{value:,}"


def size_of(count: float | None) -> str:
    """Return a number of bytes in the largest unit that fits, ``12.3 MiB``; nothing for None."""
    return "" if count is None else byte_size_text(count)


def span_of(seconds: float | None) -> str:
    """Return a duration: ``42 s``, ``3 min 5 s``, ``2 h 10 min``."""
    if seconds is None:
        return ""
    whole = round(seconds)
    if whole < 60:  # noqa: PLR2004 - a minute
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:  # noqa: PLR2004 - an hour
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def rows_of(count: int | None) -> str:
    """Return a number of rows in words: ``1 row``, ``2,000 rows``."""
    return "rows" if count is None else counted(count, "row")


def _print(table: Table) -> None:
    if sys.stdout.isatty():
        Console(highlight=False).print(table)
        return
    # rich pads every line with spaces, which would disturb programs that compare text.
    console = Console(file=io.StringIO(), highlight=False, width=_PIPE_WIDTH, color_system=None)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


def _text(value: Any) -> Text:
    return Text(printable(_cell(value)))


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case bool():
            return str(value).lower()
        case int() | float() | Decimal():
            return str(value)
        case datetime():
            return value.isoformat(sep=" ")
    converted = plain(value)
    return converted if isinstance(converted, str) else json.dumps(converted, ensure_ascii=False)


def printable(text: str) -> str:
    """Return text without control characters: neither the rows nor the names in a log must steer the terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
