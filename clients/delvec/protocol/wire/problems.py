"""The one shape of every error answer."""

from typing import Any

from pydantic import Field

from delvec.protocol.wire.shapes import Answer

__all__ = [
    "ErrorBody",
    "ErrorEnvelope",
]


class ErrorBody(Answer):
    """What went wrong, where, and whether to try again."""

    message: str = Field(description="One sentence: what happened, where, what to do.")
    type: str = Field(description="The exception's name, Delta's own where Delta has one.")
    code: str = Field(description="A stable code for programs.")
    retryable: bool = Field(description="Whether the same request may succeed later.")
    details: dict[str, Any] = Field(default_factory=dict, description="Facts: table, version, file, ...")


class ErrorEnvelope(Answer):
    """The one shape of every error answer."""

    error: ErrorBody
