"""The page of all tables."""

from datetime import UTC, datetime, timedelta

from tests.integration.service.api.test_fleet import add_table
from tests.support.html_pages import HOSTILE, Page


def shown(client):
    page = Page(client.get("/"))
    page.assert_harmless()
    return " ".join(page.text.split())


def test_the_fleet_at_a_glance(client):
    add_table(
        client, "sales.orders", (20, {"deleted_bytes": 10}), (5, {"deleted_bytes": 3 << 20}), conflicts=48
    )
    add_table(client, "people", (2, {"score": 60.0, "actions": "OPTIMIZE", "scan_debt_seconds": 120.0}))
    add_table(client, "quiet", days=3)

    text = shown(client)

    assert "Nothing is broken" in text
    assert "1 good 1 fair 1 unknown" in text
    assert "; 1 table without a sample" in text
    assert "of scan time, 3.0 MiB read and discardedof 2 of 3 tables" in text
    since = (datetime.now(UTC) - timedelta(hours=23)).strftime("%Y-%m-%d %H:00 UTC")
    assert f"on average, 48 since {since}" in text  # most of it is yesterday
    assert "No policy does this" in text
    assert "There is no policy yet" in text
    assert "No OPTIMIZE or PURGE is running" in text
    assert "(none)" in text  # tables without a namespace


def test_numbers_of_tables_without_a_sample_are_not_shown_as_zero(client):
    add_table(client, "quiet.one", days=3)
    add_table(client, "sales.orders", (1, {"size_in_bytes": 1 << 20}))

    text = shown(client)

    assert "quiet1 1 unknown ----" in text
    assert text.count("of 1 of 2 tables") == 3  # data, deleted rows, debt


def test_what_is_broken_comes_first(client):
    add_table(client, "sales.returns", (1, {"score": 0.0, "actions": "CHECK"}))

    text = shown(client)

    assert "Damaged sales.returns has errors in its log or files" in text
    assert "check of damage" in text
    assert "A person: nothing is rewritten" in text


def test_a_failed_run_is_told_with_its_error(filled):
    began = datetime.now(UTC) - timedelta(minutes=5)
    run = {
        "id": "r1",
        "type": "system.vacuum",
        "state": "failed",
        "reason": "3 files",
        "started-at": began.isoformat(),
        "ended-at": began.isoformat(),
        "error": HOSTILE,
    }
    filled.client.post(f"{filled.url}/maintenance-runs", json=run).raise_for_status()

    text = shown(filled.client)
    assert f"VACUUM of {filled.name} failed 5" in text
    assert f"ago: {HOSTILE}" in text
    page = Page(filled.client.get("/dashboard/maintenance", params={"state": "failed"}))
    page.assert_harmless()
    assert HOSTILE in page.text
    assert "No such run" in Page(filled.client.get("/dashboard/maintenance?state=done")).text
