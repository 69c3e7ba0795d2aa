"""Checkpoints, checks, VACUUM, RESTORE, repair, conversion to Iceberg, and the service's configuration.

Tested in `tests/integration/service/api/test_maintenance_plan.py` and
`tests/integration/service/maintenance/test_log_maintenance.py`.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, StrictBool, model_validator

from delvec_contract.shapes import FILES, Answer, Envelope, FilePath, Long, Text, Timestamp

__all__ = [
    "CheckFinding",
    "CheckResponse",
    "CheckpointRequest",
    "CheckpointResponse",
    "ConfigResponse",
    "GenerateRequest",
    "GenerateResponse",
    "IcebergChecked",
    "IcebergRequest",
    "IcebergResponse",
    "LogCleanUp",
    "OrphanFile",
    "PurgeResponse",
    "Quarantine",
    "QuarantinesResponse",
    "RepackRequest",
    "RepackResponse",
    "RepairAction",
    "RepairRequest",
    "RepairResponse",
    "RepairedFinding",
    "RestoreRequest",
    "RestoreResponse",
    "UndoResponse",
    "UnrepairedFinding",
    "VacuumRequest",
    "VacuumResponse",
]


class CheckpointRequest(Envelope):
    """Options of a checkpoint."""

    clean_up: bool = Field(
        default=False, description=("Delete log files that are older than delta.logRetentionDuration.")
    )
    dry_run: bool = Field(default=False, description="Only list the files that a clean-up would delete now.")


class LogCleanUp(Answer):
    """What a clean-up deleted, or would delete."""

    deleted: list[str] = Field(description="Paths relative to the table, in the order of deletion.")
    oldest_version: int | None = Field(
        description=("The oldest version that can be read afterwards, if commits are deleted.")
    )
    kept_because: str | None = Field(description="Why there was nothing to delete.")


class CheckpointResponse(Answer):
    """The checkpoint of the newest version."""

    table: str
    result: Literal["written", "exists", "dry-run"]
    version: int | None = Field(description="Absent in a dry run.")
    form: Literal["classic", "v2"] | None = Field(description="Absent in a dry run.")
    num_files: int | None = Field(description="Live files in it; absent in a dry run.")
    num_actions: int | None = Field(description="Absent if it already exists.")
    size_in_bytes: int | None = Field(description="Sidecars included; absent where it exists already.")
    num_sidecars: int | None = Field(description="Absent if it already exists.")
    clean_up: LogCleanUp | None = Field(description="Absent if no clean-up was requested.")


class ConfigResponse(Answer):
    """The version and capabilities of the service."""

    version: str
    endpoints: list[str]
    max_request_bytes: int
    arrow_media_type: str
    namespace_roots: dict[str, list[str]] = Field(
        default_factory=dict,
        description="The namespaces that have storage roots of their own, and those roots, of namespaces that the caller may read. "
        "Their tables lie there and nowhere else; new ones go into the first.",
    )


class CheckFinding(Answer):
    """A violation of an invariant."""

    invariant: str = Field(description="The invariant; docs/check.md lists them.")
    severity: Literal["error", "warning"] = Field(
        description="error: readers can see rows other than those committed, or none. warning: readers cope with it."
    )
    version: int | None = Field(description="The version in which it was found.")
    file: str | None = Field(description="Path as in the log, or the name of a file of the log.")
    message: str = Field(description="What is wrong, and what to do.")
    fixed_in: int | None = Field(
        default=None, description="The version that fixed it; absent if it is not fixed."
    )


class OrphanFile(Answer):
    """A file in storage that was written for a commit, and that no version in the log refers to."""

    path: str = Field(description="Relative to the table's location, URL-encoded.")
    size_in_bytes: int
    transaction_id: str
    state: str = Field(
        description=("The state of the transaction; while it is open, the file may still be committed.")
    )


class IcebergChecked(Answer):
    """Published Iceberg metadata that was examined."""

    format_version: int = Field(description="2 or 3.")
    metadata_location: str | None = Field(
        description="The location of the newest metadata; absent if none can be read."
    )
    delta_version: int | None = Field(
        description=("The Delta version that it shows; absent if no metadata can be read.")
    )
    num_data_files: int = Field(description="Data files of the current snapshot.")
    num_delete_files: int = Field(
        description=(
            "The deletion vectors or position delete files of the current snapshot, all of which were read."
        )
    )


class CheckResponse(Answer):
    """What was examined and what was found; a table is sound without errors."""

    table: str
    version: int = Field(description="The newest version; its files were examined.")
    first_version: int | None = Field(description="The oldest version that can be read; absent if none can.")
    num_commits: int = Field(description="Commits that were read.")
    num_data_files: int = Field(description="Live data files that were looked up in storage.")
    num_deletion_vectors: int = Field(description="Live deletion vectors that were read.")
    num_errors: int
    num_warnings: int
    num_orphans: int
    findings: list[CheckFinding] = Field(description="At most 1,000: errors first, then by version.")
    orphans: list[OrphanFile] = Field(description="At most 1,000.")
    iceberg: list[IcebergChecked] = Field(
        default_factory=list,
        description="Published Iceberg metadata that was checked, by format version; none unless the request asks for it.",
    )


class VacuumRequest(Envelope):
    """What to delete, and what to keep."""

    mode: Literal["full", "lite"] = Field(
        default="full",
        description=(
            "`full` lists the table's directory; `lite` only reads the log, so it does not find files that "
            "were never in the log."
        ),
    )
    retention_hours: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] | None = Field(
        default=None,
        description="How long removed files are kept; by default delta.deletedFileRetentionDuration.",
    )
    enforce_retention_duration: StrictBool = Field(
        default=True,
        description="Refuse a shorter retention than the table's, and keep every file younger than 24 hours. "
        "Without this, files of commits in progress may be deleted.",
    )
    dry_run: bool = Field(default=False, description="Only return what would be deleted.")
    keep_versions: list[Annotated[int, Field(ge=0, lt=2**63)]] = Field(
        default_factory=list,
        max_length=1000,
        description="Versions that must stay readable, however old they are.",
    )
    limit: int = Field(default=1000, ge=0, le=1_000_000, description="How many paths the answer lists.")
    files: Annotated[list[FilePath], Field(max_length=FILES, fail_fast=True)] | None = Field(
        default=None,
        description="Consider only these files, and list no directory: for example the files of an earlier dry run "
        "that a person has approved, or of an inventory. Paths as in the log. All other rules apply to "
        "them as well.",
    )
    quarantine: StrictBool = Field(
        default=False,
        description=(
            "Instead of deleting the files, move them below `_delvec` in the table's directory, from where "
            "they can be restored."
        ),
    )

    @model_validator(mode="after")
    def _lists_nothing_twice(self) -> "VacuumRequest":
        if self.files is not None and self.mode == "lite":
            raise ValueError("the mode lite cannot be combined with a list of files; leave out the mode")
        return self


class VacuumResponse(Answer):
    """What a VACUUM deleted, or would delete."""

    table: str
    result: Literal["deleted", "quarantined", "nothing-to-delete", "dry-run"]
    version: int = Field(description="The newest version that was examined.")
    retention_hours: float = Field(description="How long removed files are kept.")
    num_files: int = Field(description="Files that were deleted, or would be.")
    size_in_bytes: int = Field(description="Of these files.")
    num_empty_directories: int = Field(description="Empty directories that are deleted as well.")
    num_directories: int = Field(description="Directories that were listed.")
    files: list[str] = Field(
        description=(
            "The files, then the empty directories, with paths as in the log; at most `limit` of them."
        )
    )
    start_version: int | None = Field(
        description="The version of VACUUM START; absent if nothing was deleted."
    )
    end_version: int | None = Field(description="The version of VACUUM END; absent if there is none.")
    quarantine: str | None = Field(
        default=None, description="The quarantine that contains the files; absent if there is none."
    )


class Quarantine(Answer):
    """Files that a VACUUM moved away instead of deleting them."""

    id: str = Field(description="The quarantine's name, which begins with its time.")
    created_at: str = Field(description="When; ISO 8601.")
    version: int = Field(description="The version of VACUUM START.")
    num_files: int = Field(description="Files to be moved.")
    size_in_bytes: int = Field(description="Of these files.")
    state: Literal["quarantined", "undone"] = Field(
        description=(
            "`quarantined`: the files are in the quarantine, or are being moved into or out of it; "
            "`undone`: all files are back."
        )
    )
    undone_at: str | None = Field(default=None, description="When the files were restored; ISO 8601.")


class QuarantinesResponse(Answer):
    """The quarantines of a table, the newest first."""

    quarantines: list[Quarantine] = Field(description="The quarantines of the table's VACUUMs, by time.")


class UndoResponse(Answer):
    """Files that were restored from a quarantine."""

    table: str
    quarantine: Quarantine = Field(description="The quarantine's current state.")
    num_files: int = Field(description="Files that were restored.")
    size_in_bytes: int = Field(description="Of these files.")
    kept: list[str] = Field(
        description="Files that stay in the quarantine because another file has their path; the first 1,000."
    )


class PurgeResponse(Answer):
    """Files that were deleted from a quarantine."""

    table: str
    quarantine: str = Field(description="The name of the quarantine, which no longer exists.")
    num_files: int = Field(description="Files that were deleted.")
    size_in_bytes: int = Field(description="Of these files.")


class RestoreRequest(Envelope):
    """The version to restore: by number, or the newest one committed by a time."""

    version: Long | None = None
    timestamp: Timestamp | None = Field(default=None, description="ISO 8601; without a zone it is UTC.")
    read_version: Long | None = Field(
        default=None,
        description="A version that was the newest before the request was first sent; on a retry, the service "
        "looks for its commit from there on. What is undone is always the newest version.",
    )
    ignore_missing_files: bool = Field(
        default=False,
        description=(
            "Restore the version even if some of its files are missing from storage; reads of the table "
            "then fail."
        ),
    )
    dry_run: bool = Field(
        default=False, description=("Check and return what would be restored, but commit nothing.")
    )
    user_metadata: Text | None = None
    engine_info: str | None = Field(default=None, max_length=256)

    @model_validator(mode="after")
    def _one_point_in_time(self) -> "RestoreRequest":
        if (self.version is None) == (self.timestamp is None):
            raise ValueError("give a version or a timestamp")
        return self


class RestoreResponse(Answer):
    """The result; nothing-to-do if the version is the newest."""

    result: Literal["committed", "rebased", "nothing-to-do", "dry-run"]
    version: int | None = Field(description="Absent if no version was created.")
    read_version: int
    restored_version: int = Field(description="The earlier version that was restored.")
    transaction_id: str
    winners_passed: list[int] = Field(default_factory=list)
    operation_metrics: dict[str, int]


RepairAction: TypeAlias = Literal[
    "remove-stale-file",
    "remove-file",
    "drop-missing-file",
    "merge-deletion-vectors",
    "rewrite-deletion-vector",
    "correct-statistics",
    "assign-row-ids",
    "add-table-feature",
]
"""How a repair fixes a finding."""


class RepairRequest(Envelope):
    """What to repair."""

    dry_run: bool = Field(default=False, description="Only return what would be done, and why that is right.")
    drop_missing_files: StrictBool = Field(
        default=False,
        description="Remove data files from the table that are missing from storage; their rows are lost.",
    )
    user_metadata: Text | None = Field(default=None, description="Text for the table's history.")
    engine_info: str | None = Field(default=None, max_length=256)


class RepairedFinding(Answer):
    """A finding that was repaired, or would be."""

    invariant: str = Field(description="The invariant that does not hold; docs/check.md lists them.")
    version: int | None = Field(description="The version in which it was found.")
    file: str | None = Field(description="Path as in the log.")
    message: str = Field(description="What is wrong.")
    action: RepairAction
    repair: str = Field(description="What the repair does.")
    reason: str = Field(description="Why that is right.")


class UnrepairedFinding(Answer):
    """A finding that cannot be repaired automatically."""

    invariant: str = Field(description="The invariant that does not hold; docs/check.md lists them.")
    severity: Literal["error", "warning"] = Field(
        description="error: readers can see rows other than those committed, or none. warning: readers cope with it."
    )
    version: int | None = Field(description="The version in which it was found.")
    file: str | None = Field(description="Path as in the log, or the name of a file of the log.")
    message: str = Field(description="What is wrong, and what to do.")
    reason: str = Field(description="Why it is not repaired.")


class RepairResponse(Answer):
    """What was repaired, and what was not."""

    table: str
    result: Literal["committed", "nothing-to-do", "dry-run"]
    version: int | None = Field(description="The last version that was created; absent if there is none.")
    versions: list[int] = Field(
        description=(
            "All versions that were created: more than one if two logical files have to be removed from "
            "one path."
        )
    )
    read_version: int = Field(description="The last version that was examined.")
    num_repaired: int = Field(description="Findings that were repaired, or would be.")
    num_unrepaired: int = Field(description="Findings that were not repaired.")
    num_lost_rows: int | None = Field(
        description="Rows of the missing files that were removed; absent if the log does not say how many."
    )
    repaired: list[RepairedFinding] = Field(description="At most 1,000.")
    unrepaired: list[UnrepairedFinding] = Field(description="At most 1,000: errors first.")
    operation_metrics: dict[str, int]


class GenerateRequest(Envelope):
    """What to generate."""

    mode: Literal["symlink_format_manifest"] = Field(
        default="symlink_format_manifest",
        description="Manifests in Hive's symlink format, which list the table's data files.",
    )


class GenerateResponse(Answer):
    """What was generated."""

    table: str
    mode: Literal["symlink_format_manifest"] = Field(description="The format that was generated.")
    version: int = Field(description="The version whose files are listed.")
    path: str = Field(description="The directory of the manifests, a URL.")
    num_manifests: int = Field(description="Manifests that were written: one, or one for each partition.")
    num_files: int = Field(description="Data files in the manifests.")
    num_deleted_manifests: int = Field(description="Manifests of partitions that the table no longer has.")


class IcebergRequest(Envelope):
    """How to publish the table as an Iceberg table."""

    format_version: int = Field(
        default=2,
        ge=2,
        le=3,
        description=(
            "The format version of the Iceberg table: 2 has position delete files, 3 has deletion vectors."
        ),
    )
    squash: bool = Field(
        default=False, description="One Iceberg snapshot for all new versions, instead of one for each."
    )
    catalog: Annotated[str, Field(min_length=1, max_length=512)] | None = Field(
        default=None,
        description="A catalog in the service's PyIceberg configuration (such as `prod`), or a table in it (such "
        "as `prod.sales.orders`), in which to register the table; by default the one in the property "
        "`delvec.iceberg.catalog`.",
    )


class IcebergResponse(Answer):
    """The published Iceberg table."""

    table: str
    format_version: int = Field(description="The format version of the Iceberg table.")
    metadata_location: str = Field(description="The URI of the Iceberg table's metadata file.")
    delta_version: int = Field(description="The Delta version that it shows.")
    snapshot_id: int | None = Field(
        description="The id of the current Iceberg snapshot; absent for a table that never had a file."
    )
    catalog: str | None = Field(
        default=None,
        description="The table in an Iceberg catalog in which it is registered, such as `prod.sales.orders`.",
    )
    warning: str | None = Field(
        default=None,
        description="What may happen to the metadata where the property `delvec.iceberg.location` puts it; absent for "
        "a directory that no VACUUM of a Delta writer deletes.",
    )


class RepackRequest(Envelope):
    """Compaction of deletion vectors in many small files, or in files that are mostly unused."""

    dry_run: bool = Field(default=False, description="Only count what would be rewritten.")
    user_metadata: Text | None = Field(default=None, description="Text for the table's history.")


class RepackResponse(Answer):
    """The result of the compaction, which deletes and restores no rows."""

    table: str
    result: Literal["committed", "nothing-to-do", "dry-run"]
    version: int | None = Field(description="The last version that was created; absent if there is none.")
    num_deletion_vectors: int = Field(description="Deletion vectors that were rewritten.")
    size_in_bytes: int = Field(description="Of these deletion vectors.")
    num_vector_files: int = Field(description="Files that contained them before; VACUUM deletes these.")
    new_vector_files: int = Field(description="Files that contain them now.")
    gain_bytes: int = Field(
        default=0,
        description="Approximate bytes of vectors in the old files that nothing needs; VACUUM frees them.",
    )
