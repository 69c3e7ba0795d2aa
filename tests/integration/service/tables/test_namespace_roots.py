"""Namespaces with their own roots: each request with a location or table, for every namespace and root."""

import itertools
import json
import os
import shutil
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.integration.service.conftest import SCHEMA

from delvec_errors import BadRequest, LocationNotAllowed
from delvec_service.config import Settings
from delvec_service.doctor import examine
from delvec_service.tables.namespace_roots import NamespaceRoots

ROOTS = {
    "": "lake",
    "sales": "lake/of/sales",  # within the service's
    "sales.eu": "lake/of/sales/eu",  # within another namespace's
    "hr": "elsewhere/hr",
}
NAMES = {
    "x": "",
    "sales": "",
    "Sales.x": "",
    "salesx.x": "",
    "default.sales.x": "",
    "other.hr.x": "",
    "hr.x": "hr",
    "hr.sales.x": "hr",
    "sales.x": "sales",
    "sales.us.x": "sales",
    "sales.eux": "sales",
    "sales.eu.x": "sales.eu",
    "sales.eu.deep.x": "sales.eu",
}
"""Names, and the namespace whose roots apply to them."""
PLACES = {
    "lake/x{n}": "",
    "lake/of/x{n}": "",
    "lake/of/sales-not/x{n}": "",
    "lake/of/sales.db/x{n}": "",
    "lake/of/sales/x{n}": "sales",
    "lake/of/sales/us.db/x{n}": "sales",
    "lake/of/sales/eu/x{n}": "sales.eu",
    "elsewhere/hr/x{n}": "hr",
    "elsewhere/hr/../hr/x{n}": None,  # not canonical
    "elsewhere/hr-not/x{n}": None,
    "elsewhere/x{n}": None,
    "lake/to-hr/x{n}": "hr",  # by a link
    "elsewhere/hr/to-lake/x{n}": "",
    "lake/of/sales/to-outside/x{n}": None,
    "lake/of/sales/eu/to-sales/x{n}": "sales",
}
"""Locations, and the namespace that owns them; None for none."""
LINKS = {
    "lake/to-hr": "elsewhere/hr",
    "elsewhere/hr/to-lake": "lake",
    "lake/of/sales/to-outside": "outside",
    "lake/of/sales/eu/to-sales": "lake/of/sales",
}


class Lake:
    """A service with namespaces, and what is in its roots."""

    def __init__(self, base, client):
        self.base, self.client, self.count = base, client, itertools.count()
        self.template = base / "template"
        deltalake.write_deltalake(str(self.template / "delta"), pa.table({"id": [1, 2, 3]}))
        (self.template / "parquet").mkdir()
        pq.write_table(pa.table({"id": [1, 2, 3]}), self.template / "parquet" / "a.parquet")

    def place(self, pattern):
        return str(self.base / pattern.format(n=next(self.count)))

    def put(self, kind, place):
        """Put a table there that the service does not know."""
        shutil.copytree(self.template / kind, os.path.realpath(place))

    def post(self, path, **body):
        return self.client.post(path, json={key.replace("_", "-"): value for key, value in body.items()})

    def files(self):
        folders = ("lake", "elsewhere", "outside")
        return {
            os.path.join(directory, name)  # noqa: PTH118 - called a thousand times, on thousands of files
            for folder in folders
            for directory, _, names in os.walk(self.base / folder)
            for name in names
        }

    def source(self, owner):
        """Return the name of a table in the roots of a namespace."""
        name = ".".join(filter(None, (owner, f"source{next(self.count)}")))
        made = self.post("/v1/tables", name=name, schema=SCHEMA)
        assert made.status_code == 201, made.text
        return name


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    from tests.support.in_process_service import running_service

    base = tmp_path_factory.mktemp("roots")
    for folder in (*ROOTS.values(), "outside", "elsewhere/hr-not"):
        (base / folder).mkdir(parents=True, exist_ok=True)
    for link, target in LINKS.items():
        (base / link).symlink_to(base / target)
    with running_service(**settings(base)) as client:
        yield Lake(base, client)


def settings(base, **changes):
    own = {namespace: (str(base / root),) for namespace, root in ROOTS.items() if namespace}
    return {
        "roots": (str(base / ROOTS[""]),),
        "namespace_roots": own,
        "database_url": f"sqlite:///{base / 'store.db'}",
        "log_maintenance": False,
        **changes,
    }


