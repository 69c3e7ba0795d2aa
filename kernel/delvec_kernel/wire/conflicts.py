"""The record of lost races, and what became of commits over time."""

from datetime import datetime

from pydantic import Field

from delvec_kernel.wire.shapes import Answer

__all__ = ["CommitConflict", "CommitInterval", "ConflictsResponse"]


class CommitConflict(Answer):
    """A commit that did not take effect because another had."""

    id: str = Field(description="Names the entry; a later one is greater.")
    found_at: datetime = Field(description="When the race was lost; ISO 8601.")
    type: str = Field(
        description="Delta's name of the conflict, as in the error: `ConcurrentAppendException`."
    )
    operation: str = Field(description="Delta's name of the operation that lost.")
    read_version: int = Field(description="The version that it had read.")
    transaction_id: str = Field(description="The id of its transaction.")
    principal: str | None = Field(
        description="Whose it was; absent where no token is asked for, and for who does not maintain the table."
    )
    winning_version: int = Field(description="The version that was in its way.")
    winning_operation: str = Field(description="The operation of that version, as far as its commit says.")
    winning_engine: str | None = Field(description="The program that wrote that version, likewise.")
    winning_transaction_id: str | None = Field(description="The id of that version's transaction, likewise.")
    winning_principal: str | None = Field(
        description="Who committed it; absent as `principal`, and where another service or engine did."
    )
    num_files: int = Field(description="How many files the conflict is about.")
    files: list[str] = Field(description="Some of these files, as the log names them.")
    overlapping_rows: int | None = Field(
        description="How many rows both changed; absent where it is not about single rows."
    )
    reason: str = Field(description="What the winner did.")


class CommitInterval(Answer):
    """What became of commits in an hour, or in a day of long ago; hours without commits are left out."""

    since: datetime = Field(description="When the interval begins; ISO 8601.")
    seconds: int = Field(description="How long it is: 3600, or 86400 for what is older than a month.")
    committed: int = Field(description="Commits that took effect.")
    rebased: int = Field(
        description="Of them, those that did so on a newer version than the one that they read."
    )
    rows_saved: int = Field(description="Rows that those changed: nobody had to look for them again.")
    conflicts: int = Field(description="Commits that did not take effect because others had.")


class ConflictsResponse(Answer):
    """Who conflicted with whom, and how many commits there were over time."""

    table: str
    conflicts: list[CommitConflict] = Field(
        description="The newest first. At most 1,000 are kept of a table; of those older than a day one of a kind per hour, of "
        "those older than a month one per day, for a year."
    )
    intervals: list[CommitInterval] = Field(description="The newest first, for a year.")
