"""Tokens and grants as this process knows them: in memory, and compared with the database every few seconds.

Tested in `tests/integration/service/auth/test_request_access.py`.
"""

import hashlib
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from delvec_errors import BadRequest, ServiceUnavailable, Unauthorized
from delvec_service.auth.principals import CONFIGURED, Principal, Rights
from delvec_service.logs import logger
from delvec_service.store.grants import TOKEN_PREFIX, AccessStore, GrantRecord, TokenRecord

__all__ = ["Directory"]

FRESH_SECONDS: Final = 2.0
"""How long a replica may use data that another one has changed."""
_WITHOUT_DATABASE_SECONDS: Final = 600.0
_RANDOM_BYTES: Final = 32


@dataclass(frozen=True)
class _AccessState:
    generation: int = 0
    by_hash: dict[str, TokenRecord] = field(default_factory=dict)
    grants: dict[str, list[GrantRecord]] = field(default_factory=dict)
    rights: dict[Principal, Rights] = field(default_factory=dict)


class Directory:
    """Tokens and grants; safe to share between threads.

    Args:
        store: where tokens and grants are stored.
        token: the token of the service's configuration.
        required: whether a token is required even if none was ever created.
    """

    def __init__(self, store: AccessStore, *, token: str | None = None, required: bool = False) -> None:
        self.store = store
        self._configured = None if token is None else token.encode()
        self._required = required or token is not None
        self._lock = threading.Lock()
        self._known: _AccessState | None = None
        self._checked = -float("inf")
        self._answered = -float("inf")

    def is_fresh(self) -> bool:
        """Whether :meth:`refresh` would do nothing."""
        return time.monotonic() - self._checked < FRESH_SECONDS

    def expire(self) -> None:
        """Make the next request check for changes."""
        self._checked = -float("inf")

    def holds(self) -> bool:
        """Whether the known tokens and grants are still usable although the database does not answer."""
        return self._known is not None and time.monotonic() - self._answered <= _WITHOUT_DATABASE_SECONDS

    def refresh(self, *, at_once: bool = False) -> None:
        """Reload tokens and grants if they have changed.

        While the database does not answer, the known ones remain valid for ten minutes.

        Raises:
            ServiceUnavailable: the database has not answered for too long.
        """
        with self._lock:
            if self.is_fresh() and not at_once:
                return
            try:
                if self._known is None or self.store.generation() != self._known.generation:
                    self._load()
            except ServiceUnavailable:
                if not self.holds():
                    raise
                logger.warning("tokens and grants not compared with the database, which does not answer")
            else:
                self._answered = time.monotonic()
            self._checked = time.monotonic()

    def _load(self) -> None:
        generation, tokens, grants = self.store.load()
        access_state = _AccessState(generation, {token.token_hash: token for token in tokens})
        for grant in grants:
            access_state.grants.setdefault(grant.grantee, []).append(grant)
        if generation or tokens or grants:
            # Until this process ends: emptying the database must not open the service.
            self._required = True
        self._known = access_state

    @property
    def is_required(self) -> bool:
        """Whether a request needs a token: one is configured, or tokens or grants were ever created."""
        return self._required

    def principal(self, token: str) -> Principal:
        """Return the principal of a token.

        Raises:
            Unauthorized: the token is unknown, expired or revoked.
        """
        if self._configured is not None and secrets.compare_digest(token.encode(), self._configured):
            return CONFIGURED
        known = self._known
        token_record = None if known is None else known.by_hash.get(hash_of(token))
        if token_record is None:
            raise Unauthorized(
                "The token is unknown. Ask the service's administrator for one (delvec token create)."
            )
        if token_record.revoked_at is not None:
            raise Unauthorized(
                f"The token '{token_record.name}' was revoked; ask for another one.", token=token_record.name
            )
        if token_record.expires_at is not None and token_record.expires_at <= datetime.now(UTC):
            raise Unauthorized(
                f"The token '{token_record.name}' expired at {token_record.expires_at.isoformat()}; ask for another one.",
                token=token_record.name,
            )
        return Principal(token_record.principal)

    def rights(self, principal: Principal) -> Rights:
        """Return what a principal may do."""
        access_state = self._known or _AccessState()
        rights = access_state.rights.get(principal)
        if rights is None:
            names = (principal.name, *principal.groups)
            held = [grant for name in names for grant in access_state.grants.get(name, ())]
            if len(access_state.rights) > 10_000:  # noqa: PLR2004 - enough for the principals at work
                access_state.rights.clear()
            rights = access_state.rights[principal] = Rights(held, is_superuser=principal.is_superuser)
        return rights

    def create(
        self, name: str, principal: str | None, expires_at: datetime | None, by: str
    ) -> tuple[TokenRecord, str]:
        """Create a token; return it, and its secret, which is not stored.

        Raises:
            BadRequest: it would already have expired, or the name is reserved.
            TokenAlreadyExists: a token of that name exists, or existed.
        """
        now = datetime.now(UTC)
        if expires_at is not None and expires_at <= now:
            raise BadRequest(
                f"The token '{name}' would already be expired: {expires_at.isoformat()} is in the past."
            )
        if CONFIGURED.name in (name, principal):
            raise BadRequest(
                f"'{CONFIGURED.name}' is the token of the service's configuration; choose another name."
            )
        secret = TOKEN_PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
        token = TokenRecord(name, principal or name, hash_of(secret), now, by, expires_at)
        self.store.add_token(token)
        self.refresh(at_once=True)
        return token, secret

    def revoke_token(self, name: str) -> TokenRecord:
        """Revoke a token. It takes effect here at once.

        Raises:
            TokenNotFound: no token has that name.
        """
        found = self.store.revoke_token(name, datetime.now(UTC))
        self.refresh(at_once=True)
        return found

    def grant(self, grant: GrantRecord) -> None:
        """Store a grant. It takes effect here at once."""
        self.store.grant(grant)
        self.refresh(at_once=True)

    def revoke(self, grant: GrantRecord) -> None:
        """Revoke a role. It takes effect here at once.

        Raises:
            GrantNotFound: the grantee has no role there.
        """
        self.store.revoke(grant.grantee, grant.scope, grant.target)
        self.refresh(at_once=True)

    def grants(self) -> Sequence[GrantRecord]:
        """Return all grants, by grantee."""
        return self.store.grants()


def hash_of(token: str) -> str:
    """Return the stored hash of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
