"""Pages of the console: read strictly, and the forms on them."""

import re
from html.parser import HTMLParser

HOSTILE = "<script>alert`1`</script>"
VOID = {"meta", "link", "input", "img", "br", "rect", "path", "circle"}


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


def csrf(client):
    page = Page(client.get("/dashboard/sign-in"))
    return page.all("input", name="csrf-token")[0]["value"]


def run(table, action, **fields):
    """Perform an action without scripts, and return the page that answers it."""
    url = f"/dashboard/tables/{table.name}"
    form = {"csrf-token": csrf(table.client), "action": action, **fields}
    return Page(table.client.post(f"{url}/run", data=form))


def confirmed(page):
    """Return the data sent by a confirmation form."""
    assert page.all("section", **{"class": "result confirm"}), page.text
    names = [one["name"] for one in page.all("input", type="hidden")]
    fields = page.all("input", type="hidden")[names.index("confirmed") : names.index("seen") + 1]
    sent = {one["name"]: one["value"] for one in fields}
    for name in ("action", "version", "quarantine"):
        after = [
            one for one in page.all("input", type="hidden")[names.index("seen") :] if one["name"] == name
        ]
        sent |= {name: after[0]["value"]} if after else {}
    return sent
