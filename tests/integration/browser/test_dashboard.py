"""The dashboard in a real Chromium: it works by keyboard and on a phone, and runs only its own scripts."""

import json
import os
import shutil
import socket
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import httpx
import pytest
import uvicorn

from delvec_contract.health import HealthSample
from delvec_service.app import create_app
from delvec_service.config import Settings
from delvec_service.store.database import Database
from delvec_service.store.models import HealthSampleRow, TableRow

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None and "chromium" not in os.environ.get("DELVEC_REQUIRE", ""):
    pytest.skip("Chromium is not installed", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives Chromium")

pytestmark = pytest.mark.full(
    "a page in a browser takes seconds; tests of the dashboard read the same pages over HTTP"
)

# httpx gives up after five seconds, which is too soon on a busy machine.
get, post = partial(httpx.get, timeout=60), partial(httpx.post, timeout=60)

HOSTILE = "<script>alert`1`</script>"
FOLDER_SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": HOSTILE, "type": "string", "nullable": True, "metadata": {"comment": f"'\"{HOSTILE}"}},
    ],
}


@contextmanager
def serving(page, folder, **settings):
    """Yield the address of a service, which ends when the page has left it: pages poll."""
    app = create_app(Settings(database_url=f"sqlite:///{folder / 'store.db'}", **settings))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()  # connections made before the service is ready wait
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            page.goto("about:blank")
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
    """Yield a page; errors, dialogs and requests to other hosts fail the test."""
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
def address(page, tmp_path):
    with serving(page, tmp_path) as address:
        for name in ("people", "orders", "events"):
            body = {"location": str(tmp_path / name), "name": name, "schema": FOLDER_SCHEMA}
            post(f"{address}/v1/tables", json=body).raise_for_status()
            url = f"{address}/v1/tables/{name}"
            get(f"{url}/health").raise_for_status()
            change = {"change": "add-columns", "columns": [{"column": "more", "type": "long"}]}
            body = {"operation": HOSTILE, "read-version": 0, "table-changes": [change]}
            post(f"{url}/commits", json=body).raise_for_status()
            get(f"{url}/health").raise_for_status()
        yield address


@pytest.mark.gate
def test_search_filters_the_list_while_typing(page, address):
    page.goto(f"{address}/dashboard/tables")
    page.keyboard.press("/")
    page.keyboard.type("peo")

    playwright.expect(page.locator("#tables tbody tr")).to_have_count(1)
    assert page.locator("#tables").inner_text().count("people") == 1
    assert "search=peo" in page.url
    assert page.input_value("#search") == "peo"
    page.go_back()
    playwright.expect(page.locator("#tables tbody tr")).to_have_count(3)


@pytest.mark.gate
def test_hostile_text_is_shown_and_never_run(page, address):
    for tab in ("schema", "history"):
        page.goto(f"{address}/dashboard/tables/people/{tab}")
        assert HOSTILE in page.locator(f"#{tab}").inner_text()
    page.goto(f"{address}/dashboard/tables/people/trends")
    page.wait_for_selector(".chart canvas")  # plots are drawn under the content security policy
    assert page.locator(".chart canvas").count() == 6


@pytest.mark.gate
def test_a_task_is_run_without_leaving_the_page(page, address):
    page.goto(f"{address}/dashboard/tables/people/maintenance")
    page.select_option("#action", "checkpoint")
    page.locator("form.run button").focus()
    page.keyboard.press("Enter")

    page.wait_for_selector("#result .result")
    assert "was written" in page.locator("#result").inner_text()
    assert page.url == f"{address}/dashboard/tables/people/maintenance"


@pytest.mark.gate
def test_sign_in_by_keyboard(page, tmp_path):
    with serving(page, tmp_path, token="secret") as address:
        page.goto(address)
        assert page.url.endswith("/dashboard/sign-in")
        page.keyboard.type("secret")  # the field is focused
        page.keyboard.press("Enter")
        page.wait_for_url(f"{address}/")
        assert page.evaluate("document.cookie") == ""  # no script can read the token
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url("**/dashboard/sign-in")


def test_a_tasks_result_is_visible_and_the_task_is_listed(page, address):
    page.goto(f"{address}/dashboard/tables/people/maintenance")
    page.select_option("#action", "optimize-dry-run")
    page.locator("form.run button").click()

    page.wait_for_selector("#result .result")
    assert "No file is worth rewriting" in page.locator("#result").inner_text()
    assert page.evaluate("document.activeElement.id") == "result"  # announced by screen readers
    page.wait_for_selector("#tasks .task.done")
    assert "OPTIMIZE, dry run done at" in page.locator("#tasks").inner_text()


