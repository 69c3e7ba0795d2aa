"""Policies on the console: list, form, dry run, and what is wrong with a form."""

import pytest
from tests.support.html_pages import Page, csrf

from delvec_contract.policies import config_of
from delvec_service.dashboard.policy_form import DOES, InvalidField, config_from, form_fields

GIB = 1 << 30


def save(client, **fields):
    form = {"csrf-token": csrf(client), "type": "system.data-compaction", "name": "nightly", **fields}
    return client.post("/dashboard/policies", data={"scope": "all", "enable": "yes"} | form)


def test_a_policy_is_created_changed_and_deleted(filled):
    client = filled.client
    assert "There is no policy yet" in Page(client.get("/dashboard/policies")).text
    saved = save(client, min_gain_bytes="2 GiB", quiet_hours="08:00-20:00, 23:00-01:00", **{"is-new": "yes"})

    assert "Policy nightly was saved." in Page(saved).text
    policy = client.get("/v1/policies/nightly").json()
    assert policy["content"]["config"] == {
        "min_gain_bytes": 2 * GIB,
        "quiet_hours": ["08:00-20:00", "23:00-01:00"],
    }
    page = Page(client.get("/dashboard/policies/nightly"))
    page.assert_harmless()
    assert page.all("input", id="min_gain_bytes")[0]["value"] == "2 GiB"
    save(client, scope="table", table=filled.name, max_deleted_ratio="12.5 %", enable="no")
    policy = client.get("/v1/policies/nightly").json()
    assert policy["content"]["config"] == {"max_deleted_ratio": 0.125}
    assert not policy["content"]["enable"]
    assert f"table {filled.name}" in " ".join(Page(client.get("/dashboard/policies")).text.split())

    asked = client.post("/dashboard/policies/nightly/drop", data={"csrf-token": csrf(client)})
    assert "Delete policy nightly?" in Page(asked).text
    client.get("/v1/policies/nightly").raise_for_status()
    form = {"csrf-token": csrf(client), "confirmed": "yes"}
    assert (
        "Policy nightly was deleted." in Page(client.post("/dashboard/policies/nightly/drop", data=form)).text
    )
    assert client.get("/v1/policies/nightly").status_code == 404


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"min_gain_bytes": "many"}, "Least gain: 'many' is not valid"),
        ({"quiet_hours": "25:00"}, "quiet_hours"),
        ({"name": "no spaces allowed"}, ""),
        ({"scope": "table", "table": "nobody"}, "nobody"),
    ],
)
def test_a_form_says_what_is_wrong_and_keeps_what_was_typed(client, fields, said):
    answer = save(client, min_files_saved="77", **{"is-new": "yes"} | fields)

    page = Page(answer)
    page.assert_harmless()
    assert answer.status_code == 400
    assert page.all("p", role="alert")
    assert said in page.text
    assert page.all("input", id="min_files_saved")[0]["value"] == "77"
    assert client.get("/v1/policies").json()["policies"] == []


def test_a_new_policy_replaces_none(client):
    save(client)

    assert "of that name already" in Page(save(client, **{"is-new": "yes"})).text
    assert save(client, type="system.nothing").status_code == 404


def test_a_dry_run_says_what_the_policy_would_do(filled):
    save(filled.client, min_files_saved="1")

    text = " ".join(Page(filled.client.get("/dashboard/policies/nightly/plan")).text.split())

    assert f"{filled.name} would run" in text
    assert "2 files become 1" in text
    assert filled.version() == 1
    save(filled.client, enable="no")
    assert "The policy is off" in Page(filled.client.get("/dashboard/policies/nightly/plan")).text


@pytest.mark.parametrize("kind", DOES)
def test_every_setting_has_a_field_that_keeps_its_value(client, kind):
    assert Page(client.get("/dashboard/policies/new", params={"type": kind})).all("input", id="quiet_hours")
    defaults = vars(config_of(kind, {}))
    full = {
        name: {"target_file_size_bytes": 3 * GIB, "max_bytes_per_run": 5, "max_memory_bytes": GIB}.get(
            name, 12.5
        )
        if value is None
        else value
        for name, value in defaults.items()
    }
    typed = {one.name: one.value for one in form_fields(kind, full)}

    parsed = config_from(kind, typed)

    assert {name: value for name, value in full.items() if value != []} == parsed
    with pytest.raises(InvalidField):
        config_from(kind, {"min_interval_hours": "soon"})
