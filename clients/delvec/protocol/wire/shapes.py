"""The three families of shapes, and bytes within JSON."""

import base64
import binascii
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, EncodedBytes, EncoderProtocol
from pydantic_core import PydanticCustomError

__all__ = ["Answer", "Base64", "Delta", "Envelope"]


def _kebab(name: str) -> str:
    return name.replace("_", "-")


class _StrictBase64(EncoderProtocol):
    """Base64 in one line; pydantic's own type drops what is not of the alphabet, which makes junk other bytes."""

    @classmethod
    def decode(cls, data: bytes) -> bytes:
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise PydanticCustomError(
                "base64_decode", "Base64 decoding error: '{error}'", {"error": str(error)}
            ) from error

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return base64.b64encode(value)

    @classmethod
    def get_json_format(cls) -> Literal["base64"]:
        return "base64"


Base64 = Annotated[bytes, EncodedBytes(encoder=_StrictBase64)]


class Envelope(BaseModel):
    """Delvec's own shapes: kebab-case, unknown fields refused so that a misspelt field is not ignored."""

    model_config = ConfigDict(alias_generator=_kebab, populate_by_name=True, extra="forbid")


class Answer(BaseModel):
    """Answers tolerate fields that a newer service adds."""

    model_config = ConfigDict(alias_generator=_kebab, populate_by_name=True, extra="ignore")


class Delta(BaseModel):
    """Shapes of the Delta protocol, in Delta's camelCase."""

    model_config = ConfigDict(populate_by_name=True, extra="ignore")