def test_a_long_task_is_shown_as_running(page, address, monkeypatch):
    began, go_on = threading.Event(), threading.Event()

    def slow(*_arguments, **_options):
        began.set()
        assert go_on.wait(30)
        return None, None

    monkeypatch.setattr("delvec_service.maintenance.log_maintenance.LogMaintenance.checkpoint", slow)
    page.goto(f"{address}/dashboard/tables/people/maintenance")
    page.select_option("#action", "checkpoint")
    page.locator("form.run button").click()
    assert began.wait(30)

    playwright.expect(page.locator("form.run button")).to_be_disabled()  # a second click has no effect
    page.wait_for_selector("#tasks .task.running progress")
    playwright.expect(page.locator("#busy")).to_contain_text("Running, 2 s")
    other = page.context.browser.new_page()
    other.goto(f"{address}/dashboard/tables/people/maintenance")
    assert "CHECKPOINT running since" in other.locator("#tasks").inner_text()
    go_on.set()
    page.wait_for_selector("#result .result")
    other.wait_for_selector("#tasks :not(.running).task")  # the page polls by itself
    other.close()
    playwright.expect(page.locator("form.run button")).to_be_enabled()


def test_the_page_previews_policies(page, address):
    content = {"version": "2025-02-03", "enable": True, "config": {"min_commits": 1}}
    policy = {"name": "points", "type": "system.checkpoint", "content": content}
    post(f"{address}/v1/policies", json=policy).raise_for_status()
    page.goto(f"{address}/dashboard/tables/people/maintenance")
    page.get_by_role("link", name="What would run now, and why").focus()
    page.keyboard.press("Enter")

    page.wait_for_selector("#plan table")
    assert "would run" in page.locator("#plan").inner_text()
    assert page.url == f"{address}/dashboard/tables/people/maintenance"


def test_a_commit_is_undone_by_keyboard_after_confirmation(page, address):
    page.goto(f"{address}/dashboard/tables/people/history")
    page.locator("#history summary").first.focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Undo this commit").first.press("Enter")

    page.wait_for_selector(".confirm")
    assert "RESTORE to version 0?" in page.locator(".confirm").inner_text()
    page.get_by_role("button", name="RESTORE to version 0").press("Enter")
    page.wait_for_selector(".result:not(.confirm)")
    playwright.expect(page.locator("#history li").first).to_contain_text("RESTORE")  # the new state
    history = get(f"{address}/v1/tables/people/history").json()["history"]
    assert [one["operation"] for one in history[:1]] == ["RESTORE"]


def test_files_in_quarantine_are_put_back_by_keyboard(page, address, tmp_path):
    left = tmp_path / "people" / "left-over.parquet"
    left.write_bytes(b"orphaned")
    os.utime(left, (1, 1))
    post(f"{address}/v1/tables/people/vacuum", json={"quarantine": True}).raise_for_status()
    name = f"sales.{'long_' * 12}name"
    post(f"{address}/v1/tables/people/rename", json={"name": name}).raise_for_status()
    page.set_viewport_size({"width": 400, "height": 740})
    page.goto(f"{address}/dashboard/maintenance")
    page.get_by_role("link", name="Quarantines of all tables").press("Enter")
    page.get_by_role("button", name="Delete permanently").press("Enter")
    playwright.expect(page.locator(".confirm h2")).to_have_text(f"{name}: Delete the quarantine?")
    assert page.evaluate("document.documentElement.scrollWidth") == 400  # pixels: long names break
    page.get_by_role("link", name="Cancel").press("Enter")
    page.wait_for_selector("#result:empty", state="attached")
    assert page.url == f"{address}/dashboard/quarantines"
    page.get_by_role("button", name="Put files back").press("Enter")

    page.wait_for_selector("#result .result")
    assert "1 file with 8 B was put back." in page.locator("#result").inner_text()
    playwright.expect(page.locator("#state")).to_contain_text("No files are in quarantine")  # the new state
    assert page.evaluate("document.activeElement.id") == "result"
    assert left.exists()


def test_a_token_is_created_and_revoked_by_keyboard(page, tmp_path):
    with serving(page, tmp_path, token="root") as address:
        sign_in(page, address, "root")
        page.goto(f"{address}/dashboard/access")
        page.locator("summary", has_text="Create a token").press("Enter")
        page.get_by_label("Name", exact=True).focus()
        page.keyboard.type("etl")
        page.keyboard.press("Enter")
        secret = page.locator(".secret").inner_text()
        assert get(f"{address}/v1/access", headers={"Authorization": f"Bearer {secret}"}).is_success
        assert sound(page) == []
        page.get_by_role("button", name="Revoke").press("Enter")
        assert "Revoke token etl?" in page.locator("h1").inner_text()
        assert sound(page) == []
        page.get_by_role("button", name="Revoke").press("Enter")
        assert "Token etl was revoked." in page.locator("main").inner_text()
        assert secret not in page.content()
        for width in (1280, 400):
            page.set_viewport_size({"width": width, "height": 900})
            page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert sound(page) == []


