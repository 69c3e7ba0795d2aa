"""Credentials that a catalog issues for a table on S3: when they are used, renewed and refused."""

import time

import pytest
from tests.support.foreign_catalog import TOKEN, error

from delvec_contract.unity_catalog import LoadedTable
from delvec_errors import CatalogUnavailable, CredentialVendingUnsupported, LocationNotAllowed
from delvec_service.catalog_client import unity_catalog
from delvec_service.catalog_client.catalog_table import CatalogTable
from delvec_service.catalog_client.staged_table import TableToCreate
from delvec_service.catalog_client.unity_catalog import RemoteName, UnityCatalog
from delvec_storage.table_credentials import credentials_of

LOCATION = "s3://lake/people"
NAME = RemoteName("main", "sales", "people")


def issued(key, *, prefix="s3a://lake/people/", operation="READ_WRITE", seconds=3600):
    return {
        "prefix": prefix,
        "operation": operation,
        "expiration-time-ms": int((time.time() + seconds) * 1000),
        "config": {
            "s3.access-key-id": key,
            "s3.secret-access-key": "secret",
            "s3.session-token": "session",
            "s3.endpoint": "http://evil.example.com",
        },
    }


@pytest.fixture
def table(server, theirs, monkeypatch):
    monkeypatch.setattr(unity_catalog, "_PAUSE_SECONDS", 0.001)
    theirs.location = LOCATION
    client = UnityCatalog("main", server.url, lambda: TOKEN)
    table = CatalogTable(client, NAME, LoadedTable.model_validate(theirs.answer()))
    yield table
    table.close()
    client.close()
    assert credentials_of(LOCATION) is None


def asked(server):
    return [path for _, path in server.requests if path.endswith("/credentials")]


def test_keys_are_used_below_the_location_and_renewed_before_they_expire(server, table):
    server.credentials = [issued("other", prefix="s3://lake/"), issued("first", seconds=200)]
    assert table.uses_credentials(has_others=True)
    provider = credentials_of(f"{LOCATION}/part-1.parquet")
    assert credentials_of("s3://lake/peoples") is None
    server.credentials = [issued("second")]
    keys = provider()
    assert (keys["access_key_id"], keys["token"]) == ("second", "session")
    assert provider()["access_key_id"] == "second"
    assert len(asked(server)) == 2
    assert "endpoint" not in provider.settings()
    assert "secret" not in repr(provider._current())
    server.credentials = []
    provider._issued = None
    with pytest.raises(CredentialVendingUnsupported):
        provider()


@pytest.mark.parametrize(
    "credentials",
    [
        [],
        [issued("x", prefix="s3://lake/peo")],
        [issued("x", prefix="s3://other/")],
        [issued("x", prefix="nonsense")],
    ],
)
def test_keys_for_other_places_are_not_used(server, table, credentials):
    server.credentials = credentials
    assert not table.uses_credentials(has_others=True)
    assert not table.uses_credentials(has_others=True)
    assert len(asked(server)) == 1  # not again for each request


def test_a_catalog_that_issues_none_does_not_matter_where_there_are_others(server, table):
    def refuse(_method, path, _body, act):
        return error(501, "NotImplementedException") if path.endswith("/credentials") else act()

    server.instead = refuse
    assert not table.uses_credentials(has_others=True)
    table._keys._ask_again = 0
    with pytest.raises(CatalogUnavailable, match="501"):
        table.uses_credentials(has_others=False)


def test_without_roots_and_credentials_a_bucket_is_not_opened(server, theirs, connected):
    theirs.location = LOCATION
    with pytest.raises(LocationNotAllowed, match="issues no credentials"):
        connected(roots=()).table("main.sales.people")


def test_keys_of_a_new_table_come_with_its_place_and_are_renewed_there(server, monkeypatch):
    monkeypatch.setattr(unity_catalog, "_PAUSE_SECONDS", 0.001)
    client = UnityCatalog("main", server.url, lambda: TOKEN)
    server.credentials = [issued("first", seconds=200)]
    server.more = {"location": LOCATION}
    new = TableToCreate(client, NAME, client.stage(RemoteName("main", "sales", "new")))

    assert new.uses_credentials(has_others=False)
    provider = credentials_of(f"{LOCATION}/_delta_log")
    assert asked(server) == []
    server.credentials = [issued("second")]
    assert provider()["access_key_id"] == "second"
    assert [path.split("/")[-3:] for path in asked(server)] == [
        ["staging-tables", new.table_id, "credentials"]
    ]
    new.close()
    client.close()
    assert credentials_of(LOCATION) is None
