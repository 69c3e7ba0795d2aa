"""The site's page for each error: meaning, advice and an example, from the error classes and dev/error_pages.toml."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from delvec_errors import DelvecError, error_classes

__all__ = ["ADVICE", "error_pages", "linked", "linked_names"]

ADVICE: Final = Path(__file__).with_suffix(".toml")


def error_pages() -> dict[str, str]:
    """Return the pages by path on the site.

    Raises:
        KeyError: an error has no advice.
    """
    advice = tomllib.loads(ADVICE.read_text(encoding="utf-8"))
    return {_path(cls): _page(cls, advice[cls.__name__]) for cls in error_classes()}


def linked(markdown: str) -> str:
    """Return the error overview with a link to each error's page."""
    for cls in error_classes():
        row = f"| `{cls.__name__}` | `{cls.type}` |"
        markdown = markdown.replace(row, f"| [`{cls.__name__}`]({_path(cls)}) | `{cls.type}` |")
    return markdown


def linked_names(markdown: str) -> str:
    """Return a page with a link to its page for each name of an error."""
    paths = {cls.__name__: _path(cls) for cls in error_classes()}
    return re.sub(r"`(\w+)`", lambda at: f"[{at[0]}]({paths[at[1]]})" if at[1] in paths else at[0], markdown)


def _path(cls: type[DelvecError]) -> str:
    return f"errors/{cls.__name__}.md"


def _page(cls: type[DelvecError], advice: Mapping[str, str]) -> str:
    parents = [each for each in cls.__mro__[1:] if issubclass(each, DelvecError)]
    children = [each for each in cls.__subclasses__() if each.__bases__ == (cls,)]
    envelope = cls(advice["message"]).to_wire()
    lines = [
        f"# {cls.__name__}",
        "",
        (cls.__doc__ or "").partition("\n")[0].replace("``", "`"),
        "",
        "| | |",
        "|---|---|",
        f"| Python | `delvec.{cls.__name__}` |",
        f"| type over HTTP | `{cls.type}` |",
        f"| code | `{cls.code}` |",
        f"| HTTP status | {cls.status} |",
        f"| retryable | {'yes: the same request may succeed later' if cls.retryable else 'no'} |",
    ]
    if parents:
        lines.append(f"| is a | {', '.join(_link(each) for each in parents)} |")
    if children:
        lines.append(f"| more precisely | {', '.join(_link(each) for each in children)} |")
    lines += ["", "## What to do", "", advice["do"], "", "## Example", "", "```json"]
    lines += [json.dumps(envelope, indent=2, ensure_ascii=False), "```", ""]
    lines += ["All of them, and what the fields mean: [errors](../errors.md).", ""]
    return "\n".join(lines)


def _link(cls: type[DelvecError]) -> str:
    return f"[`{cls.__name__}`]({cls.__name__}.md)"
