"""A damaged file of one tenant does not stop the service's commands on other tables."""

import threading

import pyarrow as pa
import pytest
from tests.support.damaged_files import end_duckdb

import delvec

ROWS = pa.table({"id": range(10)})


@pytest.fixture
def tables(client, tmp_path):
    """Return a function that makes a table of two files that the service knows by this name."""
    with delvec.connect(database_url=f"sqlite:///{tmp_path / 'other.db'}") as lake:

        def make(name):
            table = lake.create_table(tmp_path / name, ROWS.schema)
            table.append(ROWS.slice(0, 5))
            table.append(ROWS.slice(5))
            body = {"location": str(tmp_path / name), "name": name}
            client.post("/v1/tables", json=body).raise_for_status()
            return table

        yield make


def delete(client, name):
    return client.post(f"/v1/tables/{name}/delete", json={"predicate": "id % 2 = 0"})


def test_a_damaged_file_fails_one_command_by_name(client, tables, tmp_path):
    bad = tables("bad")
    tables("good")
    path = bad.plan()[0].files["path"].to_pylist()[1]
    end_duckdb(tmp_path / "bad" / path)

    for _ in range(3):
        answer = delete(client, "bad")
        error = answer.json()["error"]
        assert (error["type"], error["details"]["file"]) == ("CorruptTable", path)
        assert answer.status_code < 500 or error["retryable"] is False
        assert path in error["message"]
    answer = client.post("/v1/tables/bad/update", json={"set": {"id": "id + 1"}, "predicate": "id > 0"})
    assert answer.json()["error"]["details"]["file"] == path
    assert delete(client, "good").json()["operation-metrics"]["numDeletedRows"] == 5


def test_commands_at_the_same_time_share_no_database(client, tables, tmp_path):
    bad = tables("bad")
    end_duckdb(tmp_path / "bad" / bad.plan()[0].files["path"].to_pylist()[0])
    good = [tables(f"good{number}") for number in range(4)]
    stop = threading.Event()

    def damage():
        while not stop.is_set():
            delete(client, "bad")

    other = threading.Thread(target=damage)
    other.start()
    try:
        answers = [delete(client, f"good{number}") for number in range(len(good))]
    finally:
        stop.set()
        other.join()

    assert [answer.status_code for answer in answers] == [200] * len(good)
