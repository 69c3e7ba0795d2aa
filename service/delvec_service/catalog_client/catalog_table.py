"""One managed table of another catalog: its commit coordinator.

Tested in `tests/integration/service/catalog_client/test_managed_log.py`.
"""

import threading
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from cachetools import LRUCache

from delvec_contract.unity_catalog import LoadedTable
from delvec_errors import (
    CatalogUnavailable,
    DelvecError,
    InvalidCommit,
    InvalidLocation,
    PermissionDenied,
    TableNotFound,
    UnsupportedOperation,
)
from delvec_kernel import locations
from delvec_kernel.features.table_features import CATALOG_MANAGED
from delvec_kernel.transaction.staged_commit import is_staged_name
from delvec_service.catalog_client.catalog_keys import CatalogKeys
from delvec_service.catalog_client.table_changes import updates_of
from delvec_service.catalog_client.unity_catalog import CatalogAnswer, RemoteName, UnityCatalog, attempts
from delvec_service.store.commit_coordinator import (
    Outcome,
    Proposal,
    ProposalAnswer,
    Ratified,
    RatifiedCommit,
)

__all__ = ["CatalogTable", "is_managed"]

_TIMES: Final = 256
_ATTEMPTS: Final = 4
_PAUSE_SECONDS: Final = 0.1
_OUTCOMES: Final[Mapping[int, Outcome]] = {-1: "unsent", 409: "conflict", 429: "full"}
_REFUSED: Final = range(400, 500)


