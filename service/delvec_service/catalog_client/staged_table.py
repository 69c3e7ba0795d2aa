"""A table that is being created in another catalog: its place, what version 0 must have, and its creation; and its end.

The catalog names a place, Delvec writes version 0 there, and the catalog gives the table its name. A place becomes a table once,
so a request whose answer is lost is sent again, after asking whose the name is.

Tested in `tests/integration/service/catalog_client/test_creation.py`.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

from delvec_contract.unity_catalog import LoadedTable, StagedTable, StorageCredentialsAnswer
from delvec_errors import (
    BadRequest,
    CatalogUnavailable,
    CommitOutcomeUnknown,
    DelvecError,
    PermissionDenied,
    TableNotFound,
    TooManyRequests,
)
from delvec_kernel import locations
from delvec_kernel.actions.actions import Action
from delvec_kernel.features.managed_tables import managed_properties
from delvec_service.catalog_client.catalog_keys import CatalogKeys
from delvec_service.catalog_client.table_changes import creation_of
from delvec_service.catalog_client.unity_catalog import (
    CatalogAnswer,
    RemoteName,
    UnityCatalog,
    attempts,
    taken,
)

__all__ = ["TableToCreate", "drop_table"]

_ATTEMPTS: Final = 4
_PAUSE_SECONDS: Final = 0.2
_REFUSED: Final = range(400, 500)
_PASSING: Final = (408, 429)


class TableToCreate:
    """A staged table of another catalog.

    Args:
        catalog: the server.
        name: the table's name there, which no table has yet.
        staged: what the catalog answered.

    Attributes:
        location: canonical.
        table_id: the one that the table will have.

    Raises:
        InvalidLocation: its location is none.
    """

    def __init__(self, catalog: UnityCatalog, name: RemoteName, staged: StagedTable) -> None:
        self._catalog = catalog
        self._name = name
        self._staged = staged
        self.location = locations.canonical(staged.location)
        self.table_id = staged.table_id
        self._keys = CatalogKeys(catalog.name, str(name), self.location, self._credentials)

    def properties(self, requested_properties: Mapping[str, str]) -> dict[str, str]:
        """Return the properties for the definition of version 0: those requested, and what the catalog requires.

        Raises:
            InvalidTableChange: one contradicts the catalog.
        """
        protocol, required = self._staged.required_protocol, self._staged.required_properties or {}
        given = {name: value for name, value in required.items() if value is not None}
        features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
        return {
            **{f"delta.feature.{feature}": "supported" for feature in sorted(features)},
            **requested_properties,
            **managed_properties(self.table_id, requested_properties, given),
        }

    def uses_credentials(self, *, has_others: bool) -> bool:
        """Open the files with the catalog's credentials; see :meth:`CatalogTable.uses_credentials`."""
        return self._keys.are_used(has_others=has_others)

    def close(self) -> None:
        """Forget the credentials: the table has its own."""
        self._keys.close()

    def create(self, actions: Sequence[Action]) -> None:
        """Give the table its name, after version 0 is written.

        Args:
            actions: of version 0.

        Raises:
            TableAlreadyExists: another table has the name by now.
            PermissionDenied: or a sibling: the catalog refused; nothing was created.
            CommitOutcomeUnknown: the catalog does not tell what happened.
        """
        body = creation_of(actions, self._name.table, self._staged.location)
        is_open = False
        answer = CatalogAnswer(0)
        for _ in attempts(_ATTEMPTS, _PAUSE_SECONDS):
            answer = self._catalog.create(self._name, body)
            if self._is_there():
                return
            if answer.status in _REFUSED and answer.status not in _PASSING:
                if is_open:
                    break  # an earlier request may be on its way
                raise self._refused(answer)
            is_open = is_open or answer.status not in (-1, *_PASSING)
        raise self._unknown(answer) if is_open else self._not_taken(answer)

    def _is_there(self) -> bool:
        """Whether the table has its name; if the catalog does not tell, it counts as missing.

        Raises:
            TableAlreadyExists: another table has it.
        """
        try:
            found: LoadedTable = self._catalog.load(self._name)
        except (CatalogUnavailable, PermissionDenied, TableNotFound):
            return False
        if found.metadata.table_uuid != self.table_id:
            raise taken(self._catalog.name, self._name)
        return True

    def _refused(self, answer: CatalogAnswer) -> DelvecError:
        if answer.status == HTTPStatus.CONFLICT:
            return taken(self._catalog.name, self._name)
        error = self._catalog.error(answer, f"the creation of table '{self._name}'")
        if isinstance(error, PermissionDenied | TableNotFound):
            return error
        return BadRequest(
            f"The catalog '{self._catalog.name}' refused to create table '{self._name}' with status {answer.status}: "
            f"{answer.said}",
            table=str(self._name),
        )

    def _not_taken(self, answer: CatalogAnswer) -> DelvecError:
        error = self._catalog.error(answer, f"the creation of table '{self._name}'")
        if answer.status in _PASSING:
            return TooManyRequests(f"{error.message} Nothing was created.")
        return error

    def _unknown(self, answer: CatalogAnswer) -> CommitOutcomeUnknown:
        return CommitOutcomeUnknown(
            f"The catalog '{self._catalog.name}' does not tell whether it has created table '{self._name}' (status "
            f"{answer.status}: {answer.said}). Send the same request again.",
            table=str(self._name),
        )

    def _credentials(self, operation: str) -> StorageCredentialsAnswer:  # noqa: ARG002 - there is one kind
        first, self._staged = self._staged, self._staged.model_copy(update={"storage_credentials": []})
        if first.storage_credentials:
            return first
        return self._catalog.staging_credentials(
            self.table_id, f"credentials of the new table '{self._name}'"
        )


def drop_table(catalog: UnityCatalog, name: RemoteName) -> None:
    """Drop the table that has a name now; if the answer is lost, only this table is dropped again.

    Raises:
        TableNotFound: there is none.
        PermissionDenied: or a sibling: the catalog refused.
        CommitOutcomeUnknown: the catalog does not tell what happened.
    """
    identifier = catalog.load(name).metadata.table_uuid
    answer = CatalogAnswer(0)
    for number in attempts(_ATTEMPTS, _PAUSE_SECONDS):
        if number:
            try:
                if catalog.load(name).metadata.table_uuid != identifier:
                    return
            except TableNotFound:
                return
        answer = catalog.drop(name)
        if answer.is_ok or (number and answer.status == HTTPStatus.NOT_FOUND):
            return
        if not answer.is_passing:
            raise catalog.error(answer, f"table '{name}', which was to be dropped")
    if answer.status == -1:
        raise catalog.error(answer, f"table '{name}', which was to be dropped")
    raise CommitOutcomeUnknown(
        f"The catalog '{catalog.name}' does not tell whether it has dropped table '{name}' (status {answer.status}: "
        f"{answer.said}). Try again.",
        table=str(name),
    )
