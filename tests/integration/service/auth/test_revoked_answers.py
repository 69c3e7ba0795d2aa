"""A stored answer is not repeated to a principal whose role was taken away."""

import pytest
from tests.integration.service.conftest import SCHEMA

ADMIN = {"Authorization": "Bearer the-configured-token"}
KEY = {"Idempotency-Key": "once"}


@pytest.fixture
def guarded(running, tmp_path):
    with running(
        token="the-configured-token",
        roots=(str(tmp_path),),
        database_url=f"sqlite:///{tmp_path / 'store.db'}",
    ) as client:
        client.headers.update(ADMIN)
        yield client


def principal(client, name, **on):
    made = client.post("/v1/tokens", json={"name": name}).json()
    client.post("/v1/grants", json={"grantee": name, **on}).raise_for_status()
    return {"Authorization": f"Bearer {made['token']}"}


def test_an_answer_is_repeated_until_the_role_is_revoked(guarded):
    headers = principal(guarded, "etl", role="maintainer", namespace="sales") | KEY
    body = {"name": "sales.orders", "schema": SCHEMA}
    first = guarded.post("/v1/tables", json=body, headers=headers)
    again = guarded.post("/v1/tables", json=body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert again.headers["Idempotent-Replay"] == "true"

    gone = guarded.delete("/v1/grants", params={"grantee": "etl", "namespace": "sales"})
    assert gone.status_code == 204
    after = guarded.post("/v1/tables", json=body, headers=headers)

    assert 400 <= after.status_code < 500
    assert first.json()["id"] not in after.text
    assert first.json()["location"] not in after.text
    assert "Idempotent-Replay" not in after.headers
