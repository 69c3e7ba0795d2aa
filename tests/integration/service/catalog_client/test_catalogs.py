"""Names of other catalogs: listed, opened and kept apart from the service's own; and what a catalog may not name."""

import shutil

import pyarrow as pa
import pytest
from tests.support.catalog_client import ManagedTable
from tests.support.foreign_catalog import TOKEN, ForeignTable
from tests.support.in_process_service import running_service
from tests.support.served import served

import delvec
from delvec_errors import (
    BadRequest,
    CatalogUnavailable,
    LocationNotAllowed,
    PermissionDenied,
    TableNotFound,
    UnsupportedOperation,
)

ADMIN = "the-configured-token"


def names(lake, *namespace):
    return [each.name for each in lake.tables(*namespace)]


@pytest.fixture
def three(server, tmp_path):
    server.tables["main.sales.orders"] = ForeignTable(tmp_path / "lake" / "orders")
    server.tables["main.hr.staff"] = ForeignTable(tmp_path / "lake" / "staff")
    return server


def test_tables_are_listed_after_the_services_own(three, lake):
    assert names(lake) == ["main.hr.staff", "main.sales.orders", "main.sales.people"]
    assert names(lake, "main.sales") == ["main.sales.orders", "main.sales.people"]
    assert names(lake, "main") == ["main.hr.staff", "main.sales.orders", "main.sales.people"]
    assert names(lake, "other") == []


def test_tables_that_the_catalog_does_not_manage_are_not_opened(three, lake):
    three.tables["main.sales.orders"].properties.clear()
    answer = three.tables["main.sales.orders"].answer
    three.tables["main.sales.orders"].answer = lambda: {
        **answer(),
        "metadata": {**answer()["metadata"], "properties": {}},
    }
    assert "main.sales.orders" not in names(lake)
    with pytest.raises(UnsupportedOperation, match="register its location"):
        lake.table("main.sales.orders")


def test_names_of_a_catalog_are_not_given_here(theirs, people, lake, tmp_path):
    for name in ("main.sales.new", "main.x"):
        with pytest.raises(UnsupportedOperation, match="are those of the catalog"):
            lake.create_table(tmp_path / "lake" / "new", pa.schema([("id", pa.int64())]), name=name)
    with pytest.raises(UnsupportedOperation, match="are those of the catalog"):
        lake.rename("main.sales.people", "people")
    for name in ("main.sales.none", "main.sales", "main.a.b.c"):
        with pytest.raises(TableNotFound):
            lake.table(name)


def test_a_renamed_table_keeps_its_id(server, theirs, people, lake):
    theirs.append([1])
    server.tables["main.sales.persons"] = server.tables.pop("main.sales.people")
    renamed = lake.table("main.sales.persons")
    assert renamed.id == people.id
    assert renamed.count() == 1
    with pytest.raises(TableNotFound):
        lake.table("main.sales.people")


# --- what a catalog may not name ------------------------------------------------------------------------


def test_a_location_outside_the_roots_is_refused(server, connected, tmp_path):
    server.tables["main.sales.secret"] = ForeignTable(tmp_path / "elsewhere" / "secret")
    with pytest.raises(LocationNotAllowed, match="roots"):
        connected().table("main.sales.secret")


def test_without_roots_a_catalog_opens_no_local_place(theirs, connected):
    with pytest.raises(LocationNotAllowed, match="issues no credentials"):
        connected(roots=()).table("main.sales.people")


@pytest.mark.parametrize("place", ["own", "own/inside", "own/_delta_log/x", ""])
def test_the_place_of_another_table_is_refused(server, lake, tmp_path, place):
    lake.create_table(tmp_path / "lake" / "own", pa.schema([("id", pa.int64())]))
    theirs = server.tables["main.sales.people"]
    theirs.location = f"file://{tmp_path}/lake/{place}"
    with pytest.raises(LocationNotAllowed):
        lake.table("main.sales.people")


@pytest.mark.parametrize(
    "location", ["relative", "ftp://host/x", "file:///../../etc", "s3://b/%2F..", "", "s3://"]
)
def test_a_location_that_is_none_is_refused(server, lake, location):
    server.tables["main.sales.people"].location = location
    with pytest.raises(delvec.DelvecError):
        lake.table("main.sales.people")


def test_a_copy_of_a_table_is_not_the_table(server, lake, tmp_path):
    theirs = server.tables["main.sales.people"]
    other = ForeignTable(tmp_path / "lake" / "other")
    shutil.copytree(theirs.log, other.log, dirs_exist_ok=True)
    server.tables["main.sales.other"] = other
    with pytest.raises(delvec.UnsupportedReaderFeature):
        lake.table("main.sales.other").to_arrow()


