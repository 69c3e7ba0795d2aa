"""Bearer tokens and grants, in SQL.

This is their only copy: if the database is deleted, tokens have to be created again. That does not open a service
that is reachable from outside, because its settings require a token.

Tested in `tests/integration/service/auth/test_request_access.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from delvec_contract.access import GrantScope, Role
from delvec_errors import GrantNotFound, TokenAlreadyExists, TokenNotFound
from delvec_service.store.database import Database, insert_into
from delvec_service.store.models import AccessStateRow, GrantRow, TableRow, TokenRow

__all__ = ["TOKEN_PREFIX", "AccessStore", "GrantRecord", "TokenRecord", "changed", "forget_grants"]

TOKEN_PREFIX: Final = "delvec_"  # noqa: S105 - it is public
"""How tokens begin, so that scanners for leaked secrets recognize them."""

_ONLY_ID = 1
_GENERATION: Final = select(AccessStateRow.generation)


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A bearer token; ``token_hash`` is its SHA-256 in hexadecimal."""

    name: str
    principal: str
    token_hash: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class GrantRecord:
    """A role of a grantee; ``target`` is a namespace, a pattern or the id of a table, and empty for all.

    Attributes:
        table: the name of the table, if requested and if it exists.
    """

    grantee: str
    role: Role
    scope: GrantScope
    target: str
    granted_at: datetime
    granted_by: str
    table: str | None = None


class AccessStore:
    """Tokens and grants; safe to share between threads. All methods raise ServiceUnavailable without a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def generation(self) -> int:
        """Return how often tokens or grants have changed; 0 if there never were any."""
        with self._database.connection() as connection:
            return connection.scalar(_GENERATION) or 0

    def load(self) -> tuple[int, Sequence[TokenRecord], Sequence[GrantRecord]]:
        """Return the generation, and the tokens and grants of that or of a later generation."""
        with self._database.read() as session:
            generation = session.scalar(_GENERATION) or 0
            tokens = [_token(row) for row in session.scalars(select(TokenRow).order_by(TokenRow.name))]
            grants = [_grant(row) for row in session.scalars(select(GrantRow))]
        return generation, tokens, grants

    def add_token(self, token: TokenRecord) -> None:
        """Store a token.

        Raises:
            TokenAlreadyExists: a token of that name exists, or existed.
        """
        row = TokenRow(
            name=token.name,
            principal=token.principal,
            token_hash=token.token_hash,
            created_at=token.created_at,
            created_by=token.created_by,
            expires_at=token.expires_at,
            revoked_at=None,
        )
        try:
            with self._database.write() as session:
                session.add(row)
                session.flush()
                changed(session)
        except IntegrityError:
            raise TokenAlreadyExists(
                f"Token '{token.name}' already exists, or existed before; choose another name. To rotate a token, "
                "create a second one for the same principal and revoke the first.",
                token=token.name,
            ) from None

    def revoke_token(self, name: str, now: datetime) -> TokenRecord:
        """Revoke a token. Revoking it again has no effect.

        Raises:
            TokenNotFound: no token has that name.
        """
        with self._database.write() as session:
            row = session.get(TokenRow, name)
            if row is None:
                if name.startswith(TOKEN_PREFIX):
                    # Given by mistake; it belongs in no message.
                    raise TokenNotFound(
                        "Revoke a token by its name, not by its secret; `delvec token list` shows the names."
                    )
                raise TokenNotFound(f"Token '{name[:128]}' does not exist.", token=name[:128])
            if row.revoked_at is None:
                row.revoked_at = now
                changed(session)
            return _token(row)

    def tokens(self) -> Sequence[TokenRecord]:
        """Return all tokens by name, including revoked ones."""
        with self._database.read() as session:
            return [_token(row) for row in session.scalars(select(TokenRow).order_by(TokenRow.name))]

    def grant(self, grant: GrantRecord) -> None:
        """Store a grant, replacing the grantee's previous one there."""
        key = {"grantee": grant.grantee, "scope": grant.scope, "target": grant.target}
        values = {"role": grant.role, "granted_at": grant.granted_at, "granted_by": grant.granted_by}
        with self._database.write() as session:
            statement = insert_into(session, GrantRow).values(**key, **values)
            session.execute(statement.on_conflict_do_update(index_elements=list(key), set_=values))
            changed(session)

    def revoke(self, grantee: str, scope: GrantScope, target: str) -> None:
        """Revoke a role.

        Raises:
            GrantNotFound: the grantee has no role there.
        """
        with self._database.write() as session:
            row = session.get(GrantRow, (grantee, scope, target))
            if row is None:
                on = f"the {scope} '{target}'" if target else "all tables"
                raise GrantNotFound(f"'{grantee}' has no role on {on} to revoke.", grantee=grantee)
            session.delete(row)
            changed(session)

    def grants(self) -> Sequence[GrantRecord]:
        """Return all grants by grantee, those on tables with the names of the tables."""
        row = GrantRow
        query = select(row, TableRow.name, TableRow.folder_name).outerjoin(
            TableRow, (row.scope == "table") & (TableRow.id == row.target) & (TableRow.catalog == "")
        )
        with self._database.read() as session:
            found = session.execute(query.order_by(row.grantee, row.scope, row.target)).all()
        return [_grant(grant, name or folder) for grant, name, folder in found]


def forget_grants(session: Session, table_id: str) -> None:
    """Delete the grants on an unregistered table: another table at its location would get its id."""
    row = GrantRow
    found = session.scalars(select(row).where(row.scope == "table", row.target == table_id)).all()
    if found:
        session.execute(delete(row).where(row.scope == "table", row.target == table_id))
        changed(session)


def changed(session: Session) -> None:
    """Count a change of tokens or grants, in its own transaction: a reader that sees the count sees the change."""
    row = AccessStateRow
    counted = insert_into(session, row).values(id=_ONLY_ID, generation=1)
    session.execute(
        counted.on_conflict_do_update(index_elements=["id"], set_={"generation": row.generation + 1})
    )


def _token(row: TokenRow) -> TokenRecord:
    return TokenRecord(
        row.name,
        row.principal,
        row.token_hash,
        row.created_at,
        row.created_by,
        row.expires_at,
        row.revoked_at,
    )


def _grant(row: GrantRow, table: str | None = None) -> GrantRecord:
    role: Any = row.role
    scope: Any = row.scope
    return GrantRecord(row.grantee, role, scope, row.target, row.granted_at, row.granted_by, table)
