"""Each error has a page on the site with its remedy, and an example that matches the code."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest

from delvec_errors import error_classes

ROOT = Path(__file__).parents[2]
PAGES = runpy.run_path(str(ROOT / "dev" / "error_pages.py"))
messages = runpy.run_path(str(ROOT / "dev" / "error_messages.py"))["messages"]
error_pages, linked = PAGES["error_pages"], PAGES["linked"]

CLASSES = {cls.__name__: cls for cls in error_classes()}
SAID = tomllib.loads(PAGES["ADVICE"].read_text())
IN_THE_CODE = messages(frozenset(CLASSES))


def test_errors_and_error_pages_correspond():
    assert set(SAID) == set(CLASSES)
    assert set(error_pages()) == {f"errors/{name}.md" for name in CLASSES}


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_the_page_explains_the_error_and_its_remedy(name):
    cls, page = CLASSES[name], error_pages()[f"errors/{name}.md"]

    for fact in (f"`{cls.code}`", f"| {cls.status} |", f"`{cls.type}`", SAID[name]["do"], "```json"):
        assert fact in page
    assert ("may succeed later" in page) == cls.retryable
    assert SAID[name]["do"].endswith(".")


@pytest.mark.parametrize("name", sorted(set(CLASSES) & set(IN_THE_CODE)))
def test_the_example_matches_the_code(name):
    templates = [re.escape(one).replace("…", ".*") for one in IN_THE_CODE[name]]
    told = SAID[name]["message"]

    alike = [one for one in templates if re.fullmatch(one, told, re.DOTALL)]
    assert alike, told
    assert any(len(one.replace(".*", "").strip()) > 10 for one in alike), f"anything looks like {alike}"


def test_the_table_of_errors_links_to_each_page():
    page = linked((ROOT / "docs" / "errors.md").read_text())

    assert set(re.findall(r"\]\((errors/\w+\.md)\)", page)) == set(error_pages())


def test_names_of_errors_on_a_page_link_to_their_pages():
    assert PAGES["linked_names"]("`TableNotFound`, `retries=`, `delvec`") == (
        "[`TableNotFound`](errors/TableNotFound.md), `retries=`, `delvec`"
    )
