"""The list of tables: order, pages, search."""

from datetime import UTC, datetime

from tests.support.html_pages import Page

from delvec_contract import HealthSample
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
