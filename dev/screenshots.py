"""Take the screenshots in ``docs/images`` of a service with various tables, in a real Chromium.

``python dev/screenshots.py`` writes them; with a folder as argument, every page is written there instead, at two widths, dark and
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
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

import delvec
from delvec_contract.health import HealthSample
from delvec_service.app import create_app
from delvec_service.config import Settings
from delvec_service.store.database import Database
from delvec_service.store.models import CommitIntervalRow, HealthSampleRow, TableRow

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
_WIDTHS: Final = (1280, 400)
_MADE_UP: Final = 1001
_NAMESPACES: Final = (
    "web",
    "sales",
    "crm",
    "hr",
    "finance",
    "logistics.eu",
    "logistics.us",
    "ml.features",
    "raw",
)
_NEEDS: Final = {"OPTIMIZE": 0.6, "PURGE": 0.8, "CHECKPOINT": 0.9, "CHECK": 0.998}
_TABLE: Final = f"/dashboard/tables/{_BUSY}"
_PAGES: Final = {
    "fleet": "/",
    "tables": "/dashboard/tables",
    "advice": _TABLE,
    **{
        tab: f"{_TABLE}/{tab}" for tab in ("files", "trends", "maintenance", "history", "conflicts", "schema")
    },
    **{
        f"all-{page}": f"/dashboard/{page}"
        for page in ("maintenance", "policies", "conflicts", "access", "audit", "sign-in")
    },
    "policy": "/dashboard/policies/compact",
    "policy-plan": "/dashboard/policies/purge/plan",
    "quarantines": "/dashboard/quarantines?namespace=sales",
}


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


def _fill_fleet(folder: Path) -> None:
    """Register tables whose samples are made up, so that there are as many as somebody on call has."""
    rng, now = random.Random(3), datetime.now(UTC)  # noqa: S311 - the same pictures each time
    hour = now.replace(minute=0, second=0, microsecond=0)
    database = Database(f"sqlite:///{folder / 'store.db'}")
    with database.write() as session:
        for number in range(_MADE_UP):
            id_, name = f"{number:036}", f"{rng.choice(_NAMESPACES)}.t_{number:04}"
            created = now - timedelta(days=60)
            row = {"id": id_, "catalog": "", "name": name, "folder_name": id_, "created_at": created}
            session.add(TableRow(location=f"file:///data/{number}", **row))
            size, need = rng.lognormvariate(22, 2.5), rng.random()
            actions = [one for one, least in _NEEDS.items() if need > least]
            for version in range(10):
                deleted = size * need**2 * version / 20
                sample: dict[str, Any] = dict.fromkeys(HealthSample.model_fields, 1)
                sample |= {
                    "version": version,
                    "sampled_at": now - timedelta(days=3 * (9 - version), hours=need),
                }
                sample |= {
                    "size_in_bytes": int(size),
                    "deleted_bytes": int(deleted),
                    "deleted_ratio": deleted / size,
                }
                sample |= {"num_files": int(size / 5e7) + 1, "small_files": int(30 * need)}
                sample |= {"num_physical_rows": int(size / 100), "num_deleted_rows": int(deleted / 100)}
                sample |= {"score": 100 - 60 * need**2 * version / 9, "actions": ",".join(actions)}
                sample |= {"gain_bytes": int(deleted), "cost_bytes": 3 * int(deleted)}
                sample |= {"scan_debt_seconds": deleted / 1e8 + need}
                session.add(HealthSampleRow(table_id=id_, metadata_id="m", **sample))
            for ago in range(24):
                counts = {"commits": rng.randrange(9), "rebased": 1, "rows_saved": 9}
                counts |= {"conflicts": int(rng.random() < 0.05)}  # noqa: PLR2004
                since = hour - timedelta(hours=ago)
                session.add(CommitIntervalRow(table_id=id_, since=since, seconds=3600, **counts))
    database.close()


def _open(page: Page, url: str) -> None:
    page.goto(url)
    page.wait_for_timeout(400)  # for the plots
    # Hide the location, which depends on the machine.
    page.evaluate(
        "for (const one of document.querySelectorAll('.where')) one.textContent = 'file:///data/sales.db/orders'"
    )


def _page(browser: Browser, width: int, height: int, scheme: Any) -> Page:
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.set_default_timeout(_PATIENCE_MS)
    return page


def _pictures(browser: Browser, address: str) -> None:
    """Write the screenshots for the documentation."""
    table = f"{address}/dashboard/tables/{_BUSY}"
    page = _page(browser, 1200, 800, "light")
    for name, path, height in (
        ("fleet", "/", 1000),
        ("tables", "/dashboard/tables", 560),
        ("policies", "/dashboard/policies/compact", 640),
    ):
        page.set_viewport_size({"width": 1200, "height": height})
        _open(page, address + path)
        page.screenshot(path=_IMAGES / f"dashboard-{name}.png")
    page.set_viewport_size({"width": 1200, "height": 680})
    _open(page, f"{address}/dashboard/tables/{_NAMES[0]}")
    page.screenshot(path=_IMAGES / "dashboard-table.png")
    page.set_viewport_size({"width": 1200, "height": 1050})
    _open(page, f"{table}/maintenance")
    page.get_by_role("link", name="What would run now").click()
    page.wait_for_selector("#plan table")
    page.select_option("#action", "purge-dry-run")
    page.locator("form.run button").click()
    page.wait_for_selector("#result .result")
    page.screenshot(path=_IMAGES / "dashboard-maintenance.png")
    page.close()
    page = _page(browser, 1200, 800, "dark")
    _open(page, f"{table}/conflicts")
    page.locator(".conflicts summary").first.click()
    page.screenshot(path=_IMAGES / "dashboard-conflicts.png")
    page.close()
    page = _page(browser, 400, 800, "light")
    _open(page, address)
    page.screenshot(path=_IMAGES / "dashboard-phone.png")
    page.close()


def _audit(browser: Browser, address: str, folder: Path) -> None:
    """Write every page at each width, dark and light."""
    for width in _WIDTHS:
        for scheme in ("light", "dark"):
            page = _page(browser, width, 900, scheme)
            for name, path in _PAGES.items():
                _open(page, address + path)
                page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=True)
            page.close()


def main() -> None:
    """Write the screenshots, or all pages to a folder."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as given, _serving(Path(given)) as address:
        _fill(address)
        _fill_fleet(Path(given))
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            if len(sys.argv) > 1:
                _audit(browser, address, Path(sys.argv[1]))
            else:
                _pictures(browser, address)
            browser.close()


if __name__ == "__main__":
    main()
