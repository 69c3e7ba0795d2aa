"""A LIKE pattern as far as data skipping can use it: the text that it starts with."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["LikePattern"]


@dataclass(frozen=True)
class LikePattern:
    """A prefix and what may follow it.

    Attributes:
        prefix: what every matching value starts with.
        rest: ``nothing`` if only the prefix itself matches, ``anything`` if all that start with it do,
            ``something`` if only some of them do.
    """

    prefix: str
    rest: Literal["nothing", "anything", "something"]

    @classmethod
    def parse(cls, pattern: str, escape: str = "\\") -> "LikePattern | None":
        """Split ``pattern`` at its first wildcard; None where Spark would refuse its escapes."""
        prefix: list[str] = []
        position = 0
        while position < len(pattern):
            char = pattern[position]
            if char == escape:
                position += 1
                if pattern[position : position + 1] not in {"%", "_", escape}:
                    return None
                prefix.append(pattern[position])
            elif char in "%_":
                rest = pattern[position:]
                return cls("".join(prefix), "anything" if set(rest) == {"%"} else "something")
            else:
                prefix.append(char)
            position += 1
        return cls("".join(prefix), "nothing")
