"""JSON Web Tokens of an identity provider (OpenID Connect): their subjects and groups."""

import hashlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import httpx
import jwt

from delvec_errors import IdentityProviderUnavailable, Unauthorized
from delvec_service.auth.principals import Principal
from delvec_service.config import Settings
from delvec_service.logs import logger

__all__ = ["IdentityProvider", "OidcSettings"]

_ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)
"""Only asymmetric signatures: a public key must never be used as a shared secret, nor an unsigned token be accepted."""
_LEEWAY_SECONDS: Final = 60
_FRESH_SECONDS: Final = 300.0
_AGAIN_SECONDS: Final = 10.0
"""Minimum time between two fetches of the keys, however many tokens name unknown ones."""
_TIMEOUT_SECONDS: Final = 5.0
_MAX_WAITING: Final = 8
"""How many tokens with unknown keys wait for a fetch: others need the authorizer's threads, too."""
_FAILURES: Final = (
    httpx.HTTPError,
    httpx.InvalidURL,
    jwt.PyJWTError,
    ValueError,
    TypeError,
    AttributeError,
    RecursionError,
)
"""What a provider that does not answer as one can cause."""
_MAX_BYTES: Final = 1024 * 1024
_VERIFIED_SECONDS: Final = 60.0
_MAX_VERIFIED: Final = 10_000
_MAX_GROUPS: Final = 1000
_LONGEST_NAME: Final = 120


@dataclass(frozen=True)
class OidcSettings:
    """An identity provider, and the claims that its tokens must have.

    Attributes:
        issuer: the ``iss`` of its tokens, and the base URL of its discovery document.
        audience: required in ``aud``.
        jwks_url: URL of its keys; None to use its discovery document.
        groups_claim: the claim for groups or roles, with dots between levels: ``realm_access.roles``.
    """

    issuer: str
    audience: str
    jwks_url: str | None = None
    groups_claim: str = "groups"

    @classmethod
    def of(cls, settings: Settings) -> Self | None:
        """Return those of the service; None if it has no identity provider."""
        if settings.oidc_issuer is None or settings.oidc_audience is None:
            return None
        return cls(
            settings.oidc_issuer, settings.oidc_audience, settings.oidc_jwks_url, settings.oidc_groups_claim
        )


