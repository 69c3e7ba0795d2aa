"""The API reference: complete, consistent with the routes, and self-contained."""

import base64
import gc
import hashlib
import re
import weakref
from html.parser import HTMLParser

import pytest
from pydantic import TypeAdapter
from tests.support.in_process_service import running_service
from tests.support.wire_shapes import SHAPES

from delvec_service.api.glossary import EXAMPLES, FIELDS, PARAMETERS, RESPONSES, TAGS

OPERATION_IDS = {
    "alter_table",
    "allocate_deletion_vectors",
    "begin_transaction",
    "check_table",
    "commit",
    "config",
    "delete_rows",
    "find_commit",
    "forget_table",
    "get_commit",
    "get_detail",
    "get_health",
    "get_history",
    "get_snapshot",
    "get_table",
    "list_tables",
    "livez",
    "metrics",
    "optimize_table",
    "plan_of_additions",
    "plan_of_changes",
    "plan_scan",
    "readyz",
    "register_table",
    "rename_table",
    "update_rows",
    "write_checkpoint",
}
"""Operation ids, from which generated clients derive method names: removing or renaming one breaks programs."""


@pytest.fixture(scope="module")
def client():
    """One for all tests: an application takes a second to describe its routes."""
    with running_service() as client:
        yield client


@pytest.fixture(scope="module")
def document(client):
    return client.get("/openapi.json").json()


def operations(document):
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_every_property_has_a_description(document):
    bare = [
        f"{shape}.{name}"
        for shape, schema in document["components"]["schemas"].items()
        for name, field in schema.get("properties", {}).items()
        if not field.get("description")
    ]

    assert not bare
    assert not [
        name for name, schema in document["components"]["schemas"].items() if not schema.get("description")
    ]


def test_every_operation_parameter_and_answer_has_a_description(document):
    for name, operation in operations(document):
        assert operation["summary"], name
        assert operation["description"], name
        assert set(operation["tags"]) <= TAGS.keys(), name
        assert len(operation["tags"]) == 1, name
        for parameter in operation.get("parameters", ()):
            assert parameter["description"], (name, parameter["name"])
        for status, answer in operation["responses"].items():
            assert answer["description"], (name, status)
            assert answer["description"] != "Successful Response", (name, status)


def test_every_body_has_an_example_that_is_one(document):
    bodies = 0
    for name, operation in operations(document):
        for content in operation.get("requestBody", {}).get("content", {}).values():
            assert "example" in content, name
            bodies += 1
    assert bodies >= len(EXAMPLES)
    for shape, example in EXAMPLES.items():
        TypeAdapter(SHAPES[shape]).validate_python(example)


def test_operation_ids_stay(document):
    assert {operation["operationId"] for _, operation in operations(document)} >= OPERATION_IDS


def test_glossary_has_nothing_that_is_gone(document):
    fields = {
        name for schema in document["components"]["schemas"].values() for name in schema.get("properties", {})
    }
    parameters = {
        each["name"] for _, operation in operations(document) for each in operation.get("parameters", ())
    }
    ids = {operation["operationId"] for _, operation in operations(document)}

    assert FIELDS.keys() <= fields
    assert PARAMETERS.keys() <= parameters
    assert RESPONSES.keys() <= ids
    assert EXAMPLES.keys() <= document["components"]["schemas"].keys()
    assert {tag["name"] for tag in document["tags"]} == TAGS.keys()


class Links(HTMLParser):
    """Collects what a page refers to, and what it has."""

    def __init__(self):
        super().__init__()
        self.tags, self.targets, self.ids = set(), [], []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("href", "src"):
                self.targets.append(value)
            if name == "id":
                self.ids.append(value)


def test_page_needs_no_script_and_no_other_server(client):
    answer = client.get("/docs")
    page = Links()
    page.feed(answer.text)

    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/html")
    assert not page.tags & {"script", "link", "img", "iframe", "form"}
    assert {target for target in page.targets if not target.startswith("#")} == {"openapi.json", "/"}
    assert {target[1:] for target in page.targets if target.startswith("#")} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    (style,) = re.findall("<style>(.*?)</style>", answer.text, re.DOTALL)
    assert f"'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'" in policy


def test_page_names_every_request_and_shape(client, document):
    text = client.get("/docs").text

    for path in document["paths"]:
        assert f"<code>{path}</code>" in text
    for shape in document["components"]["schemas"]:
        assert f"id='{shape}'" in text


def test_page_shows_text_and_no_markup_of_others(client):
    assert "<page-token" not in client.get("/docs").text
    assert client.get("/redoc").status_code == 404


def test_page_leads_back_to_the_console_if_there_is_one(client, running):
    assert "<a href='/'>Back to the console</a>" in client.get("/docs").text
    with running(dashboard=False) as other:
        assert "console" not in other.get("/docs").text


def test_page_can_be_read_without_the_token(running):
    with running(token="secret") as client:
        assert client.get("/docs").status_code == 200
        assert client.get("/v1/tables").status_code == 401


@pytest.mark.full("collects garbage several times")
def test_an_application_is_freed_after_use(running):
    """Endpoints that refer to it would keep it: FastAPI caches them for the life of the process."""
    with running() as client:
        assert client.get("/docs").status_code == 200
        application = weakref.ref(client.app)
    del client
    gc.collect()
    assert application() is None
