"""``/api/2.1/unity-catalog/delta/preview``: the commits of the API before the Delta API v1, and its staging tables.

Sail speaks it. It differs in names only: a client stages a commit and asks for the next version, which is checked as always.

Tested in `tests/integration/service/catalog/test_preview_api.py`.
"""

from typing import Any, Final

from delvec_contract.unity_catalog import (
    ClassicStagingTableRequest,
    PreviewCommitRequest,
    PreviewCommitsRequest,
)
from delvec_errors import BadRequest, InvalidLocation
from delvec_kernel.locations import canonical, table_id
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.api.dependencies import ServiceState
from delvec_service.api.problems import UNITY_CATALOG
from delvec_service.api.uc_delta_routes import (
    CommitRoute,
    Names,
    check_report,
    new_name,
    staged_place,
    unity_router,
)
from delvec_service.commits.ratification import StagedFile
from delvec_service.store.open_table import OpenTable

__all__ = ["routers"]

_COMMITS: Final = "/delta/preview/commits"
_NONE_LISTED: Final = -1

_reading, _commits = unity_router(UNITY_CATALOG), unity_router(UNITY_CATALOG, CommitRoute)


@_reading.post("/staging-tables")
def stage_catalog_table(
    names: Names, service: ServiceState, body: ClassicStagingTableRequest
) -> dict[str, Any]:
    """Return a place for a new table."""
    name = new_name(names, body.catalog_name, body.schema_name, body.name)
    location = staged_place(service, names, name)
    return {
        "id": table_id(location),
        "name": body.name,
        "catalog_name": body.catalog_name,
        "schema_name": body.schema_name,
        "staging_location": location,
    }


@_reading.get(_COMMITS)
def list_preview_commits(names: Names, body: PreviewCommitsRequest) -> dict[str, Any]:
    """Return no commits and no version: the log has every commit, and tells the newest.

    With a version a client would want each commit up to it by the name of its staged file, which Delvec's own commits do
    not have.
    """
    _check_place(names.by_id(body.table_id, "reader"), body.table_uri)
    return {"commits": [], "latest_table_version": _NONE_LISTED}


@_commits.post(_COMMITS)
def preview_commit(names: Names, service: ServiceState, body: PreviewCommitRequest) -> dict[str, Any]:
    """Commit: publish a staged commit as the next version. A report of published versions is only checked."""
    table = names.by_id(body.table_id, "writer")
    _check_place(table, body.table_uri)
    commit = body.commit_info

    def check_before(snapshot: Snapshot) -> None:
        check_report(body.latest_backfilled_version, table, snapshot.version)

    if commit is None:
        check_before(service.loader.load(table.objects, table.name, checkpoints=False))
    else:
        staged = StagedFile(commit.version, commit.timestamp, commit.file_name, commit.file_size)
        service.ratification.ratify(table, staged, check_before)
    return {}


def _check_place(table: OpenTable, location: str) -> None:
    try:
        is_here = canonical(location) == table.location
    except InvalidLocation:
        is_here = False
    if not is_here:
        raise BadRequest(
            f"Table '{table.name}' is at {table.location}, and not at the table_uri {location[:200]!r}; load it again.",
            table=table.name,
        )


routers: Final = (_reading, _commits)
