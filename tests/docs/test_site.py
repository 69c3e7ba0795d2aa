"""The documentation site: all links work, it can be searched from disk, and nothing is loaded from other hosts."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import mkdocs.config
import pytest
from playwright.sync_api import sync_playwright

from delvec_errors import error_classes

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
LOADED = re.compile(r"""<(?:script|link|img)[^>]*?(?:src|href)=["']?(https?:[^"' >]+)""")


@pytest.mark.slow("builds the whole site")
def test_the_site_builds_with_strict_links_and_loads_nothing_from_other_hosts(tmp_path):
    # Takes some seconds, but nothing else finds links to a renamed heading.
    done = subprocess.run(
        # Not --quiet: it drops the warnings before --strict counts them.
        [Path(sys.executable).parent / "mkdocs", "build", "--strict", "--site-dir", tmp_path],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path.name: path.read_text() for path in tmp_path.glob("*.html")}
    assert not {name: found for name, page in pages.items() if (found := LOADED.findall(page))}
    for cls in error_classes():
        assert f'href="errors/{cls.__name__}.html"' in pages["errors.html"]
        assert cls.code in (tmp_path / "errors" / f"{cls.__name__}.html").read_text()
    assert "merge" in pages["reference-python.html"]
    assert "/v1/tables/{table}/commits" in pages["reference-http.html"]
    assert '<a href="errors/CommitOutcomeUnknown.html" class="md-nav__link">' in pages["errors.html"]
    if CHROMIUM is not None:
        assert "vacuum.html" in results_from_disk(tmp_path / "index.html", "quarantine")


def results_from_disk(page, query):
    """Return the names of the pages that the search of a page opened as a file shows."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page()
        tab.goto(page.as_uri())
        tab.fill("input[name=query]", query)
        tab.wait_for_selector(".md-search-result__link", state="attached")
        links = tab.locator(".md-search-result__link").evaluate_all("all => all.map(each => each.href)")
        browser.close()
    return {Path(link.partition("#")[0]).name for link in links}


def test_a_page_missing_from_the_navigation_comes_last(tmp_path):
    loaded = mkdocs.config.load_config(str(ROOT / "mkdocs.yml"))
    named = re.findall(r"[\w-]+\.md", str(loaded.nav))
    assert len(named) == len(set(named))
    (tmp_path / "new-page.md").write_text("# New")
    loaded.docs_dir = str(tmp_path)

    loaded.plugins.on_config(loaded)

    assert loaded.nav[-1] == {"More": ["new-page.md"]}
