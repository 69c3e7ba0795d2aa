"""Texts in messages: numbers of things, and long ones in short; and what is a text at all."""

from typing import Final

__all__ = ["counted", "is_text", "shortened"]

_MAX_LENGTH: Final = 200
"""Characters, enough to recognise a text."""


def counted(count: float, noun: str) -> str:
    """Return a number of things: ``1 file``, ``2,000 files``."""
    return f"{count:,.0f} {noun}{'' if count == 1 else 's'}"


def shortened(text: str) -> str:
    """Return at most 200 characters of a text."""
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 3] + "..."


def is_text(value: str) -> bool:
    """Whether ``value`` can be encoded as UTF-8, that is, contains no lone surrogate."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
