"""The Iceberg REST catalog at ``/iceberg``: reads by PyIceberg's client, and protocol details."""

import json
from datetime import date

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from tests.support import duckdb_extensions
from tests.support.packages import NotInstalledError
from tests.support.served import served

import delvec

TOKEN = "s3cret"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("catalog")


@pytest.fixture(scope="module")
def url(folder):
    """A service with authentication, on its own port."""
    with served(folder, TOKEN) as url:
        yield url


@pytest.fixture(scope="module")
def lake(url):
    with delvec.connect(url, token=TOKEN) as lake:
        orders = lake.create_table("sales.orders", pa.schema([("id", pa.int64()), ("name", pa.string())]))
        orders.append(pa.table({"id": list(range(100)), "name": [f"n{each}" for each in range(100)]}))
        orders.delete("id < 10")
        lake.create_table("sales.eu.returns", pa.schema([("id", pa.int64())]))
        lake.create_table("people", pa.schema([("id", pa.int64())])).append(pa.table({"id": [1]}))
        yield lake


@pytest.fixture
def http(url, lake):
    with httpx.Client(base_url=f"{url}/iceberg/v1", headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        yield client


def catalog(url, warehouse=None, **properties):
    given = {} if warehouse is None else {"warehouse": warehouse}
    return load_catalog("delvec", type="rest", uri=f"{url}/iceberg", token=TOKEN, **given, **properties)


def error(answer):
    found = answer.json()
    assert set(found) == {"error"}
    assert set(found["error"]) == {"message", "type", "code"}
    assert found["error"]["code"] == answer.status_code
    return answer.status_code, found["error"]["type"]


@pytest.mark.long("installs a DuckDB that has the Iceberg extension")
@pytest.mark.parametrize("warehouse", ["v2", "v3"])
def test_duckdb_reads_the_newest_version(url, lake, tmp_path, warehouse):
    try:
        duckdb_extensions.packages()
    except NotInstalledError as error:
        pytest.skip(f"DuckDB's extensions could not be installed: {error}")
    table = lake.create_table(f"duck.t{warehouse}", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": list(range(100))}))
    attach = (
        f"CREATE SECRET (TYPE iceberg, TOKEN '{TOKEN}'); "
        f"ATTACH '{warehouse}' AS lake (TYPE iceberg, ENDPOINT '{url}/iceberg'); "
    )

    def ids():
        answer = duckdb_extensions.query(
            f"{attach} SELECT id FROM lake.duck.t{warehouse} ORDER BY id", tmp_path
        )
        return answer["id"].to_pylist()

    assert ids() == list(range(100))
    table.delete("id % 3 = 0")
    assert ids() == [each for each in range(100) if each % 3]


@pytest.mark.parametrize(("warehouse", "version"), [(None, 2), ("v2", 2), ("v3", 3)])
def test_pyiceberg_reads_the_newest_version(url, lake, warehouse, version):
    name = f"live.t{warehouse}"
    table = lake.create_table(name, pa.schema([("id", pa.int64())]))
    found = catalog(url, warehouse)
    assert found.load_table(name).scan().to_arrow().num_rows == 0
    table.append(pa.table({"id": list(range(10))}))
    read = found.load_table(name)
    assert (read.format_version, read.scan().to_arrow().num_rows) == (version, 10)
    table.delete("id < 3")
    assert sorted(found.load_table(name).scan().to_arrow()["id"].to_pylist()) == list(range(3, 10))
    assert read.refresh().scan(row_filter="id > 7").to_arrow()["id"].to_pylist() == [8, 9]


def test_names(url, lake):
    found = catalog(url)
    assert {("default",), ("sales",)} <= set(found.list_namespaces())
    assert found.list_namespaces("sales") == [("sales", "eu")]
    assert found.list_tables("sales") == [("sales", "orders")]
    assert found.list_tables(("sales", "eu")) == [("sales", "eu", "returns")]
    assert ("default", "people") in found.list_tables("default")
    assert found.load_table("default.people").scan().to_arrow()["id"].to_pylist() == [1]
    assert found.table_exists("sales.eu.returns")
    assert not found.table_exists("sales.eu")
    assert found.namespace_exists("sales")
    assert not found.namespace_exists("orders")


def test_pages(http):
    first = http.get("/namespaces", params={"pageToken": "", "pageSize": 1}).json()
    second = http.get("/namespaces", params={"pageToken": first["next-page-token"], "pageSize": 1}).json()
    assert first["namespaces"] == [["default"]]
    assert len(second["namespaces"]) == 1
    assert second["namespaces"] > first["namespaces"]
    one = http.get("/namespaces/sales/tables", params={"pageToken": "", "pageSize": 1}).json()
    assert one["identifiers"] == [{"namespace": ["sales"], "name": "orders"}]
    assert one["next-page-token"] is None


def test_config_says_what_is_served(http):
    found = http.get("/config").json()
    assert found["overrides"] == {}
    assert "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan" in found["endpoints"]
    assert not any(each == "POST /v1/{prefix}/namespaces/{namespace}/tables" for each in found["endpoints"])
    assert http.get("/config", params={"warehouse": "v3"}).json()["overrides"] == {"prefix": "v3"}
    assert error(http.get("/config", params={"warehouse": "other"})) == (400, "BadRequestException")


def test_snapshots_that_are_asked_for(http, lake):
    assert http.get("/namespaces/sales/tables/orders").status_code == 200
    lake.table("sales.orders").append(pa.table({"id": [1000], "name": ["x"]}))
    everything = http.get("/namespaces/sales/tables/orders").json()["metadata"]
    referenced = http.get("/namespaces/sales/tables/orders", params={"snapshots": "refs"}).json()["metadata"]
    assert len(everything["snapshots"]) > len(referenced["snapshots"]) == 1
    assert referenced["current-snapshot-id"] == referenced["snapshots"][0]["snapshot-id"]
    assert error(http.get("/namespaces/sales/tables/orders", params={"snapshots": "some"}))[0] == 400


def test_errors_have_icebergs_form(http, url):
    assert error(http.get("/namespaces/nowhere")) == (404, "NoSuchNamespaceException")
    assert error(http.get("/namespaces/nowhere/tables")) == (404, "NoSuchNamespaceException")
    assert error(http.get("/namespaces/sales/tables/nothing")) == (404, "NoSuchTableException")
    assert http.head("/namespaces/sales/tables/nothing").status_code == 404
    assert http.head("/namespaces/sales/tables/orders").status_code == 204
    assert error(httpx.get(f"{url}/iceberg/v1/namespaces")) == (401, "NotAuthorizedException")
    wrong = {"Authorization": "Bearer wrong"}
    assert error(httpx.get(f"{url}/iceberg/v1/config", headers=wrong)) == (401, "NotAuthorizedException")
    assert error(http.post("/namespaces", json={"namespace": ["new"]}))[0] == 405
    assert error(http.get("/nothing"))[0] == 404
    assert error(http.get("/namespaces/sales/tables", params={"pageSize": 0})) == (400, "BadRequestException")


def test_an_id_is_no_name(http, lake):
    identifier = lake.table("people").id
    assert error(http.get(f"/namespaces/default/tables/{identifier}")) == (404, "NoSuchTableException")


def test_a_column_that_iceberg_does_not_have_is_named(http, lake, folder):
    (folder / "odd" / "_delta_log").mkdir(parents=True)
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("v", "void"))
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    actions = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "6d0b1f0e-7a51-4a0e-9a54-0d5a7f1f7c11",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": schema,
                "partitionColumns": [],
                "configuration": {},
            }
        },
    ]
    log = "\n".join(map(json.dumps, actions))
    (folder / "odd" / "_delta_log" / f"{0:020}.json").write_text(log)
    lake.register(folder / "odd", "odd")
    answer = http.get("/namespaces/default/tables/odd")
    assert 400 <= answer.status_code < 500
    assert "'v'" in answer.json()["error"]["message"]
    assert not (folder / "odd" / "_iceberg" / "v2" / "metadata" / "v1.metadata.json").exists()