class CatalogTable:
    """A table of another catalog. Safe to share between threads.

    Args:
        catalog: the server.
        name: the table's name there.
        answer: what the catalog said about it first.

    Attributes:
        location: canonical.
        times: see :class:`~delvec_service.store.commit_coordinator.CommitCoordinator`.

    Raises:
        UnsupportedOperation: it is not a catalog-managed table.
        InvalidLocation: its location is none.
        CatalogUnavailable: the answer contradicts itself.
    """

    def __init__(self, catalog: UnityCatalog, name: RemoteName, answer: LoadedTable) -> None:
        if not is_managed(answer.metadata.properties or {}):
            raise UnsupportedOperation(
                f"The catalog '{catalog.name}' does not manage the commits of table '{name}' (it lacks the feature "
                f"catalogManaged), so nothing is to be asked about it: register its location, {answer.metadata.location}.",
                table=str(name),
            )
        self._catalog = catalog
        self._name = name
        self.table_id = answer.metadata.table_uuid
        self.location = locations.canonical(answer.metadata.location)
        self.times: LRUCache[int, int] = LRUCache(_TIMES)
        self._lock = threading.Lock()
        self._known = self._ratified(answer)
        self._highest = self._known.latest
        ask = partial(catalog.credentials, name)
        self._keys = CatalogKeys(catalog.name, str(name), self.location, ask)

    def latest(self) -> Ratified:
        """Ask the catalog.

        Raises:
            CatalogUnavailable: it does not answer, or keeps answering about the past.
            TableNotFound: it has another table of that name, or none.
        """
        for _ in attempts(_ATTEMPTS, _PAUSE_SECONDS):
            asked = self._ratified(self._catalog.load(self._name))
            if self._accepted(asked):
                return asked
        raise CatalogUnavailable(
            f"The catalog '{self._catalog.name}' says that version {asked.latest} is the newest of table '{self._name}', "
            f"after it said {self._highest}: its answers are stale; try again.",
            table=str(self._name),
        )

    def known(self) -> Ratified:
        """Return the newest answer so far."""
        return self._known

    def doubt(self) -> None:
        """Forget how far the table is said to have come: that was wrong."""
        with self._lock:
            self._highest = 0

    def propose(self, proposal: Proposal) -> ProposalAnswer:
        """Ask for a version."""
        commit = proposal.commit
        commit_body = {
            "version": proposal.version,
            "timestamp": proposal.timestamp,
            "file-name": commit.file_name,
            "file-size": commit.size,
            "file-modification-timestamp": commit.modified_ms,
        }
        answer = self._update({"action": "add-commit", "commit": commit_body}, *updates_of(proposal.change))
        if answer.is_ok:
            try:
                ratified = self._ratified(self._catalog.parsed(LoadedTable, answer.body))
            except DelvecError as unusable:
                return ProposalAnswer("unknown", error=unusable)
            return ProposalAnswer("accepted", ratified if self._accepted(ratified) else None)
        error = self._catalog.error(answer, f"a commit to table '{self._name}'")
        outcome = _OUTCOMES.get(answer.status)
        if outcome is not None:
            return ProposalAnswer(outcome, error=error)
        if answer.status not in _REFUSED:
            return ProposalAnswer("unknown", error=error)
        if not isinstance(error, PermissionDenied | TableNotFound):
            error = InvalidCommit(
                f"The catalog '{self._catalog.name}' refused the commit of version {proposal.version} to table "
                f"'{self._name}' with status {answer.status}: {answer.said}",
                table=str(self._name),
                version=proposal.version,
            )
        return ProposalAnswer("refused", error=error)

    def published(self, version: int) -> None:
        """Report that the log has all versions up to this one.

        Raises:
            CatalogUnavailable: or a sibling: the catalog did not take the report.
        """
        answer = self._update(
            {"action": "set-latest-backfilled-version", "latest-published-version": version}
        )
        if not answer.is_ok:
            raise self._catalog.error(
                answer, f"the report that version {version} of '{self._name}' is published"
            )
        self._accepted(self._ratified(self._catalog.parsed(LoadedTable, answer.body)))

    def uses_credentials(self, *, has_others: bool) -> bool:
        """Open the table's files with the catalog's credentials from now on; return False if it issues none.

        Args:
            has_others: whether those of the environment will do instead: then only credentials that can write are used.

        Raises:
            CatalogUnavailable: or a sibling: the catalog does not answer, and there are no others.
        """
        return self._keys.are_used(has_others=has_others)

    def close(self) -> None:
        """Forget the credentials."""
        self._keys.close()

    def _update(self, *updates: Mapping[str, Any]) -> CatalogAnswer:
        requirement = {"type": "assert-table-uuid", "uuid": self.table_id}
        return self._catalog.update(self._name, {"requirements": [requirement], "updates": list(updates)})

    def _accepted(self, ratified: Ratified) -> bool:
        """Take over an answer, unless it is older than another one was."""
        with self._lock:
            if ratified.latest < self._highest:
                return False
            self._known, self._highest = ratified, ratified.latest
            return True

    def _ratified(self, answer: LoadedTable) -> Ratified:
        """Return what an answer says about the table's versions.

        Raises:
            TableNotFound: it is about another table.
            CatalogUnavailable: it contradicts itself.
        """
        if answer.metadata.table_uuid != self.table_id or not self._is_here(answer.metadata.location):
            raise TableNotFound(
                f"The catalog '{self._catalog.name}' has another table called '{self._name}' by now. Open it again by its "
                "name.",
                table=str(self._name),
            )
        commits = {
            each.version: RatifiedCommit(
                each.file_name, each.file_size, each.file_modification_timestamp or each.timestamp
            )
            for each in answer.commits or ()
        }
        latest = answer.latest_table_version
        problem = ""
        if latest is None:
            problem = "has no latest-table-version"
        elif len(commits) < len(answer.commits or ()):
            problem = "lists two commits of one version"
        elif max(commits, default=0) > latest:
            problem = f"lists version {max(commits)} above the latest, {latest}"
        else:
            for version, commit in commits.items():
                if not is_staged_name(commit.file_name, version):
                    problem = f"names {commit.file_name[:200]!r} as the file of version {version}"
        if latest is None or problem:
            raise CatalogUnavailable(
                f"The answer of the catalog '{self._catalog.name}' about table '{self._name}' {problem}, so it cannot be "
                "used. Ask its operator.",
                table=str(self._name),
            )
        return Ratified(latest, commits, frozenset(answer.allowed_maintenance_operations or ()))

    def _is_here(self, location: str) -> bool:
        try:
            return locations.canonical(location) == self.location
        except InvalidLocation:
            return False


def is_managed(properties: Mapping[str, str | None]) -> bool:
    """Whether a table with these properties is catalog-managed."""
    return any(properties.get(f"delta.feature.{feature}") == "supported" for feature in CATALOG_MANAGED)
