"""The description of the service: ``/openapi.json``, and ``/docs``, the same as a page.

The page is generated here from the OpenAPI document, without JavaScript and without other servers: it also works
without access to a CDN, and no page of a service with tokens should run code from one.

Tested in `tests/integration/service/test_reference.py`.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi

from delvec_service.api.glossary import EXAMPLES, FIELDS, PARAMETERS, RESPONSES, TAGS

__all__ = ["install"]

_FASTAPIS_OWN: Final = "Successful Response"
_STYLE: Final = """
body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b;background:#fff}
code,pre{font:13px/1.45 ui-monospace,monospace;background:#f4f4f2;border-radius:3px;overflow-wrap:anywhere}
code{padding:.1em .25em}pre{padding:.7em;overflow-x:auto}pre code{padding:0}
table{border-collapse:collapse;width:100%;margin:.5rem 0}td,th{text-align:left;vertical-align:top;padding:.3rem .5rem;
border-top:1px solid #ddd}details{border:1px solid #ddd;border-radius:4px;margin:.4rem 0;padding:.4rem .7rem}
summary{cursor:pointer}.method{display:inline-block;min-width:4.5em;font-weight:600}nav{display:flex;flex-wrap:wrap;gap:0 1em}
@media(max-width:46rem){td{overflow-wrap:anywhere}}
@media(prefers-color-scheme:dark){body{color:#e8e8e8;background:#161616}code,pre{background:#262626}a{color:#8ab4f8}
td,th,details{border-color:#444}}
"""
_POLICY: Final = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; style-src 'sha256-"
    + base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    + "'"
)


def install(app: FastAPI) -> None:
    """Install the OpenAPI description and the ``/docs`` page in an application."""
    described: list[dict[str, Any]] = []

    def document() -> dict[str, Any]:
        if not described:
            described.append(_document(app))
        return described[0]

    app.openapi = document  # type: ignore[method-assign]
    app.add_api_route("/docs", _docs, include_in_schema=False)


async def _docs(request: Request) -> Response:
    # Not a closure over the application: FastAPI caches every endpoint for the life of the process.
    headers = {"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff"}
    return Response(
        _page(request.app.openapi(), has_console=request.app.state.has_console),
        media_type="text/html",
        headers=headers,
    )


def _document(app: FastAPI) -> dict[str, Any]:
    openapi = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        tags=[{"name": name, "description": said} for name, said in TAGS.items()],
    )
    schemas = openapi["components"]["schemas"]
    for shape in schemas.values():
        for name, field in shape.get("properties", {}).items():
            if "description" not in field and name in FIELDS:
                field["description"] = FIELDS[name]
    for operations in openapi["paths"].values():
        for operation in operations.values():
            _complete(operation)
    return openapi


def _complete(operation: dict[str, Any]) -> None:
    for parameter in operation.get("parameters", ()):
        parameter.setdefault("description", PARAMETERS.get(parameter["name"], ""))
    for answer in operation["responses"].values():
        if answer["description"] == _FASTAPIS_OWN:
            first = operation["description"].partition("\n")[0]
            answer["description"] = RESPONSES.get(operation["operationId"], first)
    for content in operation.get("requestBody", {}).get("content", {}).values():
        shape = _shape(content["schema"])
        if shape is not None and shape in EXAMPLES:
            content["example"] = EXAMPLES[shape]


def _shape(schema: Mapping[str, Any]) -> str | None:
    """Return the name of the shape that a schema refers to, whether alone or as a nullable one."""
    for each in (schema, *schema.get("anyOf", ())):
        if "$ref" in each:
            return str(each["$ref"]).rpartition("/")[2]
    return None


def _page(openapi: Mapping[str, Any], *, has_console: bool) -> str:
    return "".join(_parts(openapi, has_console=has_console))


def _parts(openapi: Mapping[str, Any], *, has_console: bool) -> Iterator[str]:
    title = f"{escape(openapi['info']['title'])} {escape(openapi['info']['version'])}"
    yield "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
    yield "<meta name='viewport' content='width=device-width,initial-scale=1'>"
    yield f"<title>{title}</title><style>{_STYLE}</style></head><body>"
    if has_console:
        yield "<p><a href='/'>Back to the console</a></p>"
    yield f"<h1>{title}</h1>"
    yield _prose(openapi["info"]["description"])
    yield "<p>Machine-readable: <a href='openapi.json'>openapi.json</a>.</p><nav>"
    for tag in openapi["tags"]:
        yield f"<a href='#tag-{_anchor(tag['name'])}'>{escape(tag['name'])}</a>"
    yield "<a href='#shapes'>shapes</a></nav>"
    for tag in openapi["tags"]:
        yield f"<h2 id='tag-{_anchor(tag['name'])}'>{escape(tag['name'])}</h2>{_prose(tag['description'])}"
        for path, operations in openapi["paths"].items():
            for method, operation in operations.items():
                if tag["name"] in operation["tags"]:
                    yield from _operation(method, path, operation)
    yield "<h2 id='shapes'>Shapes</h2>"
    for name, shape in sorted(openapi["components"]["schemas"].items()):
        yield f"<details id='{_anchor(name)}'><summary><code>{escape(name)}</code></summary>"
        yield _prose(shape.get("description", ""))
        required = shape.get("required", ())
        rows = (
            (name, _kind(field), name in required, field.get("description", ""))
            for name, field in shape.get("properties", {}).items()
        )
        yield _table(rows)
        yield "</details>"
    yield "</body></html>"


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<details id='{_anchor(operation['operationId'])}'><summary><span class='method'>{method.upper()}</span>"
    yield f"<code>{escape(path)}</code> {escape(operation['summary'])}</summary>"
    yield _prose(operation["description"])
    given = operation.get("parameters", ())
    if given:
        yield "<h4>Parameters</h4>"
        yield _table(
            (each["name"], f"{each['in']}, {_kind(each['schema'])}", each["required"], each["description"])
            for each in given
        )
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<h4>Body</h4><p><code>{escape(kind)}</code>: {_kind(content['schema'])}</p>"
        if "example" in content:
            yield f"<pre><code>{escape(json.dumps(content['example'], indent=2))}</code></pre>"
    yield "<h4>Answers</h4><table>"
    for status, answer in operation["responses"].items():
        kinds = ", ".join(_kind(content.get("schema", {})) for content in answer.get("content", {}).values())
        yield f"<tr><td>{escape(status)}</td><td>{kinds}</td><td>{_inline(answer['description'])}</td></tr>"
    yield "</table></details>"


def _table(rows: Iterator[tuple[str, str, bool, str]]) -> str:
    cells = "".join(
        f"<tr><td><code>{escape(name)}</code>{' *' if required else ''}</td><td>{kind}</td><td>{_inline(said)}</td></tr>"
        for name, kind, required, said in rows
    )
    return f"<table>{cells}</table>" if cells else ""


def _kind(schema: Mapping[str, Any]) -> str:
    """Return the type of a schema in a few words, with links to shapes."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return f"<a href='#{_anchor(name)}'>{escape(name)}</a>"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_kind(each) for each in schema[several]))
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(f"<code>{escape(json.dumps(value))}</code>" for value in values)
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_kind(schema['additionalProperties'])}"
    return escape(str(schema.get("type", "any")))


def _prose(text: str) -> str:
    return "".join(f"<p>{_inline(part)}</p>" for part in text.split("\n\n") if part.strip())


def _inline(text: str) -> str:
    """Return text with its code spans marked up; everything else is escaped."""
    return re.sub(r"``?([^`]+)``?", r"<code>\1</code>", escape(text))


def _anchor(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "-", name)
