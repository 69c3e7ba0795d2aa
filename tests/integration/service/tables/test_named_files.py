"""A log names no file of another table, unless the table is a shallow clone of that."""

import json
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import delete
from tests.integration.service.conftest import SCHEMA
from tests.support.in_process_service import running_service

from delvec_service.store.models import CloneRow

ADMIN = {"Authorization": "Bearer root"}
LOG = "_delta_log/00000000000000000000.json"


class Lake:
    """A service with two tables, of which the principal ``lead`` maintains the namespace of one."""

    def __init__(self, base, client):
        self.root, self.client = base / "lake", client
        client.headers.update(ADMIN)
        for name in ("hr.db/people", "hr.db/loose", "sales.db/orders"):
            deltalake.write_deltalake(str(self.root / name), pa.table({"id": [1, 2]}), mode="append")
        for name in ("hr.people", "sales.orders"):
            namespace, _, table = name.partition(".")
            self.post("/v1/tables", name=name, location=f"{self.root}/{namespace}.db/{table}")
        token = self.post("/v1/tokens", name="lead")["token"]
        self.lead = {"Authorization": f"Bearer {token}"}
        self.post("/v1/grants", grantee="lead", role="maintainer", namespace="sales")

    def post(self, path, headers=ADMIN, **body):
        body = {key.replace("_", "-"): value for key, value in body.items()}
        answer = self.client.post(path, json=body, headers=headers)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def file(self, table):
        """Return a data file of a table."""
        return next((self.root / table).glob("*.parquet"))

    def table_with(self, name, path, file):
        """Write the log of a table at ``sales.db/<name>`` that names a file by a path."""
        folder = self.root / "sales.db" / name
        (folder / "_delta_log").mkdir(parents=True)
        metadata = {
            "id": name,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(SCHEMA),
            "partitionColumns": [],
            "configuration": {},
        }
        add = {"path": path, "partitionValues": {}, "size": file.stat().st_size, "modificationTime": 1}
        actions = [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {"metaData": metadata},
            {"add": {**add, "dataChange": True}},
        ]
        (folder / LOG).write_text("\n".join(map(json.dumps, actions)))
        return folder


@pytest.fixture
def lake(tmp_path):
    (tmp_path / "lake").mkdir()
    with running_service(
        token="root",
        roots=(str(tmp_path / "lake"),),
        database_url=f"sqlite:///{tmp_path / 'store.db'}",
        log_maintenance=False,
    ) as client:
        yield Lake(tmp_path, client)


@pytest.mark.parametrize("other", ["hr.db/people", "hr.db/loose"])
@pytest.mark.parametrize("spelling", ["absolute", "encoded", "relative", "link"])
def test_no_operation_reads_a_file_of_another_table(lake, spelling, other):
    file = lake.file(other)
    relative = f"../../{other}/{file.name}"
    path = {
        "absolute": f"file://{file}",
        "encoded": f"file://{lake.root}/hr.db/%2E/{file.relative_to(lake.root / 'hr.db')}",
        "relative": relative,
        "link": f"link/{file.name}",
    }[spelling]
    folder = lake.table_with("evil", path, file)
    (folder / "link").symlink_to(file.parent)
    body = {"name": "sales.evil", "location": str(folder)}
    registered = lake.client.post("/v1/tables", json=body, headers=lake.lead)
    before = set(lake.root.rglob("*.parquet"))

    answers = {
        operation: lake.client.post(f"/v1/tables/sales.evil/{operation}", json=body, headers=lake.lead)
        for operation, body in {
            "update": {"set": {"id": "id + 1"}, "predicate": "id > 0"},
            "delete": {"predicate": "id = 1"},
            "optimize": {"purge": True, "min-deleted-ratio": 0},
            "clone": {"name": "sales.copy", "shallow": False},
        }.items()
    }

    assert registered.status_code < 500
    told = {operation: (answer.status_code, answer.text) for operation, answer in answers.items()}
    assert all(400 <= status < 500 for status, _ in told.values()), told
    assert set(lake.root.rglob("*.parquet")) == before


def test_a_shallow_clone_reads_its_source_also_without_the_database(lake):
    lake.post("/v1/tables/sales.orders/clone", lake.lead, name="sales.clone", shallow=True)
    assert lake.post("/v1/tables/sales.clone/plan", lake.lead)["num-files"] == 1

    with lake.client.service.database.write() as session:
        session.execute(delete(CloneRow))
    lake.client.service.tables._opened.clear()

    lake.post("/v1/tables/sales.clone/update", lake.lead, set={"id": "id + 1"}, predicate="id = 2")
    files = (lake.root / "sales.db/clone").glob("*.parquet")
    assert sorted(pq.read_table(each)["id"].to_pylist() for each in files) == [[1], [3]]


@pytest.mark.parametrize(("source", "status"), [("sales.db/orders", 200), ("hr.db/people", 403)])
def test_a_shallow_clone_of_other_software_is_read_if_who_registers_it_reads_its_source(lake, source, status):
    file = lake.file(source)
    folder = lake.table_with("clone", f"file://{file}", file)
    lake.post("/v1/tables", lake.lead, name="sales.clone", location=str(folder))

    answer = lake.client.post("/v1/tables/sales.clone/plan", json={}, headers=lake.lead)

    assert answer.status_code == status, answer.text
    assert bool(list((lake.root / source).glob("_delvec/clones/*"))) == (status == 200)
    lake.post("/v1/tables", name="sales.clone", location=str(folder))  # by an admin, who reads both
    assert lake.post("/v1/tables/sales.clone/plan", lake.lead)["num-files"] == 1


def test_without_tokens_a_log_names_any_file_in_the_roots(tmp_path):
    other = tmp_path / "other"
    deltalake.write_deltalake(str(other), pa.table({"id": [1, 2]}))
    with running_service(roots=(str(tmp_path),)) as client:
        lake = Lake.__new__(Lake)
        lake.root, lake.client = tmp_path, client
        file = next(Path(other).glob("*.parquet"))
        folder = lake.table_with("clone", f"file://{file}", file)
        lake.post("/v1/tables", name="clone", location=str(folder))
        assert lake.post("/v1/tables/clone/plan")["num-files"] == 1
