"""Texts and numbers that would make the log unreadable are refused, and the table does not change."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

HALF = "<half>"
ESCAPED_HALF = r'{"numRecords":1,"minValues":{"name":"\ud800"}}'


def send(client, url, body):
    """POST JSON in which ``HALF`` is a lone surrogate, which JSON can express and UTF-8 cannot."""
    content = json.dumps(body).replace(HALF, "\\ud800")
    return client.post(url, content=content, headers={"Content-Type": "application/json"})


def assert_usable(table, version):
    assert table.client.get(f"{table.url}/snapshot").json()["version"] == version
    assert table.append(table.write_file("next.parquet", [7])).status_code == 200


@pytest.mark.parametrize(
    "what",
    [
        {"predicate": HALF},
        {"user-metadata": HALF},
        {"engine-info": HALF},
        {"operation": HALF},
        {"operation-parameters": {"x": HALF}},
        {"operation-parameters": {HALF: "x"}},
        {"operation-metrics": {HALF: 1}},
        {"removes": [{"path": HALF}]},
        {"reads": {"files": [HALF]}},
    ],
    ids=str,
)
def test_half_a_character_in_a_commit_is_refused(filled, what):
    add = filled.write_file("new.parquet", [1])

    answer = send(
        filled.client,
        f"{filled.url}/commits",
        {"operation": "WRITE", "read-version": 1, "adds": [add], **what},
    )

    assert answer.status_code == 400, answer.text
    assert_usable(filled, 1)


@pytest.mark.parametrize(
    "what",
    [
        {"path": HALF},
        {"stats": f'{{"numRecords":1,"minValues":{{"name":"{HALF}"}}}}'},
        {"stats": ESCAPED_HALF},
        {"tags": {"x": HALF}},
    ],
    ids=str,
)
def test_half_a_character_in_a_new_file_is_refused(filled, what):
    add = filled.write_file("new.parquet", [1]) | what

    answer = send(
        filled.client, f"{filled.url}/commits", {"operation": "WRITE", "read-version": 1, "adds": [add]}
    )

    assert answer.status_code == 400, answer.text
    assert_usable(filled, 1)


def test_half_a_character_does_not_refuse_those_in_its_group(filled):
    bad = filled.write_file("bad.parquet", [1]) | {"tags": {"x": HALF}}
    good = [filled.write_file(f"good-{number}.parquet", [number]) for number in range(8)]
    requests = [
        {"operation": "WRITE", "read-version": 1, "adds": [add]} for add in (*good[:4], bad, *good[4:])
    ]

    with ThreadPoolExecutor(len(requests)) as pool:
        answers = list(pool.map(lambda body: send(filled.client, f"{filled.url}/commits", body), requests))

    assert sorted(answer.status_code for answer in answers) == [200] * 8 + [400]


@pytest.mark.parametrize(
    "changes",
    [
        {"change": "set-properties", "properties": {"x.y": HALF}},
        {"change": "set-comment", "comment": HALF},
        {"change": "add-columns", "columns": [{"column": "more", "type": "long", "comment": HALF}]},
    ],
    ids=str,
)
def test_half_a_character_in_a_change_of_the_table_is_refused(filled, changes):
    answer = send(filled.client, f"{filled.url}/alter", {"changes": [changes]})

    assert answer.status_code == 400, answer.text
    assert_usable(filled, 1)


@pytest.mark.parametrize(
    "what",
    [
        {"description": HALF},
        {"properties": {"x.y": HALF}},
        {"schema": {"type": "struct", "fields": [{"name": f"a{HALF}", "type": "long", "nullable": True}]}},
    ],
    ids=str,
)
def test_no_table_is_created_with_half_a_character(client, tmp_path, what):
    fields = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]
    body = {"location": str(tmp_path / "t"), "schema": {"type": "struct", "fields": fields}}

    answer = send(client, "/v1/tables", {**body, **what})

    assert answer.status_code == 400, answer.text
    assert client.get("/v1/tables").json()["tables"] == []
    assert client.post("/v1/tables", json=body).status_code == 201


@pytest.mark.parametrize(
    "what", [{"modificationTime": 2**63}, {"modificationTime": -(2**63) - 1}, {"size": 2**63}]
)
def test_a_number_that_the_log_cannot_hold_is_refused(filled, what):
    answer = filled.append(filled.write_file("new.parquet", [1]) | what)

    assert answer.status_code == 400
    assert_usable(filled, 1)


def test_a_day_that_python_does_not_have_is_a_partition_value(client, create, tmp_path):
    fields = [("id", "long"), ("name", "string"), ("day", "date")]
    schema = {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": name == "id", "metadata": {}} for name, kind in fields
        ],
    }
    table = create(client, tmp_path / "t", schema=schema, **{"partition-columns": ["day"]})

    answer = table.append(table.write_file("a.parquet", [1], partition_values={"day": "10000-01-01"}))

    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("path", ["x" * 256, "d/" * 2000 + "x", "é" * 128])
def test_a_name_that_storage_cannot_hold_is_refused_before_it_is_looked_up(filled, path, error):
    answer = filled.append(filled.write_file("new.parquet", [1]) | {"path": path})

    assert answer.status_code == 400
    assert error(answer)["type"] == "InvalidCommit"