def test_metrics_are_taken(http):
    report = {"report-type": "scan-report", "metrics": {}}
    assert http.post("/namespaces/sales/tables/orders/metrics", json=report).status_code == 204
    assert error(http.post("/namespaces/sales/tables/nothing/metrics", json=report))[0] == 404


def test_unknown_parameters_and_fields_are_passed_over(http):
    assert http.get("/namespaces/sales/tables/orders", params={"later": "1"}).status_code == 200
    assert http.post("/namespaces/sales/tables/orders/plan", json={"later": 1}).status_code == 200


@pytest.mark.parametrize("warehouse", ["v2", "v3"])
def test_plans_of_the_service(url, lake, warehouse):
    """Files of a single manifest are in the plan, those of several in tasks; the client filters rows."""
    name = f"planned.t{warehouse}"
    table = lake.create_table(name, pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": list(range(10))}))
    table.delete("id = 4")
    found = catalog(url, warehouse, **{"scan-planning-mode": "server"})
    assert found.supports_server_side_planning()
    assert sorted(found.load_table(name).scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    table.append(pa.table({"id": list(range(10, 20))}))
    table.delete("id >= 18")
    read = found.load_table(name)
    assert sorted(read.scan().to_arrow()["id"].to_pylist()) == [*range(4), *range(5, 18)]
    assert sorted(read.scan(row_filter="id < 6").to_arrow()["id"].to_pylist()) == [0, 1, 2, 3, 5]


def test_a_plan_names_a_shared_delete_file_once(url, http, lake):
    table = lake.create_table(
        "planned.shared",
        "id long, p string",
        partition_by=["p"],
        properties={"delvec.iceberg.deleteGranularity": "partition"},
    )
    for start in (0, 20, 40):
        table.append([{"id": n, "p": "ab"[n % 2]} for n in range(start, start + 20)])
    table.append([{"id": 110, "p": "a"}])
    table.delete("id % 20 < 4")
    first = http.post("/namespaces/planned/tables/shared/plan", json={}).json()
    parts = [first] if "file-scan-tasks" in first else []
    parts += [
        http.post("/namespaces/planned/tables/shared/tasks", json={"plan-task": each}).json()
        for each in first.get("plan-tasks", [])
    ]
    references = []
    for part in parts:
        for task in part["file-scan-tasks"]:
            its = [part["delete-files"][at] for at in task.get("delete-file-references", [])]
            assert all(one["partition"] == task["data-file"]["partition"] for one in its)
            assert not any("referenced-data-file" in one for one in its)
            references += [one["file-path"] for one in its]
        assert len({one["file-path"] for one in part["delete-files"]}) == len(part["delete-files"]) == 2
    assert (len(references), len(set(references))) == (6, 2)
    found = (
        catalog(url, "v2", **{"scan-planning-mode": "server"}).load_table("planned.shared").scan().to_arrow()
    )
    assert sorted(found["id"].to_pylist()) == [*(n for n in range(60) if n % 20 >= 4), 110]


def test_the_forms_of_a_plan(http, lake):
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32())])
    table = lake.create_table("planned.days", schema, partition_by=["day"])
    table.append(pa.table({"id": [1, 2], "day": [date(2026, 1, 31)] * 2}, schema=schema))
    table.delete("id = 1")
    path = "/namespaces/planned/tables/days"
    wanted = {"type": "lt", "term": "id", "value": 6}
    plan = http.post(f"{path}/plan", json={"filter": wanted}).json()
    assert plan["status"] == "completed"
    [task], [delete] = plan["file-scan-tasks"], plan["delete-files"]
    assert task["delete-file-references"] == [0]
    assert task["residual-filter"] == wanted
    assert task["data-file"]["partition"] == delete["partition"] == ["2026-01-31"]
    assert delete["referenced-data-file"] == task["data-file"]["file-path"]
    again = http.get(f"{path}/plan/{plan['plan-id']}").json()
    assert again["delete-files"] == plan["delete-files"]
    assert http.delete(f"{path}/plan/{plan['plan-id']}").status_code == 204

    table.append(pa.table({"id": [3], "day": [None]}, schema=schema))
    plan = http.post(f"{path}/plan", json={"filter": wanted}).json()
    assert "file-scan-tasks" not in plan
    tasks = [http.post(f"{path}/tasks", json={"plan-task": each}).json() for each in plan["plan-tasks"]]
    found = [each for task in tasks for each in task["file-scan-tasks"]]
    assert sorted(str(each["data-file"]["partition"]) for each in found) == ["['2026-01-31']", "[None]"]
    assert all(each["residual-filter"] == wanted for each in found)
    older = http.post(f"{path}/plan", json={"snapshot-id": int(again["plan-id"])}).json()
    assert len(older["file-scan-tasks"]) == 1


