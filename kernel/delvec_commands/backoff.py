"""How long to wait before a request, or a command, is tried again."""

import email.utils
import random
import time
from typing import Final

from delvec_errors import DelvecError, TooManyRequests

__all__ = ["pause"]

_BASE_SECONDS: Final = 0.2
_LONGEST_SECONDS: Final = 5.0
_LONGEST_ASKED_SECONDS: Final = 30.0


def pause(error: DelvecError, attempt: int) -> float:
    """Return seconds to wait: what the service asks for, else a random part of a doubling span (full jitter).

    Args:
        error: how the last attempt failed.
        attempt: its number, from 0.
    """
    asked = _retry_after(error.details.get("retry_after"))
    span = min(_LONGEST_SECONDS, _BASE_SECONDS * 2**attempt)
    if asked is not None:
        # Clients that share a rate limit get the same Retry-After, so spread their retries.
        spread = random.uniform(0, span) if isinstance(error, TooManyRequests) else 0  # noqa: S311
        return min(asked + spread, _LONGEST_ASKED_SECONDS)
    return random.uniform(0, span)  # noqa: S311 - spreads load, protects nothing


def _retry_after(value: object) -> float | None:
    """Parse ``Retry-After``: seconds, or an HTTP date."""
    if value is None:
        return None
    try:
        return max(0.0, float(str(value)))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(str(value)).timestamp() - time.time())
    except ValueError:
        return None
