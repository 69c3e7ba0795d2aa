"""Requests to another catalog: bounded, without redirects, and with the token for its own host only."""

import pytest
from tests.support.foreign_catalog import TOKEN, foreign_catalog

from delvec_errors import CatalogUnavailable, PermissionDenied, TableNotFound
from delvec_service.catalog_client import unity_catalog
from delvec_service.catalog_client.unity_catalog import RemoteName, UnityCatalog

PEOPLE = RemoteName("main", "sales", "people")


@pytest.fixture
def client(server, monkeypatch):
    monkeypatch.setattr(unity_catalog, "_PAUSE_SECONDS", 0.001)
    client = UnityCatalog("uc", f"{server.url}/api/2.1/unity-catalog/", lambda: TOKEN)
    yield client
    client.close()


def test_a_table_is_loaded_whatever_the_spelling_of_keys(server, theirs, client):
    assert client.load(PEOPLE).metadata.table_uuid == theirs.uuid
    answer = theirs.answer()
    metadata = {key.replace("-", "_"): value for key, value in answer["metadata"].items()}
    server.instead = lambda *_: (
        200,
        {"metadata": metadata, "latest_table_version": 3, "commits": None, "new": 1},
    )
    loaded = client.load(PEOPLE)
    assert (loaded.metadata.table_uuid, loaded.latest_table_version) == (theirs.uuid, 3)


def test_names_are_encoded(server, client):
    with pytest.raises(TableNotFound):
        client.load(RemoteName("main", "sales", "../../x?a=b#c"))
    assert server.requests[-1][1].endswith("/schemas/sales/tables/..%2F..%2Fx%3Fa%3Db%23c")


def test_a_redirect_is_not_followed(server, client):
    with foreign_catalog() as (other, url):
        server.instead = lambda *_: (302, b"", ("Location", f"{url}/elsewhere"))
        with pytest.raises(CatalogUnavailable, match="302"):
            client.load(PEOPLE)
        assert other.requests == []


def test_an_answer_is_bounded(server, client, monkeypatch):
    monkeypatch.setattr(unity_catalog, "_LONGEST", 1000)
    server.instead = lambda *_: (200, b"x" * 2000)
    with pytest.raises(CatalogUnavailable, match="more than 1000 bytes"):
        client.load(PEOPLE)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b"null", b"[" * 100_000, b'{"metadata": []}', b"\xff\xfe"]
)
def test_an_answer_that_is_none_is_refused(server, client, body):
    server.instead = lambda *_: (200, body)
    with pytest.raises(CatalogUnavailable, match="not one of the Unity Catalog Delta API"):
        client.load(PEOPLE)


def test_what_passes_is_asked_again(server, client):
    answers = [(503, b""), (429, b""), None]
    server.instead = lambda *request: answers.pop(0) if len(answers) > 1 else request[-1]()
    assert client.load(PEOPLE).latest_table_version == 0
    server.instead = lambda *_: (500, {"error": {"type": "Internal", "message": "a\nb" + "x" * 10_000}})
    with pytest.raises(CatalogUnavailable) as caught:
        client.load(PEOPLE)
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 1000
    assert TOKEN not in caught.value.message


def test_a_refusal_is_not_asked_again(server, client):
    server.instead = lambda *_: (403, b"")
    with pytest.raises(PermissionDenied):
        client.load(PEOPLE)
    assert len(server.requests) == 1


def test_pages_that_never_end_end(server, client, monkeypatch):
    monkeypatch.setattr(unity_catalog, "_MAX_PAGES", 5)
    pages = iter(range(100))
    server.instead = lambda *_: (200, {"schemas": [{"name": "a"}], "next_page_token": str(next(pages))})
    assert client.schemas("main") == ["a"] * 5
