"""Who sees and does what on the console, and what other sites cannot do."""

import hashlib
import re
from pathlib import Path

import httpx
import pytest
from tests.support.html_pages import Page, create, csrf

STATIC = Path(__file__).parents[4] / "service" / "delvec_service" / "dashboard" / "static"


def test_a_table_that_is_not_there(client):
    for name in ("nobody", "%3Cscript%3E", "..%2F..%2Fv1%2Fconfig", "people/run/run"):
        answer = client.get(f"/dashboard/tables/{name}")
        assert answer.status_code == 404, name
        Page(answer).assert_harmless()
    assert client.get("/dashboard/nothing").status_code == 404
    assert client.get("/dashboard/static/..%2Fpages.py").status_code == 404


def test_what_the_service_refuses_is_said(client):
    token = csrf(client)
    answer = client.post("/dashboard/tables/nobody/run", data={"csrf-token": token, "action": "optimize"})

    assert answer.status_code == 404
    assert "nobody" in Page(answer).text


@pytest.mark.parametrize(
    ("token", "headers"),
    [
        ("", {}),
        ("x" * 43, {}),
        (None, {"Origin": "http://evil.test"}),
        (None, {"Origin": "null"}),
        (None, {"Sec-Fetch-Site": "cross-site"}),
        (None, {"Sec-Fetch-Site": "same-site"}),
        (None, {"Content-Type": "text/plain"}),
    ],
)
def test_a_form_of_another_site_does_nothing(table, token, headers):
    url = f"/dashboard/tables/{table.name}"
    ours = csrf(table.client)
    form = {"csrf-token": ours if token is None else token, "action": "checkpoint"}

    answer = table.client.post(f"{url}/run", data=form, headers=headers)

    assert answer.status_code == 403
    assert not list(table.log.glob("*.checkpoint*"))


def test_a_form_is_limited(client):
    ours = csrf(client)
    answer = client.post("/dashboard/sign-in", data={"csrf-token": ours, "token": "x" * 100_000})

    assert answer.status_code == 403


def test_nothing_is_shown_without_the_token(running, tmp_path):
    with running(database_url=f"sqlite:///{tmp_path / 'store.db'}", token="secret") as client:
        body = {"location": str(tmp_path / "people"), "schema": {"type": "struct", "fields": []}}
        client.post("/v1/tables", json=body, headers={"Authorization": "Bearer secret"})
        for path in ("/", "/dashboard/tables/people", "/dashboard/tables/nobody"):
            answer = client.get(path)
            assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard/sign-in")
            assert "people" not in answer.text
        token = csrf(client)
        run = client.post("/dashboard/tables/people/run", data={"csrf-token": token, "action": "checkpoint"})
        assert run.status_code == 303
        for wrong in ("other", "", "sécret", "a\nb"):
            refused = client.post("/dashboard/sign-in", data={"csrf-token": token, "token": wrong})
            assert refused.status_code == 401, wrong
            assert "delvec_token" not in refused.headers.get("set-cookie", "")
        client.cookies.set("delvec_token", "forged")
        assert client.get("/").status_code == 303


def test_who_signed_in_sees_tables_until_they_sign_out(running, tmp_path):
    with running(database_url=f"sqlite:///{tmp_path / 'store.db'}", token="secret") as client:
        token = csrf(client)
        signed = client.post("/dashboard/sign-in", data={"csrf-token": token, "token": " secret "})
        assert (signed.status_code, signed.headers["location"]) == (303, "/")
        assert re.search(
            "delvec_token=secret; HttpOnly; Path=/; SameSite=strict", signed.headers["set-cookie"]
        )
        assert client.get("/").status_code == 200
        assert client.get("/v1/tables").status_code == 401  # a cookie is for pages
        assert client.post("/dashboard/sign-out", data={"csrf-token": token}).status_code == 403
        token = csrf(client)
        out = client.post("/dashboard/sign-out", data={"csrf-token": token})
        assert out.status_code == 303
        assert csrf(client) != token
        assert client.get("/").status_code == 303


def test_cookies_of_https_stay_there(running, tmp_path):
    with running(database_url=f"sqlite:///{tmp_path / 'store.db'}") as client:
        secure = httpx.Client(transport=client._transport, base_url="https://delvec.test")
        assert "Secure" in secure.get("/").headers["set-cookie"]


def test_pages_may_load_nothing_from_elsewhere(client, tmp_path):
    create(client, tmp_path)
    for path in ("/", "/dashboard/tables/people", "/dashboard/sign-in", "/dashboard/nothing"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert "http" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_files_of_others_are_as_their_packages_have_them(client):
    listed = re.findall(r"^([0-9a-f]{64})  (\S+)$", (STATIC / "VENDORED.txt").read_text(), re.MULTILINE)
    ours = {"dashboard.css", "dashboard.js", "icon.svg", "VENDORED.txt"}
    assert {name for _, name in listed} | ours == {path.name for path in STATIC.iterdir()}
    for digest, name in listed:
        answer = client.get(f"/dashboard/static/{name}")
        assert hashlib.sha256(answer.content).hexdigest() == digest, name
        assert "immutable" in answer.headers["cache-control"]


def test_a_service_without_the_page(running, tmp_path):
    with running(database_url=f"sqlite:///{tmp_path / 'store.db'}", dashboard=False) as client:
        assert client.get("/").status_code == 404


def test_the_page_shows_and_does_what_the_token_may(running, tmp_path):
    with running(database_url=f"sqlite:///{tmp_path / 'store.db'}", token="root") as client:
        root = {"Authorization": "Bearer root"}
        for name in ("people", "salaries"):
            body = {"location": str(tmp_path / name), "name": name}
            body["schema"] = {
                "type": "struct",
                "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
            }
            client.post("/v1/tables", json=body, headers=root).raise_for_status()
            client.get(f"/v1/tables/{name}/health", headers=root)
        made = client.post("/v1/tokens", json={"name": "reader"}, headers=root).json()
        grant = {"grantee": made["principal"], "role": "reader", "table": "people"}
        client.post("/v1/grants", json=grant, headers=root).raise_for_status()
        token = csrf(client)
        form = {"csrf-token": token, "token": made["token"]}
        assert client.post("/dashboard/sign-in", data=form).status_code == 303

        listed = Page(client.get("/dashboard/tables")).text
        assert "people" in listed
        assert "salaries" not in listed
        shown = Page(client.get("/dashboard/tables/people/maintenance"))
        assert not shown.all("select", id="action")  # a reader has nothing to run
        assert "maintainer" in shown.text
        hidden = client.get("/dashboard/tables/salaries")
        assert hidden.status_code == 404
        token = csrf(client)
        run = client.post("/dashboard/tables/people/run", data={"csrf-token": token, "action": "checkpoint"})
        assert "You may not do this" in Page(run).text
        assert "PermissionDenied" not in Page(run).text
        assert not list((tmp_path / "people" / "_delta_log").glob("*.checkpoint*"))
