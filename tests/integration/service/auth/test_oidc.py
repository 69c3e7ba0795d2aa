"""Tokens of an identity provider, which is a real server on loopback."""

import base64
import hashlib
import hmac
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pydantic import ValidationError
from tests.integration.service.conftest import SCHEMA

from delvec_service.auth import oidc
from delvec_service.config import Settings

AUDIENCE = "delvec"
ADMIN = "the-configured-token"


class Provider:
    """An identity provider that records requests."""

    def __init__(self):
        self.keys = {}
        self.asked = []
        self.is_away = False
        self.described = {}
        self.answers = threading.Event()
        self.answers.set()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                provider.asked.append(self.path)
                provider.answers.wait(60)
                body = json.dumps(provider.answer(self.path)).encode()
                self.send_response(503 if provider.is_away else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.rotate("first")

    def answer(self, path):
        if path.endswith("openid-configuration"):
            return {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys", **self.described}
        found = []
        for name, key in self.keys.items():
            algorithm = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
            public = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
            found.append({**public, "kid": name, "use": "sig", "alg": algorithm})
        secret = base64.urlsafe_b64encode(b"shared" * 8).decode().rstrip("=")
        return {"keys": [*found, {"kty": "oct", "k": secret, "kid": "shared"}]}

    def rotate(self, name, *, elliptic=False):
        """Replace the signing key."""
        made = ec.generate_private_key(ec.SECP256R1()) if elliptic else rsa.generate_private_key(65537, 2048)
        self.keys = {name: made}

    def token(self, *, key=None, algorithm=None, kid=None, **claims):
        ((name, own),) = self.keys.items()
        algorithm = algorithm or ("RS256" if isinstance(own, rsa.RSAPrivateKey) else "ES256")
        now = int(time.time())
        said = {"iss": self.issuer, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 600, **claims}
        said = {claim: value for claim, value in said.items() if value is not None}
        return jwt.encode(said, own if key is None else key, algorithm, headers={"kid": kid or name})


@pytest.fixture
def provider(monkeypatch):
    monkeypatch.setattr(oidc, "_TIMEOUT_SECONDS", 60.0)  # the machine may be busy
    made = Provider()
    yield made
    made.server.shutdown()
    made.server.server_close()


@contextmanager
def _serving(running, provider, tmp_path, **settings):
    given = {"oidc_issuer": provider.issuer, "oidc_audience": AUDIENCE, "token": ADMIN}
    with running(**given, roots=(str(tmp_path),), **settings) as client:
        yield client


@pytest.fixture
def client(running, provider, tmp_path):
    with _serving(running, provider, tmp_path) as client:
        yield client


def whoami(client, token):
    return client.get("/v1/access", headers={"Authorization": f"Bearer {token}"})


def refused(client, token, status=401):
    answer = whoami(client, token)
    assert answer.status_code == status, answer.text
    assert token not in answer.text
    return answer.json()["error"]["message"]


@pytest.mark.parametrize("elliptic", [False, True])
def test_a_token_of_the_provider_is_its_subject(client, provider, elliptic):
    provider.rotate("other", elliptic=elliptic)

    me = whoami(client, provider.token(groups=["analysts", "staff"])).json()

    assert (me["principal"], me["groups"]) == ("oidc:ann", ["group:analysts", "group:staff"])
    assert whoami(client, ADMIN).json()["principal"] == "DELVEC_TOKEN"


def test_grants_of_groups_and_of_subjects_hold(client, provider):
    client.post(
        "/v1/tables",
        json={"name": "sales.orders", "schema": SCHEMA},
        headers={"Authorization": f"Bearer {ADMIN}"},
    )
    for grantee, role in (("group:analysts", "reader"), ("oidc:eve", "writer")):
        grant = {"grantee": grantee, "role": role, "namespace": "sales"}
        client.post("/v1/grants", json=grant, headers={"Authorization": f"Bearer {ADMIN}"})

    def status(token, method="GET", path=""):
        headers = {"Authorization": f"Bearer {token}"}
        return client.request(method, f"/v1/tables/sales.orders{path}", headers=headers).status_code

    assert status(provider.token(groups=["analysts"])) == 200
    assert status(provider.token(groups=["analysts"]), "POST", "/commits") == 403
    assert status(provider.token(groups=["others"])) == 404
    assert status(provider.token(sub="eve"), "POST", "/commits") == 400


def test_groups_may_lie_deeper(running, provider, tmp_path):
    with _serving(running, provider, tmp_path, oidc_groups_claim="realm_access.roles") as client:
        me = whoami(client, provider.token(realm_access={"roles": ["a", 7, "", "x\ny"]})).json()
        assert me["groups"] == ["group:a"]
        assert whoami(client, provider.token(realm_access="nothing")).json()["groups"] == []


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        ({"exp": 1_000_000}, "has expired"),
        ({"aud": "another"}, "its audience must be 'delvec'"),
        ({"iss": "https://elsewhere.test"}, "has another issuer"),
        ({"nbf": 4_000_000_000}, "not valid yet"),
        ({"exp": None}, "lacks the claim 'exp'"),
        ({"sub": None}, "lacks the claim 'sub'"),
        ({"sub": "a\nb"}, "subject must have"),
        ({"sub": "x" * 500}, "subject must have"),
    ],
)
def test_what_is_wrong_with_a_token_is_said(client, provider, claims, says):
    assert says in refused(client, provider.token(**claims))