def code(answer):
    assert answer.status_code < 500, answer.text
    return answer.json()["error"]["code"] if answer.status_code >= 400 else None


def drop(lake, answer):
    if answer.status_code < 300:
        found = answer.json()
        assert lake.client.delete(f"/v1/tables/{found.get('table', found)['id']}").status_code == 204


# --- every request x namespace x place ------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("operation", ["create", "register", "convert", "import", "clone"])
def test_a_table_is_made_where_its_name_belongs_and_nowhere_else(lake, operation, place):
    wrong = {}
    source = lake.source("")
    for name, owner in NAMES.items():
        location = lake.place(place)
        body = {"location": location, "name": name}
        fits = PLACES[place] is not None and PLACES[place] == owner
        if operation in ("register", "convert") and PLACES[place] is not None:
            lake.put("delta" if operation == "register" else "parquet", location)
        before = lake.files()
        match operation:
            case "create":
                answer = lake.post("/v1/tables", **body, schema=SCHEMA)
            case "register":
                answer = lake.post("/v1/tables", **body)
            case "convert":
                answer = lake.post("/v1/convert", **body)
            case "import":
                answer = lake.post("/v1/convert", **body, source_format="iceberg")
            case "clone":
                answer = lake.post(f"/v1/tables/{source}/clone", **body)
        allowed = code(answer) not in ("LOCATION_NOT_ALLOWED", "INVALID_LOCATION")
        if allowed != fits or (not fits and lake.files() != before):
            wrong[name] = answer.text
        if fits and operation != "import":
            assert answer.status_code < 300, answer.text
            assert lake.client.get(f"/v1/tables/{name}/snapshot").status_code == 200
        drop(lake, answer)
    assert not wrong


@pytest.mark.parametrize("name", NAMES)
def test_a_name_alone_goes_into_the_first_root_of_its_namespace(lake, name):
    owner = NAMES[name]
    *above, last = name.removeprefix(f"{owner}." if owner else "").split(".")
    expected = "/".join([f"file://{lake.base}/{ROOTS[owner]}", *(f"{one}.db" for one in above), last])

    made = lake.post("/v1/tables", name=name, schema=SCHEMA)

    assert made.json()["location"] == expected
    shutil.rmtree(expected.removeprefix("file://"))
    drop(lake, made)


@pytest.mark.parametrize(
    ("place", "called"),
    [
        ("lake/orders", "orders"),
        ("lake/sales.orders", "sales_orders"),  # a folder is not taken for a table of that namespace
        ("lake/of/other.orders", "other.orders"),
        ("lake/of/sales/orders", "sales.orders"),
        ("lake/of/sales/deep/er/hr.people", "sales.hr_people"),
        ("lake/of/sales/eu/orders", "sales.eu.orders"),
        ("elsewhere/hr/sales.orders", "hr.sales_orders"),
        ("lake/to-hr/people", "hr.people"),
    ],
)
def test_a_location_alone_is_a_table_of_whose_roots_it_lies_in(lake, place, called):
    lake.put("delta", lake.base / place)

    made = lake.post("/v1/tables", location=str(lake.base / place))

    assert (made.status_code, made.json()["name"]) == (201, called)
    assert lake.client.get(f"/v1/tables/{called}/snapshot").status_code == 200
    again = lake.post("/v1/tables", location=str(lake.base / place))
    assert (again.status_code, again.json()) == (200, made.json())
    shutil.rmtree(os.path.realpath(lake.base / place))
    drop(lake, made)


@pytest.mark.parametrize("owner", ROOTS)
def test_a_table_is_renamed_within_its_roots_and_not_to_others(lake, owner):
    for name, of in NAMES.items():
        table = lake.source(owner)
        answer = lake.post(f"/v1/tables/{table}/rename", name=name)

        assert (code(answer) is None) == (of == owner), (name, answer.text)
        left = name if of == owner else table
        assert lake.client.get(f"/v1/tables/{left}/snapshot").status_code == 200
        assert lake.client.delete(f"/v1/tables/{left}").status_code == 204


