"""Pages as what they are: programs in pieces, with prose between.

A fenced block is one of:

- an *example*: ``python``, ``shell`` or ``sql``. Examples of a page run in order and share what they define.
- *output*: ``text`` or ``json`` right after an example. It is compared with what the example printed. ``…`` stands for
  anything: within text, as a JSON value, as a JSON key for further keys, as the last element of an array for further ones.
- an *illustration*: ``text`` or ``json`` elsewhere, or a block without a language. It does not run; JSON has to parse.

Two comments in the page's source, which readers do not see, stand between blocks::

    <!-- setup: python
    people = lake.create_table("/data/people", "id long, age int", replace=True)
    -->

    <!-- not run: needs a cluster -->

The first runs like an example; it has what the page takes for granted. The second gives the reason why the next example
does not run.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]

_LANGUAGES = ("python", "shell", "sql")
_OUTPUTS = ("text", "json")
_BLOCK = re.compile(
    r"^<!-- *(?P<comment>setup|not run): *(?P<said>.*?) *-->|^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_FENCE = re.compile(r"^ *(?:```|~~~)", re.MULTILINE)
_COMMENT = re.compile(r"^ *<!-- *(?:setup|not run)", re.MULTILINE)
_ANYTHING = "…"


class PageError(AssertionError):
    """A page that is not written as above."""


@dataclass
class Example:
    """A block that runs, or that says why not."""

    place: str
    line: int
    language: str
    code: str
    output: str | None = None
    output_language: str = ""
    reason: str | None = None
    end: int = 0

    def check(self, printed):
        """Raise AssertionError if that is not what the page says it prints."""
        if self.output is None:
            return
        if self.output_language == "json":
            try:
                found = json.loads(printed)
            except ValueError:
                raise AssertionError(f"{self.place} prints no JSON:\n{printed}") from None
            same = _matches_json(json.loads(self.output), found)
        else:
            same = _matches_text(self.output, printed)
        assert same, f"{self.place} prints\n{printed}\nand the page says\n{self.output}"


def examples(page, text=None):
    """Return the examples of a page, those that do not run among them.

    Raises:
        PageError: a comment or a block is none of the kinds above.
    """
    text = (ROOT / page).read_text() if text is None else text
    blocks = list(_BLOCK.finditer(text))
    comments = sum(bool(block["comment"]) for block in blocks)
    if (len(_FENCE.findall(text)), len(_COMMENT.findall(text))) != (2 * (len(blocks) - comments), comments):
        raise PageError(f"{page}: a block or a comment is not closed, is indented, or begins within another")
    found, reason, end = [], None, 0
    for block in blocks:
        line = text.count("\n", 0, block.start()) + 1
        place = f"{page}:{line}"
        if block["comment"] == "not run":
            reason = _reason(block, place)
            continue
        language, code = _code(block, place)
        if language in _LANGUAGES:
            found.append(Example(place, line + 1, language, code, reason=reason))
        elif reason:
            raise PageError(f"{place}: only an example can be left out")
        elif found and found[-1].end == end and not text[end : block.start()].strip() and language:
            found[-1].output, found[-1].output_language = code, language
        reason, end = None, block.end()
        if language in _LANGUAGES:
            found[-1].end = end
    return found


def _reason(block, place):
    if not block["said"]:
        raise PageError(f"{place}: say why the example does not run")
    return block["said"]


def _code(block, place):
    language, code = block["language"], block["code"]
    if block["comment"]:
        language, _, code = block["said"].partition("\n")
        if language not in _LANGUAGES or not code.strip():
            raise PageError(f"{place}: a setup begins with its language, and code follows: {block[0]}")
    if language and language not in _LANGUAGES + _OUTPUTS:
        raise PageError(f"{place}: a block is one of {', '.join(_LANGUAGES + _OUTPUTS)}, not {language}")
    if language == "json":
        json.loads(code)
    return language, code


def _matches_text(expected, printed):
    lines = [line.rstrip() for line in expected.strip().splitlines()]
    pattern = ".*?".join(re.escape(part) for part in "\n".join(lines).split(_ANYTHING))
    found = "\n".join(line.rstrip() for line in printed.strip().splitlines())
    return re.fullmatch(pattern, found, re.DOTALL) is not None


def _matches_json(expected, found):
    if expected == _ANYTHING:
        return True
    if isinstance(expected, dict) and isinstance(found, dict):
        named = {key: value for key, value in expected.items() if key != _ANYTHING}
        more = _ANYTHING in expected or found.keys() == named.keys()
        return more and all(key in found and _matches_json(value, found[key]) for key, value in named.items())
    if isinstance(expected, list) and isinstance(found, list):
        if expected and expected[-1] == _ANYTHING:
            expected = expected[:-1]
            found = found[: len(expected)]
        return len(expected) == len(found) and all(map(_matches_json, expected, found))
    if isinstance(expected, str) and isinstance(found, str):
        return _matches_text(expected, found)
    return type(expected) is type(found) and expected == found
