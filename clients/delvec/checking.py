"""The check of a table, as the service does it."""

from typing import Any

from delvec._transport import ServiceClient, answer, table_path
from delvec.protocol.wire import CheckResponse

__all__ = ["check"]


def check(service: ServiceClient, table_id: str, *, data_files: bool) -> dict[str, Any]:
    """Return what a check found; names are as on the wire."""
    parameters = {"data-files": str(data_files).lower()}
    body = service.get(table_path(table_id, "check"), parameters)
    return answer(CheckResponse, body).model_dump(by_alias=True)