@pytest.mark.parametrize("shallow", [True, False])
@pytest.mark.parametrize("owner", ROOTS)
@pytest.mark.parametrize("of", ROOTS)
def test_only_a_deep_clone_leaves_the_roots_of_its_source(lake, shallow, owner, of):
    source, name = lake.source(of), f"{owner}.clone{next(lake.count)}".lstrip(".")
    before = lake.files()

    answer = lake.post(f"/v1/tables/{source}/clone", name=name, shallow=shallow)

    if shallow and owner != of:
        assert code(answer) == "LOCATION_NOT_ALLOWED"
        assert "deep clone" in answer.json()["error"]["message"]
        assert lake.files() == before
    else:
        assert answer.status_code == 200, answer.text


def test_a_table_whose_place_holds_the_roots_of_another_is_refused(lake):
    for place in ("lake/of", "lake"):
        answer = lake.post("/v1/tables", name="around", location=str(lake.base / place), schema=SCHEMA)
        assert code(answer) == "LOCATION_NOT_ALLOWED"
        assert "contains roots of other namespaces" in answer.json()["error"]["message"]
    inside = lake.post(
        "/v1/tables", name="sales.around", location=str(lake.base / "lake/of/sales"), schema=SCHEMA
    )
    assert code(inside) == "LOCATION_NOT_ALLOWED"  # that of sales.eu


def test_an_iceberg_table_is_not_imported_from_the_roots_of_another(lake):
    location, source = lake.place("lake/of/sales/x{n}"), lake.place("elsewhere/hr/x{n}")
    answer = lake.post(
        "/v1/convert", location=location, name="sales.i", source=source, source_format="iceberg"
    )
    assert code(answer) == "LOCATION_NOT_ALLOWED"


# --- what logs name -------------------------------------------------------------------------------------


@pytest.mark.parametrize("owner", ROOTS)
@pytest.mark.parametrize("of", ROOTS)
def test_a_log_names_files_in_the_roots_of_its_table_and_in_no_others(lake, owner, of):
    name, location = f"{owner}.spy{next(lake.count)}".lstrip("."), lake.place(f"{ROOTS[owner]}/x{{n}}")
    lake.put("delta", location)
    secret = lake.base / ROOTS[of] / f"secret{next(lake.count)}.parquet"
    pq.write_table(pa.table({"id": [42]}), secret)
    add = {"path": f"file://{secret}", "size": secret.stat().st_size, "partitionValues": {}}
    add |= {"modificationTime": int(secret.stat().st_mtime * 1000), "dataChange": True}
    (Path(location) / "_delta_log" / f"{1:020}.json").write_text(json.dumps({"add": add}))
    assert lake.post("/v1/tables", location=location, name=name).status_code == 201
    allowed = owner == of

    plan = lake.post(f"/v1/tables/{name}/plan")
    deleted = lake.post(f"/v1/tables/{name}/delete", predicate="id = 42")
    cloned = lake.post(f"/v1/tables/{name}/clone", name=f"{name}_clone")
    committed = lake.post(
        f"/v1/tables/{name}/commits",
        operation="WRITE",
        read_version=1,
        adds=[{**add, "stats": '{"numRecords":1}'}],
    )

    for answer in (plan, deleted, cloned):
        assert (code(answer) == "LOCATION_NOT_ALLOWED") == (not allowed), answer.text
    assert not committed.is_success


# --- what was there before the roots --------------------------------------------------------------------


@pytest.fixture
def reconfigured(tmp_path, running):
    """``with reconfigured({...}) as client``: the same service, with other roots of namespaces."""
    for folder in ("lake", "sales", "hr"):
        (tmp_path / folder).mkdir()

    def start(namespace_roots):
        own = {name: (str(tmp_path / root),) for name, root in namespace_roots.items()}
        every = ("lake", *({"sales", "hr"} - set(namespace_roots.values())))
        return running(
            roots=tuple(str(tmp_path / root) for root in every),
            namespace_roots=own,
            database_url=f"sqlite:///{tmp_path / 'store.db'}",
            log_maintenance=False,
        )

    return start