@pytest.mark.parametrize(
    ("request_", "body", "status"),
    [
        ("plan", {"snapshot-id": 5}, 404),
        ("plan", {"snapshot-id": 2**63}, 400),
        ("plan", {"start-snapshot-id": 1, "end-snapshot-id": 2}, 400),
        ("plan", {"filter": json.loads("[" * 150 + "]" * 150)}, 400),
        ("tasks", {"plan-task": "../../_delta_log/00000000000000000000.json"}, 404),
        ("tasks", {"plan-task": '{"snapshot-id": 5, "manifest": "x"}'}, 404),
        ("tasks", {"plan-task": "x" * 1_000_001}, 400),
        ("tasks", {}, 400),
    ],
)
def test_plans_that_cannot_be(http, request_, body, status):
    assert error(http.post(f"/namespaces/sales/tables/orders/{request_}", json=body))[0] == status


def test_a_task_names_a_manifest_of_its_snapshot(http):
    current = http.get("/namespaces/sales/tables/orders").json()["metadata"]["current-snapshot-id"]
    task = json.dumps({"snapshot-id": current, "manifest": "../metadata/v1.metadata.json"})
    answer = http.post("/namespaces/sales/tables/orders/tasks", json={"plan-task": task})
    assert error(answer)[0] == 404