def test_a_wrong_token_or_url_is_reported(server):
    def refuse(*_):
        return 401, {"error": {"type": "NotAuthorizedException", "message": "who are you"}}

    server.instead = refuse
    with pytest.raises(PermissionDenied, match="who are you"):
        delvec.connect(catalog=server.url, token=TOKEN)
    server.instead = lambda *_: (200, b"<html>")
    with pytest.raises(CatalogUnavailable, match="Check its URL"):
        delvec.connect(catalog=server.url, token=TOKEN)
    for url in ("http://uc.example.com", "https://me:pw@uc.example.com", "ftp://x", "https://"):
        with pytest.raises(BadRequest):
            delvec.connect(catalog=url, token=TOKEN)
    with pytest.raises(BadRequest, match="catalog applies only"):
        delvec.connect("http://localhost:8710", catalog=server.url)


# --- a service, and Delvec as the catalog ---------------------------------------------------------------


def test_a_service_uses_a_catalog_with_its_own_token_and_its_own_roles(server, theirs, tmp_path):
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    catalogs = {"uc": {"url": f"{server.url}/", "token_file": str(token), "catalog": "main"}}
    with running_service(roots=[str(tmp_path / "lake")], token=ADMIN, catalogs=catalogs) as client:
        client.headers["Authorization"] = f"Bearer {ADMIN}"
        theirs.append([1, 2])
        deleted = client.post("/v1/tables/uc.sales.people/delete", json={"predicate": "id = 2"})
        assert deleted.status_code == 200, deleted.text
        assert theirs.published() == [0, 1, 2]
        listed = client.get("/v1/tables").json()["tables"]
        assert [each["name"] for each in listed] == ["uc.sales.people"]
        assert client.get(f"/v1/tables/{listed[0]['id']}").json()["name"] == "uc.sales.people"
        reader = client.post("/v1/tokens", json={"name": "reader"}).json()["token"]
        theirs_only = {"Authorization": f"Bearer {reader}"}
        url = "/v1/tables/uc.sales.people"
        assert client.get(url, headers=theirs_only).status_code == 404
        grant = {"grantee": "reader", "role": "reader", "namespace": "uc.sales"}
        assert client.post("/v1/grants", json=grant).status_code == 200
        assert client.get(url, headers=theirs_only).status_code == 200
        assert (
            client.post(f"{url}/delete", json={"predicate": "true"}, headers=theirs_only).status_code == 403
        )
        # What the service serves as a catalog are its own tables.
        ours = "/api/2.1/unity-catalog"
        assert (
            client.get(f"{ours}/delta/v1/catalogs/delvec/schemas/uc.sales/tables/people").status_code == 404
        )
        assert client.get(f"{ours}/schemas?catalog_name=delvec").json()["schemas"][0]["name"] == "default"
        token.unlink()
        assert client.get(url).status_code == 403
    text = str(client.service.settings)
    assert TOKEN not in text


def test_delvec_is_the_catalog_of_another_delvec(tmp_path):
    (tmp_path / "served").mkdir()
    import httpx

    with (
        served(tmp_path / "served", ADMIN) as url,
        httpx.Client(base_url=url, headers={"Authorization": f"Bearer {ADMIN}"}) as http,
    ):
        table = ManagedTable(http, "people").create()
        table.commit([table.file([1, 2, 3])])
        database = f"sqlite:///{tmp_path / 'client.db'}"
        options = {"database_url": database, "roots": [tmp_path / "served"]}
        with delvec.connect(catalog=url, token=ADMIN, **options) as lake:
            assert names(lake) == ["delvec.sales.people"]
            people = lake.table("delvec.sales.people")
            people.delete("id = 2")
            table.commit([table.file([4])])
            people.append(pa.table({"id": [5]}))
            people.alter.add_columns("name string")
            made = lake.create_table(
                "delvec.sales.made", "id long, day string", partition_by=["day"], description="of days"
            )
            made.append(pa.table({"id": [1, 2], "day": ["mon", "tue"]}))
            lake.create_table("delvec.sales.gone", "id long")
            lake.drop("delvec.sales.gone")
            assert sorted(people.to_arrow()["id"].to_pylist()) == [1, 3, 4, 5]
        assert table.version() == 5
        with delvec.connect(url, token=ADMIN) as service:
            assert sorted(service.table("sales.people").to_arrow()["id"].to_pylist()) == [1, 3, 4, 5]
            assert [each.name for each in service.tables()] == ["sales.made", "sales.people"]
            made = service.table("sales.made")
            made.delete("id = 1")
            assert made.to_arrow().to_pylist() == [{"id": 2, "day": "tue"}]
            assert made.detail()["description"] == "of days"
            assert [each.name for each in service.dropped_tables()] == ["sales.gone"]
