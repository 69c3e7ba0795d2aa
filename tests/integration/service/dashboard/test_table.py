"""The pages of one table: content, and resistance to injection from it."""

import json
import re
import shutil

from tests.support.html_pages import HOSTILE, Page, create, csrf


def test_a_table_has_its_page(table):
    table.append(table.write_file("a.parquet", range(100)))
    table.delete({"a.parquet": range(20)}, read_version=1)

    page = Page(table.client.get(f"/dashboard/tables/{table.name}"))

    page.assert_harmless()
    assert "Rewrite files with deleted rows" in page.text
    assert "a.parquet" in page.text  # the file behind the points
    for tab, text in (
        ("files", "20 of 100 (20.0 %)"),
        ("trends", "Share of deleted rows"),
        ("maintenance", "No policy applies"),
        ("history", "DELETE"),
        ("conflicts", "No conflict is recorded"),
        ("schema", "delta.enableDeletionVectors"),
    ):
        page = Page(table.client.get(f"/dashboard/tables/{table.name}/{tab}"))
        page.assert_harmless()
        assert text in page.text, tab
        assert len(page.all("a", **{"aria-current": "page"})) == 2  # the page and the tab
    assert table.client.get(f"/dashboard/tables/{table.name}/nothing").status_code == 404


def test_a_table_without_a_checkpoint_says_so(table):
    table.append(table.write_file("a.parquet", range(100)))
    url = f"/dashboard/tables/{table.name}"
    assert "Checkpointnone yet2 commits in the log" in Page(table.client.get(url)).text

    table.client.post(f"{table.url}/checkpoint", json={}).raise_for_status()
    assert "Checkpoint0commits since" in Page(table.client.get(url)).text


def test_a_table_says_how_far_iceberg_is_behind(table):
    table.append(table.write_file("a.parquet", range(100)))
    url = f"/dashboard/tables/{table.name}"
    assert "Iceberg v" not in Page(table.client.get(url)).text

    table.client.post(f"/v1/tables/{table.name}/iceberg", json={"format-version": 3})
    assert "Iceberg v3: version 1\n" in Page(table.client.get(url)).text

    table.delete({"a.parquet": range(20)}, read_version=1)
    assert "version 1, 1 version and " in Page(table.client.get(url)).text


def test_pages_are_titled_with_the_name_of_the_table_and_not_its_id(table):
    id_ = table.client.get(table.url).json()["id"]
    url = f"/dashboard/tables/{id_}"
    form = {"csrf-token": csrf(table.client)}
    answers = [
        table.client.get("/dashboard/tables"),
        *(
            table.client.get(f"{url}{tab}")
            for tab in ("", "/files", "/trends", "/maintenance", "/history", "/schema")
        ),
        table.client.get(f"{url}/plan"),
        *(table.client.post(f"{url}/run", data=form | {"action": one}) for one in ("checkpoint", "vacuum")),
    ]
    for answer in answers:
        page = Page(answer)
        assert answer.status_code == 200
        assert "people" in page.text
        assert id_ not in page.text


def test_plots_are_of_the_samples(table):
    table.client.get(f"/dashboard/tables/{table.name}")
    table.append(table.write_file("a.parquet", range(100)))
    table.client.get(f"/dashboard/tables/{table.name}")
    page = Page(table.client.get(f"/dashboard/tables/{table.name}/trends"))

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

    for tab, least in (("advice", 0), ("files", 0), ("history", 6), ("schema", 4)):
        answer = client.get(f"/dashboard/tables/people/{tab}")
        page = Page(answer)
        assert answer.status_code == 200
        page.assert_harmless()
        assert page.text.count(HOSTILE) >= least


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

    page = Page(filled.client.get(f"/dashboard/tables/{filled.name}/conflicts"))

    text = " ".join(page.text.split())
    assert "UPDATE, which had read version 1, lost to DELETE of version 2" in text
    assert "Rows that both changed2" in text
    assert "ConflictBoth removed or changed the same rows or files" in text
    assert not re.search(r"Transaction[0-9a-f]{8}-", text)  # the first digits tell them apart
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

    page = Page(filled.client.get(f"/dashboard/tables/{filled.name}/conflicts"))

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

    page = Page(client.get("/dashboard/tables/people/schema"))

    assert "array<struct>" in page.text
    assert page.all("th", **{"class": "depth1"})


def test_structs_in_maps_have_rows_too(client, tmp_path):
    inner = {
        "type": "struct",
        "fields": [{"name": "street", "type": "string", "nullable": True, "metadata": {}}],
    }
    kind = {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True}
    create(client, tmp_path, schema=[{"name": "homes", "type": kind, "nullable": True, "metadata": {}}])

    page = Page(client.get("/dashboard/tables/people/schema"))

    text = " ".join(page.text.split())
    assert "map<string, struct>" in text
    assert "value" in text
    assert "street" in text
    assert page.all("th", **{"class": "depth2"})


def test_a_table_whose_log_is_damaged_or_gone_is_damaged_everywhere_once_somebody_has_looked(table):
    client = table.client
    client.get(f"{table.url}/health").raise_for_status()  # a sample of its good days
    commit = table.log / f"{table.version():020}.json"
    text = commit.read_text()
    commit.write_text("{not json\n")

    page = Page(client.get(f"/dashboard/tables/{table.name}"))

    page.assert_harmless()
    assert f"{table.name} cannot be shown" in page.text
    assert "is not complete JSON" in page.text
    assert "has errors in its log or files" in Page(client.get("/")).text
    assert "0 damaged" in Page(client.get("/dashboard/tables")).text

    commit.write_text(text)
    assert "100 good" in Page(client.get(f"/dashboard/tables/{table.name}")).text
    assert "Nothing is broken" in Page(client.get("/")).text

    shutil.rmtree(table.folder)
    assert client.get(f"{table.url}/check").status_code == 404
    assert client.get(f"{table.url}/health").status_code == 404
    assert "has errors in its log or files" in Page(client.get("/")).text


def test_a_check_that_cannot_read_the_table_says_so_to_the_fleet(table):
    table.client.get(f"{table.url}/health").raise_for_status()
    (table.log / f"{table.version():020}.json").write_text("{not json\n")

    table.client.get(f"{table.url}/check").raise_for_status()

    assert "has errors in its log or files" in Page(table.client.get("/")).text
