"""Z85, the text form of binary data in deletion vector descriptors (ZeroMQ RFC 32).

Five characters encode four bytes, big-endian, base 85. The standard library's Base85 differs only in its
alphabet, so it does the arithmetic and a translation table does the rest.

If the length is not a multiple of four, zero bytes are appended, as in delta-spark. Rust's z85 crate instead
starts the last group with one ``#`` per missing byte, which no full group can start with, because its value
would exceed 32 bits.
"""

import base64
from typing import Final

__all__ = ["decode", "encode"]

_ALPHABET: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_STANDARD: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_Z85: Final = bytes.maketrans(_STANDARD, _ALPHABET)
_NOT_BASE85: Final = b" "
_ABSENT: Final = "#"
_GROUP: Final = 4
# Map all other characters to an invalid one, since some are valid in the standard alphabet.
_FROM_Z85: Final = bytes(
    _STANDARD[_ALPHABET.index(code)] if code in _ALPHABET else _NOT_BASE85[0] for code in range(256)
)


def encode(data: bytes) -> str:
    """Return ``data`` as text, padded with zero bytes to a multiple of four."""
    padded = data + bytes(-len(data) % 4)
    return base64.b85encode(padded).translate(_TO_Z85).decode("ascii")


def decode(text: str) -> bytes:
    """Decode ``text``, including the zero bytes of padding.

    Raises:
        ValueError: the length is not a multiple of five, a character is outside the alphabet, or a group
            exceeds 32 bits.
    """
    if len(text) % 5:
        raise ValueError(
            f"the length of Z85 text must be a multiple of 5, but this has {len(text)} characters"
        )
    absent = 0
    if text[-5:-4] == _ABSENT:
        absent = 5 - len(text[-5:].lstrip(_ABSENT))
        text = text[:-5] + text[-5:].replace(_ABSENT, "0", absent)
    try:
        data = base64.b85decode(text.encode("ascii").translate(_FROM_Z85))
    except (ValueError, UnicodeEncodeError) as error:
        raise ValueError("the text is not Z85") from error
    if not absent:
        return data
    if absent >= _GROUP or any(data[-_GROUP : absent - _GROUP]):
        raise ValueError("the last group of the Z85 text has more bytes than it declares")
    return data[:-_GROUP] + data[absent - _GROUP :]
