"""``…/snapshot``, ``…/plan``, ``…/history``, ``…/detail`` and ``…/health`` over HTTP."""

import base64
import io
import json
import time

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from delvec_contract.plans import PlanResponse
from delvec_kernel.deletion_vectors.deletion_vector import deserialize_bitmap

ARROW = {"Accept": "application/vnd.apache.arrow.stream"}


def plan(table, **request):
    headers = request.pop("headers", {})
    body = {key.replace("_", "-"): value for key, value in request.items()}
    return table.client.post(f"{table.url}/plan", json=body, headers=headers)


def arrow_plan(table, **request):
    answer = plan(table, headers=ARROW, **request)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == ARROW["Accept"]
    files = pa.ipc.open_stream(io.BytesIO(answer.content)).read_all()
    return PlanResponse.model_validate_json(files.schema.metadata[b"delvec"]), files


def test_a_snapshot_says_what_the_table_is(filled):
    filled.delete({"a.parquet": [0, 1]})

    snapshot = filled.client.get(f"{filled.url}/snapshot").json()

    assert snapshot["version"] == 2
    assert snapshot["num-files"] == 2
    assert snapshot["num-deletion-vectors"] == 1
    assert snapshot["num-deleted-rows"] == 2
    assert snapshot["num-rows"] == 13
    assert snapshot["configuration"] == {"delta.enableDeletionVectors": "true"}
    assert snapshot["protocol"]["readerFeatures"] == ["deletionVectors"]
    assert snapshot["location"] == f"file://{filled.folder}"


def test_snapshots_of_the_past(filled, error):
    filled.delete({"a.parquet": [0, 1]})
    url = f"{filled.url}/snapshot"

    assert filled.client.get(url, params={"version": 0}).json()["num-files"] == 0
    now = f"{time.time_ns() // 1_000_000 - 3_600_000}"
    assert error(filled.client.get(url, params={"timestamp": now}))["type"] == "VersionNotFound"
    assert error(filled.client.get(url, params={"version": 9}))["type"] == "VersionNotFound"
    for bad in (
        {"version": -1},
        {"version": "x"},
        {"timestamp": "x"},
        {"version": 1, "timestamp": "2026-01-01"},
    ):
        assert error(filled.client.get(url, params=bad))["type"] == "BadRequest"


def test_a_plan_as_json(filled):
    filled.delete({"a.parquet": [0, 1]})

    answer = plan(filled, predicate="id >= 0", stats=True).json()

    assert answer["version"] == 2
    assert answer["num-files"] == answer["num-files-total"] == 2
    assert answer["next-page-token"] is None
    files = {file["path"]: file for file in answer["files"]}
    a, b = files["a.parquet"], files["b.parquet"]
    assert a["numRecords"] == 10
    assert a["deletionVector"] == filled.action(2, "add")["deletionVector"]
    assert deserialize_bitmap(base64.b64decode(a["deletedRows"], validate=True)) == BitMap64([0, 1])
    assert b["deletionVector"] is None
    assert b["deletedRows"] is None
    assert json.loads(b["stats"])["numRecords"] == 5


def test_a_plan_as_an_arrow_stream_says_the_same(filled):
    filled.delete({"a.parquet": [0, 1]})

    described, files = arrow_plan(filled)

    document = PlanResponse.model_validate(plan(filled).json())
    assert described == document.model_copy(update={"files": []})
    assert files["path"].to_pylist() == [file.path for file in document.files]
    assert files["deleted_rows"].to_pylist() == [file.deleted_rows for file in document.files]


def test_a_plan_skips_files(filled):
    answer = plan(filled, predicate="id > 9").json()

    assert [file["path"] for file in answer["files"]] == ["b.parquet"]
    assert (answer["num-files"], answer["num-files-total"]) == (1, 2)
    described, files = arrow_plan(filled, predicate="id < 0")
    assert (described.num_files, files.num_rows) == (0, 0)


def test_pages_are_of_one_version(table):
    table.append(*[table.write_file(f"{number}.parquet", [number]) for number in range(5)])
    first = plan(table, page_size=2).json()
    table.append(table.write_file("0.new.parquet", [9]))

    second = plan(table, page_size=2, page_token=first["next-page-token"]).json()
    third = plan(table, page_size=2, page_token=second["next-page-token"]).json()

    assert third["next-page-token"] is None
    assert {second["version"], third["version"]} == {1}
    paths = [file["path"] for page in (first, second, third) for file in page["files"]]
    assert sorted(paths) == [f"{number}.parquet" for number in range(5)]


@pytest.mark.parametrize("token", ["", "x", "1", "1.x", "1.-1", "1." + "9" * 30])
def test_a_page_token_of_ones_own_making_is_refused(filled, error, token):
    assert error(plan(filled, page_token=token))["type"] == "BadRequest"


