"""``GET /metrics`` in Prometheus format."""

import json
import os
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from delvec_contract.health import HealthSample
from delvec_service.store.health_samples import CommitCounts, ObservedTable
from delvec_service.store.models import HealthSampleRow, TableRow
from delvec_service.telemetry.table_metrics import table_lines

SCHEMA = {
    "type": "struct",
    "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
}


@pytest.fixture
def client(running, tmp_path):
    with running(
        database_url=f"sqlite:///{tmp_path / 'store.db'}", metrics_tables=("people", "sales_*")
    ) as found:
        yield found


def samples(client, **headers):
    """Return the values of all metrics by name and labels."""
    answer = client.get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    read = parse_openmetrics if "openmetrics" in answer.headers["content-type"] else parse
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in read(answer.text)
        for sample in family.samples
    }


def create(client, folder, name="people"):
    body = {"location": str(folder / name), "name": name, "schema": SCHEMA}
    answer = client.post("/v1/tables", json=body)
    assert answer.status_code == 201, answer.text
    return f"/v1/tables/{name}"


def test_what_a_service_does_is_counted(client, tmp_path):
    url = create(client, tmp_path)
    changed = {"operation": "ADD COLUMNS", "read-version": 0, "table-changes": []}
    client.post(f"{url}/commits", json=changed)
    client.post(f"{url}/plan", json={})
    client.get("/v1/tables/nobody")
    client.get("/no/such/address")
    client.request("BREW", "/v1/tables")

    found = samples(client)

    assert (
        found["delvec_http_requests_total", ("method", "POST"), ("route", "/v1/tables"), ("status", "201")]
        == 1
    )
    plan = ("method", "POST"), ("route", "/v1/tables/{table}/plan")
    assert found["delvec_http_requests_total", *plan, ("status", "200")] == 1
    assert found["delvec_http_request_seconds_count", *plan] == 1
    missing = ("method", "GET"), ("route", "/v1/tables/{table}"), ("status", "404")
    assert found["delvec_http_requests_total", *missing] == 1
    nowhere = ("method", "GET"), ("route", "none"), ("status", "404")
    assert found["delvec_http_requests_total", *nowhere] == 1
    assert found["delvec_plan_seconds_count",] == 1
    assert found["delvec_storage_request_seconds_count", ("kind", "create")] >= 1
    assert found["delvec_storage_request_seconds_count", ("kind", "list")] >= 1
    assert found["delvec_snapshot_loads_total", ("source", "log")] >= 1
    assert found["delvec_database_up",] == 1
    assert found["delvec_tables", ("health", "unknown")] + found["delvec_tables", ("health", "good")] == 1
    assert not [key for key in found if "BREW" in str(key)]


def test_commits_are_counted_by_outcome(client, tmp_path):
    url = create(client, tmp_path)

    def commit(read_version, key):
        body = {"operation": "ADD COLUMNS", "read-version": read_version, "transaction-id": key}
        body["table-changes"] = [{"change": "add-columns", "columns": [{"column": str(key), "type": "long"}]}]
        return client.post(f"{url}/commits", json=body)

    assert commit(0, "one").json()["result"] == "committed"
    assert commit(0, "one").json()["result"] == "committed"  # again
    assert commit(0, "two").status_code == 409
    assert commit(99, "three").status_code == 400

    found = samples(client)

    outcomes = {key[1][1]: value for key, value in found.items() if key[0] == "delvec_commits_total"}
    assert outcomes == {"committed": 1, "replayed": 1, "conflict": 1, "failed": 1}
    assert found["delvec_commit_conflicts_total", ("error", "MetadataChangedException")] == 1
    assert found["delvec_commit_seconds_count",] == 4
    assert found["delvec_commit_group_size_count",] >= 2


def test_a_rebased_commit_saves_rows(table, running):
    del running
    table.append(table.write_file("a.parquet", range(100)))
    table.delete({"a.parquet": [1, 2]}, read_version=1)
    rebased = table.delete({"a.parquet": [3, 4, 5]}, read_version=1)
    assert rebased.json()["result"] == "rebased", rebased.text

    found = samples(table.client)

    assert found["delvec_commits_total", ("outcome", "rebased")] == 1
    assert found["delvec_commit_rebased_rows_total",] == 3
    assert found["delvec_deletion_vector_reads_total", ("source", "memory")] >= 1