def sign_in(page, address, token):
    page.goto(address)
    page.keyboard.type(token)  # the field is focused
    page.keyboard.press("Enter")
    page.wait_for_url(f"{address}/")


def sound(page):
    """Return what axe-core finds wrong with a page."""
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    page.evaluate(axe_source())
    return page.evaluate(
        "axe.run().then(found => found.violations.map(one => [one.id, one.nodes.map(node => node.html)]))"
    )


def test_deleting_asks_first_and_can_be_cancelled(page, address, tmp_path):
    left = tmp_path / "people" / "left-over.parquet"
    left.write_bytes(b"orphaned")
    os.utime(left, (1, 1))
    page.goto(f"{address}/dashboard/tables/people/maintenance")
    page.select_option("#action", "vacuum")
    page.locator("form.run button").click()
    page.wait_for_selector("#result .confirm")
    page.get_by_role("link", name="Cancel").click()
    page.wait_for_selector("#result:empty", state="attached")
    operations = [one["operation"] for one in get(f"{address}/v1/tables/people/history").json()["history"]]
    assert not [one for one in operations if one.startswith("VACUUM")]


def test_sizes_are_plotted_in_units_of_1024(page, address):
    page.goto(f"{address}/dashboard/tables/people/trends")
    page.wait_for_selector(".chart canvas")

    assert page.evaluate(
        "[POWERS[10], POWERS.length, POWERS.every(one => Number.isInteger(Math.log2(one)))]"
    ) == [
        1024,
        63,
        True,
    ]
    assert page.evaluate("[512, 1024, 1536, 2 ** 30].map(one => written(one, 'bytes'))") == [
        "512 B",
        "1 KiB",
        "1.5 KiB",
        "1 GiB",
    ]


TABLE = "/dashboard/tables/people"
PATHS = [
    "/",
    "/dashboard/tables",
    TABLE,
    *(f"{TABLE}/{tab}" for tab in ("files", "trends", "maintenance", "history", "conflicts", "schema")),
    *(f"/dashboard/{one}" for one in ("maintenance", "policies", "conflicts", "access", "audit", "sign-in")),
    "/dashboard/policies/new",
    "/dashboard/quarantines",
    "/dashboard/policies/new?type=system.data-compaction",
]
CONTRAST = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((one) => one / 255)
    .map((one) => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, i) => sum + one * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const found = rgb(getComputedStyle(one).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const poor = [];
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || !element.checkVisibility()) continue;
    const [one, two] = [light(rgb(getComputedStyle(element).color)), light(behind(element))];
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    if (ratio < 4.5) poor.push([element.outerHTML.slice(0, 80), ratio]);
  }
  return poor;
}"""


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_text_has_enough_contrast(page, address, scheme):
    page.emulate_media(color_scheme=scheme)
    for path in PATHS:
        page.goto(address + path)
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        assert page.evaluate(CONTRAST) == [], path


def test_axe_finds_nothing_wrong(page, address):
    for path in PATHS:
        page.goto(address + path)
        assert sound(page) == [], path


def axe_source():
    """Return axe-core's script, which a package for tests brings along."""
    package = pytest.importorskip("axe_playwright_python", reason="axe-core examines pages")
    return (Path(package.__file__).parent / "axe.min.js").read_text()


def add_tables(folder, count, **values):
    """Register tables, each with a sample."""
    database = Database(f"sqlite:///{folder / 'store.db'}")
    now = datetime.now(UTC)
    sample = dict.fromkeys(HealthSample.model_fields, 1) | {"metadata_id": "m", "sampled_at": now}
    with database.write() as session:
        for number in range(count):
            id_, name = f"{number:036}", f"{values.get('namespace', '')}t{number:04}"
            row = {"id": id_, "catalog": "", "name": name, "folder_name": name, "created_at": now}
            session.add(TableRow(location=f"file:///t/{number}", **row))
            sample |= {"score": number / 20, "actions": "OPTIMIZE", **values.get("sample", {})}
            session.add(HealthSampleRow(table_id=id_, **sample))
    database.close()


OVERLAPPING = """[...document.querySelectorAll('td, th, button, .button, h1, dd')]
    .filter(one => one.checkVisibility() && one.clientWidth && one.scrollWidth > one.clientWidth + 1)
    .map(one => one.outerHTML)"""


