"""Who sees and does what on the console, and what other sites cannot do."""

import asyncio
import hashlib
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from tests.support.html_pages import Page, create, csrf

from delvec_service.dashboard import pages
from delvec_service.store.audit_store import AuditRecord

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


def test_a_form_that_does_not_arrive_holds_no_connection(monkeypatch):
    """Anybody may send forms, also who has no token."""
    monkeypatch.setattr(pages, "_FORM_SECONDS", 0.05)
    sent = []

    async def receive():
        await asyncio.sleep(3600)

    async def send(message):
        sent.append(message)

    headers = [(b"content-type", b"application/x-www-form-urlencoded"), (b"host", b"delvec.test")]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/dashboard/sign-in",
        "query_string": b"",
        "headers": headers,
    }
    dashboard = pages.Dashboard(None)
    asyncio.run(asyncio.wait_for(dashboard({**scope, "app": None, "scheme": "http"}, receive, send), 10))

    assert sent[0]["status"] == 403


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
        assert "Permission denied" in Page(run).text
        assert "PermissionDenied" not in Page(run).text
        assert not list((tmp_path / "people" / "_delta_log").glob("*.checkpoint*"))


@pytest.fixture
def guarded(running, tmp_path):
    """A service that requires tokens, with an administrator who is signed in."""
    with running(database_url=f"sqlite:///{tmp_path / 'store.db'}", token="root") as client:
        client.post("/dashboard/sign-in", data={"csrf-token": csrf(client), "token": "root"})
        yield client


def create_token(client, **fields):
    form = {"csrf-token": csrf(client), "do": "create", "days": "90", **fields}
    return client.post("/dashboard/tokens", data=form)


def secrets_on(page):
    return re.findall(r"delvec_[\w-]{43}", page.text)


def test_a_token_is_created_and_shown_once(guarded):
    page = Page(create_token(guarded, name="etl-2026", principal="etl"))

    page.assert_harmless()
    (secret,) = secrets_on(page)
    assert "etl has no role yet" in page.text
    headers = {"Authorization": f"Bearer {secret}"}
    assert guarded.get("/v1/access", headers=headers).json()["principal"] == "etl"
    later = Page(guarded.get("/dashboard/access"))
    assert "etl-2026" in later.text
    assert not secrets_on(later)
    (listed,) = guarded.get("/v1/tokens", headers={"Authorization": "Bearer root"}).json()["tokens"]
    assert listed["created-by"] == "DELVEC_TOKEN"
    assert "in 90 d" in later.text


@pytest.mark.parametrize("fields", [{"name": "etl"}, {"name": "no spaces"}, {"name": "x", "principal": "?"}])
def test_a_token_that_cannot_be_created(guarded, fields):
    create_token(guarded, name="etl", days="")

    page = Page(create_token(guarded, **fields))

    assert page.all("p", **{"class": "failed", "role": "alert"})
    assert page.all("input", id="token-name")[0]["value"] == fields["name"]  # to be corrected
    assert not secrets_on(page)
    assert create_token(guarded, name="new", days="1").status_code == 404  # no such choice


def test_a_token_is_revoked_after_confirmation(guarded):
    (secret,) = secrets_on(Page(create_token(guarded, name="etl@a.b")))
    (form,) = Page(guarded.get("/dashboard/access")).all("form", action="/dashboard/tokens/etl%40a.b/revoke")
    ours = {"csrf-token": csrf(guarded)}

    asked = Page(guarded.post(form["action"], data=ours))
    assert "Revoke token etl@a.b?" in " ".join(asked.text.split())
    assert "It is yours" not in asked.text
    bearer = {"Authorization": f"Bearer {secret}"}
    assert guarded.get("/v1/access", headers=bearer).status_code == 200
    page = Page(guarded.post(form["action"], data=ours | {"confirmed": "yes"}))

    assert "Token etl@a.b was revoked." in page.text
    assert not page.all("form", action=form["action"])
    assert guarded.get("/v1/access", headers=bearer).status_code == 401
    assert guarded.post("/dashboard/tokens/nobody/revoke", data=ours).status_code == 404


