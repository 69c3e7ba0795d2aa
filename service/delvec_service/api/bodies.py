"""Request bodies: read within limits of size and time, parsed and validated off the event loop.

Tested in `tests/integration/service/test_limits.py` and
`tests/integration/service/commits/test_text_in_commits.py`.
"""

import asyncio
import json
import math
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from fastapi import Request
from pydantic import TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect

from delvec_errors import BadRequest, RequestTimeout, RequestTooLarge
from delvec_service.api.lanes import in_thread
from delvec_service.bad_requests import check_texts, invalid

__all__ = ["CheckedRequest"]

_INLINE_BYTES: Final = 16 * 1024
"""Parsing a body up to this size takes less time than switching threads."""
_DIGITS: Final = 40
_PATIENCE_SECONDS: Final = 30.0
_BYTES_PER_SECOND: Final = 16 * 1024
_CONTAINERS: Final = 10_000_000
_COMMAS: Final = 40_000_000
"""A body with this many values takes about a gigabyte when parsed; a million new files with statistics have fewer."""
_LONE_SURROGATES: Final = (b"\\u0000", b"\\ud", b"\\uD")


class CheckedRequest(Request):
    """A request whose body is read and validated before FastAPI sees it."""

    parsed: Any = None
    """The body as JSON values."""

    async def load(self, model: TypeAdapter[Any], *, limit: int, setting: str, is_required: bool) -> None:
        """Read, parse and check the body.

        Raises:
            BadRequest: it is not valid JSON for ``model``.
            RequestTooLarge: it is larger than ``limit`` bytes.
            RequestTimeout: it arrives too slowly.
        """
        self._body = body = await self._read(limit, setting)
        if not body:
            if is_required:
                raise BadRequest(
                    "The request has no body; send a JSON object with Content-Type: application/json."
                )
            return
        _check_media(self.headers)
        self.parsed, self._json = (
            _checked(body, model) if len(body) <= _INLINE_BYTES else await in_thread(_checked, body, model)
        )

    async def _read(self, limit: int, setting: str) -> bytes:
        chunks: list[bytes] = []
        num_bytes = 0
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
                async with asyncio.timeout_at(start + _PATIENCE_SECONDS + num_bytes / _BYTES_PER_SECOND):
                    message = await self.receive()
            except TimeoutError:
                raise RequestTimeout(
                    f"The request body arrived too slowly: {num_bytes} bytes in {loop.time() - start:.0f} seconds. "
                    "Nothing was done.",
                    received=num_bytes,
                ) from None
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            chunk = message.get("body", b"")
            num_bytes += len(chunk)
            if num_bytes > limit:
                raise _too_large(limit, setting)
            chunks.append(chunk)
            if not message.get("more_body"):
                return b"".join(chunks)


def _too_large(limit: int, setting: str) -> RequestTooLarge:
    return RequestTooLarge(
        f"The request body is larger than {limit} bytes; split it into several requests, or raise {setting}.",
        limit=limit,
    )


def _check_media(headers: Mapping[str, str]) -> None:
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise BadRequest(
            f"The service does not support Content-Encoding, and the body has {encoding[:40]!r}; send it unencoded."
        )
    given = headers.get("content-type", "")
    kind = given.partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        what = f"is {given[:100]!r}" if given else "is missing"
        raise BadRequest(f"The Content-Type {what}; send JSON with Content-Type: application/json.")


def _checked(body: bytes, model: TypeAdapter[Any]) -> tuple[Any, Any]:
    """Return the body as JSON values and as the model."""
    parsed = _parsed(body)
    try:
        return parsed, model.validate_python(parsed)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
    # Raised outside the except block: pydantic's error refers to the body and would keep it in memory.
    raise invalid([{**each, "loc": ("body", *each["loc"])} for each in found])


def _parsed(body: bytes) -> Any:
    """Parse strict JSON: RFC 8259 in UTF-8, without anything that JSON parsers disagree on."""
    if body.count(b"{") + body.count(b"[") > _CONTAINERS or body.count(b",") > _COMMAS:
        raise BadRequest(
            "The request is not valid: body: it has too many values; split it into several requests."
        )
    try:
        # Strict decoding: the json module would accept lone surrogates.
        document = _DECODER.decode(body.decode())
    except UnicodeDecodeError as error:
        raise BadRequest(f"The request body is not valid UTF-8 (byte {error.start}).") from None
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        raise BadRequest(
            f"The request is not valid: body: JSON decode error: {error.msg} (line {error.lineno}, column {error.colno})."
        ) from None
    if any(each in body for each in _LONE_SURROGATES):
        check_texts(document)
    return document


def _too_deep() -> BadRequest:
    return BadRequest("The request is not valid: body: it is nested too deeply.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise BadRequest(f"The request is not valid: body: the field {twice[:200]!r} appears twice.")
    return found


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise BadRequest(
            f"The request is not valid: body: a number has {len(digits)} digits; the limit is {_DIGITS}."
        )
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise BadRequest(f"The request is not valid: body: the number {digits[:50]} is too large.")
    return number


def _no_constant(name: str) -> NoReturn:
    raise BadRequest(f"The request is not valid: body: {name} is not valid JSON.")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_no_constant
)
