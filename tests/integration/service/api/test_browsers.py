"""An open service on loopback is not driven by pages that a browser on the machine shows."""

import http.client
import json
from urllib.parse import urlsplit

import pytest
from tests.support.served import served

import delvec

CROSS_SITE = {"Origin": "https://evil.test", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("browsers")


@pytest.fixture(scope="module")
def url(folder):
    """A service without tokens, with a table ``people``."""
    with served(folder, None, allowed_hosts="lake.test") as url:
        with delvec.connect(url) as lake:
            lake.create_table("people", "id long").append([{"id": 1}])
        yield url


def send(url, method, path, headers, body=None):
    """Send a request with exactly these headers; return status and body."""
    there = urlsplit(url)
    connection = http.client.HTTPConnection(there.hostname, there.port, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    for name, value in {"Host": there.netloc, **headers}.items():
        if value is not None:
            connection.putheader(name, value)
    if body is not None:
        kind = "application/json" if body.startswith(b"{") else "application/x-www-form-urlencoded"
        connection.putheader("Content-Type", kind)
    connection.putheader("Content-Length", str(len(body or b"")))
    connection.endheaders(body)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def refused(answer, word):
    status, text = answer
    error = json.loads(text)["error"]
    assert (status, error["type"]) == (403, "PermissionDenied")
    assert word in error["message"]
    assert "DELVEC_ALLOWED_HOSTS" in error["message"]
    return True


def version(url):
    return json.loads(send(url, "GET", "/v1/tables/people/snapshot", {})[1])["version"]


@pytest.mark.parametrize(
    "headers",
    [
        CROSS_SITE,
        {"Origin": "https://evil.test"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
        {"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/tables/people/optimize", None),
        ("/v1/tables/people/vacuum", None),
        ("/v1/tables/people/checkpoint", None),
        ("/v1/tables/people/delete", b'{"predicate": "true"}'),
        ("/dashboard/tables/people/run", b"action=optimize"),
    ],
)
def test_a_page_of_another_site_changes_nothing(url, headers, path, body):
    before = version(url)

    assert refused(send(url, "POST", path, headers, body), "page of another site")
    assert version(url) == before


@pytest.mark.parametrize(
    "host", ["evil.test", "evil.test:8710", "127.0.0.1.evil.test", "10.0.0.1", "localhost.evil.test"]
)
@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/tables"), ("POST", "/v1/tables/people/vacuum"), ("GET", "/")]
)
def test_a_name_that_was_made_to_resolve_to_loopback_is_refused(url, host, method, path):
    """The page and the service then are one site to the browser, which sends any header that the page likes."""
    headers = {"Host": host, "Sec-Fetch-Site": "same-origin", "Authorization": "Bearer guessed"}

    assert refused(send(url, method, path, headers), host.partition(":")[0])


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": None},
        {"Host": "localhost:8710"},
        {"Host": "LOCALHOST"},
        {"Host": "delvec.localhost:8710"},
        {"Host": "127.0.0.2"},
        {"Host": "[::1]:8710"},
        {"Host": "lake.test"},
        {"Origin": "https://lake.test", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Host": "localhost:8710", "Origin": "http://localhost:8710", "Sec-Fetch-Site": "same-origin"},
    ],
    ids=str,
)
def test_clients_and_the_services_own_pages_go_on_working(url, headers):
    assert send(url, "GET", "/v1/tables", headers)[0] == 200
    assert send(url, "POST", "/v1/tables/people/plan", headers, b"{}")[0] == 200


def test_a_link_from_another_site_opens_the_dashboard_but_no_resource(url):
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}

    assert send(url, "GET", "/", link)[0] == 200
    assert send(url, "GET", "/docs", link)[0] == 200
    assert refused(send(url, "GET", "/v1/tables", link), "page of another site")
    for path in ("/iceberg/v1/namespaces", "/api/2.1/unity-catalog/catalogs"):
        assert send(url, "GET", path, link)[0] == 403


def test_a_service_with_tokens_may_be_called_by_any_name(tmp_path):
    with served(tmp_path, "secret") as url:
        token = {"Authorization": "Bearer secret"}
        assert send(url, "GET", "/v1/tables", {"Host": "lake.example", **token})[0] == 200
        assert send(url, "GET", "/v1/tables", {**CROSS_SITE, **token})[0] == 200
        assert send(url, "GET", "/v1/tables", {"Host": "lake.example"})[0] == 401
        assert send(url, "POST", "/v1/tables/people/vacuum", CROSS_SITE)[0] == 403


def test_a_token_that_is_created_opens_the_service_to_other_names(tmp_path):
    with served(tmp_path, None) as url:
        assert send(url, "GET", "/v1/tables", {"Host": "lake.example"})[0] == 403
        with delvec.connect(url) as lake:
            token = lake.access.create_token("ada")["token"]
        headers = {"Host": "lake.example", "Authorization": f"Bearer {token}"}
        assert send(url, "GET", "/v1/tables", headers)[0] in (200, 403)
