"""Principals: the senders of requests, and what their grants allow.

Tested in `tests/integration/service/auth/test_rules.py`.
"""

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from delvec_contract.access import Role
from delvec_service.store.grants import GrantRecord

__all__ = ["CONFIGURED", "ROLES", "Principal", "Rights", "at_least"]

ROLES: Final[tuple[Role, ...]] = ("reader", "writer", "maintainer", "admin")
"""From the lowest to the highest; each includes those before it."""
_RANK: Final[dict[Role | None, int]] = {None: 0, **{role: rank for rank, role in enumerate(ROLES, 1)}}
_WILD: Final = re.compile(r"[*?]")


@dataclass(frozen=True, slots=True)
class Principal:
    """The sender of a request.

    Attributes:
        name: as in grants, logs and the audit log: ``etl`` of a token, ``oidc:<sub>`` of an identity provider.
        groups: ``group:<name>``; groups may have grants, too.
        is_superuser: whether it uses the token of the service's own configuration, which allows everything.
    """

    name: str
    groups: tuple[str, ...] = ()
    is_superuser: bool = False


CONFIGURED: Final = Principal("DELVEC_TOKEN", is_superuser=True)
"""The holder of the token in the service's configuration."""


def at_least(role: Role | None, needed: Role) -> bool:
    """Whether a role includes another."""
    return _RANK[role] >= _RANK[needed]


class Rights:
    """What a principal may do.

    Args:
        grants: the grants of the principal and its groups.
        is_superuser: whether it may do everything.
    """

    def __init__(self, grants: Iterable[GrantRecord], *, is_superuser: bool = False) -> None:
        self.grants: Sequence[GrantRecord] = tuple(grants)
        self._all: Role | None = "admin" if is_superuser else None
        self._tables: dict[str, Role] = {}
        self._prefixes: list[tuple[str, Role]] = []
        self._patterns: list[tuple[str, re.Pattern[str], Role]] = []
        for grant in self.grants:
            if grant.scope == "all":
                self._all = _higher(self._all, grant.role)
            elif grant.scope == "table":
                self._tables[grant.target] = grant.role
            elif grant.scope == "namespace":
                self._prefixes.append((f"{grant.target}.", grant.role))
            elif grant.target.endswith("*") and not _WILD.search(grant.target[:-1]):
                self._prefixes.append((grant.target[:-1], grant.role))
            else:
                self._patterns.append((grant.target, re.compile(fnmatch.translate(grant.target)), grant.role))
        self._found: dict[tuple[str, str], Role | None] = {}

    @property
    def on_all(self) -> Role | None:
        """The role on everything, including the service itself."""
        return self._all

    def on_table(self, identifier: str, name: str) -> Role | None:
        """Return the highest role on a table."""
        key = identifier, name
        if key not in self._found:
            if len(self._found) > 10_000:  # noqa: PLR2004 - enough for the tables in use
                self._found.clear()
            self._found[key] = _highest(self.on_name(name), self._tables.get(identifier))
        return self._found[key]

    def on_name(self, name: str) -> Role | None:
        """Return the highest role on a table with this name."""
        return _highest(
            self._all,
            *(role for prefix, role in self._prefixes if name.startswith(prefix)),
            *(role for _, pattern, role in self._patterns if pattern.fullmatch(name)),
        )

    def on_pattern(self, pattern: str) -> Role | None:
        """Return the highest role on every name that a pattern may match."""
        return _highest(
            self._all,
            *(role for prefix, role in self._prefixes if pattern.startswith(prefix)),
            *(role for text, _, role in self._patterns if text == pattern),
        )

    def on_namespace(self, namespace: str) -> Role | None:
        """Return the highest role on all tables of a namespace."""
        return self.on_pattern(f"{namespace}.*")


def _higher(one: Role | None, other: Role | None) -> Role | None:
    return one if _RANK[one] >= _RANK[other] else other


def _highest(*roles: Role | None) -> Role | None:
    return max(roles, key=_RANK.__getitem__, default=None)
