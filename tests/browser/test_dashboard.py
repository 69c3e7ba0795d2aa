"""The page in a real Chromium: it works, by keyboard and on a phone, and runs no script but its own."""

import json
import os
import shutil
import socket
import threading
from contextlib import contextmanager

import httpx
import pytest
import uvicorn

from delvec_service.app import create_app
from delvec_service.config import Settings

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None and "chromium" not in os.environ.get("DELVEC_REQUIRE", ""):
    pytest.skip("Chromium is not installed", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives Chromium")

HOSTILE = "<script>alert`1`</script>"
FOLDER_SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": HOSTILE, "type": "string", "nullable": True, "metadata": {"comment": f"'\"{HOSTILE}"}},
    ],
}


@contextmanager
def serving(folder, **settings):
    """Yield the address of a service."""
    app = create_app(Settings(database_url=f"sqlite:///{folder / 'store.db'}", **settings))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()  # whoever comes before the service waits
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def chromium():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium):
    """Yield a page; whatever it must not do fails the test."""
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    wrong, asked = [], set()
    page.on("dialog", lambda dialog: (wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("request", lambda request: asked.add(httpx.URL(request.url).host))
    yield page
    page.close()
    assert not wrong
    assert asked == {"127.0.0.1"}


@pytest.fixture
def address(tmp_path):
    with serving(tmp_path) as address:
        for name in ("people", "orders", "events"):
            body = {"location": str(tmp_path / name), "name": name, "schema": FOLDER_SCHEMA}
            httpx.post(f"{address}/v1/tables", json=body).raise_for_status()
            url = f"{address}/v1/tables/{name}"
            httpx.get(f"{url}/health").raise_for_status()
            change = {"change": "add-columns", "columns": [{"column": "more", "type": "long"}]}
            body = {"operation": HOSTILE, "read-version": 0, "table-changes": [change]}
            httpx.post(f"{url}/commits", json=body).raise_for_status()
            httpx.get(f"{url}/health").raise_for_status()
        yield address


def test_search_changes_the_list_as_one_types(page, address):
    page.goto(address)
    page.keyboard.press("/")
    page.keyboard.type("peo")

    playwright.expect(page.locator("#tables tbody tr")).to_have_count(1)
    assert page.locator("#tables").inner_text().count("people") == 1
    assert "search=peo" in page.url
    assert page.input_value("#search") == "peo"
    page.go_back()
    playwright.expect(page.locator("#tables tbody tr")).to_have_count(3)


def test_hostile_text_is_shown_and_never_run(page, address):
    page.goto(f"{address}/dashboard/tables/people")

    assert HOSTILE in page.locator("#schema").inner_text()
    assert HOSTILE in page.locator("#history").inner_text()
    page.wait_for_selector(".chart canvas")  # the plots are drawn under the policy
    assert page.locator(".chart canvas").count() == 5


def test_a_task_is_run_without_leaving_the_page(page, address):
    page.goto(f"{address}/dashboard/tables/people")
    page.select_option("#action", "checkpoint")
    page.locator("#maintenance form button").focus()
    page.keyboard.press("Enter")

    page.wait_for_selector("#result .result")
    assert "written" in page.locator("#result").inner_text()
    assert page.url == f"{address}/dashboard/tables/people"


def test_sign_in_by_keyboard(page, tmp_path):
    with serving(tmp_path, token="secret") as address:
        page.goto(address)
        assert page.url.endswith("/dashboard/sign-in")
        page.keyboard.type("secret")  # the field has the focus
        page.keyboard.press("Enter")
        page.wait_for_url(f"{address}/")
        assert page.evaluate("document.cookie") == ""  # no script reads the token
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url("**/dashboard/sign-in")


@pytest.mark.parametrize("path", ["/", "/dashboard/tables/people"])
def test_it_fits_a_phone(page, address, path):
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(address + path)

    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_dark_and_light(page, address):
    colours = {}
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        page.goto(address)
        colours[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")

    assert colours == {"dark": "rgb(22, 22, 22)", "light": "rgb(255, 255, 255)"}


def test_every_control_has_a_name(page, address):
    page.goto(f"{address}/dashboard/tables/people")

    bare = page.evaluate(
        """[...document.querySelectorAll('a, button, select, input:not([type=hidden])')]
        .filter(one => !(one.textContent.trim() || one.labels?.length)).map(one => one.outerHTML)"""
    )
    assert bare == [], json.dumps(bare)
