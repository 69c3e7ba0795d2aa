"""Quarantines of all tables: what they hold, and undo."""

import os

import pytest
from tests.support.html_pages import Page, confirmed, create, csrf, run

from delvec_service.dashboard import quarantines_page

AT = "/dashboard/quarantines"


@pytest.fixture
def held(filled):
    """A table with a file of 6 bytes in quarantine."""
    quarantine(filled)
    return filled


def quarantine(table):
    left = table.folder / "orphan.parquet"
    left.write_bytes(b"nobody")
    os.utime(left, (1, 1))
    assert "moved into quarantine" in run(table, "vacuum-quarantine").text


def shown(answer):
    page = Page(answer)
    page.assert_harmless()
    return page, " ".join(page.text.split())


def test_the_page_says_what_is_held_and_links_to_the_table(held, tmp_path):
    create(held.client, tmp_path, "empty")

    page, text = shown(held.client.get(AT))

    assert "1 file with 6 B in 1 quarantine of 2 tables" in text
    (link,) = page.all("a", **{"class": "table-name"})
    assert Page(held.client.get(f"{link['href']}/maintenance")).all("table", id="quarantines")
    assert "Quarantines of all tables" in Page(held.client.get("/dashboard/maintenance")).text


def test_files_are_put_back_from_the_page_of_all_tables(held):
    page, _ = shown(held.client.get(AT))
    name = page.all("input", name="quarantine")[0]["value"]
    form = {"csrf-token": csrf(held.client), "action": "undo-quarantine", "tab": "quarantines"}
    url = f"/dashboard/tables/{held.name}/run"

    answer = held.client.post(url, data=form | {"quarantine": name}, headers={"HX-Request": "true"})

    assert f"{held.name}: Put files back" in Page(answer).text
    assert "1 file with 6 B was put back." in Page(answer).text
    assert answer.headers["HX-Trigger"] == "table-changed"  # the list loads again
    assert (held.folder / "orphan.parquet").read_bytes() == b"nobody"
    assert "No files are in quarantine." in shown(held.client.get(AT))[1]


def test_deleting_asks_first_and_returns_to_the_page(held):
    name = shown(held.client.get(AT))[0].all("input", name="quarantine")[0]["value"]

    asked = run(held, "purge-quarantine", quarantine=name, tab="quarantines")

    assert f"{held.name}: Delete the quarantine?" in " ".join(asked.text.split())
    assert "1 file with 6 B will be deleted permanently." in asked.text
    assert asked.all("a", href=AT)
    assert list(held.folder.glob("_delvec/quarantined/*/orphan.parquet"))
    assert "1 file with 6 B was deleted" in run(held, **confirmed(asked), tab="quarantines").text
    assert not list(held.folder.glob("_delvec/quarantined/*/orphan.parquet"))


def test_tables_that_cannot_be_asked_are_named(held):
    (record,) = held.folder.glob("_delvec/quarantines/*.json")
    record.write_text("{")

    _, text = shown(held.client.get(AT))

    assert f"1 table did not answer: {held.name}" in text
    assert "No files are in quarantine" not in text


def test_a_page_ends_when_it_has_taken_long(client, tmp_path, monkeypatch):
    for number in range(3):
        create(client, tmp_path, f"t{number}")
    monkeypatch.setattr(quarantines_page, "_TABLES", "1")
    monkeypatch.setattr(quarantines_page, "_PATIENCE_SECONDS", -1.0)

    first, text = shown(client.get(AT))
    second = shown(client.get(first.all("a", rel="next")[0]["href"]))[0]
    third = shown(client.get(second.all("a", rel="next")[0]["href"]))[0]

    assert "of the 1 table on this page" in text
    assert not first.all("a", rel="prev")
    assert second.all("a", rel="prev")[0]["href"] == AT
    back = third.all("a", rel="prev")[0]["href"]
    assert shown(client.get(back))[0].elements == second.elements


def test_a_namespace(held):
    assert "in this namespace" in shown(held.client.get(AT, params={"namespace": "sales"}))[1]


def test_a_reader_sees_what_is_held_and_no_buttons(running, tmp_path, held):
    database = f"sqlite:///{tmp_path / 'store.db'}"
    root = {"Authorization": "Bearer root"}
    with running(database_url=database, token="root") as client:
        body = {"location": str(held.folder), "name": "people"}
        client.post("/v1/tables", json=body, headers=root).raise_for_status()
        made = client.post("/v1/tokens", json={"name": "eve"}, headers=root).json()
        assert client.get(AT).status_code == 303
        form = {"csrf-token": csrf(client), "token": made["token"]}
        client.post("/dashboard/sign-in", data=form)
        assert "No files are in quarantine" in shown(client.get(AT))[1]  # of no table that it may read
        grant = {"grantee": "eve", "role": "reader", "table": "people"}
        client.post("/v1/grants", json=grant, headers=root).raise_for_status()
        page, text = shown(client.get(AT))
        assert "1 file with 6 B" in text
        assert not page.all("input", name="quarantine")