def test_columns_with_large_numbers_keep_apart(page, tmp_path):
    large = {"size_in_bytes": 888 << 40, "deleted_bytes": 888 << 30, "scan_debt_seconds": 8 * 86400.0}
    large |= {"num_files": 1234567, "small_files": 123456, "actions": "OPTIMIZE,DV COMPACTION,CHECKPOINT"}
    with serving(page, tmp_path):
        pass  # creates the database
    add_tables(tmp_path, 9, namespace="logistics.europe.", sample=large)
    with serving(page, tmp_path) as address:
        paths = ["/dashboard/tables", "/"]
        for width, more in ((400, ["/dashboard/maintenance", "/docs"]), (900, []), (940, []), (1280, [])):
            page.set_viewport_size({"width": width, "height": 900})
            for path in paths + more:
                page.goto(address + path)
                page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
                assert page.evaluate(OVERLAPPING) == [], (path, width)


def test_a_thousand_tables_and_none(page, tmp_path):
    with serving(page, tmp_path) as address:
        page.goto(address)
        assert "There are no registered tables" in page.locator("main").inner_text()
    add_tables(tmp_path, 1000)
    with serving(page, tmp_path) as address:
        page.goto(address)
        assert "1,000" in page.locator(".tiles").inner_text()
        page.get_by_role("link", name="Tables").click()
        rows = page.locator("#tables tbody tr")
        playwright.expect(rows).to_have_count(50)
        assert "1-50 of 1,000" in page.locator("#tables").inner_text()
        page.get_by_role("link", name="Next page").click()
        page.wait_for_url("**page-token=**")
        assert "t0050" in page.locator("#tables").inner_text()
        page.get_by_role("link", name="Previous page").click()
        page.wait_for_url(f"{address}/dashboard/tables?order-by=score")
        assert "1-50 of 1,000" in page.locator("#tables").inner_text()
        page.get_by_role("link", name="Deleted").click()  # columns are sortable
        page.wait_for_url("**order-by=deleted-ratio**")
        assert page.locator("th[aria-sort=descending]").inner_text() == "Deleted"
        page.keyboard.press("/")
        page.keyboard.type("t099")
        playwright.expect(rows).to_have_count(10)


def test_a_reader_sees_no_actions(page, tmp_path):
    with serving(page, tmp_path, token="root") as address:
        root = {"Authorization": "Bearer root"}
        for name in ("people", "salaries"):
            body = {"location": str(tmp_path / name), "name": name, "schema": FOLDER_SCHEMA}
            post(f"{address}/v1/tables", json=body, headers=root).raise_for_status()
        made = post(f"{address}/v1/tokens", json={"name": "eve"}, headers=root).json()
        grant = {"grantee": made["principal"], "role": "reader", "table": "people"}
        post(f"{address}/v1/grants", json=grant, headers=root).raise_for_status()
        sign_in(page, address, made["token"])
        page.get_by_role("link", name="Tables").click()
        page.wait_for_selector("#tables")
        assert page.locator("#tables tbody tr").count() == 1
        page.get_by_role("link", name="people").click()
        page.get_by_role("link", name="Maintenance").nth(1).click()
        page.wait_for_selector("#maintenance")
        assert page.locator("main form").count() == 0
        assert "role maintainer" in page.locator("#maintenance").inner_text()


@pytest.mark.parametrize("width", [360, 768, 1440])
def test_nothing_is_wider_than_the_window(page, address, width):
    page.set_viewport_size({"width": width, "height": 740})
    for path in PATHS:
        page.goto(address + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        # On a phone, tables of numbers become cards so that every column is visible.
        if width > 640:
            continue
        hidden = """[...document.querySelectorAll('.cards td, .cards th, .bar')]
            .filter(one => one.checkVisibility() && one.getBoundingClientRect().right > innerWidth).length"""
        assert page.evaluate(hidden) == 0


def test_dark_and_light_schemes(page, address):
    colours = {}
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        page.goto(address)
        colours[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")

    assert colours == {"dark": "rgb(19, 21, 24)", "light": "rgb(255, 255, 255)"}


def test_every_control_has_a_name(page, address):
    for path in PATHS:
        page.goto(address + path)
        bare = page.evaluate(
            """[...document.querySelectorAll('a, button, select, input:not([type=hidden])')]
            .filter(one => !(one.textContent.trim() || one.labels?.length || one.ariaLabel)).map(one => one.outerHTML)"""
        )
        assert bare == [], (path, json.dumps(bare))


def test_typing_a_pattern_chooses_the_tables_that_match(page, address):
    page.goto(f"{address}/dashboard/policies/new?type=system.vacuum")
    page.fill("#name", "clean")
    page.fill("input[name=pattern]", "sales.*")
    assert page.locator("input[name=scope]:checked").get_attribute("value") == "pattern"
    page.fill("#retention_hours", "168")
    page.get_by_role("button", name="Save").click()
    playwright.expect(page.get_by_role("status")).to_have_text(
        "Policy clean was saved, for names like sales.*."
    )
