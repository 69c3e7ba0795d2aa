"""The body of a request: read within limits of size and time, parsed and checked off the event loop."""

import asyncio
import json
import math
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from fastapi import Request
from pydantic import TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect

from delvec_kernel.errors import BadRequest, RequestTimeout, RequestTooLarge
from delvec_service.api import problems
from delvec_service.api.lanes import in_thread

__all__ = ["Checked"]

_TINY: Final = 16 * 1024
"""A body of so many bytes takes less time than a change of thread."""
_DIGITS: Final = 40
_PATIENCE_SECONDS: Final = 30.0
_BYTES_PER_SECOND: Final = 16 * 1024
_CONTAINERS: Final = 10_000_000
_COMMAS: Final = 40_000_000
"""As many take about a gigabyte once they are parsed; a million new files with statistics have fewer."""
_HALVES: Final = (b"\\u0000", b"\\ud", b"\\uD")


class Checked(Request):
    """A request whose body has been read and checked before FastAPI looks at it."""

    parsed: Any = None
    """The body as JSON values."""

    def is_given(self) -> bool:
        """Whether there is a body."""
        return bool(getattr(self, "_body", b""))

    async def load(self, model: TypeAdapter[Any], *, limit: int, setting: str, required: bool) -> None:
        """Read, parse and check the body.

        Raises:
            BadRequest: it is not the JSON of ``model``.
            RequestTooLarge: it has more than ``limit`` bytes.
            RequestTimeout: it comes too slowly.
        """
        self._body = body = await self._read(limit, setting)
        if not body:
            if required:
                raise BadRequest(
                    "The request has no body: send a JSON object with Content-Type: application/json."
                )
            return
        _check_media(self.headers)
        self.parsed, self._json = (
            _checked(body, model) if len(body) <= _TINY else await in_thread(_checked, body, model)
        )

    async def _read(self, limit: int, setting: str) -> bytes:
        chunks: list[bytes] = []
        received = 0
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            length = int(self.headers.get("content-length", "0"))
        except ValueError:
            length = 0
        if length > limit:
            raise _too_large(limit, setting)
        while True:
            try:
                async with asyncio.timeout_at(start + _PATIENCE_SECONDS + received / _BYTES_PER_SECOND):
                    message = await self.receive()
            except TimeoutError:
                raise RequestTimeout(
                    f"The request's body came too slowly: {received} bytes in {loop.time() - start:.0f} seconds; "
                    "nothing was done.",
                    received=received,
                ) from None
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            chunk = message.get("body", b"")
            received += len(chunk)
            if received > limit:
                raise _too_large(limit, setting)
            chunks.append(chunk)
            if not message.get("more_body"):
                return b"".join(chunks)


def _too_large(limit: int, setting: str) -> RequestTooLarge:
    return RequestTooLarge(
        f"The request body is larger than {limit} bytes; send it in several parts, or raise {setting}.",
        limit=limit,
    )


def _check_media(headers: Mapping[str, str]) -> None:
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise BadRequest(
            f"The service takes no Content-Encoding, and the body has {encoding[:40]!r}: send it as it is."
        )
    given = headers.get("content-type", "")
    kind = given.partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        what = f"is {given[:100]!r}" if given else "is missing"
        raise BadRequest(f"The Content-Type {what}: send JSON with Content-Type: application/json.")


def _checked(body: bytes, model: TypeAdapter[Any]) -> tuple[Any, Any]:
    """Return the body as JSON values and as the model."""
    parsed = _parsed(body)
    try:
        return parsed, model.validate_python(parsed)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
    # Raised out here: pydantic's error holds the body, and would keep it as long as this one is kept.
    raise problems.invalid([{**each, "loc": ("body", *each["loc"])} for each in found])


def _parsed(body: bytes) -> Any:
    """Return what JSON holds: RFC 8259's, in UTF-8, without what readers of it disagree about."""
    if body.count(b"{") + body.count(b"[") > _CONTAINERS or body.count(b",") > _COMMAS:
        raise BadRequest("The request is not valid: body: it has too many values; send it in several parts.")
    try:
        # Strictly: the json module would let halves of surrogate pairs pass.
        parsed = _DECODER.decode(body.decode())
    except UnicodeDecodeError as error:
        raise BadRequest(f"The request's body is not UTF-8: byte {error.start} is not.") from None
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        raise BadRequest(
            f"The request is not valid: body: JSON decode error: {error.msg} (line {error.lineno}, column {error.colno})."
        ) from None
    if any(each in body for each in _HALVES):
        check_texts(parsed)
    return parsed


def check_texts(parsed: Any) -> None:
    """Refuse NUL, which PostgreSQL cannot hold, and halves of surrogate pairs, which UTF-8 cannot, in JSON values.

    Raises:
        BadRequest: a text, or a name, has one.
    """
    pending: list[tuple[str, Any]] = [("", parsed)]
    while pending:
        where, node = pending.pop()
        if isinstance(node, str):
            check_text(node, f"body field '{where}'" if where else "body")
        elif isinstance(node, dict):
            for key, value in node.items():
                check_text(key, f"body: the name of a field{f' of {where!r}' if where else ''}")
                if isinstance(value, str) and _is_partition_value(where):
                    check_halves(value, f"body field '{where}.{key}'")
                elif not isinstance(value, int | float):
                    pending.append((f"{where}.{key}" if where else key, value))
        elif isinstance(node, list):
            pending.extend((f"{where}.{index}", value) for index, value in enumerate(node))


def check_text(text: str, where: str) -> None:
    """Refuse a text with NUL or half of a surrogate pair.

    Raises:
        BadRequest: it has one.
    """
    if "\0" in text:
        raise BadRequest(
            f"The request is not valid: {where[:300]}: it has the character NUL (U+0000), which is not taken."
        )
    check_halves(text, where)


def _is_partition_value(where: str) -> bool:
    """Whether the fields there are partition values: NUL is a byte of a binary one as any other, and the log can say it."""
    return where.endswith(".partitionValues")


def check_halves(text: str, where: str) -> None:
    """Refuse a text with half of a surrogate pair.

    Raises:
        BadRequest: it has one.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadRequest(
            f"The request is not valid: {problems.printable(where[:300])}: it has half a character "
            "(half of a surrogate pair), which UTF-8 cannot hold."
        ) from None


def _too_deep() -> BadRequest:
    return BadRequest("The request is not valid: body: it nests too deeply.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise BadRequest(f"The request is not valid: body: the field {twice[:200]!r} is there twice.")
    return found


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise BadRequest(
            f"The request is not valid: body: a number has {len(digits)} digits; at most {_DIGITS} are taken."
        )
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise BadRequest(f"The request is not valid: body: the number {digits[:50]} is too large.")
    return number


def _no_constant(name: str) -> NoReturn:
    raise BadRequest(f"The request is not valid: body: {name} is not JSON.")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_no_constant
)
