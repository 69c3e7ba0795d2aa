"""The filter of a plan is not repeated for every file without bound."""

import json

import pyarrow as pa
import pytest

import delvec

FILES = 400


@pytest.fixture
def plan(client, tmp_path):
    """Plan a scan of a table of 400 files with this filter."""
    with delvec.connect(database_url=f"sqlite:///{tmp_path / 'other.db'}") as lake:
        table = lake.create_table(tmp_path / "wide", "id long, p long", partition_by=["p"])
        table.append(pa.table({"id": range(FILES), "p": range(FILES)}))
    body = {"location": str(tmp_path / "wide"), "name": "sales.wide"}
    client.post("/v1/tables", json=body).raise_for_status()
    return lambda row_filter: client.post(
        "/iceberg/v1/namespaces/sales/tables/wide/plan", json={"filter": row_filter}
    )


def test_a_long_filter_is_refused_before_it_is_repeated(plan):
    long = {"type": "in", "term": "id", "values": ["x" * 45_000]}
    answer = plan(long)

    assert answer.status_code == 400
    assert "repeats it for each of 400 files" in answer.json()["error"]["message"]
    assert len(answer.content) < 1000

    short = {"type": "in", "term": "id", "values": list(range(500))}
    assert len(json.dumps(short)) < 4096
    tasks = plan(short).json()["file-scan-tasks"]
    assert len(tasks) == FILES
    assert all(task["residual-filter"] == short for task in tasks)
