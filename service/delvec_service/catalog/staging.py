"""Creation of managed tables: a place for a new one, and its registration once the client has written version 0.

No state is kept in between. The place is the folder of the name with a random suffix, and the table's id follows from the
place. A principal who may create tables of that name may therefore register one at such a place, and a lost database changes
nothing.

Tested in `tests/integration/service/catalog/test_unity_catalog.py`.
"""

import re
import uuid
from dataclasses import dataclass
from typing import Any, Final

from delvec_errors import BadRequest, InvalidCommit, TableAlreadyExists
from delvec_kernel.features.managed_tables import check_stays_managed, managed_properties
from delvec_kernel.locations import table_id
from delvec_kernel.log.log_segment import commit_path
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.transaction import staged_commit
from delvec_service.commits.ratification import Ratification
from delvec_service.store.open_table import OpenTable
from delvec_service.store.registry import TableRecord
from delvec_service.tables.new_table import NewTable
from delvec_service.tables.registry import Tables

__all__ = ["Staging", "staging_answer"]

_SUFFIX: Final = re.compile(r"-[0-9a-f]{32}")
_READER_FEATURES: Final = ("catalogManaged", "deletionVectors", "v2Checkpoint", "vacuumProtocolCheck")
_WRITER_FEATURES: Final = (*_READER_FEATURES, "inCommitTimestamp")


def staging_answer(location: str, credentials: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a client needs to know to write version 0 at a location."""
    return {
        "table-id": table_id(location),
        "table-type": "MANAGED",
        "location": location,
        "storage-credentials": credentials,
        "required-protocol": {
            "min-reader-version": 3,
            "min-writer-version": 7,
            "reader-features": list(_READER_FEATURES),
            "writer-features": list(_WRITER_FEATURES),
        },
        "suggested-protocol": {"reader-features": [], "writer-features": ["domainMetadata", "rowTracking"]},
        "required-properties": managed_properties(table_id(location), {}),
        "suggested-properties": {"delta.parquet.compression.codec": "zstd"},
    }


@dataclass(frozen=True)
class Staging:
    """Creates managed tables.

    Attributes:
        tables: registers them.
        ratification: checks version 0.
    """

    tables: Tables
    ratification: Ratification

    def place(self, name: str) -> str:
        """Return a new location for a table of that name.

        Raises:
            BadRequest: there is no warehouse.
            LocationNotAllowed: the place is inside another table.
        """
        return self.tables.managed_place(name, str(uuid.uuid4()))

    def create(self, name: str, location: str, new: NewTable | None = None) -> TableRecord:
        """Register a table whose version 0 the client has written; a second time it changes nothing.

        Args:
            name: of the table, which the caller may create.
            location: that :meth:`place` returned for the name.
            new: what to write as version 0 if the client has not.

        Raises:
            BadRequest: the location is not a place for that name, or version 0 is missing.
            InvalidCommit: or a subclass: version 0 is not that of a managed table.
            InvalidTableChange: it lacks the feature, the id or in-commit timestamps.
            TableAlreadyExists: another table has the name.
        """
        canonical = self.tables.within_roots(location, name)
        folder = self.tables.within_roots(self.tables.roots.folder(name), name)
        if not canonical.startswith(folder) or not _SUFFIX.fullmatch(canonical[len(folder) :]):
            raise BadRequest(
                f"The location {canonical} is not a staging location of table '{name}'; request one, and write version 0 "
                "there.",
                location=canonical,
            )
        known = self.tables.at(canonical)
        if known is not None and known.name != name:
            raise TableAlreadyExists(
                f"The table at {canonical} is already registered under another name.", location=canonical
            )
        if known is None:
            table = self.tables.unregistered(canonical, name)
            first = _first(table)
            if first is None and new is not None:
                return self.tables.create(canonical, name, new)[0]
            self._check_first(table, first)
        return self.tables.register(canonical, name)[0]

    def _check_first(self, table: OpenTable, data: bytes | None) -> None:
        name, location = table.name, table.location
        if data is None:
            raise BadRequest(
                f"There is no version 0 of table '{name}' at {location}; write it, then create the table.",
                location=location,
            )
        first = staged_commit.parse(data, name, location, 0, commit_path(0))
        if first.protocol is None or first.metadata is None:
            raise InvalidCommit(
                f"Version 0 of table '{name}' at {location} has no protocol or no metadata; write both.",
                table=name,
                version=0,
            )
        check_stays_managed(first.protocol, first.metadata, name, location)
        self.ratification.check_first(
            table, Snapshot.before_first(location, first.protocol, first.metadata), first
        )


def _first(table: OpenTable) -> bytes | None:
    """Return version 0; None if nobody has written it."""
    try:
        return table.objects.get(commit_path(0))
    except FileNotFoundError:
        return None
