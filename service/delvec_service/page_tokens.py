"""Page tokens: where the next page of a list starts. Clients pass them back as they are."""

import base64
import json
import math
from typing import Any

from delvec_errors import BadRequest
from delvec_service.bad_requests import check_texts

__all__ = ["page_token", "place_of"]


def page_token(order: str, *place: float | str) -> str:
    """Return the token of a page.

    Args:
        order: the list and its order: the token is valid for no other.
        place: what the last row of the page before it is ordered by.
    """
    content = json.dumps([order, *place], ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(content.encode()).decode()


def place_of(token: str, order: str, *types: type[float] | type[str]) -> tuple[Any, ...]:
    """Return the place in a token, with a value of each of the types.

    Raises:
        BadRequest: the service did not return this token for this list and order.
    """
    try:
        content = json.loads(base64.b64decode(token, b"-_", validate=True))
        check_texts(content)
    except (ValueError, RecursionError, BadRequest):
        content = None
    if not isinstance(content, list) or content[:1] != [order] or not _fits(content[1:], types):
        raise BadRequest(
            "The page token is not valid, or belongs to another list, filter or order; pass one that this request "
            "returned, or start again without one."
        )
    return tuple(content[1:])


def _fits(place: list[Any], types: tuple[type[float] | type[str], ...]) -> bool:
    return len(place) == len(types) and all(
        type(value) is kind and (isinstance(value, str) or math.isfinite(value))
        for value, kind in zip(place, types, strict=True)
    )