class IdentityProvider:
    """Verifies tokens with the provider's keys; safe to share between threads.

    Keys are cached. They are fetched every five minutes and when a token names an unknown one, at most every ten
    seconds, in a thread of its own. While the provider does not answer, the cached keys remain in use.
    """

    def __init__(self, settings: OidcSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._tried = self._read = self._ended = -float("inf")
        self._fetching: threading.Event | None = None
        self._waiting = 0
        self._verified: dict[bytes, tuple[Principal, float]] = {}

    @staticmethod
    def reads(token: str) -> bool:
        """Whether a token looks like one of an identity provider: three parts separated by dots."""
        return token.count(".") == 2  # noqa: PLR2004

    def known(self, token: str) -> Principal | None:
        """Return the principal of a token that was verified within the last minute. Does no I/O."""
        found = self._verified.get(_digest(token))
        return found[0] if found is not None and time.time() < found[1] else None

    def principal(self, token: str) -> Principal:
        """Return the principal of a token.

        Raises:
            Unauthorized: it is not from this provider, not for this service, expired, or not a token.
            IdentityProviderUnavailable: its key is unknown, and the provider does not answer.
        """
        settings = self._settings
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in _ALGORITHMS:
                raise Unauthorized(
                    "The token is not signed with an algorithm that this service accepts: "
                    + ", ".join(_ALGORITHMS)
                    + "."
                )
            key = self._key(header.get("kid"))
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[header["alg"]],
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.ExpiredSignatureError:
            raise Unauthorized("The token has expired; get a new one from the identity provider.") from None
        except jwt.InvalidAudienceError:
            raise Unauthorized(
                f"The token is for another service; its audience must be '{settings.audience}'."
            ) from None
        except jwt.InvalidIssuerError:
            raise Unauthorized(f"The token has another issuer; it must be '{settings.issuer}'.") from None
        except jwt.ImmatureSignatureError:
            raise Unauthorized(
                "The token is not valid yet; compare the clocks of the service and the identity provider."
            ) from None
        except jwt.MissingRequiredClaimError as error:
            raise Unauthorized(f"The token lacks the claim '{error.claim}'.") from None
        except (jwt.PyJWTError, ValueError, TypeError):
            # Details of the failure would only help forgers.
            raise Unauthorized("The token was not signed by the identity provider.") from None
        principal = _principal(claims, settings.groups_claim)
        if len(self._verified) >= _MAX_VERIFIED:
            self._verified.clear()
        self._verified[_digest(token)] = (
            principal,
            min(time.time() + _VERIFIED_SECONDS, float(claims["exp"]) + _LEEWAY_SECONDS),
        )
        return principal

    def check(self) -> int:
        """Fetch the keys, and return how many there are.

        Raises:
            IdentityProviderUnavailable: the provider does not answer, or not as a provider does; says why.
        """
        try:
            return len(self._fetch())
        except _FAILURES as error:
            raise IdentityProviderUnavailable(
                f"The keys of the identity provider '{self._settings.issuer}' cannot be fetched: "
                f"{str(error)[:300] or type(error).__name__}.",
                issuer=self._settings.issuer,
            ) from error

    def _key(self, identifier: Any) -> jwt.PyJWK:
        with self._lock:
            now = time.monotonic()
            is_due = now - self._read >= _FRESH_SECONDS or identifier not in self._keys
            if self._fetching is None and is_due and now - self._tried >= _AGAIN_SECONDS:
                self._tried, self._fetching = now, threading.Event()
                threading.Thread(
                    target=self._refresh, args=(self._fetching,), name="delvec-oidc", daemon=True
                ).start()
            fetching, key = self._fetching, self._find(identifier)
            # After an idle time a known key may have been withdrawn long ago.
            if fetching is None or (key is not None and now - self._ended < 2 * _FRESH_SECONDS):
                return self._present(key)
            if self._waiting >= _MAX_WAITING:
                raise self._unavailable()
            self._waiting += 1
        has_ended = fetching.wait(3 * _TIMEOUT_SECONDS)
        with self._lock:
            self._waiting -= 1
            key = self._find(identifier)
            if key is None and not has_ended:
                raise self._unavailable()
            return self._present(key)

    def _find(self, identifier: Any) -> jwt.PyJWK | None:
        if identifier is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))  # a single key needs no name
        return self._keys.get(identifier)

    def _present(self, key: jwt.PyJWK | None) -> jwt.PyJWK:
        if self._read == -float("inf"):
            raise self._unavailable()
        if key is None:
            raise Unauthorized("The token is signed with a key that the identity provider does not have.")
        return key

    def _unavailable(self) -> IdentityProviderUnavailable:
        return IdentityProviderUnavailable(
            f"The keys of the identity provider '{self._settings.issuer}' cannot be fetched, so its tokens "
            "cannot be verified; try again.",
            issuer=self._settings.issuer,
        )

    def _refresh(self, fetching: threading.Event) -> None:
        """Fetch the keys on a separate thread, so that tokens with known keys wait neither for it nor for the lock."""
        keys = None
        try:
            keys = self._fetch()
        except _FAILURES as error:
            logger.warning(
                "keys of the identity provider not fetched",
                reason=f"{type(error).__name__}: {error}"[:300],
            )
        finally:
            with self._lock:
                self._ended, self._fetching = time.monotonic(), None
                if keys is not None:
                    self._keys, self._read = keys, self._ended
            fetching.set()

    def _fetch(self) -> dict[str | None, jwt.PyJWK]:
        settings = self._settings
        with httpx.Client(timeout=_TIMEOUT_SECONDS, trust_env=False) as client:
            place = settings.jwks_url
            if place is None:
                address = settings.issuer.rstrip("/") + "/.well-known/openid-configuration"
                described = _json(client, address)
                if described.get("issuer") != settings.issuer:
                    raise ValueError("the discovery document has another issuer")
                place = described.get("jwks_uri")
                if not isinstance(place, str):
                    raise ValueError("the discovery document names no jwks_uri")
            found = jwt.PyJWKSet.from_dict(dict(_json(client, place))).keys
        return {
            key.key_id: key for key in found if key.public_key_use in (None, "sig") and key.key_type != "oct"
        }


def _json(client: httpx.Client, address: str) -> Mapping[str, Any]:
    with client.stream("GET", address) as answer:
        answer.raise_for_status()
        body = b""
        for part in answer.iter_bytes():
            body += part
            if len(body) > _MAX_BYTES:
                raise ValueError("the answer is too large")
    found = httpx.Response(200, content=body).json()
    if not isinstance(found, dict):
        raise TypeError("the answer is not a JSON object")
    return found


def _principal(claims: Mapping[str, Any], groups_claim: str) -> Principal:
    subject = claims["sub"]
    if not isinstance(subject, str) or not _is_name(subject):
        raise Unauthorized(f"The token's subject must have 1 to {_LONGEST_NAME} printable ASCII characters.")
    held: Any = claims
    for part in groups_claim.split("."):
        held = held.get(part) if isinstance(held, Mapping) else None
    names = held.split() if isinstance(held, str) else held if isinstance(held, list) else ()
    groups = sorted({name for name in names[:_MAX_GROUPS] if isinstance(name, str) and _is_name(name)})
    return Principal(f"oidc:{subject}", tuple(f"group:{name}" for name in groups))


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _LONGEST_NAME and text.isascii() and text.isprintable()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