def test_health_is_told_of_the_tables_that_the_setting_names(client, tmp_path):
    for name in ("people", "sales_nz", "salesX", "secret"):
        url = create(client, tmp_path, name)
        client.get(f"{url}/health")

    found = samples(client)

    scores = {key[1][1]: value for key, value in found.items() if key[0] == "delvec_table_health_score"}
    assert scores == {"people": 100, "sales_nz": 100}  # and not salesX: an underscore is one
    assert found["delvec_tables", ("health", "good")] == 4


def test_how_far_iceberg_is_behind(client, tmp_path):
    url = create(client, tmp_path)
    assert not [key for key in samples(client) if "iceberg_" in key[0]]
    client.post(f"{url}/iceberg", json={"format-version": 3})
    client.get(f"{url}/health")
    labels = ("format_version", "3"), ("table", "people")
    found = samples(client)
    assert found["delvec_table_iceberg_version", *labels] == 0
    assert found["delvec_table_iceberg_lag_versions", *labels] == 0
    assert found["delvec_table_iceberg_lag_seconds", *labels] == 0

    answer = client.post(
        f"{url}/alter", json={"changes": [{"change": "set-properties", "properties": {"a": "b"}}]}
    )
    assert answer.status_code == 200, answer.text
    client.get(f"{url}/health")
    time.sleep(0.01)

    found = samples(client, Accept="application/openmetrics-text; version=1.0.0")
    assert found["delvec_table_iceberg_version", *labels] == 0
    assert found["delvec_table_iceberg_lag_versions", *labels] == 1
    assert 0 < found["delvec_table_iceberg_lag_seconds", *labels] < 60

    client.post(f"{url}/iceberg", json={"format-version": 3})
    assert samples(client)["delvec_table_iceberg_lag_versions", *labels] == 0


def test_a_name_cannot_end_its_label():
    # Names have no such characters today, but a malformed metric would hide all others.
    odd = 'a"} 1\n# b\\'
    sample = SimpleNamespace(**dict.fromkeys(HealthSample.model_fields, 1))
    sample.sampled_at = datetime.now(UTC)
    lines = table_lines([ObservedTable(odd, sample, CommitCounts())]).decode()

    (family,) = [found for found in parse(lines) if found.name == "delvec_table_files"]
    assert [one.labels for one in family.samples] == [{"table": odd}]


def test_openmetrics_where_it_is_asked_for(client, tmp_path):
    url = create(client, tmp_path)
    client.get(f"{url}/health")

    found = samples(client, Accept="application/openmetrics-text; version=1.0.0")

    assert found["delvec_table_commits_total", ("table", "people")] == 0
    assert found["delvec_tables", ("health", "good")] == 1


def test_a_database_that_is_away_is_a_metric_and_no_failure(client, monkeypatch):
    def away(*_):
        from delvec_errors import ServiceUnavailable

        raise ServiceUnavailable("away")

    monkeypatch.setattr(client.service.health.store, "bands", away)
    found = samples(client)

    assert found["delvec_database_up",] == 0
    assert ("delvec_tables", ("health", "good")) not in found


def test_the_token_is_asked_for(running, tmp_path):
    with running(database_url=f"sqlite:///{tmp_path / 'store.db'}", token="secret") as client:
        assert client.get("/metrics").status_code == 401
        assert client.get("/metrics", headers={"Authorization": "Bearer secret"}).status_code == 200


def test_a_service_without_metrics_says_so(running, tmp_path):
    with running(database_url=f"sqlite:///{tmp_path / 'store.db'}", metrics=False) as client:
        answer = client.get("/metrics")

    assert answer.status_code == 400
    assert "DELVEC_METRICS" in answer.json()["error"]["message"]


