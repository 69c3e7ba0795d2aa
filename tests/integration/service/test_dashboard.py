"""The dashboard: content, access, and resistance to injection from tables."""

import hashlib
import json
import os
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from delvec_contract import HealthSample
from delvec_service.dashboard.actions import ACTIONS, MENU
from delvec_service.store.models import HealthSampleRow, TableRow

STATIC = Path(__file__).parents[3] / "service" / "delvec_service" / "dashboard" / "static"
HOSTILE = "<script>alert`1`</script>"
VOID = {"meta", "link", "input", "img", "br", "rect"}


class Page(HTMLParser):
    """Reads a page strictly: elements are closed, attributes are there once; keeps elements and text."""

    def __init__(self, answer):
        super().__init__()
        assert answer.headers["content-type"] == "text/html; charset=utf-8", answer.text[:300]
        self.elements, self.text, self._open = [], "", []
        self.feed(answer.text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert len(names) == len(set(names)), (tag, names)
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open, tag
        assert self._open.pop() == tag, tag

    def handle_data(self, data):
        self.text += data

    def all(self, tag, **attributes):
        return [
            found
            for name, found in self.elements
            if name == tag and all(found.get(key) == value for key, value in attributes.items())
        ]

    def assert_harmless(self):
        for tag, attributes in self.elements:
            assert tag not in {"style", "iframe", "object", "embed", "base", "img"}, tag
            for name, value in attributes.items():
                assert not re.match(r"on|hx-on|style$", name), (tag, name)
                if name in ("src", "href", "action"):
                    assert re.match(r"/|#", value), (tag, value)
        scripts = self.all("script")
        assert [re.sub(r"\?.*", "", script["src"]) for script in scripts] == [
            f"/dashboard/static/{name}" for name in ("htmx.min.js", "uPlot.iife.min.js", "dashboard.js")
        ]


def create(client, folder, name="people", schema=None):
    fields = schema or [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]
    body = {"location": str(folder / name), "name": name, "schema": {"type": "struct", "fields": fields}}
    answer = client.post("/v1/tables", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def csrf(client, path="/"):
    page = Page(client.get(path))
    return page.all("input", name="csrf-token")[0]["value"]


def many(client, count):
    now = datetime.now(UTC)
    sample = dict.fromkeys(HealthSample.model_fields, 1)
    sample |= {"metadata_id": "m", "sampled_at": now, "actions": "OPTIMIZE"}
    with client.service.database.write() as session:
        for number in range(count):
            id_ = f"{number:036}"
            row = {"id": id_, "catalog": "", "name": f"t{number:05}", "folder_name": id_, "created_at": now}
            session.add(TableRow(location=f"file:///t/{number}", **row))
            session.add(HealthSampleRow(table_id=id_, **sample | {"score": number / 20}))


def test_without_tables_the_page_says_how_to_get_one(client):
    page = Page(client.get("/"))

    page.assert_harmless()
    assert "There are no registered tables" in page.text


def test_of_a_thousand_tables_those_come_first_that_need_most(client):
    many(client, 1000)

    first = Page(client.get("/"))
    first.assert_harmless()
    names = [found["href"] for found in first.all("a") if found.get("title", "").startswith("file:")]
    assert names == [f"/dashboard/tables/{number:036}" for number in range(50)]
    second = Page(client.get(first.all("a", rel="next")[0]["href"]))
    assert "t00050" in second.text
    assert "t00049" not in second.text
    found = Page(client.get("/", params={"search": "T0099"}))
    assert len([one for one in found.all("a") if "title" in one]) == 10
    assert "No table matches" in Page(client.get("/", params={"search": "t0_9%"})).text
    assert "t00999" in Page(client.get("/", params={"order-by": "nonsense", "search": "00999"})).text


def test_a_table_has_its_page(table):
    table.append(table.write_file("a.parquet", range(100)))
    table.delete({"a.parquet": range(20)}, read_version=1)

    page = Page(table.client.get(f"/dashboard/tables/{table.name}"))

    page.assert_harmless()
    assert "20 of 100 (20.0 %)" in page.text
    assert "deleted-rows" in page.text
    assert "a.parquet" in page.text  # the file behind the points
    assert "DELETE" in page.text


def test_a_table_says_how_far_iceberg_is_behind(table):
    table.append(table.write_file("a.parquet", range(100)))
    url = f"/dashboard/tables/{table.name}"
    assert "Iceberg v" not in Page(table.client.get(url)).text

    table.client.post(f"/v1/tables/{table.name}/iceberg", json={"format-version": 3})
    assert "version 1\n" in Page(table.client.get(url)).text.partition("Iceberg v3")[2][:20]

    table.delete({"a.parquet": range(20)}, read_version=1)
    assert "version 1, 1 versions and 0 s behind" in Page(table.client.get(url)).text


def test_pages_are_titled_with_the_name_of_the_table_and_not_its_id(table):
    id_ = table.client.get(table.url).json()["id"]
    url = f"/dashboard/tables/{id_}"
    form = {"csrf-token": csrf(table.client, url)}
    answers = [
        table.client.get("/"),
        table.client.get(url),
        table.client.get(f"{url}/plan"),
        *(table.client.post(f"{url}/run", data=form | {"action": one}) for one in ("checkpoint", "vacuum")),
    ]
    for answer in answers:
        page = Page(answer)
        assert answer.status_code == 200
        assert "people" in page.text
        assert id_ not in page.text


def test_plots_are_of_the_samples(table):
    url = f"/dashboard/tables/{table.name}"
    table.client.get(url)
    table.append(table.write_file("a.parquet", range(100)))
    page = Page(table.client.get(url))

    data = [json.loads(found["data-chart"]) for found in page.all("div") if "data-chart" in found]
    files = next(one for one in data if one["names"][0] == "all")
    assert files["data"][1][-1] == 1
    assert files["data"][0] == sorted(files["data"][0])


def test_what_a_table_says_of_itself_is_text(client, tmp_path):
    field = {"name": HOSTILE, "type": "long", "nullable": True, "metadata": {"comment": HOSTILE}}
    create(client, tmp_path, schema=[field])
    log = tmp_path / "people" / "_delta_log"
    info = dict.fromkeys(("operation", "userName", "engineInfo", "isolationLevel"), HOSTILE)
    info |= {"operationParameters": {HOSTILE: HOSTILE}, "operationMetrics": {HOSTILE: HOSTILE}}
    action = {"commitInfo": info | {"timestamp": 1}}
    path = f"{'%22%3E' + HOSTILE.replace('<', '%3C')}.parquet"
    add = {"path": path, "size": 10, "modificationTime": 1, "dataChange": True, "partitionValues": {}}
    metadata = json.loads((log / f"{0:020}.json").read_text().splitlines()[-1])
    lines = [action, {"add": add}]
    for line in (log / f"{0:020}.json").read_text().splitlines():
        if "metaData" in json.loads(line):
            metadata = json.loads(line)
            metadata["metaData"]["configuration"] = {HOSTILE: f'"{HOSTILE}'}
            metadata["metaData"]["description"] = f"'>{HOSTILE}"
            lines.append(metadata)
    (log / f"{1:020}.json").write_text("\n".join(map(json.dumps, lines)))

    answer = client.get("/dashboard/tables/people")
    page = Page(answer)

    assert answer.status_code == 200
    page.assert_harmless()
    assert page.text.count(HOSTILE) >= 6


def test_a_table_that_is_not_there(client):
    for name in ("nobody", "%3Cscript%3E", "..%2F..%2Fv1%2Fconfig", "people/run/run"):
        answer = client.get(f"/dashboard/tables/{name}")
        assert answer.status_code == 404, name
        Page(answer).assert_harmless()
    assert client.get("/dashboard/nothing").status_code == 404
    assert client.get("/dashboard/static/..%2Fpages.py").status_code == 404


def test_tasks_are_run_and_their_results_shown(table):
    url = f"/dashboard/tables/{table.name}"
    token = csrf(table.client, url)
    ran = table.client.post(f"{url}/run", data={"csrf-token": token, "action": "checkpoint"})
    fragment = table.client.post(
        f"{url}/run",
        data={"csrf-token": token, "action": "vacuum-dry-run"},
        headers={"HX-Request": "true"},
    )

    assert "written" in Page(ran).text
    assert list(table.log.glob("*.checkpoint*"))
    assert "VACUUM, dry run" in Page(fragment).text
    assert "<html" not in fragment.text
    assert table.client.post(f"{url}/run", data={"csrf-token": token, "action": "drop"}).status_code == 400


def run(table, action, **fields):
    url = f"/dashboard/tables/{table.name}"
    form = {"csrf-token": csrf(table.client, url), "action": action, **fields}
    return Page(table.client.post(f"{url}/run", data=form))


def confirmed(page):
    """Return the data sent by a confirmation form."""
    assert page.all("section", **{"class": "result confirm"}), page.text
    return {
        one["name"]: one["value"] for one in page.all("input", type="hidden") if one["name"] != "csrf-token"
    }


@pytest.mark.parametrize("action", MENU)
def test_every_task_has_a_resource(table, action):
    page = run(table, action)
    if ACTIONS[action].is_confirmed:
        page = run(table, **confirmed(page))

    page.assert_harmless()
    assert page.all("section", **{"class": "result"})
    assert not page.all("p", **{"class": "failed"}), page.text


def test_a_dry_run_of_optimize_says_what_would_be_written_again(filled):
    filled.delete({"a.parquet": range(5)})
    version = filled.version()

    page = run(filled, "optimize-dry-run")

    assert "2 files" in page.text
    assert "as about 1 file;" in page.text
    assert "a.parquet" in page.text
    assert filled.version() == version
    assert "No file is worth" in run(filled, "compact-dry-run").text or filled.version() == version


def test_what_would_run_now_and_why(filled):
    url = f"/dashboard/tables/{filled.name}"
    content = {"version": "2025-02-03", "enable": True, "config": {"min_files_saved": 1}}
    policy = {"name": "<b>compact", "type": "system.data-compaction", "content": content}
    filled.client.post("/v1/policies", json=policy | {"name": "compact"}).raise_for_status()

    page = Page(filled.client.get(f"{url}/plan"))
    fragment = filled.client.get(f"{url}/plan", headers={"HX-Request": "true"})

    page.assert_harmless()
    assert "would run" in page.text
    assert "2 files become 1" in page.text
    assert "<html" not in fragment.text
    assert filled.client.get("/dashboard/tables/nobody/plan").status_code == 200
    assert "TableNotFound" in Page(filled.client.get("/dashboard/tables/nobody/plan")).text


def test_a_commit_is_undone_once_that_is_confirmed(filled):
    filled.delete({"a.parquet": range(5)})
    shown = Page(filled.client.get(f"/dashboard/tables/{filled.name}"))
    versions = {one["value"] for one in shown.all("input", name="version")}
    assert versions == {"0", "1"}  # before each commit but the first

    asked = run(filled, "restore", version="1")
    assert filled.version() == 2
    assert "RESTORE to version 1?" in asked.text
    assert "numRestoredFiles" in asked.text
    done = run(filled, **confirmed(asked))

    assert "restored-version" in done.text
    assert filled.action(3, "commitInfo")["operation"] == "RESTORE"


def test_what_others_commit_meanwhile_is_not_undone_unseen(filled):
    filled.delete({"a.parquet": range(5)})
    answers = confirmed(run(filled, "restore", version="1"))
    filled.delete({"a.parquet": range(5, 7)})

    again = run(filled, **answers)

    assert "There has been a commit" in again.text
    assert filled.version() == 3
    run(filled, **confirmed(again))
    assert filled.action(4, "commitInfo")["operation"] == "RESTORE"


@pytest.mark.parametrize("version", ["", "-1", "1.5", "x" * 30, "9" * 18, "\u0661"])
def test_a_version_that_is_none_changes_nothing(filled, version):
    url = f"/dashboard/tables/{filled.name}"
    form = {"csrf-token": csrf(filled.client, url), "action": "restore", "version": version}
    answer = filled.client.post(f"{url}/run", data=form)

    assert answer.status_code in (400, 404), answer.status_code
    Page(answer).assert_harmless()
    assert filled.version() == 1


def test_files_in_quarantine_come_back_or_go(filled):
    for _ in range(2):
        orphan = filled.folder / "orphan.parquet"
        orphan.write_bytes(b"x" * 10)
        os.utime(orphan, (1, 1))
        assert "quarantined" in run(filled, "vacuum-quarantine").text
        assert not orphan.exists()
        listed = Page(filled.client.get(f"/dashboard/tables/{filled.name}"))
        identifier = listed.all("input", name="quarantine")[0]["value"]
        run(filled, "undo-quarantine", quarantine=identifier)
        assert orphan.read_bytes() == b"x" * 10
    run(filled, "vacuum-quarantine")
    listed = Page(filled.client.get(f"/dashboard/tables/{filled.name}"))
    identifier = listed.all("input", name="quarantine")[0]["value"]
    asked = run(filled, "purge-quarantine", quarantine=identifier)
    assert list(filled.folder.glob("_delvec/quarantined/*/orphan.parquet"))
    run(filled, **confirmed(asked))
    assert not list(filled.folder.glob("_delvec/quarantined/*/orphan.parquet"))
    url = f"/dashboard/tables/{filled.name}"
    for wrong in ("", "..", "a/b", "<script>", "x" * 65):
        form = {"csrf-token": csrf(filled.client, url), "action": "undo-quarantine", "quarantine": wrong}
        assert filled.client.post(f"{url}/run", data=form).status_code == 400, wrong


def test_vacuum_asks_before_it_deletes(filled):
    orphan = filled.folder / "orphan.parquet"
    orphan.write_bytes(b"x" * 3000)
    os.utime(orphan, (1, 1))
    other = filled.folder / "other.parquet"
    other.write_bytes(b"x" * 400)
    os.utime(other, (1, 1))

    asked = run(filled, "vacuum")

    assert "orphan.parquet" in asked.text
    assert "2 files with 3.3 KiB will be deleted permanently" in asked.text
    assert orphan.exists()
    run(filled, **confirmed(asked))
    assert not orphan.exists()


def test_tasks_are_seen_by_who_sees_the_table(filled):
    run(filled, "checkpoint")

    shown = filled.client.get(f"/dashboard/tables/{filled.name}/tasks")
    assert "CHECKPOINT done at" in " ".join(Page(shown).text.split())
    assert "every 15s" in shown.text  # nothing runs: it is asked for again, but not often
    assert filled.client.get("/dashboard/tables/nobody/tasks").status_code == 404
    assert "CHECKPOINT" in Page(filled.client.get(f"/dashboard/tables/{filled.name}")).text


REPORT = {
    "id": "t1",
    "operation": "REORG",
    "engine": "<script>alert(1)</script>",
    "state": "running",
    "elapsed-seconds": 2,
    "num-files": 4,
    "files-done": 1,
    "size-in-bytes": 4096,
    "bytes-done": 1024,
}


def test_what_runs_elsewhere_is_watched_with_bytes_rate_and_time_left(table):
    table.client.post(f"{table.url}/maintenance-tasks", json=REPORT).raise_for_status()
    shown = table.client.get(f"/dashboard/tables/{table.name}/tasks")
    page = Page(shown)
    assert not page.all("script")
    text = " ".join(page.text.split())
    assert "REORG on <script>alert(1)</script>" in text
    assert "1.0 KiB of 4.0 KiB, 1 of 4 files, 5" in text  # bytes a second
    assert "left" in text
    assert "every 1s" in shown.text
    [bar] = page.all("progress")
    assert (bar["max"], bar["value"]) == ("4096", "1024")
    ended = {**REPORT, "state": "done", "bytes-done": 4096, "files-done": 4}
    table.client.post(f"{table.url}/maintenance-tasks", json=ended).raise_for_status()
    page = Page(table.client.get(f"/dashboard/tables/{table.name}"))
    assert not page.all("progress", max="4096")
    assert "4.0 KiB of 4.0 KiB, 4 of 4 files" in page.text


def test_a_task_of_the_page_is_listed_once_with_what_its_engine_reports(filled, monkeypatch):
    monkeypatch.setattr("delvec_commands.dml.rewrite_progress._REPORT_SECONDS", 0.0)
    run(filled, "purge")
    shown = Page(filled.client.get(f"/dashboard/tables/{filled.name}/tasks"))
    [task] = shown.all("li")
    assert "task done" in task["class"]
    text = " ".join(shown.text.split())
    assert "PURGE done at" in text
    assert "REORG on" not in text


def test_conflicts_are_shown_with_who_was_in_the_way(filled, bitmap):
    assert filled.delete({"a.parquet": range(3)}, read_version=1).status_code == 200
    lost = filled.commit(
        operation="UPDATE",
        predicate="id = 2",
        row_deletes=[{"path": "a.parquet", "rows": bitmap(1, 2)}],
        adds=[filled.write_file("new.parquet", [2])],
        read_version=1,
    )
    assert lost.status_code == 409

    page = Page(filled.client.get(f"/dashboard/tables/{filled.name}"))

    text = " ".join(page.text.split())
    assert "UPDATE, which had read version 1, lost to DELETE of version 2" in text
    assert "Rows that both changed2" in text
    titles = [found["aria-label"] for found in page.all("div") if "data-chart" in found]
    assert "Conflicts per hour. conflicts: 1 in total." in titles


def test_what_the_two_of_a_conflict_say_is_text(filled, bitmap):
    rows = [{"path": "a.parquet", "rows": bitmap(1)}]
    for file, status in (("first.parquet", 200), ("second.parquet", 409)):
        answer = filled.commit(
            operation=HOSTILE,
            predicate="id = 2",
            row_deletes=rows,
            adds=[filled.write_file(file, [2])],
            read_version=1,
            engine_info=f'"{HOSTILE}',
        )
        assert answer.status_code == status, answer.text

    page = Page(filled.client.get(f"/dashboard/tables/{filled.name}"))

    page.assert_harmless()
    text = " ".join(page.text.split())
    assert f"{HOSTILE}, which had read version 1, lost to {HOSTILE} of version 2" in text


def test_nested_columns_have_rows_of_their_own(client, tmp_path):
    inner = {
        "type": "struct",
        "fields": [{"name": "city", "type": "string", "nullable": True, "metadata": {}}],
    }
    kind = {"type": "array", "elementType": inner, "containsNull": True}
    field = {"name": "homes", "type": kind, "nullable": False, "metadata": {}}
    create(client, tmp_path, schema=[field])

    page = Page(client.get("/dashboard/tables/people"))

    assert "array<struct>" in page.text
    assert page.all("th", **{"class": "depth1"})


def test_what_the_service_refuses_is_said(client):
    token = csrf(client, "/dashboard/sign-in")
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
    ours = csrf(table.client, url)
    form = {"csrf-token": ours if token is None else token, "action": "checkpoint"}

    answer = table.client.post(f"{url}/run", data=form, headers=headers)

    assert answer.status_code == 403
    assert not list(table.log.glob("*.checkpoint*"))


def test_a_form_is_limited(client):
    ours = csrf(client, "/dashboard/sign-in")
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
        token = csrf(client, "/dashboard/sign-in")
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
        token = csrf(client, "/dashboard/sign-in")
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
        assert csrf(client, "/dashboard/sign-in") != token
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
        token = csrf(client, "/dashboard/sign-in")
        form = {"csrf-token": token, "token": made["token"]}
        assert client.post("/dashboard/sign-in", data=form).status_code == 303

        listed = Page(client.get("/")).text
        assert "people" in listed
        assert "salaries" not in listed
        shown = Page(client.get("/dashboard/tables/people"))
        assert not shown.all("select", id="action")  # a reader has nothing to run
        assert "maintainer" in shown.text
        hidden = client.get("/dashboard/tables/salaries")
        assert hidden.status_code == 404
        token = csrf(client)
        run = client.post("/dashboard/tables/people/run", data={"csrf-token": token, "action": "checkpoint"})
        assert "PermissionDenied" in Page(run).text
        assert not list((tmp_path / "people" / "_delta_log").glob("*.checkpoint*"))
