"""External catalogs: which of them a service may write to."""

import pytest
from pyiceberg.utils.config import Config

from delvec_errors import BadRequest
from delvec_service.iceberg.external_catalogs import catalog_and_table

SCHEMA = {
    "type": "struct",
    "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
}


@pytest.mark.parametrize(
    ("wanted", "name", "identifier"),
    [
        ("prod", "prod", ("sales", "orders")),
        ("prod.folk", "prod", ("default", "folk")),
        ("prod.eu.sales.orders", "prod", ("eu", "sales", "orders")),
    ],
)
def test_a_catalog_is_named_with_a_table_or_without(wanted, name, identifier):
    assert catalog_and_table(wanted, "sales.orders") == (name, identifier)


@pytest.mark.parametrize("wanted", [".", "prod.", ".orders", "prod..orders"])
def test_parts_of_names_are_not_empty(wanted):
    with pytest.raises(BadRequest):
        catalog_and_table(wanted, "orders")


def test_a_service_writes_only_to_catalogs_that_its_setting_names(running, tmp_path, monkeypatch):
    for name in ("PROD", "STAGING"):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__{name}__TYPE", "sql")
        monkeypatch.setenv(f"PYICEBERG_CATALOG__{name}__URI", f"sqlite:///{tmp_path / name}.db")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    with running(iceberg_catalogs=("staging",)) as client:
        body = {"location": str(tmp_path / "people"), "name": "people", "schema": SCHEMA}
        assert client.post("/v1/tables", json=body).status_code == 201
        answer = client.post("/v1/tables/people/iceberg", json={"catalog": "prod"})
        assert answer.status_code == 400
        assert "DELVEC_ICEBERG_CATALOGS" in answer.json()["error"]["message"]
        answer = client.post("/v1/tables/people/iceberg", json={"catalog": "staging"})
        assert answer.json()["catalog"] == "staging.default.people"
    assert not (tmp_path / "PROD.db").exists()
