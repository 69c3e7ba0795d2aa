"""Whether Delvec works on the bytes of Parquet files itself: copies row groups, and reads page indexes.

Both only save time; without them rows are decoded and encoded by pyarrow and DuckDB alone.
"""

import os
from typing import Final

from delvec_errors import BadRequest

__all__ = ["SETTING", "uses_parquet_bytes"]

SETTING: Final = "DELVEC_PARQUET_BYTES"


def uses_parquet_bytes(choice: bool | None = None) -> bool:
    """Whether an engine copies row groups and reads page indexes.

    Args:
        choice: an engine's argument; by default the environment decides, and without it they are used.

    Raises:
        BadRequest: the environment variable is neither ``on`` nor ``off``.
    """
    if choice is not None:
        return choice
    value = os.environ.get(SETTING, "").strip().lower() or "on"
    if value not in {"on", "off"}:
        raise BadRequest(f"{SETTING} must be on or off, not {value!r}")
    return value == "on"
