"""Maintenance and conflicts of all tables."""

from tests.integration.service.api.test_fleet import conflict
from tests.integration.service.dashboard.test_table_actions import REPORT
from tests.support.html_pages import HOSTILE, Page


def test_what_runs_is_shown_with_its_progress(filled):
    filled.client.post(f"{filled.url}/maintenance-tasks", json=REPORT).raise_for_status()

    for path in ("/", "/dashboard/maintenance", "/dashboard/running"):
        page = Page(filled.client.get(path))
        text = " ".join(page.text.split())
        assert f"REORG of {filled.name} on <script>" in text
        assert "1.0 KiB of 4.0 KiB, 1 of 4 files" in text
        assert [one["value"] for one in page.all("progress")] == ["1024"]


def test_conflicts_of_all_tables(filled, bitmap):
    assert "No conflict is recorded" in Page(filled.client.get("/dashboard/conflicts")).text
    conflict(filled, bitmap)

    page = Page(filled.client.get("/dashboard/conflicts"))

    page.assert_harmless()
    text = " ".join(page.text.split())
    assert "1 of 3 commits conflicted since" in text
    assert f"{filled.name}: UPDATE, which had read version 1, lost to UPDATE of version 2" in text
    assert HOSTILE not in text