def test_who_revokes_their_own_token_is_warned_and_signed_out(guarded):
    (secret,) = secrets_on(Page(create_token(guarded, name="boss")))
    root = {"Authorization": "Bearer root"}
    grant = {"grantee": "boss", "role": "admin", "all-tables": True}
    guarded.post("/v1/grants", json=grant, headers=root).raise_for_status()
    guarded.post("/dashboard/sign-in", data={"csrf-token": csrf(guarded), "token": secret})
    ours = {"csrf-token": csrf(guarded)}

    assert "It is yours" in Page(guarded.post("/dashboard/tokens/boss/revoke", data=ours)).text
    done = guarded.post("/dashboard/tokens/boss/revoke", data=ours | {"confirmed": "yes"})

    assert (done.status_code, done.headers["location"]) == (303, "/dashboard/sign-in")


def test_who_is_no_admin_neither_sees_nor_creates_tokens(guarded):
    (secret,) = secrets_on(Page(create_token(guarded, name="eve")))
    guarded.post("/dashboard/sign-in", data={"csrf-token": csrf(guarded), "token": secret})

    shown = Page(guarded.get("/dashboard/access"))
    assert not shown.all("input", id="token-name")
    assert "DELVEC_TOKEN" not in shown.text
    assert not shown.all("input", id="grantee")
    audit = Page(guarded.get("/dashboard/audit"))
    assert "Enter a table that you maintain" in audit.text
    created = create_token(guarded, name="mallory")
    assert created.status_code == 403
    assert "Permission denied" in Page(created).text
    ours = {"csrf-token": csrf(guarded)}
    assert guarded.post("/dashboard/tokens/eve/revoke", data=ours | {"confirmed": "yes"}).status_code == 403
    assert guarded.post("/dashboard/tokens/eve/revoke", data=ours).status_code == 403
    tokens = guarded.get("/v1/tokens", headers={"Authorization": "Bearer root"}).json()["tokens"]
    assert [(one["name"], one["state"]) for one in tokens] == [("eve", "active")]


@pytest.mark.parametrize("path", ["/dashboard/tokens", "/dashboard/tokens/etl/revoke"])
def test_tokens_are_changed_by_our_forms_only(guarded, path):
    create_token(guarded, name="etl")
    for form, headers in (({}, {}), ({"csrf-token": csrf(guarded)}, {"Origin": "http://evil.test"})):
        answer = guarded.post(path, data=form | {"name": "new", "confirmed": "yes"}, headers=headers)
        assert answer.status_code == 403
    tokens = guarded.get("/v1/tokens", headers={"Authorization": "Bearer root"}).json()["tokens"]
    assert [(one["name"], one["state"]) for one in tokens] == [("etl", "active")]


def test_roles_are_granted_and_revoked(guarded):
    form = {"csrf-token": csrf(guarded), "grantee": "etl", "scope": "namespace", "target": "sales"}

    granted = Page(guarded.post("/dashboard/access", data=form | {"do": "grant", "role": "writer"}))
    assert "etl now has the role writer on namespace sales." in granted.text
    revoked = Page(guarded.post("/dashboard/access", data=form | {"do": "revoke"}))
    assert "etl no longer has a role on namespace sales." in revoked.text
    assert "No role is granted" in revoked.text


def test_an_open_service_is_not_locked_by_its_own_page(client):
    page = Page(client.get("/dashboard/access"))
    assert "This service requires no token" in page.text
    assert not page.all("button", **{"class": "main"})
    grant = {"csrf-token": csrf(client), "do": "grant", "grantee": "eve", "role": "admin", "scope": "all"}
    for answer in (create_token(client, name="etl"), client.post("/dashboard/access", data=grant)):
        assert "make yourself an admin first" in Page(answer).text
    assert client.get("/v1/tokens").json()["tokens"] == []  # and still open


def test_the_audit_log_is_paged_both_ways(guarded):
    began = datetime.now(UTC)
    guarded.service.audit.store.add(
        [
            AuditRecord(
                began + timedelta(seconds=number), "r", "revoke_token", "refused", 404, change=f"{number:03}."
            )
            for number in range(205)
        ]
    )
    first = Page(guarded.get("/dashboard/audit", params={"outcome": "refused"}))
    second = Page(guarded.get(first.all("a", rel="next")[0]["href"]))
    third = Page(guarded.get(second.all("a", rel="next")[0]["href"]))

    assert not first.all("a", rel="prev")
    assert "204." in first.text
    assert "104." in second.text
    assert "004." in third.text
    assert not third.all("a", rel="next")
    assert Page(guarded.get(third.all("a", rel="prev")[0]["href"])).elements == second.elements
    assert Page(guarded.get(second.all("a", rel="prev")[0]["href"])).elements == first.elements
