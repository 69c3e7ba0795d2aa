"""The list of tables: order, pages, search."""

from datetime import UTC, datetime

from tests.support.html_pages import Page

from delvec_contract.health import HealthSample
from delvec_service.dashboard import paging
from delvec_service.store.models import HealthSampleRow, TableRow


def many(client, count):
    now = datetime.now(UTC)
    sample = dict.fromkeys(HealthSample.model_fields, 1)
    sample |= {"metadata_id": "m", "sampled_at": now, "actions": "OPTIMIZE"}
    with client.service.database.write() as session:
        for number in range(count):
            id_ = f"{number:036}"
            row = {"id": id_, "catalog": "", "name": f"t{number:05}", "folder_name": id_, "created_at": now}
            session.add(TableRow(location=f"file:///t/{number}", **row))
            session.add(HealthSampleRow(table_id=id_, **sample | {"score": number / 20}))


def test_without_tables_the_page_says_how_to_get_one(client):
    for path in ("/", "/dashboard/tables"):
        page = Page(client.get(path))
        page.assert_harmless()
        assert "There are no registered tables" in page.text


def test_of_a_thousand_tables_those_come_first_that_need_most(client):
    many(client, 1000)

    first = Page(client.get("/dashboard/tables"))
    first.assert_harmless()
    names = [found["href"] for found in first.all("a", **{"class": "table-name"})]
    assert names == [f"/dashboard/tables/{number:036}" for number in range(50)]
    assert "1-50 of 1,000" in first.text
    second = Page(client.get(first.all("a", rel="next")[0]["href"]))
    assert "t00050" in second.text
    assert "51-100 of 1,000" in second.text
    assert "t00049" not in second.text
    found = Page(client.get("/dashboard/tables", params={"search": "T0099"}))
    assert len(found.all("a", **{"class": "table-name"})) == 10
    assert "No table matches" in Page(client.get("/dashboard/tables", params={"search": "t0_9%"})).text
    assert (
        "t00999"
        in Page(client.get("/dashboard/tables", params={"order-by": "nonsense", "search": "00999"})).text
    )


def test_the_list_is_paged_both_ways(client):
    many(client, 160)
    address, seen = "/dashboard/tables?order-by=num-files&search=t", []
    while address:
        seen.append(page := Page(client.get(address)))
        following = page.all("a", rel="next")
        address = following[0]["href"] if following else None
    assert len(seen) == 4
    for before in reversed(seen[:-1]):
        page = Page(client.get(page.all("a", rel="prev")[0]["href"]))
        assert page.elements == before.elements
    assert not page.all("a", rel="prev")
    # Equal tables are in the order of their names.
    names = [found["href"] for each in seen for found in each.all("a", **{"class": "table-name"})]
    assert names == [f"/dashboard/tables/{number:036}" for number in range(160)]


def test_an_address_does_not_grow_with_every_page(client, monkeypatch):
    monkeypatch.setattr(paging, "_MAX_LENGTH", 200)
    many(client, 300)
    page = Page(client.get("/dashboard/tables"))
    while following := page.all("a", rel="next"):
        page = Page(client.get(following[0]["href"]))
        assert len(page.all("a", rel="prev")[0]["href"]) < 500
    while previous := page.all("a", rel="prev"):
        page = Page(client.get(previous[0]["href"]))
    assert "First page" in page.text  # the way back to the start, where the pages passed are not known