def test_the_clocks_may_differ_by_a_minute(client, provider):
    assert whoami(client, provider.token(exp=int(time.time()) - 20)).status_code == 200


def test_forged_tokens_are_not_let_in(client, provider):
    other = rsa.generate_private_key(65537, 2048)
    ((name, own),) = provider.keys.items()
    good = provider.token()
    head, _, signature = good.split(".")
    changed = base64.urlsafe_b64encode(json.dumps({"sub": "root"}).encode()).decode().rstrip("=")

    assert "was not signed by" in refused(client, provider.token(key=other))
    assert "was not signed by" in refused(client, f"{head}.{changed}.{signature}")
    assert "key that the identity provider does not have" in refused(client, provider.token(kid="none"))
    assert "was not signed by" in refused(client, "a.b.c")
    assert "not signed with an algorithm" in refused(
        client, jwt.encode({"sub": "ann"}, None, "none", headers={"kid": name})
    )
    # The public key used as an HMAC secret, which a naive verifier would accept.
    public = own.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    parts = [json.dumps({"alg": "HS256", "kid": name}), json.dumps({"sub": "ann", "aud": AUDIENCE})]
    said = ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)
    signed = hmac.new(public, said.encode(), hashlib.sha256).digest()
    forged = f"{said}.{base64.urlsafe_b64encode(signed).decode().rstrip('=')}"
    assert "not signed with an algorithm" in refused(client, forged)
    assert "not signed with an algorithm" in refused(
        client, provider.token(key=b"shared" * 8, algorithm="HS256", kid="shared")
    )


def test_new_keys_are_read_when_a_token_names_one(client, provider, monkeypatch):
    assert whoami(client, provider.token()).status_code == 200
    provider.rotate("second")
    assert "does not have" in refused(client, provider.token())  # fetched just now
    monkeypatch.setattr(oidc, "_AGAIN_SECONDS", 0)

    assert whoami(client, provider.token(jti="1")).status_code == 200


def test_unknown_keys_do_not_make_the_provider_busy(client, provider):
    for number in range(20):
        refused(client, provider.token(kid=f"key-{number}"))
    assert provider.asked.count("/keys") == 1


def test_a_slow_provider_delays_only_tokens_with_unknown_keys(client, provider, monkeypatch):
    assert whoami(client, provider.token()).status_code == 200
    monkeypatch.setattr(oidc, "_AGAIN_SECONDS", 0)
    ((kid, key),), asked = provider.keys.items(), provider.asked.count("/keys")
    provider.answers.clear()
    provider.rotate("second")
    new = provider.token()
    with ThreadPoolExecutor(40) as pool:
        waiting = [pool.submit(whoami, client, new)]
        unknown = [provider.token(kid=f"key-{number}") for number in range(30)]
        waiting += [pool.submit(whoami, client, token) for token in unknown]
        deadline = time.monotonic() + 30
        while sum(each.done() for each in waiting) < 31 - oidc._MAX_WAITING:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        known = [provider.token(key=key, kid=kid, jti=f"{number}") for number in range(20)]
        assert {whoami(client, token).status_code for token in known} == {200}
        assert sum(each.done() for each in waiting) == 31 - oidc._MAX_WAITING
        provider.answers.set()
        statuses = [each.result().status_code for each in waiting]

    assert statuses[0] in (200, 503)  # among the first, or one too many
    assert (statuses[1:].count(401), set(statuses[1:])) == (
        oidc._MAX_WAITING - (statuses[0] == 200),
        {401, 503},
    )
    assert provider.asked.count("/keys") == asked + 1
    assert whoami(client, provider.token(jti="later")).status_code == 200


@pytest.mark.parametrize("place", [None, 7, "http://[", "no-url"])
def test_a_discovery_document_that_names_no_keys_is_a_503(client, provider, place):
    provider.described = {"jwks_uri": place}

    answer = whoami(client, provider.token())

    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "IDENTITY_PROVIDER_UNAVAILABLE"


def test_while_the_provider_is_away_known_keys_serve(client, provider, monkeypatch):
    assert whoami(client, provider.token()).status_code == 200
    provider.is_away = True
    monkeypatch.setattr(oidc, "_FRESH_SECONDS", 0)
    monkeypatch.setattr(oidc, "_AGAIN_SECONDS", 0)

    assert whoami(client, provider.token(jti="2")).status_code == 200


def test_without_any_key_the_answer_is_503_and_other_tokens_go_on(client, provider):
    provider.is_away = True

    answer = whoami(client, provider.token())

    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "IDENTITY_PROVIDER_UNAVAILABLE"
    assert answer.headers["Retry-After"]
    assert whoami(client, ADMIN).status_code == 200


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"oidc_issuer": "https://id.test"}, "must be set together"),
        ({"oidc_issuer": "http://id.test", "oidc_audience": "x"}, "oidc_issuer"),
        ({"oidc_issuer": "http://localhost.evil.test", "oidc_audience": "x"}, "oidc_issuer"),
    ],
)
def test_settings_that_would_open_more_than_was_meant(settings, says):
    with pytest.raises(ValidationError, match=says):
        Settings(**settings)
