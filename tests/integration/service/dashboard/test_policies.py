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

    assert "Policy nightly was saved, for all tables." in Page(saved).text
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
        ({"min_gain_bytes": "many"}, "Minimum gain: 'many' is not valid"),
        ({"quiet_hours": "25:00"}, "Quiet hours (UTC): '25:00' is not valid. Like 08:00-20:00"),
        ({"max_deleted_ratio": "150 %"}, "Maximum deleted rows: '150 %' is not valid. Like 5 %"),
        (
            {"max_memory_bytes": "1 MiB"},
            "Maximum memory: '1 MiB' is not valid. Rows held at once, 128 MiB or more",
        ),
        ({"name": "no spaces allowed"}, "Name: a policy's name has letters"),
        ({"scope": "pattern", "pattern": "sales[a-z]"}, "Pattern: a pattern of names has letters"),
        ({"scope": "pattern", "pattern": " "}, "give a pattern of names"),
        ({"scope": "table", "table": ""}, "give the name of a table"),
    ],
)
def test_a_form_says_what_is_wrong_and_keeps_what_was_typed(client, fields, said):
    fields = {"pattern": "some.*", "table": "typed", **fields}
    answer = save(client, min_files_saved="77", **{"is-new": "yes"} | fields)

    page = Page(answer)
    page.assert_harmless()
    assert answer.status_code == 400
    assert page.all("p", role="alert")
    assert said in page.text
    assert "^" not in page.text  # no regular expression
    for name in ("pattern", "table"):
        assert page.all("input", name=name)[0]["value"] == fields[name]
    (chosen,) = [one["value"] for one in page.all("input", name="scope") if "checked" in one]
    assert chosen == fields.get("scope", "all")
    assert page.all("input", id="min_files_saved")[0]["value"] == "77"
    assert client.get("/v1/policies").json()["policies"] == []


def test_a_policy_of_a_table_that_is_not_there_is_refused(client):
    answer = save(client, scope="table", table="nobody", **{"is-new": "yes"})

    assert answer.status_code == 404
    assert "Table 'nobody' is not registered" in Page(answer).text


def test_who_may_not_change_policies_sees_them_without_buttons(running, tmp_path, filled):
    root = {"Authorization": "Bearer root"}
    with running(database_url=f"sqlite:///{tmp_path / 'store.db'}", token="root") as client:
        schema = {
            "type": "struct",
            "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
        }
        other = {"location": str(tmp_path / "other"), "name": "other", "schema": schema}
        for body in ({"location": str(filled.folder), "name": "people"}, other):
            client.post("/v1/tables", json=body, headers=root).raise_for_status()
            policy = {"type": "system.checkpoint", "content": {"enable": True}, "table": body["name"]}
            policy["name"] = f"of-{body['name']}"
            client.post("/v1/policies", json=policy, headers=root).raise_for_status()
        made = client.post("/v1/tokens", json={"name": "eve"}, headers=root).json()

        def grant(role, table):
            body = {"grantee": "eve", "role": role, "table": table}
            client.post("/v1/grants", json=body, headers=root).raise_for_status()

        grant("reader", "people")
        client.post("/dashboard/sign-in", data={"csrf-token": csrf(client), "token": made["token"]})
        listed = Page(client.get("/dashboard/policies"))
        assert not [one for one in listed.all("a") if one["href"].endswith(("/new", "/plan"))]
        shown = Page(client.get("/dashboard/policies/of-people"))
        assert "you need the role maintainer" in shown.text
        assert all("Save" not in text for text in shown.text.split("\n"))
        assert shown.all("fieldset", disabled=None)
        refused = save(client, name="mine", **{"is-new": "yes"})
        assert refused.status_code == 403
        assert "'eve' has no role there: this requires maintainer on all tables" in Page(refused).text

        grant("maintainer", "people")
        grant("reader", "other")
        listed = Page(client.get("/dashboard/policies"))
        assert [one for one in listed.all("a") if one["href"].endswith("/new")]
        assert "Save" in Page(client.get("/dashboard/policies/of-people")).text
        assert "Save" not in Page(client.get("/dashboard/policies/of-other")).text


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
