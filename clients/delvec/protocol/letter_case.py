"""upper() and lower() in DuckDB's SQL as Java does them, which knows letters that become several, and the final sigma.

DuckDB maps each character to one: the sharp s stays one letter, and the Turkish I loses its dot.
"""

from collections.abc import Callable
from functools import cache
from typing import Final

__all__ = ["lower", "upper"]

_LAST: Final = 0xFB17
"""The last character that has several in upper case."""
_DOTTED: Final = "\u0130"
_SIGMA, _SMALL_SIGMA, _FINAL_SIGMA = "\u03a3", "\u03c3", "\u03c2"
_LETTER: Final = r"[\p{Lu}\p{Ll}\p{Lt}]"
_BETWEEN: Final = r"""[\s\d,;!?()\[\]{}"/<>=+*&%$#@|-]"""
"""Characters that surely end a word for Unicode's rule of the final sigma."""
_SHORT: Final = 150
"""Characters of SQL up to which a text is evaluated several times."""
_UNDECIDED: Final = (
    "lower() of a text with a capital sigma beside a sign, is not what it is in Spark; run the command there"
)


def upper(value: str) -> str:
    """Return the SQL of a text in capital letters; ``value`` is the SQL of the text."""
    return _once(value, _upper)


def lower(value: str) -> str:
    """Return the SQL of a text in small letters; where the form of a sigma is not decided here, evaluation fails."""
    return _once(value, _lower)


def _once(value: str, function: Callable[[str], str]) -> str:
    if len(value) <= _SHORT:
        return function(value)
    # Nested in each other, they would write it out over and over. A lambda takes five times as long.
    return f"list_transform([{value}], lambda delvec_text: {function('delvec_text')})[1]"


def _upper(value: str) -> str:
    several = _several()
    replaced = value
    for letter, letters in several.items():
        replaced = f"replace({replaced}, '{letter}', '{letters}')"
    return f"(CASE WHEN regexp_matches({value}, '[{''.join(several)}]') THEN upper({replaced}) ELSE upper({value}) END)"


def _lower(value: str) -> str:
    dotted = f"replace({value}, '{_DOTTED}', 'i\u0307')"
    ended = f"regexp_replace({dotted}, '({_LETTER}){_SIGMA}($|{_BETWEEN})', '\\1{_FINAL_SIGMA}\\2', 'g')"
    begun = f"regexp_replace({ended}, '(^|{_BETWEEN}){_SIGMA}', '\\1{_SMALL_SIGMA}', 'g')"
    return (
        f"(CASE WHEN NOT regexp_matches({value}, '[{_DOTTED}{_SIGMA}]') THEN lower({value}) "
        f"WHEN regexp_matches({begun}, '{_SIGMA}($|[^\\p{{Lu}}\\p{{Ll}}\\p{{Lt}}])') THEN error('{_UNDECIDED}') "
        f"ELSE lower({begun}) END)"
    )


@cache
def _several() -> dict[str, str]:
    """Return the characters that are several in upper case, and these."""
    found = {}
    for code in range(0x80, _LAST + 1):
        letter = chr(code)
        if len(letter.upper()) > 1:
            found[letter] = letter.upper()
    return found
