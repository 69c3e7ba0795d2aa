"""Tables created with rows, in one version: a client begins, writes the files of the rows, and creates the table with them.

Nothing is stored in between. The place of the table, its columns and their names in files follow from the request and
the transaction id, so that they are the same both times. A client that never comes back leaves files without a table.

Tested in `tests/integration/service/tables/test_first_rows.py`.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from delvec_contract.tables import FirstRows
from delvec_errors import InvalidCommit
from delvec_kernel.actions.actions import Action, CommitInfo, DomainMetadata, Metadata, Protocol
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.transaction import commit_builder
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_service.commits import commit_checks
from delvec_service.commits.commit_request import accepted
from delvec_service.commits.metadata_changes import alteration_of
from delvec_service.store.open_table import OpenTable
from delvec_service.store.registry import TableRecord
from delvec_service.tables.new_table import NewTable
from delvec_service.tables.places import Requester
from delvec_service.tables.registry import Tables, already_exists

__all__ = ["begin", "create"]

_BEFORE: Final = -1


def begin(
    tables: Tables, location: str | None, name: str | None, new: NewTable, requester: Requester
) -> tuple[OpenTable, Snapshot]:
    """Return a table that does not exist yet, and its state before version 0; changes nothing.

    Raises:
        TableAlreadyExists: there is a table.
        UnsupportedOperation: another catalog says where it is only once it is created.
        DelvecError: as for :meth:`~delvec_service.tables.registry.Tables.create`.
    """
    canonical, actions = tables.planned(location, name, new, requester)
    if tables.was_begun(canonical, name, new.transaction_id) is not None:
        raise already_exists(canonical)
    tables.check_free(canonical, name)
    return tables.unregistered(canonical, name), _state(canonical, actions)


def create(
    tables: Tables,
    location: str | None,
    name: str | None,
    new: NewTable,
    rows: FirstRows,
    requester: Requester,
    *,
    max_file_age_seconds: float,
) -> tuple[TableRecord, int]:
    """Create a table with its first rows; a second time it changes nothing. Return its record and version.

    Raises:
        InvalidCommit: or a subclass: the files contradict the table, or storage does not have them.
        ConstraintViolation: their statistics prove that rows violate a constraint.
        DelvecError: as for :meth:`~delvec_service.tables.registry.Tables.create`.
    """
    canonical, actions = tables.planned(location, name, new, requester)
    if tables.was_begun(canonical, name, new.transaction_id) is None:
        actions = _with_rows(
            tables.unregistered(canonical, name), actions, rows, max_file_age_seconds=max_file_age_seconds
        )
    return tables.begin(canonical, name, new.transaction_id, actions, requester)


def _with_rows(
    table: OpenTable, first: Sequence[Action], rows: FirstRows, *, max_file_age_seconds: float
) -> list[Action]:
    """Return version 0 of a table with its first rows."""
    info, before = first[0], _state(table.location, first)
    assert isinstance(info, CommitInfo)  # noqa: S101 - as it was built
    changes = accepted(_changes(rows, info), rows.transaction_id, None, table)
    metadata = before.metadata
    if changes.table_changes:
        metadata = alteration_of(table, changes.table_changes, before).metadata or metadata
    domains = [action for action in first if isinstance(action, DomainMetadata)]
    changes = replace(changes, metadata=metadata, protocol=before.protocol, domains=domains)
    commit_checks.check_adds(table, changes, before)
    if changes.adds:
        commit_checks.check_files(table, changes, max_file_age_seconds)
    resolution = commit_builder.resolve(changes, {}, {}, {}, table=table.name, version=_BEFORE)
    metrics = commit_builder.metrics(changes, resolution)
    now = time.time_ns() // 1_000_000
    made, *others = commit_builder.build(changes, resolution, {}, before, now, metrics=metrics)
    assert isinstance(made, CommitInfo)  # noqa: S101 - as it was built
    # It depends on nothing that was there before.
    return [
        replace(made, read_version=None, is_blind_append=True, isolation_level=info.isolation_level),
        *others,
    ]


def _changes(rows: FirstRows, info: CommitInfo) -> Changes:
    return Changes(
        operation=rows.operation,
        read_version=_BEFORE,
        transaction_id=rows.transaction_id,
        engine_info=rows.engine_info or "",
        adds=rows.adds,
        parameters=rows.operation_parameters or info.operation_parameters or {},
        metrics=rows.operation_metrics,
        table_changes=rows.identity_changes,
        app_transaction=rows.app_transaction,
        user_metadata=rows.user_metadata,
    )


def _state(location: str, first: Sequence[Action]) -> Snapshot:
    """Return the state before version 0 with the definition that it has."""
    found: dict[type[Any], Any] = {type(action): action for action in first}
    if Protocol not in found or Metadata not in found:
        raise InvalidCommit("The first version of a table needs a protocol and metadata.")
    return Snapshot.before_first(location, found[Protocol], found[Metadata])
