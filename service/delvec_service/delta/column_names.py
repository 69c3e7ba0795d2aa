"""Which names columns may have."""

from typing import Final

from delvec.protocol.errors import InvalidSchema

__all__ = ["check_column_name"]

_FORBIDDEN: Final = " ,;{}()\n\t="
_RESERVED: Final = frozenset({"_metadata", "_change_type", "_commit_version", "_commit_timestamp"})


def check_column_name(name: str, *, mapped: bool = False) -> None:
    """Refuse a name that a column of a Delta table cannot have.

    Args:
        name: of a column, or of a field of a struct.
        mapped: whether files know the column by another name, so that it may have any character.

    Raises:
        InvalidSchema: it is empty, reserved, or has characters that Parquet's readers do not take.
    """
    if not name or (not mapped and any(character in _FORBIDDEN for character in name)):
        raise InvalidSchema(
            f"The column name '{name}' is empty or has one of the characters ' ,;{{}}()' or =, tab or "
            "newline in it, which needs column mapping; rename the column.",
            column=name,
        )
    if name.lower() in _RESERVED:
        raise InvalidSchema(f"The column name '{name}' is reserved; rename it.", column=name)
