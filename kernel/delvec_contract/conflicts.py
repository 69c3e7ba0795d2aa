"""Recorded conflicts, and the outcomes of commits over time."""

from datetime import datetime

from pydantic import Field

from delvec_contract.shapes import Answer

__all__ = ["CommitConflict", "CommitInterval", "ConflictsResponse"]


class CommitConflict(Answer):
    """A commit that failed because of another one."""

    id: str = Field(description="The id of the entry; later entries have greater ids.")
    found_at: datetime = Field(description="When the conflict occurred; ISO 8601.")
    type: str = Field(
        description="Delta's name of the conflict, as in the error: `ConcurrentAppendException`."
    )
    operation: str = Field(description="Delta's name of the operation that lost.")
    read_version: int = Field(description="The version that the losing commit had read.")
    transaction_id: str = Field(description="The transaction id of the losing commit.")
    principal: str | None = Field(
        description=(
            "The principal of the losing commit; absent if the service does not require tokens, and for "
            "callers who do not maintain the table."
        )
    )
    winning_version: int = Field(description="The version that it conflicted with.")
    winning_operation: str = Field(description="The operation of that version, if recorded in its commit.")
    winning_engine: str | None = Field(
        description="The program that wrote that version, if recorded in its commit."
    )
    winning_transaction_id: str | None = Field(
        description="The id of that version's transaction, if recorded in its commit."
    )
    winning_principal: str | None = Field(
        description=(
            "Who committed it; absent under the same conditions as `principal`, and if another service or "
            "engine did."
        )
    )
    num_files: int = Field(description="The number of files in conflict.")
    files: list[str] = Field(description="Some of these files, as in the log.")
    overlapping_rows: int | None = Field(
        description=(
            "The number of rows that both changed; absent if the conflict is not about individual rows."
        )
    )
    reason: str = Field(description="What the winning commit did.")


class CommitInterval(Answer):
    """The outcomes of commits in an hour, or in a day for old ones; hours without commits are left out."""

    since: datetime = Field(description="When the interval begins; ISO 8601.")
    seconds: int = Field(description="Its length in seconds: 3600, or 86400 for anything older than a month.")
    committed: int = Field(description="Commits that took effect.")
    rebased: int = Field(
        description="The number of them that were rebased onto a newer version than the one they read."
    )
    rows_saved: int = Field(
        description=("Rows changed by the rebased commits, which did not have to be found again.")
    )
    conflicts: int = Field(description="Commits that failed with a conflict.")


class ConflictsResponse(Answer):
    """Conflicts, and the number of commits over time."""

    table: str
    conflicts: list[CommitConflict] = Field(
        description="Newest first. At most 1,000 are kept per table: after a day, one of each kind per hour; after "
        "a month, one per day, for a year."
    )
    intervals: list[CommitInterval] = Field(description="Newest first, for one year.")
