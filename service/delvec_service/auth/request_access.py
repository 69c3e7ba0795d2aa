"""What one request is allowed to do: checked for the table in its path, and by handlers for what its body names."""

from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from delvec_contract.access import GrantScope, Role
from delvec_errors import PermissionDenied
from delvec_service.auth.principals import Principal, Rights, at_least
from delvec_service.store.registry import TableRecord, not_found
from delvec_service.tables.registry import Tables

__all__ = ["Access"]

_Row = TypeVar("_Row")
_Place = TypeVar("_Place")


class Access:
    """What the principal of one request may do. Each check also records that the request's rule was followed.

    Args:
        principal: None if no token is required: then everything is allowed.
        rights: the rights of the principal.

    Attributes:
        is_decided: whether a check was made; no answer is sent without one.
        was_denied: whether a role was missing, even if the answer claims that the table does not exist.
    """

    def __init__(self, principal: Principal | None = None, rights: Rights | None = None) -> None:
        self.principal = principal
        self.rights = Rights((), is_superuser=principal is None) if rights is None else rights
        self.is_decided = principal is None
        self.was_denied = False

    @property
    def is_restricted(self) -> bool:
        """Whether anything is forbidden."""
        return self.rights.on_all != "admin"

    @property
    def name(self) -> str:
        """The principal's name; that of the anonymous one if no token is required."""
        return "anonymous" if self.principal is None else self.principal.name

    def sees(self, identifier: str, name: str) -> bool:
        """Whether a table exists for the principal: a list shows it, an error names it."""
        self.is_decided = True
        return self.rights.on_table(identifier, name) is not None

    def maintains(self, identifier: str, name: str) -> bool:
        """Whether the principal may rename a table."""
        return at_least(self.rights.on_table(identifier, name), "maintainer")

    def holds(self, namespace: str) -> bool:
        """Whether every table of a namespace is the principal's to maintain."""
        return at_least(self.rights.on_namespace(namespace), "maintainer")

    def require(self, record: TableRecord, role: Role, requested_name: str | None = None) -> None:
        """Deny the request unless the principal has a role on a table.

        Raises:
            TableNotFound: it may not read it; same message as if no table were called ``requested_name``.
            PermissionDenied: it may read it, but lacks the role.
        """
        self.is_decided = True
        held = self.rights.on_table(record.id, record.name)
        if held is None:
            self.was_denied = True
            raise not_found(record.name if requested_name is None else requested_name)
        if not at_least(held, role):
            self._refuse(role, held, f"table '{record.name}'", f"--table {record.name}")

    def require_all(self, role: Role, why: str) -> None:
        """Deny the request unless the principal has a role on everything.

        Raises:
            PermissionDenied: it lacks the role.
        """
        self.is_decided = True
        held = self.rights.on_all
        if not at_least(held, role):
            self._refuse(role, held, why, "--all")

    def require_name(self, name: str, role: Role) -> None:
        """Deny the request unless the principal has a role on tables of that name.

        Raises:
            PermissionDenied: it lacks the role.
        """
        self.is_decided = True
        held = self.rights.on_name(name)
        if not at_least(held, role):
            self._refuse(role, held, f"tables called '{name}'", f"--pattern {name}")

    def covers(self, scope: GrantScope, target: str, role: Role) -> bool:
        """Whether the principal has a role on everything that a namespace, a pattern, or ``all`` covers."""
        self.is_decided = True
        return at_least(self._on_scope(scope, target), role)

    def require_scope(self, scope: GrantScope, target: str, role: Role) -> None:
        """Deny the request unless the principal has a role on all that a scope (such as a namespace) covers.

        Raises:
            PermissionDenied: it lacks the role.
        """
        if not self.covers(scope, target, role):
            on = f"the {scope} '{target}'" if target else "all tables"
            option = f"--{scope} {target}".strip()
            self._refuse(role, self._on_scope(scope, target), on, option)

    def _on_scope(self, scope: GrantScope, target: str) -> Role | None:
        if scope == "namespace":
            return self.rights.on_namespace(target)
        return self.rights.on_pattern(target) if scope == "pattern" else self.rights.on_all

    def require_place(
        self, tables: Tables, location: str | None, name: str | None, *, creates: bool = True
    ) -> None:
        """Deny creating or registering a table unless the principal may do so under that name.

        Readers of a table may register it again, as clients that know its location do. Whether the principal may use
        the location is decided by :class:`~delvec_service.tables.places.Places`, for every operation.

        Raises:
            PermissionDenied: it is not allowed.
            InvalidLocation: it is not a location.
            LocationNotAllowed: it is outside the roots.
        """
        self.is_decided = True
        if not self.is_restricted:
            return
        known = None if location is None else tables.at(location)
        if known is not None and self.rights.on_table(known.id, known.name) is not None:
            if creates or name not in (None, known.name):
                self.require(known, "maintainer")
                self.require_name(name or known.name, "maintainer")
            return
        self.require_name(str(name) if location is None else name or tables.called_by(location), "maintainer")

    def refuse_place(self, name: str, namespaces: Sequence[str]) -> NoReturn:
        """Deny a location that is not the folder of the name, nor in a namespace that the principal holds.

        Raises:
            PermissionDenied: always.
        """
        why = f"a location of its own choice (without one, '{name}' is created in the warehouse)"
        if namespaces:
            held = self.rights.on_namespace(namespaces[0])
            self._refuse("maintainer", held, why, f"--namespace {namespaces[0]}")
        self._refuse("admin", self.rights.on_all, why, "--all")

    def page(
        self,
        fetch: Callable[[_Place, int], Sequence[_Row]],
        place_of: Callable[[_Row], _Place],
        visible: Callable[[_Row], bool],
        start: _Place,
        size: int,
    ) -> Sequence[_Row]:
        """Return a page of the rows that the principal may see.

        Args:
            fetch: returns that many rows after a position.
            place_of: returns the position of a row.
            visible: whether a row may be shown.
            start: the position to start after.
            size: how many rows; fewer at the end.
        """
        self.is_decided = True
        if not self.is_restricted:
            return fetch(start, size)
        found: list[_Row] = []
        while True:
            rows = fetch(start, 1000)
            found += [row for row in rows if visible(row)]
            if len(rows) < 1000 or len(found) >= size:  # noqa: PLR2004 - as many as were asked for
                return found[:size]
            start = place_of(rows[-1])

    def _refuse(self, role: Role, held: Role | None, on: str, option: str) -> NoReturn:
        self.was_denied = True
        has = f"only has the role {held}, but this" if held else "has no role there: this"
        raise PermissionDenied(
            f"'{self.name}' {has} requires {role} on {on}. An admin can grant it: delvec grant {role} "
            f"{self.name} {option}.",
            principal=self.name,
            role=role,
        )