def test_who_may_read_what(url, lake):
    lake.create_table("secret.t", pa.schema([("id", pa.int64())])).append(pa.table({"id": [1]}))
    token = lake.access.create_token("reader-of-sales")["token"]
    lake.access.grant("reader", "reader-of-sales", namespace="sales")
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=f"{url}/iceberg/v1", headers=headers) as client:
        assert client.get("/config").status_code == 200
        assert client.get("/namespaces").json()["namespaces"] == [["sales"]]
        assert client.get("/namespaces/sales/tables/orders").status_code == 200
        assert error(client.get("/namespaces/secret")) == (404, "NoSuchNamespaceException")
        for method, path in (
            ("GET", ""),
            ("HEAD", ""),
            ("POST", "/metrics"),
            ("POST", "/plan"),
            ("GET", "/plan/1"),
            ("DELETE", "/plan/1"),
            ("POST", "/tasks"),
        ):
            body = (
                {"plan-task": json.dumps({"snapshot-id": 1, "manifest": "x"})} if method == "POST" else None
            )
            for prefix in ("", "/v3"):
                answer = client.request(method, f"{prefix}/namespaces/secret/tables/t{path}", json=body)
                assert answer.status_code == 404, (method, path)
                assert method == "HEAD" or error(answer)[1] == "NoSuchTableException"
