"""CLONE over HTTP: what is committed once, whatever the database remembers."""

import pytest


@pytest.mark.parametrize("shallow", [True, False], ids=["shallow", "deep"])
def test_a_repeated_replacement_is_found_in_the_log_where_nothing_else_remembers_it(
    filled, create, running, tmp_path, shallow
):
    other = create(filled.client, tmp_path / "other")
    other.append(other.write_file("x.parquet", [1]))
    body = {"location": str(other.folder), "shallow": shallow, "replace": True, "read-version": 1}

    def send(client, **changed):
        return client.post(
            f"{filled.url}/clone", json=body | changed, headers={"Idempotency-Key": "replacement"}
        )

    first = send(filled.client)
    assert first.json()["result"] == "replaced", first.text
    other.append(other.write_file("y.parquet", [99]))
    files = sorted(other.folder.rglob("*.parquet"))

    with running() as client:
        for folder in (filled.folder, other.folder):
            client.post("/v1/tables", json={"location": str(folder)})
        again = send(client)
        taken = send(client, properties={"a": "b"})

        assert taken.status_code == 422
        assert {**again.json(), "table": None} == {**first.json(), "table": None}
        assert sorted(other.folder.rglob("*.parquet")) == files
        other.client = client
        assert other.version() == 3
