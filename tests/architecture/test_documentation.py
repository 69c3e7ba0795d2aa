"""The documentation matches the code."""

import ast
import re
from pathlib import Path

import pytest

from delvec_errors import error_classes
from delvec_kernel.actions.actions import Protocol
from delvec_kernel.features import table_features as features
from delvec_kernel.table_properties import OWN_PROPERTIES, PROPERTIES
from delvec_service.config import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("cls", list(error_classes()), ids=lambda cls: cls.__name__)
def test_every_error_is_documented_correctly(cls):
    row = f"| `{cls.__name__}` | `{cls.type}` | `{cls.code}` | {cls.status} | {'yes' if cls.retryable else 'no'} |"

    assert row in (ROOT / "docs" / "errors.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_work(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_known_table_feature_is_documented():
    page = (ROOT / "docs" / "table-features.md").read_text()
    implied = features.writer_features(Protocol(2, 6)) | features.reader_features(Protocol(2, 6))
    known = features.READABLE | features.WRITABLE.keys() | features.CATALOG_MANAGED | implied

    assert not [name for name in sorted(known) if f"`{name}`" not in page]


def test_every_table_feature_is_written_as_documented():
    page = (ROOT / "docs" / "table-features.md").read_text()
    found = re.findall(r"^\| (`[^|]+) \| \w+ \| ([^|]+) \|", page, re.MULTILINE)
    answers = {name: said for names, said in found for name in re.findall("`([^`]+)`", names)}
    assert len(answers) > len(features.WRITABLE)
    for name, said in answers.items():
        if name not in features.WRITABLE:
            assert said == "refuses", name
        elif features.WRITABLE[name].__name__ == "_never":
            assert said in ("writes", "preserves"), name
        else:
            assert said.endswith("refuses where in use"), name


def test_every_settable_property_is_documented():
    page = (ROOT / "docs" / "table-changes.md").read_text()
    settable = [name for name, known in PROPERTIES.items() if known.refusal is None]

    assert not [name for name in settable if f"`{name.removeprefix('delta.')}`" not in page]


def test_the_page_lists_delvecs_own_properties():
    expected = [
        f"| `{each.name}` | {each.takes} | {each.shown} | {each.description} |" for each in OWN_PROPERTIES
    ]
    page = (ROOT / "docs" / "table-changes.md").read_text()

    found = [line for line in page.splitlines() if line.startswith("| `delvec.")]
    assert found == expected, "\n".join(["docs/table-changes.md should have:", *expected])


def test_properties_of_our_own_are_named_in_their_registry_only():
    names = {each.name for each in OWN_PROPERTIES}
    sources = [path for folder in ("kernel", "clients", "service") for path in (ROOT / folder).rglob("*.py")]
    elsewhere = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources
        if path.name != "table_properties.py" and "delvec." in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and node.value in names
    ]

    assert not elsewhere


def test_every_setting_is_documented_and_no_page_names_an_unknown_one():
    settings = {f"DELVEC_{name.upper()}" for name in Settings.model_fields}
    elsewhere = {
        "DELVEC_URL",
        "DELVEC_PARQUET_BYTES",
        "DELVEC_SPARK_BROADCAST_BYTES",
        "DELVEC_DEBUG",
        "DELVEC_CORPUS",
        "DELVEC_REQUIRE",
    }  # for clients and tests
    named = {page.name: set(re.findall(r"`(DELVEC_[A-Z_]+)", page.read_text())) for page in PAGES}

    assert settings <= named["service.md"]
    assert set().union(*named.values()) - settings - elsewhere <= {cls.code for cls in error_classes()}


def test_the_modules_of_the_stages_of_a_command_exist():
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = re.findall(r"`((?:delvec|delvec_\w+)/[\w/]+\.py)`", page)

    assert named
    assert [
        path
        for path in named
        if not any((ROOT / at / path).exists() for at in ("kernel", "clients", "service"))
    ] == []