def test_a_table_that_is_not_where_its_name_belongs_by_now_is_closed_until_it_is_renamed(
    reconfigured, create, tmp_path
):
    with reconfigured({}) as client:
        create(client, tmp_path / "lake" / "old", name="sales.old")
        create(client, tmp_path / "sales" / "other", name="other")
    with reconfigured({"sales": "sales"}) as client:
        for name in ("sales.old", "other"):
            for answer in (
                client.get(f"/v1/tables/{name}/snapshot"),
                client.post(f"/v1/tables/{name}/plan", json={}),
            ):
                assert code(answer) == "LOCATION_NOT_ALLOWED"
        told = client.get("/v1/tables/other/snapshot").json()["error"]["message"]
        assert "give the table a name in the namespace" in told
        assert code(client.post("/v1/tables/sales.old/rename", json={"name": "old"})) is None
        assert code(client.post("/v1/tables/other/rename", json={"name": "sales.other"})) is None
        for name in ("old", "sales.other"):
            assert client.get(f"/v1/tables/{name}/snapshot").status_code == 200


def test_vacuum_keeps_what_a_clone_in_another_namespace_needs(reconfigured, create, tmp_path):
    with reconfigured({}) as client:
        source = create(client, tmp_path / "sales" / "orders", name="sales.orders")
        kept, gone = source.write_file("kept.parquet", [1]), source.write_file("gone.parquet", [2])
        assert source.append(kept).status_code == 200
        body = {"name": "hr.clone", "location": str(tmp_path / "hr" / "clone"), "shallow": True}
        assert client.post(f"{source.url}/clone", json=body).status_code == 200
        assert source.append(gone).status_code == 200
        for path in ("kept.parquet", "gone.parquet"):
            assert source.commit(operation="DELETE", removes=[{"path": path}]).status_code == 200
    for file in (tmp_path / "sales" / "orders").rglob("*.parquet"):
        os.utime(file, (1, 1))
    with reconfigured({"sales": "sales", "hr": "hr"}) as client:
        body = {"retention-hours": 0, "enforce-retention-duration": False}
        done = client.post("/v1/tables/sales.orders/vacuum", json=body)

        assert done.status_code == 200, done.text
        assert done.json()["files"] == ["gone.parquet"]
        assert (tmp_path / "sales" / "orders" / "kept.parquet").exists()


# --- who may --------------------------------------------------------------------------------------------


def test_a_maintainer_chooses_places_in_the_roots_of_the_namespace_and_in_no_others(tmp_path, running):
    for folder in ROOTS.values():
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    admin = {"Authorization": "Bearer root"}
    with running(**settings(tmp_path, token="root")) as client:
        token = client.post("/v1/tokens", json={"name": "t", "principal": "ann"}, headers=admin).json()[
            "token"
        ]
        grant = {"grantee": "ann", "role": "maintainer", "namespace": "sales"}
        assert client.post("/v1/grants", json=grant, headers=admin).status_code == 200
        ann = {"Authorization": f"Bearer {token}"}

        def made(name, place):
            body = {"name": name, "location": str(tmp_path / place), "schema": SCHEMA}
            return code(client.post("/v1/tables", json=body, headers=ann))

        assert made("sales.a", "lake/of/sales/anywhere/a") is None
        assert made("sales.eu.a", "lake/of/sales/eu/anywhere/a") is None
        assert made("sales.b", "lake/b") == "LOCATION_NOT_ALLOWED"
        assert made("sales.b", "elsewhere/hr/b") == "LOCATION_NOT_ALLOWED"
        assert made("b", "lake/b") == "PERMISSION_DENIED"
        shown = client.get("/v1/config", headers=ann).json()["namespace-roots"]
        assert shown == {
            namespace: [f"file://{tmp_path}/{ROOTS[namespace]}"] for namespace in ("sales", "sales.eu")
        }
        assert set(client.get("/v1/config", headers=admin).json()["namespace-roots"]) == set(ROOTS) - {""}


# --- the object that knows ------------------------------------------------------------------------------

PARTS = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(PARTS, min_size=0, max_size=4).map(lambda parts: "/".join(["s3://bucket", *parts]))
NAMESPACES = st.lists(PARTS, min_size=1, max_size=3).map(".".join)


