"""The roots that apply to a table's name, and the location that a name's table should have.

A root belongs to the service or to a namespace. Every location has one owner: the one with the innermost root that
contains it. Every name has one, too: the nearest namespace that has roots, or else the service. A table may be where
both owners are the same.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote

from delvec_contract.tables import TABLE_NAME
from delvec_errors import BadRequest, InvalidLocation
from delvec_kernel.locations import within
from delvec_storage.roots import Roots

__all__ = ["NamespaceRoots"]

_NAME: Final = re.compile(TABLE_NAME)
_LONGEST_NAME: Final = 128
_NAMESPACE_FOLDER: Final = ".db"
"""The suffix that Spark and Hive use: no table's name can be such a folder, so no table lies inside another."""
_SERVICE: Final = ""
"""The owner of everything that no namespace owns."""


class NamespaceRoots:
    """The roots of the service, and those of namespaces.

    Args:
        roots: the roots of the service, for every name that no namespace with roots owns; if empty, all other locations.
        namespaces: roots of namespaces, for their tables and those of nested namespaces without roots. New tables go
            into the first.
        warehouse: the location of the service's new tables; by default its first root.
        by_folder: whether folders of the warehouse correspond to names with namespaces.

    Raises:
        BadRequest: two owners share a root, or the warehouse is outside the roots; an embedded service (``by_folder``), whose
            warehouse is the working directory by default, may have one outside.
        InvalidLocation: a root, or the warehouse, is not a location.
    """

    def __init__(
        self,
        roots: Sequence[str],
        namespaces: Mapping[str, Sequence[str]] = MappingProxyType({}),
        warehouse: str | None = None,
        *,
        by_folder: bool = False,
    ) -> None:
        roots_by_owner = {
            _SERVICE: tuple(roots),
            **{each: tuple(owner_roots) for each, owner_roots in namespaces.items()},
        }
        self._roots = {
            owner: Roots(
                own,
                [
                    root
                    for other, owner_roots in roots_by_owner.items()
                    if other != owner
                    for root in owner_roots
                ],
                owner if namespaces else None,
            )
            for owner, own in roots_by_owner.items()
        }
        _check_apart(self._roots)
        self._homes = {owner: owner_roots.first for owner, owner_roots in self._roots.items()}
        if warehouse is not None:
            self._homes[_SERVICE] = Roots([warehouse]).first
            if not by_folder:
                self._check_warehouse()
        self._by_folder = by_folder
        self.everywhere = Roots(
            [root for owner_roots in roots_by_owner.values() for root in owner_roots] if roots else ()
        )
        """All roots, for checks that apply to a location of any owner."""

    def _check_warehouse(self) -> None:
        found = self.warehouse
        if found is not None and not self._roots[_SERVICE].allows(found):
            raise BadRequest(
                f"DELVEC_WAREHOUSE is {found}, which is outside the roots of the service (DELVEC_ROOTS): no table could "
                "be created in it. Add it to the roots, or unset it: new tables then go into the first root.",
                setting="DELVEC_WAREHOUSE",
            )

    @property
    def warehouse(self) -> str | None:
        """The canonical location of the service's new tables."""
        return self._homes[_SERVICE]

    @property
    def namespaces(self) -> Mapping[str, Roots]:
        """The roots of each namespace that has its own."""
        return {owner: found for owner, found in self._roots.items() if owner != _SERVICE}

    def of(self, name: str) -> Roots:
        """Return the roots that apply to a table of that name, and to the files that its log names."""
        return self._roots[self._owner(name)]

    def folder(self, name: str | None) -> str:
        """Return the location for a table that is created by name only.

        Raises:
            BadRequest: there is no warehouse.
        """
        owner = self._owner(str(name))
        home = self._homes[owner]
        if home is None:
            raise BadRequest(
                f"Table '{name}' has no location and there is no warehouse for it; give it a location, or set "
                "DELVEC_WAREHOUSE.",
                name=name,
                setting="DELVEC_WAREHOUSE",
            )
        *above, last = str(name).removeprefix(f"{owner}." if owner else "").split(".")
        return "/".join([home, *(f"{each}{_NAMESPACE_FOLDER}" for each in above), last])

    def is_own_folder(self, place: str, name: str) -> bool:
        """Whether a canonical, link-free location is the folder where a table of that name belongs.

        Links above the folder are followed; a link in its place leads to somebody else's.
        """
        owner = self._owner(name)
        if self._homes[owner] is None:
            return False
        above, _, last = self.folder(name).rpartition("/")
        return place == f"{Roots([above]).first}/{last}"

    def namespaces_around(self, place: str, name: str) -> Sequence[str]:
        """Return the namespaces of a name in whose folders a canonical, link-free location is, the innermost first.

        Every root of a namespace counts as its folder.
        """
        owner = self._owner(name)
        namespaces = []
        above = name.rpartition(".")[0]
        while above:
            if above == owner:
                folders = list(self._roots[owner])
            elif self._homes[owner] is None:
                folders = []
            else:
                folders = list(Roots([self.folder(f"{above}.x").rpartition("/")[0]]))
            if any(place != folder and within(place, folder) for folder in folders):
                namespaces.append(above)
            above = "" if above == owner else above.rpartition(".")[0]
        return namespaces

    def called_by(self, location: str) -> str:
        """Return what the table at a canonical location is called without a name of its own.

        In the roots of a namespace the name is in that namespace. Elsewhere it is the folder's name, with its
        namespaces in a warehouse.
        """
        owner = max(self._roots, key=lambda each: self._roots[each].depth(location))
        if owner != _SERVICE:
            below = _default_name(location).replace(".", "_")
            return f"{owner}.{below}"[:_LONGEST_NAME]
        warehouse = f"{self.warehouse}/"
        if self._by_folder and location.startswith(warehouse):
            *above, last = location[len(warehouse) :].split("/")
            if all(each.endswith(_NAMESPACE_FOLDER) for each in above):
                name = ".".join([*(each.removesuffix(_NAMESPACE_FOLDER) for each in above), last])
                if _NAME.fullmatch(name):
                    return name
        name = _default_name(location)
        # The folder does not count as a table of a namespace whose roots it is not in.
        return name if self._owner(name) == _SERVICE else name.replace(".", "_")

    def _owner(self, name: str) -> str:
        above = name.rpartition(".")[0] if len(self._roots) > 1 else ""
        while above and above not in self._roots:
            above = above.rpartition(".")[0]
        return above


def _check_apart(roots: Mapping[str, Roots]) -> None:
    seen: dict[str, str] = {}
    for owner, found in roots.items():
        for root in found:
            other = seen.setdefault(root, owner)
            if other != owner:
                of = f"the namespace '{other}'" if other else "the service (DELVEC_ROOTS)"
                raise BadRequest(
                    f"DELVEC_NAMESPACE_ROOTS: {root} is a root of both the namespace '{owner}' and {of}. A root "
                    "belongs to only one of them; give each a directory of its own. One may be inside the other's.",
                    setting="DELVEC_NAMESPACE_ROOTS",
                )


def _default_name(location: str) -> str:
    """Return the last part of a location as a name, with ``_`` for characters that names cannot have."""
    last = unquote(location.rpartition("/")[2])
    if not last:
        raise InvalidLocation(
            f"The location {location} has no last path segment; a table needs a directory of its own."
        )
    name = re.sub(r"[^A-Za-z0-9_.\-]", "_", last)
    name = re.sub(r"\.(?![A-Za-z0-9_])", "_", name)[:_LONGEST_NAME].rstrip(".")  # no namespace may be empty
    return name if _NAME.fullmatch(name) else f"t_{name.lstrip('.')[: _LONGEST_NAME - 2]}"