def test_a_page_token_and_another_version_are_refused(filled, error):
    assert error(plan(filled, page_token="1.0", version=0))["type"] == "BadRequest"
    assert error(plan(filled, page_token="1.0", headers=ARROW))["type"] == "BadRequest"


@pytest.mark.parametrize("headers", [{}, ARROW])
@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        ({"predicate": "id ="}, "InvalidPredicate"),
        ({"predicate": "drop table people"}, "InvalidPredicate"),
        ({"predicate": ""}, "InvalidPredicate"),
        ({"predicate": "age > 3"}, "UnknownColumn"),
        ({"columns": ["age"]}, "UnknownColumn"),
        ({"version": 99}, "VersionNotFound"),
        ({"version": 1, "timestamp": "2026-01-01"}, "BadRequest"),
        ({"page_size": 0}, "BadRequest"),
    ],
)
def test_plans_that_cannot_be_are_refused(filled, error, request_, kind, headers):
    found = error(plan(filled, headers=headers, **request_))

    assert found["type"] == kind
    assert found["message"].count("\n") == 0


def test_a_large_plan_comes_in_batches(table):
    add = table.write_file("a.parquet", [1])
    lines = [
        json.dumps({"add": {**add, "path": f"part-{number:06}.parquet", "dataChange": True}})
        for number in range(20_000)
    ]
    (table.log / f"{1:020}.json").write_text("\n".join(lines))

    answer = plan(table, headers=ARROW)

    reader = pa.ipc.open_stream(io.BytesIO(answer.content))
    batches = [batch.num_rows for batch in reader]
    assert sum(batches) == 20_000
    assert len(batches) >= 3


def test_a_damaged_deletion_vector_fails_the_plan_before_it_starts(filled, error):
    filled.delete({"a.parquet": [1]})
    (path,) = filled.folder.rglob("*.bin")
    path.write_bytes(path.read_bytes()[:-3])

    for headers in ({}, ARROW):
        answer = plan(filled, headers=headers)
        assert answer.status_code == 422
        assert error(answer)["type"] == "DeletionVectorTruncated"
        assert path.name in error(answer)["message"]


def test_a_log_with_a_gap_or_junk_is_named(filled, error):
    filled.append(filled.write_file("c.parquet", [1]))
    filled.append(filled.write_file("d.parquet", [1]))
    url = f"{filled.url}/snapshot?version=3"
    entry = filled.log / f"{2:020}.json"
    content = entry.read_bytes()

    entry.write_bytes(content[:-10])
    found = error(filled.client.get(f"{filled.url}/snapshot?version=2"))
    assert found["type"] == "CorruptLog"
    assert entry.name in found["message"]
    entry.unlink()
    filled.client.service.loader.discard(f"file://{filled.folder}")
    found = error(filled.client.get(url))
    assert found["type"] == "MissingLogFile"
    assert found["details"]["table"] == "people"


def test_history_is_newest_first(filled):
    filled.delete({"a.parquet": [1]})

    history = filled.client.get(f"{filled.url}/history").json()["history"]

    assert [entry["operation"] for entry in history] == ["DELETE", "WRITE", "CREATE TABLE"]
    assert history[0]["operationMetrics"]["numDeletedRows"] == "1"
    assert history[0]["operationParameters"] == {"predicate": '["(id = 1)"]'}
    limited = filled.client.get(f"{filled.url}/history", params={"limit": 1}).json()["history"]
    assert [entry["version"] for entry in limited] == [2]
    assert filled.client.get(f"{filled.url}/history", params={"limit": 0}).status_code == 400


def test_detail_and_health(filled):
    filled.delete({"a.parquet": [0, 1, 2]})

    described = filled.client.get(f"{filled.url}/detail").json()
    detail = described["detail"]
    health = filled.client.get(f"{filled.url}/health").json()

    assert detail["numFiles"] == 2
    assert "deletionVectors" in detail["tableFeatures"]
    assert [column["name"] for column in described["schema"]["fields"]] == ["id", "name"]
    assert health["num-deleted-rows"] == 3
    assert health["deleted-ratio"] == 0.2
    assert health["version"] == 2


def test_reads_write_nothing(filled):
    assert filled.client.service.log_maintenance.wait(120)  # writes after commits
    before = {path: path.stat().st_mtime_ns for path in filled.folder.rglob("*")}

    for path in ("snapshot", "history", "detail", "health", "commits/1"):
        assert filled.client.get(f"{filled.url}/{path}").status_code == 200
    plan(filled)

    assert {path: path.stat().st_mtime_ns for path in filled.folder.rglob("*")} == before
