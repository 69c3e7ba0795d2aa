"""Java regular expressions, as RLIKE takes them, in RE2's syntax."""

import re
from typing import Final

__all__ = ["to_re2"]

_LINE_ENDS: Final = r"\n\r\x{85}\x{2028}\x{2029}"
_DOT: Final = f"[^{_LINE_ENDS}]"
_END: Final = rf"(?:(?:\r\n|[{_LINE_ENDS}])?\z)"
# Escapes that mean the same in both.
_SAME: Final = frozenset("dDwWtnrfaAz")
_SPACE: Final = {"s": r"[ \t\n\x0B\f\r]", "S": r"[^ \t\n\x0B\f\r]"}
_GROUP: Final = re.compile(r"\(\?(?::|i\)|<[A-Za-z][A-Za-z0-9]*>)")


def to_re2(pattern: str) -> str:
    r"""Return the RE2 pattern that finds what Java's ``Pattern`` finds.

    ``.`` and ``$`` know more line ends in Java, ``\s`` one more space.

    Raises:
        ValueError: a construct that RE2 lacks or reads differently; the message names it.
    """
    written: list[str] = []
    position = 0
    while position < len(pattern):
        char = pattern[position]
        end = position + 1
        if char == "\\":
            end += 1
            written.append(_escaped(pattern[position + 1 : end], inside=False))
        elif char == "[":
            text, end = _class(pattern, position)
            written.append(text)
        elif char == "(" and pattern.startswith("?", end):
            text, end = _group(pattern, position)
            written.append(text)
        elif char in "*+?}" and pattern.startswith("+", end):
            raise ValueError("a possessive quantifier")
        else:
            written.append({".": _DOT, "$": _END}.get(char, char))
        position = end
    return "".join(written)


def _group(pattern: str, position: int) -> tuple[str, int]:
    group = _GROUP.match(pattern, position)
    # Java folds ASCII letters only, RE2 all.
    if group is None or (group.group() == "(?i)" and not pattern.isascii()):
        raise ValueError("look-around or flags")
    return group.group().replace("(?<", "(?P<"), group.end()


def _class(pattern: str, position: int) -> tuple[str, int]:
    """Return the character class that starts at ``position`` and where it ends."""
    start = position + 2 if pattern.startswith("^", position + 1) else position + 1
    written = [pattern[position:start]]
    position = start
    while position < len(pattern) and (pattern[position] != "]" or position == start):
        if pattern[position] in "[]" or pattern.startswith("&&", position):
            raise ValueError("a class within a class")
        width = 2 if pattern[position] == "\\" else 1
        piece = pattern[position : position + width]
        written.append(_escaped(piece[1:], inside=True) if width > 1 else piece)
        position += width
    if position >= len(pattern):
        raise ValueError("a bracket that is not closed")
    return "".join(written) + "]", position + 1


def _escaped(char: str, *, inside: bool) -> str:
    if char in _SAME and not (inside and char in "Az"):
        return "\\" + char
    if char in _SPACE and not inside:
        return _SPACE[char]
    if char == "s":
        return r" \t\n\x0B\f\r"
    if char and not char.isalnum() and char.isascii():
        return "\\" + char
    raise ValueError(f"the escape \\{char}")
