"""Reads plans: an Arrow stream of files, with the plan's other fields in the schema metadata."""

import io
from collections.abc import Iterator
from typing import Any, Final

import httpx
import pyarrow as pa
from pydantic import ValidationError

from delvec.http.error_answers import not_delvec
from delvec_commands.service_adapter import Plan
from delvec_errors import InternalError, ServiceUnavailable

__all__ = ["ARROW_STREAM", "read_plan"]

ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"


class _Chunks(io.RawIOBase):
    """A response body as a file, so that Arrow decodes batches as they arrive."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        taken = min(len(buffer), len(self._rest))
        buffer[:taken] = self._rest[:taken]
        self._rest = self._rest[taken:]
        return taken


def read_plan(response: httpx.Response, kind: type[Plan]) -> tuple[Plan, pa.Table]:
    """Return a plan, and its files as a table.

    Raises:
        ServiceUnavailable: the stream ended early; a truncated list of files is never returned.
        InternalError: the schema metadata has no plan.
    """
    if response.headers.get("Content-Type", "").partition(";")[0] != ARROW_STREAM:
        response.read()
        raise not_delvec(response)
    url = response.request.url
    try:
        source = io.BufferedReader(_Chunks(response.iter_bytes()), 1 << 20)
        with pa.ipc.open_stream(source) as reader:
            files = reader.read_all()
        plan = kind.model_validate_json((files.schema.metadata or {}).get(b"delvec", b""))
    except (pa.ArrowInvalid, OSError) as error:  # OSError: within a batch
        raise ServiceUnavailable(
            f"the plan from {url} broke off or is not an Arrow stream: {error}"
        ) from error
    except ValidationError as error:
        raise InternalError(
            f"the plan from {url} lacks its description: {error.errors()[0]['msg']}"
        ) from error
    # Arrow takes a stream that ends between two batches as complete, which would lose rows silently.
    if files.num_rows != plan.num_files:
        raise ServiceUnavailable(
            f"the plan from {url} broke off: only {files.num_rows} of {plan.num_files} files arrived"
        )
    return plan, files