def test_a_thousand_tables_make_a_scrape_of_a_thousand_tables(running, tmp_path):
    with running(database_url=f"sqlite:///{tmp_path / 'store.db'}", metrics_tables=("*",)) as client:
        now = datetime.now(UTC)
        sample = dict.fromkeys(HealthSample.model_fields, 1)
        sample |= {"metadata_id": "m", "sampled_at": now, "actions": ""}
        with client.service.database.write() as session:
            for number in range(1200):
                id_ = f"{number:036}"
                session.add(
                    TableRow(
                        id=id_,
                        catalog="",
                        name=f"t{number:04}",
                        location=f"file:///t/{number}",
                        folder_name=id_,
                        created_at=now,
                    )
                )
                session.add(HealthSampleRow(table_id=id_, **sample))
        began = time.process_time()
        found = samples(client)
        seconds = time.process_time() - began

    shown = [key for key in found if key[0] == "delvec_table_files"]
    assert len(shown) == 1000  # the most, by name
    assert found["delvec_tables", ("health", "poor")] == 1200
    assert seconds < 5  # with the parser of the test; docs/monitoring.md says what a scrape takes


WORKER = """
import sys, httpx
from tests.support.asgi_transport import EmbeddedTransport
from delvec_service.app import create_app
from delvec_service.config import Settings

app = create_app(Settings(database_url=sys.argv[1]))
with httpx.Client(transport=EmbeddedTransport(app), base_url="http://delvec.test") as client:
    for _ in range(int(sys.argv[2])):
        client.get("/v1/tables")
    print(client.get("/metrics").text if sys.argv[3] == "scrape" else "", flush=True)
    sys.stdin.read()
"""


@pytest.mark.full("starts a service with several processes")
def test_several_processes_answer_for_one_another(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    environment = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(shared)}

    def start(requests, what):
        arguments = [sys.executable, "-c", WORKER, f"sqlite:///{tmp_path / 'store.db'}", str(requests), what]
        return subprocess.Popen(
            arguments, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    first = start(3, "wait")
    first.stdout.readline()  # its requests are done, and it is still running
    second = start(4, "scrape")
    text, _ = second.communicate(timeout=60)
    first.communicate(timeout=60)

    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in parse(text)
        for sample in family.samples
    }
    listed = ("method", "GET"), ("route", "/v1/tables"), ("status", "200")
    assert found["delvec_http_requests_total", *listed] == 7
    assert found["delvec_http_request_seconds_count", *listed[:2]] == 7
    assert found["delvec_http_requests_in_progress",] == 1  # the scrape
    assert found["delvec_database_up",] == 1


def test_the_log_says_who_what_and_which(client, tmp_path, caplog):
    url = create(client, tmp_path)
    body = {
        "operation": "ADD COLUMNS",
        "read-version": 0,
        "transaction-id": "one",
        "table-changes": [{"change": "add-columns", "columns": [{"column": "a", "type": "long"}]}],
    }
    found = []
    with caplog.at_level("INFO", logger="delvec_service"):
        client.post(f"{url}/commits", json=body, headers={"X-Request-Id": "mine"})
        until = time.monotonic() + 30  # the line may come after the answer
        while not found and time.monotonic() < until:
            said = [json.loads(record.getMessage()) for record in list(caplog.records)]
            found = [one for one in said if one.get("request_id") == "mine" and one["event"] == "request"]
            time.sleep(0.01)

    (line,) = found
    assert line["table"] == "people"
    assert line["transaction"] == "one"
    assert line["outcome"] == "committed"
    assert line["version"] == 1
    assert line["status"] == 200
    assert line["path"] == f"{url}/commits"


def test_the_documentation_lists_every_metric(client, tmp_path):
    url = create(client, tmp_path)
    client.get(f"{url}/health")
    client.post(f"{url}/iceberg")
    families = {family.name for family in parse(client.get("/metrics").text)}
    docs = Path(__file__).parents[3] / "docs"
    page = (docs / "monitoring.md").read_text() + (docs / "health.md").read_text().partition("## Numbers")[2]
    listed = set(re.findall(r"`(delvec_\w+)(?:\{[^`]*\})?`", page))

    ours = {name for name in families if name.startswith("delvec_")}
    counters = {name.removesuffix("_total") for name in listed}
    assert ours - listed - counters == set()
    assert counters - ours - {name.removesuffix("_total") for name in ours} == set()