@given(
    st.dictionaries(NAMESPACES, st.lists(PATHS, min_size=1, max_size=3), max_size=4),
    st.lists(PATHS, min_size=1, max_size=2),
    NAMESPACES,
    PATHS,
)
def test_a_place_is_of_one_owner_and_of_the_innermost_root(namespaces, service, name, place):
    given_roots = {"": service, **namespaces}
    flat = {root: owner for owner, roots in given_roots.items() for root in roots}
    if len(flat) != len({(root, owner) for owner, roots in given_roots.items() for root in roots}):
        with pytest.raises(BadRequest, match="belongs to only one of them"):
            NamespaceRoots(service, namespaces)
        return
    roots = NamespaceRoots(service, namespaces)
    around = [root for root in flat if f"{place}/".startswith(f"{root}/")]
    owner_of_place = flat[max(around, key=len)] if around else None
    levels = name.split(".")[:-1]
    above = [".".join(levels[:depth]) for depth in range(len(levels), 0, -1)]
    owner_of_name = next((each for each in above if each in namespaces), "")

    assert roots.of(name).allows(place) == (owner_of_place is not None and owner_of_place == owner_of_name)
    assert roots.everywhere.allows(place) == bool(around)
    home = roots.folder(name)
    holds = [root for root in flat if f"{home}/".startswith(f"{root}/")]
    # New tables are created in the first root, except in parts that other namespaces own.
    assert roots.of(name).allows(home) == (flat[max(holds, key=len)] == owner_of_name)
    if around:
        assert roots.of(roots.called_by(f"{place}/t")).allows(f"{place}/t")


def test_without_roots_of_the_service_the_rest_is_everywhere():
    roots = NamespaceRoots((), {"sales": ("s3://sales",)})

    assert roots.of("x").allows("s3://other/x")
    assert not roots.of("x").allows("s3://sales/x")
    assert roots.of("sales.x").allows("s3://sales/x")
    assert not roots.of("sales.x").allows("s3://other/x")
    with pytest.raises(BadRequest, match="DELVEC_WAREHOUSE"):
        roots.folder("x")
    assert roots.folder("sales.x") == "s3://sales/x"


def test_two_spellings_of_a_directory_are_one_root(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(BadRequest, match="belongs to only one of them"):
        NamespaceRoots([str(tmp_path / "real")], {"sales": [str(tmp_path / "link")]})


@pytest.mark.parametrize(
    ("given_text", "reason"),
    [
        ('{"a b": ["/x"]}', "is not a valid namespace"),
        ('{"sales.": ["/x"]}', "is not a valid namespace"),
        ('{"": ["/x"]}', "is not a valid namespace"),
        ('{"sales": []}', "has no root"),
        ('{"sales": [" "]}', "has no root"),
        ('{"sales": 1}', "valid tuple"),
        ("sales=/x", "Expecting value"),
        ('["/x"]', "must be a JSON object"),
    ],
)
def test_settings_that_mean_nothing_are_refused(given_text, reason, monkeypatch):
    monkeypatch.setenv("DELVEC_NAMESPACE_ROOTS", given_text)
    with pytest.raises(ValueError, match=reason):
        Settings()


def test_settings_are_read_from_the_environment_and_do_not_reach_embedded_services(monkeypatch):
    monkeypatch.setenv("DELVEC_NAMESPACE_ROOTS", '{"sales": ["/data/sales", "s3://sales"]}')

    assert Settings().namespace_roots == {"sales": ("/data/sales", "s3://sales")}
    assert Settings.embedded("sqlite://").namespace_roots == {}


def test_the_doctor_tries_the_roots_of_namespaces_too(tmp_path):
    for folder in ("lake", "sales"):
        (tmp_path / folder).mkdir()
    given_settings = Settings(
        roots=(str(tmp_path / "lake"),),
        namespace_roots={"sales": (str(tmp_path / "sales"),), "hr": (str(tmp_path / "sales" / "hr"),)},
        database_url="sqlite://",
        token="t",
    )
    found = list(examine(given_settings))

    assert "the namespaces hr, sales" in next(one.found for one in found if one.check == "configuration")
    tried = [one.found for one in found if one.check == "storage"]
    assert len(tried) == 3
    assert any("/sales/hr" in one for one in tried)


def test_errors_say_whose_roots_they_are():
    roots = NamespaceRoots(["s3://lake"], {"sales": ["s3://sales"]})
    with pytest.raises(LocationNotAllowed, match=r"namespace 'sales'.*DELVEC_NAMESPACE_ROOTS"):
        roots.of("sales.x").check("s3://lake/x")
    with pytest.raises(LocationNotAllowed, match=r"outside the namespaces.*give the table a name"):
        roots.of("x").check("s3://sales/x")
    with pytest.raises(LocationNotAllowed, match=r"roots that tables may use.*DELVEC_ROOTS"):
        NamespaceRoots(["s3://lake"]).of("x").check("s3://sales/x")
