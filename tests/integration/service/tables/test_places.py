"""The threat model's tables in SECURITY.md, cell by cell; and the rule for places where they do not reach."""

import itertools
import json
import os
import re
import shutil
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.integration.service.conftest import SCHEMA
from tests.support.in_process_service import running_service

from delvec_errors import PermissionDenied
from delvec_service.credentials.vending import VendedCredentials
from delvec_service.store.registry import Registry

SECURITY = Path(__file__).parents[4] / "SECURITY.md"
ADMIN = {"Authorization": "Bearer root"}
HIDDEN = ("hr.people", "hr.db/people", "hr.db/loose", "sales.orders")
"""What answers to a principal without a role on these tables do not contain, unless its request does."""


def rows(name):
    """Return the rows of a table in SECURITY.md, by its comment."""
    text = SECURITY.read_text().partition(f"<!-- {name}")[2].partition("-->\n\n")[2].partition("\n\n")[0]
    header, _, *lines = [
        [cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines()
    ]
    return [dict(zip(header, line, strict=True)) for line in lines]


PRINCIPALS = {row["principal"]: row for row in rows("principals")}
PLACES = {row["place"]: re.findall(r"`([^`]+)`", row["paths"]) for row in rows("places")}
OPERATIONS = rows("operations")
TABLES = rows("tables")
SEES = {"admin": HIDDEN, "lead": ("sales.orders",), "writer": ("sales.orders",), "reader": ("sales.orders",)}


def test_the_tables_cover_every_principal_and_every_place():
    tried = defaultdict(set)
    for row in OPERATIONS:
        tried[row["operation"]].add(row["principal"])
        assert set(PLACES) == set(row) - {"operation", "principal"}
    for row in TABLES:
        tried[row["operation"]].add(row["principal"])
    assert set(map(frozenset, tried.values())) == {frozenset(PRINCIPALS)}
    assert {cell for row in (*OPERATIONS, *TABLES) for cell in list(row.values())[2:]} == {"yes", "no"}


class Vendor:
    """A store that issues credentials."""

    def vend(self, location, _operation, _principal):
        return VendedCredentials(datetime(2100, 1, 1, tzinfo=UTC), {"for": location})


class Lake:
    """A service with the principals of the threat model, and tables of two namespaces."""

    def __init__(self, base, client):
        self.base, self.root, self.client = base, base / "lake", client
        self.numbers = itertools.count()
        client.headers.update(ADMIN)
        client.service.credentials._vendors["file"] = Vendor()
        self.template = base / "template"
        deltalake.write_deltalake(str(self.template / "delta"), pa.table({"id": [1, 2, 3]}))
        (self.template / "parquet").mkdir()
        pq.write_table(pa.table({"id": [1, 2, 3]}), self.template / "parquet" / "a.parquet")
        for name in ("sales.orders", "sales.etl_own", "sales.etl_source", "hr.people"):
            self.create(name)
        for name in ("sales.db/loose", "sales.db/around_loose/inner", "hr.db/loose"):
            self.put("delta", self.root / name)
        self.put("delta", self.root / "sales.db" / "unnamed")
        self.register_unnamed()
        (self.root / "sales.db" / "link").symlink_to(self.root / "hr.db" / "people")
        (self.root / "iceberg").mkdir()
        self.share_a_place()
        done = client.post("/v1/tables/sales.etl_source/iceberg", json={})
        assert done.status_code == 200, done.text
        self.iceberg = done.json()["metadata-location"]
        self.headers = {name: self.principal(row) for name, row in PRINCIPALS.items()}
        self.keep()

    def create(self, name, **body):
        made = self.client.post("/v1/tables", json={"name": name, "schema": SCHEMA, **body}, headers=ADMIN)
        assert made.status_code == 201, made.text
        return made.json()

    def register_unnamed(self):
        body = {"location": str(self.root / "sales.db" / "unnamed")}
        made = self.client.post("/v1/tables", json=body, headers=ADMIN)
        assert made.status_code in (200, 201), made.text
        self.unnamed = made.json()["id"]

    def share_a_place(self):
        """Register two tables as a version without the rule did."""
        self.create("sales.around")
        inner = self.root / "sales.db" / "around" / "inner"
        self.put("delta", inner)
        self.client.service.tables._registry.add(f"file://{inner}", "sales.nested", "inner")

    def principal(self, row):
        made = self.client.post("/v1/tokens", json={"name": row["principal"]}, headers=ADMIN)
        assert made.status_code == 201, made.text
        scope, _, target = row["on"].partition(" ")
        if scope != "none":
            on = {"all-tables": True} if scope == "all" else {scope: target}
            body = {"grantee": row["principal"], "role": row["role"], **on}
            answer = self.client.post("/v1/grants", json=body, headers=ADMIN)
            assert answer.status_code == 200, answer.text
        return {"Authorization": f"Bearer {made.json()['token']}"}

    def put(self, kind, place):
        shutil.copytree(self.template / kind, place, dirs_exist_ok=True)

    def files(self):
        return {
            os.path.join(directory, name): os.lstat(os.path.join(directory, name)).st_mtime_ns  # noqa: PTH118
            for folder in (self.root, self.base / "outside")
            for directory, _, names in os.walk(folder)
            for name in names
        }

    def tables(self):
        found = self.client.get("/v1/tables", params={"page-size": 1000}, headers=ADMIN).json()["tables"]
        return {(table["id"], table["name"], table["location"]) for table in found}

    def ask(self, who, method, path, **body):
        body = {key.replace("_", "-"): value for key, value in body.items()}
        return self.client.request(method, path, json=body, headers=self.headers[who])

    def keep(self):
        """Remember what there is, for every cell to start from."""
        self.kept_tables, self.kept_files = self.tables(), self.files()
        self.folders = {directory for directory, _, _ in os.walk(self.root)}
        self.contents = {path: Path(path).read_bytes() for path in self.kept_files}

    def restore(self):
        """Take back what a cell registered and wrote."""
        for key in self.tables() - self.kept_tables:
            self.client.delete(f"/v1/tables/{key[0]}", headers=ADMIN)
        for path in set(self.files()) - set(self.kept_files):
            Path(path).unlink()
        for directory, _, _ in os.walk(self.root, topdown=False):
            if directory not in self.folders and not os.listdir(directory):  # noqa: PTH208
                Path(directory).rmdir()  # an empty _delta_log would make a table of what is around it
        for path in set(self.kept_files) - set(self.files()):
            Path(path).write_bytes(self.contents[path])
        if self.kept_tables - self.tables():
            self.register_unnamed()
        assert self.tables() == self.kept_tables


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    base = tmp_path_factory.mktemp("places")
    for folder in ("lake/sales.db", "lake/hr.db", "outside"):
        (base / folder).mkdir(parents=True)
    with running_service(
        token="root",
        roots=(str(base / "lake"),),
        database_url=f"sqlite:///{base / 'store.db'}",
        log_maintenance=False,
    ) as client:
        yield Lake(base, client)


def spelled(lake, pattern, new, number):
    """Return a place of SECURITY.md as a location, and its folder."""
    if "<link>" in pattern:
        target = lake.root / "hr.db" / f"target_{number}"
        target.mkdir()
        (lake.root / "sales.db" / new).symlink_to(target)
    for word, text in {"<new>": new, "<link>": new, "<n>": str(number)}.items():
        pattern = pattern.replace(word, text)
    location = os.path.normpath(lake.root / pattern)
    folder = Path(os.path.realpath(unquote(location)))
    return f"file://{location}" if "%" in location else location, folder


def tried(lake, who, operation, pattern):
    """Try an operation at a place; return the answer, the location, and whether nothing changed."""
    number = next(lake.numbers)
    new = f"etl_{number}"
    location, folder = spelled(lake, pattern, new, number)
    kind = {"register": "delta", "convert": "parquet"}.get(operation)
    if kind is not None and not (folder / "_delta_log").exists():
        lake.put(kind, folder)
    body = {"name": f"sales.{new}", "location": location}
    if operation == "iceberg":
        elsewhere = {"location": f"{lake.root}/iceberg/{new}"} if "<link>" in pattern else {}
        lake.create(f"sales.{new}", **elsewhere)
        change = {"change": "set-properties", "properties": {"delvec.iceberg.location": location}}
        # By an admin: a log that others wrote may have the property, too.
        altered = lake.client.post(f"/v1/tables/sales.{new}/alter", json={"changes": [change]}, headers=ADMIN)
        if altered.status_code >= 400:
            return altered, location, True
    before, tables = lake.files(), lake.tables() if operation == "iceberg" else lake.kept_tables
    path, body = {
        "create": ("/v1/tables", {**body, "schema": SCHEMA}),
        "register": ("/v1/tables", body),
        "convert": ("/v1/convert", body),
        "import": ("/v1/convert", {**body, "source_format": "iceberg", "source": lake.iceberg}),
        "clone": ("/v1/tables/sales.etl_source/clone", {**body, "shallow": False}),
        "iceberg": (f"/v1/tables/sales.{new}/iceberg", {}),
    }[operation]
    answer = lake.ask(who, "POST", path, **body)
    return answer, location, lake.files() == before and lake.tables() == tables


@pytest.mark.parametrize("row", OPERATIONS, ids=lambda row: f"{row['operation']}-{row['principal']}")
def test_an_operation_at_a_place_is_done_or_refused_as_the_threat_model_says(lake, row):
    who, wrong = row["principal"], {}
    for place, patterns in PLACES.items():
        for pattern in patterns:
            answer, location, is_unchanged = tried(lake, who, row["operation"], pattern)
            is_done = answer.status_code < 300
            if is_done != (row[place] == "yes") or answer.status_code >= 500:
                wrong[f"{place}: {pattern}"] = answer.status_code, answer.text
            elif not is_done:
                hidden = [name for name in HIDDEN if name not in SEES.get(who, ()) and name not in location]
                told = [name for name in hidden if name in answer.text]
                if told or not is_unchanged:
                    wrong[f"{place}: {pattern}"] = "tells, or writes", told, answer.text
            if is_done or row["operation"] in ("register", "convert", "iceberg"):
                lake.restore()
    assert wrong == {}


@pytest.mark.parametrize("row", TABLES, ids=lambda row: f"{row['operation']}-{row['principal']}")
def test_an_operation_on_a_table_is_done_or_refused_as_the_threat_model_says(lake, row):
    who, wrong = row["principal"], {}
    named = {"own": "sales.etl_own", "sibling": "sales.orders", "unnamed": lake.unnamed}
    named |= {"foreign": "hr.people", "nested": "sales.nested", "around": "sales.around"}
    for place, table in named.items():
        url = f"/v1/tables/{table}"
        match row["operation"]:
            case "rename":
                new = f"sales.etl_renamed_{next(lake.numbers)}"
                answer = lake.ask(who, "POST", f"{url}/rename", name=new)
                if answer.status_code == 200:
                    body = {"name": "sales.unnamed" if place == "unnamed" else table}
                    back = lake.client.post(f"/v1/tables/{new}/rename", json=body, headers=ADMIN)
                    assert back.status_code == 200, back.text
                    if place == "unnamed":
                        lake.client.delete(f"/v1/tables/{table}", headers=ADMIN)
                        lake.register_unnamed()
            case "read":
                answer = lake.ask(who, "POST", f"{url}/plan")
            case "credentials":
                answer = lake.ask(who, "GET", f"{url}/credentials")
            case "write-credentials":
                answer = lake.ask(who, "GET", f"{url}/credentials?operation=READ_WRITE")
            case "vacuum":
                answer = lake.ask(who, "POST", f"{url}/vacuum")
        if (answer.status_code < 300) != (row[place] == "yes") or answer.status_code >= 500:
            wrong[place] = answer.status_code, answer.text
    assert wrong == {}


# --- files of commits -----------------------------------------------------------------------------------


def test_no_commit_adds_a_file_below_another_table_or_behind_a_link_to_one(client, create, tmp_path, error):
    table = create(client, tmp_path / "lake" / "people", name="people")
    other = tmp_path / "lake" / "orders"
    deltalake.write_deltalake(str(other), pa.table({"id": [1], "p": ["a"]}), partition_by=["p"])
    inner = table.write_file("group/inner/deep/a.parquet", [1])
    shutil.copytree(other / "_delta_log", table.folder / "group" / "inner" / "_delta_log")
    for link, target in (("link", other), ("partition", other / "p=a")):
        (table.folder / link).symlink_to(target)
    adds = {"inside": inner, "its own file": table.write_file("group/inner/b.parquet", [1])}
    adds |= {link: table.write_file(f"{link}/a.parquet", [1]) for link in ("link", "partition")}
    adds |= {name: table.write_file(f"{name}/a.parquet", [1]) for name in ("x/_delta_log", "_Delta_Log")}

    refused = {what: table.append(add) for what, add in adds.items()}

    codes = {what: error(answer)["code"] for what, answer in refused.items()}
    of_logs = dict.fromkeys(("x/_delta_log", "_Delta_Log"), "INVALID_COMMIT")
    assert codes == {**dict.fromkeys(adds, "FILE_NOT_IN_TABLE"), **of_logs}
    assert "'group/inner' is another Delta table" in error(refused["inside"])["message"]
    assert table.version() == 0
    assert table.append(table.write_file("group/next/a.parquet", [1])).status_code == 200


def test_a_link_to_a_larger_disk_takes_files_where_roots_have_it(client, create, tmp_path, error):
    (tmp_path / "disk").mkdir()
    with running_service(roots=(str(tmp_path),)) as with_roots:
        for name, service in (("people", with_roots), ("orders", client)):
            table = create(service, tmp_path / name, name=name)
            (table.folder / "part").symlink_to(tmp_path / "disk")
            answer = table.append(table.write_file(f"part/{name}.parquet", [1]))
            assert name == "people" or error(answer)["code"] == "LOCATION_NOT_ALLOWED"
            assert answer.status_code == (200 if name == "people" else 403)


def test_restore_brings_back_no_file_below_another_table(client, create, tmp_path, error):
    table = create(client, tmp_path / "people", name="people")
    assert table.append(table.write_file("group/a.parquet", [1])).status_code == 200
    assert table.commit(operation="DELETE", removes=[{"path": "group/a.parquet"}]).status_code == 200
    deltalake.write_deltalake(str(table.folder / "group"), pa.table({"id": [1]}))

    answer = client.post(f"{table.url}/restore", json={"version": 1})

    assert error(answer)["code"] == "FILE_NOT_IN_TABLE"
    assert table.version() == 2


# --- who is told what -----------------------------------------------------------------------------------


def test_a_name_that_is_taken_or_ambiguous_tells_of_no_hidden_table(lake):
    for folder in ("one", "two"):
        lake.put("delta", lake.root / "hr.db" / folder / "shared")
        made = lake.client.post("/v1/tables", json={"location": f"{lake.root}/hr.db/{folder}/shared"})
        assert (made.status_code, made.json()["name"]) == (201, "shared")
    body = {"grantee": "etl", "role": "reader", "table": made.json()["id"]}
    assert lake.client.post("/v1/grants", json=body).status_code == 200
    assert lake.client.get("/v1/tables/shared").json()["error"]["code"] == "AMBIGUOUS_TABLE"
    assert (
        lake.ask("etl", "GET", "/v1/tables/shared").json() == made.json()
    )  # of two, the one that is visible
    hidden, never = (lake.ask("lead", "GET", f"/v1/tables/{name}") for name in ("shared", "sharee"))
    assert hidden.text.replace("shared", "sharee") == never.text
    for path in ("/v1/access?table=shared", "/v1/audit?table=shared", "/v1/maintenance-runs?table=shared"):
        told = lake.ask("lead", "GET", path)
        assert (told.status_code, "hr.db" in told.text) == (404, False), path
    catalog = lake.ask("lead", "GET", "/iceberg/v1/namespaces/default/tables/shared")
    assert (catalog.status_code, "hr.db" in catalog.text) == (404, False)
    lake.restore()


def test_a_hidden_table_outside_the_roots_is_not_there_either(lake):
    lake.client.service.tables._registry.add("file:///elsewhere/moved", "hr.moved", "moved")
    policy = {"name": "p", "type": "system.checkpoint", "content": {"enable": True, "config": {}}}
    requests = {
        "policies": lambda table: lake.ask("lead", "POST", "/v1/policies", table=table, **policy),
        "runs": lambda table: lake.ask("lead", "GET", f"/v1/maintenance-runs?table={table}"),
        "plan": lambda table: lake.ask("lead", "POST", f"/v1/tables/{table}/plan"),
    }

    told = {name: (ask("hr.moved"), ask("hr.movee")) for name, ask in requests.items()}

    for name, (hidden, never) in told.items():
        assert (hidden.status_code, hidden.text) == (404, never.text.replace("movee", "moved")), name
    lake.restore()


@pytest.mark.parametrize("body", [{}, {"schema": SCHEMA}])
@pytest.mark.parametrize("name", ["hr.secret", None])
def test_a_table_in_the_folder_of_ones_name_is_not_taken_from_whom_it_belongs_to(lake, name, body):
    place = lake.root / "sales.db" / f"etl_{next(lake.numbers)}"
    lake.put("delta", place)
    made = lake.client.post("/v1/tables", json={"location": str(place), **({"name": name} if name else {})})
    assert made.status_code == 201, made.text
    own = f"sales.{place.name}"

    for kind in ({}, {"name": own}):
        answer = lake.ask("etl", "POST", "/v1/tables", location=str(place), **body, **kind)
        assert answer.status_code == 403, answer.text
        assert {made.json()["id"], "secret"} & set(re.findall(r"[\w-]+", answer.text)) == set()
    converted = lake.ask("etl", "POST", "/v1/convert", location=str(place), name=own)
    assert converted.status_code == 403, converted.text
    assert lake.client.get(f"/v1/tables/{made.json()['id']}").json() == made.json()
    assert lake.ask("etl", "POST", f"/v1/tables/{made.json()['id']}/rename", name=own).status_code == 404
    lake.restore()


def test_a_service_that_asks_for_tokens_begins_no_directory_elsewhere_by_itself(lake):
    location = f"{lake.root}/iceberg/unattended"
    lake.create("sales.etl_ice", properties={"delvec.iceberg.location": location})
    table = lake.client.service.tables.open("sales.etl_ice")

    with pytest.raises(PermissionDenied, match="only begun on request"):
        lake.client.service.iceberg.publish(table)
    assert not Path(location).exists()
    assert lake.ask("admin", "POST", "/v1/tables/sales.etl_ice/iceberg").status_code == 200
    assert lake.client.service.iceberg.publish(table).delta_version == 0
    lake.restore()


# --- other spellings, races, and what is gone -----------------------------------------------------------


def test_on_a_file_system_that_ignores_letter_case_another_spelling_is_the_same_place(
    client, create, tmp_path, error, monkeypatch
):
    create(client, tmp_path / "sales.db" / "hr", name="sales.hr")
    other = tmp_path / "SALES.db" / "Hr"
    shutil.copytree(
        tmp_path / "sales.db" / "hr", other, ignore=shutil.ignore_patterns(".*.tmp")
    )  # what such a file system shows there
    monkeypatch.setattr(Path, "samefile", lambda path, other: str(path).casefold() == str(other).casefold())

    for place in (other, tmp_path / "SALES.db" / "HR" / "inner", tmp_path / "Sales.db"):
        answer = client.post("/v1/tables", json={"location": str(place), "name": "mine", "schema": SCHEMA})
        assert error(answer)["code"] == "LOCATION_NOT_ALLOWED", place
    answer = client.post("/v1/tables", json={"location": str(other), "name": "mine"})
    assert "the location of table 'sales.hr'" in error(answer)["message"]
    monkeypatch.undo()
    assert client.post("/v1/tables", json={"location": str(other), "name": "mine"}).status_code == 201


def test_of_two_tables_that_are_created_inside_one_another_at_once_at_most_one_is_left(
    client, tmp_path, monkeypatch, error
):
    add = Registry.add

    def slow(self, location, name, *arguments, **named):
        if name == "outer":  # after it was checked
            body = {"location": str(tmp_path / "outer" / "inner"), "name": "inner", "schema": SCHEMA}
            assert client.post("/v1/tables", json=body).status_code == 201
        return add(self, location, name, *arguments, **named)

    monkeypatch.setattr(Registry, "add", slow)
    body = {"location": str(tmp_path / "outer"), "name": "outer", "schema": SCHEMA}
    answer = client.post("/v1/tables", json=body)

    assert error(answer)["code"] == "LOCATION_NOT_ALLOWED"
    assert [table["name"] for table in client.get("/v1/tables").json()["tables"]] == ["inner"]
    assert not (tmp_path / "outer" / "_delta_log").exists()


def test_a_registered_table_that_was_deleted_from_storage_takes_no_place(
    client, create, tmp_path, monkeypatch
):
    create(client, tmp_path / "group" / "old", name="old")
    shutil.rmtree(tmp_path / "group")
    monkeypatch.setattr("delvec_service.tables.places._REGISTRATION_LEAD", timedelta(0))
    create(client, tmp_path / "group", name="group")


def test_a_table_in_the_log_of_another_that_an_older_version_registered_is_closed(
    client, create, tmp_path, error
):
    table = create(client, tmp_path / "people", name="people")
    place = table.folder / "_delta_log"
    deltalake.write_deltalake(str(tmp_path / "other"), pa.table({"id": [1]}))
    shutil.copytree(tmp_path / "other", place, dirs_exist_ok=True)
    client.service.tables._registry.add(f"file://{place}", "inside", "inside")

    for path in ("vacuum", "plan", "restore"):
        answer = client.post(f"/v1/tables/inside/{path}", json={"version": 0} if path == "restore" else {})
        assert error(answer)["code"] == "LOCATION_NOT_ALLOWED"
    assert client.delete("/v1/tables/inside").status_code == 204


@pytest.mark.parametrize("damage", ["its log is damaged", "it is outside the roots"])
def test_a_vacuum_names_a_clone_only_to_those_who_see_it(tmp_path, damage):
    """The maintainer of a table whose clone is somebody else's learns that one is broken, not where it is."""
    for folder in ("lake/sales.db", "lake/hr.db"):
        (tmp_path / folder).mkdir(parents=True)
    settings = {
        "token": "root",
        "database_url": f"sqlite:///{tmp_path / 'store.db'}",
        "log_maintenance": False,
    }
    with running_service(roots=(str(tmp_path / "lake"), str(tmp_path / "archive")), **settings) as client:
        client.post("/v1/tables", json={"name": "sales.orders", "schema": SCHEMA}, headers=ADMIN)
        body = {"name": "hr.secret", "location": str(tmp_path / "archive" / "hr.secret"), "shallow": True}
        made = client.post("/v1/tables/sales.orders/clone", json=body, headers=ADMIN)
        assert made.status_code in (200, 201), made.text
        token = client.post("/v1/tokens", json={"name": "lead"}, headers=ADMIN).json()["token"]
        grant = {"grantee": "lead", "role": "maintainer", "namespace": "sales"}
        assert client.post("/v1/grants", json=grant, headers=ADMIN).status_code == 200
    roots = (str(tmp_path / "lake"), str(tmp_path / "archive"))
    if damage == "its log is damaged":
        [log] = (tmp_path / "archive" / "hr.secret" / "_delta_log").glob("*.json")
        log.write_text("{")
    else:
        roots = roots[:1]
    with running_service(roots=roots, **settings) as client:
        url, body = "/v1/tables/sales.orders/vacuum", {"dry-run": True}
        answers = [
            client.post(url, json=body, headers=each)
            for each in (ADMIN, {"Authorization": f"Bearer {token}"})
        ]
    admins, leads = (answer.json()["error"] for answer in answers)
    assert "hr.secret" in json.dumps(admins)
    assert "secret" not in json.dumps(leads)
    assert "archive" not in json.dumps(leads)
    assert (leads["type"], leads["code"]) == (admins["type"], admins["code"])
    assert "shallow clone that cannot be read" in leads["message"]
