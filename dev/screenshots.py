"""Take the screenshots in ``docs/images`` of a service with various tables, in a real Chromium.

``python dev/screenshots.py`` writes them; with a folder as argument, every page is written there instead, at three widths, dark and
light, for review. Needs Chromium on the path.
"""

import os
import random
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

import delvec
from delvec_service.app import create_app
from delvec_service.config import Settings

_IMAGES: Final = Path(__file__).parent.parent / "docs" / "images"
_NAMES: Final = (
    "web.sessions",
    "web.clicks",
    "sales.orders",
    "sales.returns",
    "crm.customers",
    "crm.consents",
    "hr.payroll",
)
_BUSY: Final = "sales.orders"
_COUNTRIES: Final = ("NZ", "FR", "DE", "JP", "BR", "KE")
_ROWS: Final = 4000
_PATIENCE_MS: Final = 300_000
_WIDTHS: Final = (1440, 768, 360)


@contextmanager
def _serving(folder: Path) -> Iterator[str]:
    settings = Settings(
        database_url=f"sqlite:///{folder / 'store.db'}", roots=(str(folder),), warehouse=str(folder)
    )
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        server = uvicorn.Server(uvicorn.Config(create_app(settings), log_config=None, ws="none"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def _rows(first: int, count: int, rng: random.Random) -> pa.Table:
    home = [{"city": rng.choice(("Lyon", "Nelson", "Kyoto")), "zip": str(number)} for number in range(count)]
    return pa.table(
        {
            "id": range(first, first + count),
            "country": rng.choices(_COUNTRIES, (8, 6, 4, 3, 2, 1), k=count),
            "amount": [round(rng.uniform(1, 500), 2) for _ in range(count)],
            "note": [rng.randbytes(12).hex() for _ in range(count)],
            "home": home,
        }
    )


def _fill(address: str) -> None:
    """Create tables with a history: appends, deletes, rebased commits and conflicts."""
    rng = random.Random(7)  # noqa: S311 - the same pictures each time
    with delvec.connect(address) as lake:
        for place, name in enumerate(_NAMES):
            table = lake.create_table(
                name,
                _rows(0, 1, rng).schema,
                partition_by=["country"],
                properties={"delta.enableDeletionVectors": "true"},
            )
            for number in range(max(1, 4 - place)):
                table.append(_rows(number * _ROWS, _ROWS, rng))
            if place < len(_NAMES) // 2:
                table.delete(f"id % {7 + place} = 0")
                table.update({"amount": "amount * 1.1"}, "id % 31 = 3")
        busy = lake.table(_BUSY)
        _race(busy)
        busy.optimize()
        busy.delete("id % 5 = 1")
        left = Path(busy.location.removeprefix("file://")) / "left-over.parquet"
        left.write_bytes(b"nobody's" * 4096)
        os.utime(left, (1, 1))
        busy.vacuum(quarantine=True)
        lake.maintenance.set_policy("compact", "system.data-compaction", {"min_files_saved": 4})
        lake.maintenance.set_policy("purge", "system.dv-purge", {"min_deleted_ratio": 0.1}, pattern="sales.*")
        lake.maintenance.set_policy("checkpoints", "system.checkpoint", {"min_commits": 5})
        lake.maintenance.run(["sales.returns"])
        for name in _NAMES:
            lake.table(name).health()


def _race(table: Any) -> None:
    """Delete and update rows of one file concurrently: some commits are rebased, some conflict on a row."""
    for number in range(3):
        paths = [url.rpartition(f"{table.location}/")[2] for url in table.files()]
        path, read = paths[number % len(paths)], table.version()
        late = table.transaction("UPDATE", read_version=read, predicate=f"id = {number}")
        late.delete_rows({path: [1]})
        late.mark_read(rows={path: [1]})
        with table.transaction("DELETE", read_version=read, predicate="id < 9") as first:
            first.delete_rows({path: [1, 2]})
        with suppress(delvec.ConcurrentModification):
            late.commit()
        with table.transaction("DELETE", read_version=read, predicate="id > 9") as other:
            other.delete_rows({path: list(range(10, 40))})


def _open(page: Page, url: str) -> None:
    page.goto(url)
    page.wait_for_timeout(400)  # for the plots
    # Hide the list of sections, which would cover parts, and the location, which depends on the machine.
    page.evaluate(
        """for (const one of document.querySelectorAll('.sections')) one.style.position = 'static';
        for (const one of document.querySelectorAll('.where')) one.textContent = 'file:///data/sales.db/orders';"""
    )


def _page(browser: Browser, **options: Any) -> Page:
    page = browser.new_page(**options)
    page.set_default_timeout(_PATIENCE_MS)
    return page


def _pictures(browser: Browser, address: str) -> None:
    """Write the screenshots for the documentation."""
    table = f"{address}/dashboard/tables/{_BUSY}"
    size = {"width": 1200, "height": 800}
    page = _page(browser, viewport=size, color_scheme="light")
    _open(page, address)
    page.screenshot(
        path=_IMAGES / "dashboard-tables.png", clip={"x": 0, "y": 0, "width": 1200, "height": 520}
    )
    _open(page, table)
    page.locator(".advice summary").first.click()
    page.set_viewport_size({"width": 1200, "height": 1250})
    page.screenshot(path=_IMAGES / "dashboard-table.png")
    page.get_by_role("link", name="What would run now").click()
    page.wait_for_selector("#plan table")
    page.select_option("#action", "purge-dry-run")
    page.locator("form.run button").click()
    page.wait_for_selector("#result .result")
    page.locator("#maintenance").screenshot(path=_IMAGES / "dashboard-maintenance.png")
    page.close()
    page = _page(browser, viewport=size, color_scheme="dark")
    _open(page, table)
    page.locator(".conflicts summary").first.click()
    page.locator("#commits").screenshot(path=_IMAGES / "dashboard-conflicts.png")
    page.close()
    page = _page(browser, viewport={"width": 360, "height": 740}, color_scheme="light")
    _open(page, table)
    page.screenshot(path=_IMAGES / "dashboard-phone.png")
    page.close()


def _audit(browser: Browser, address: str, folder: Path) -> None:
    """Write every page at each width, dark and light."""
    for width in _WIDTHS:
        for scheme in ("light", "dark"):
            page = _page(browser, viewport={"width": width, "height": 900}, color_scheme=scheme)
            for name, path in (("tables", "/"), ("table", f"/dashboard/tables/{_BUSY}")):
                _open(page, address + path)
                page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=True)
            page.close()


def main() -> None:
    """Write the screenshots, or all pages to a folder."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as given, _serving(Path(given)) as address:
        _fill(address)
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            if len(sys.argv) > 1:
                _audit(browser, address, Path(sys.argv[1]))
            else:
                _pictures(browser, address)
            browser.close()


if __name__ == "__main__":
    main()
