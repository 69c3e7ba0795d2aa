"""The table property that says where Iceberg metadata and delete files are."""

import re
from typing import Final

from delvec_errors import BadRequest, CorruptTable, InvalidLocation
from delvec_kernel.locations import canonical
from delvec_kernel.table_properties import ICEBERG_LOCATION

__all__ = [
    "METADATA_LOCATION",
    "check_metadata_location",
    "is_taken_by_vacuum",
    "metadata_location",
]

METADATA_LOCATION: Final = ICEBERG_LOCATION.name
"""Property: a directory below the table such as ``_ice``, ``.`` for the table's own, or an absolute path or URL."""
_EXPECTED_FORM: Final = (
    "a directory below the table, such as _ice, of the characters A-Z a-z 0-9 _ . -; . for the table's own directory; "
    "or an absolute path or URL"
)
_SEGMENT: Final = re.compile(r"[A-Za-z0-9_.-]{1,255}")
_MAX_LENGTH: Final = 2000
_LOG: Final = "_delta_log"
_RESERVED_DIRECTORIES: Final = (_LOG, "_delvec", "_change_data", "_delta_index")
"""Directories of a Delta table that have another purpose."""


def check_metadata_location(name: str, value: str) -> None:
    """Check a property before it is set; does nothing for other properties.

    Raises:
        BadRequest: it is :data:`METADATA_LOCATION`, and not in its form.
    """
    if name != METADATA_LOCATION:
        return
    try:
        _parse(value)
    except ValueError as error:
        raise BadRequest(
            f"'{value[:200]}' is not a valid value for '{METADATA_LOCATION}': {error}. Give {_EXPECTED_FORM}.",
            property=METADATA_LOCATION,
        ) from error


def metadata_location(value: str, table: str) -> str:
    """Return the directory of a property from a log.

    Args:
        value: the value of the property.
        table: the Delta table's name, for errors.

    Returns:
        A path relative to the table, empty for its own directory; or a canonical URL.

    Raises:
        CorruptTable: it is not in its form.
    """
    try:
        return _parse(value)
    except ValueError as error:
        raise CorruptTable(
            f"The property {METADATA_LOCATION} of table '{table}' is '{value[:200]}': {error}. Set it to {_EXPECTED_FORM}.",
            table=table,
            property=METADATA_LOCATION,
        ) from error


def is_taken_by_vacuum(relative: str) -> bool:
    """Whether a VACUUM of other Delta writers may delete files in a directory below the table."""
    return not relative.startswith(("_", "."))


def _parse(value: str) -> str:
    """Return the directory; ValueError says what is wrong with it."""
    if not value or len(value) > _MAX_LENGTH:
        raise ValueError(f"it is {'too long' if value else 'empty'}")
    if value.startswith("/") or ":" in value:
        try:
            url = canonical(value)
        except InvalidLocation as error:
            raise ValueError(error.message.removesuffix(".")) from error
        if _LOG in url.split("/"):
            raise ValueError(f"{_LOG} is only for the log")
        return url
    parts = [part for part in value.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError("it contains '..'")
    if not all(map(_SEGMENT.fullmatch, parts)):
        raise ValueError("it contains other characters than a relative directory may have")
    if _LOG in parts or (parts and parts[0] in _RESERVED_DIRECTORIES):
        raise ValueError("that directory has another purpose")
    return "/".join(parts)
