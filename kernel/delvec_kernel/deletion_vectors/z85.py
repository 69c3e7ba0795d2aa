"""Z85, the text form of binary data in deletion vector descriptors (ZeroMQ RFC 32).

Five characters stand for four bytes, big-endian, base 85. The standard library's Base85 is the same
arithmetic over another alphabet, so it does the work and a translation table does the rest.

Data whose length is not a multiple of four is written here with zero bytes behind it, as delta-spark does.
Tables written with Rust's z85 crate have a last group that starts with one ``#`` per byte that is not there;
no full group can start so, because its value would exceed 32 bits.
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
# Characters outside the alphabet must not survive the translation: some are valid in the standard one.
_FROM_Z85: Final = bytes(
    _STANDARD[_ALPHABET.index(code)] if code in _ALPHABET else _NOT_BASE85[0] for code in range(256)
)


def encode(data: bytes) -> str:
    """Return ``data`` as text, padded with zero bytes to a multiple of four."""
    padded = data + bytes(-len(data) % 4)
    return base64.b85encode(padded).translate(_TO_Z85).decode("ascii")


def decode(text: str) -> bytes:
    """Return the bytes that ``text`` stands for, zero bytes of padding included.

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
