"""The check of a table: what should be true of it and is not."""

from typing import Literal

from pydantic import Field

from delvec.protocol.wire.shapes import Answer

__all__ = ["CheckFinding", "CheckResponse", "OrphanFile"]


class CheckFinding(Answer):
    """Where an invariant does not hold."""

    invariant: str = Field(description="Which one: docs/check.md lists them.")
    severity: Literal["error", "warning"] = Field(
        description="error: readers can see other rows than were committed, or none. warning: they cope."
    )
    version: int | None = Field(description="In which it was found.")
    file: str | None = Field(description="Path as in the log, or the name of a file of the log.")
    message: str = Field(description="What is wrong, and what to do.")


class OrphanFile(Answer):
    """A file in storage that was written for a commit, and that no version in the log refers to."""

    path: str = Field(description="Relative to the table's location, URL-encoded.")
    size_in_bytes: int
    transaction_id: str
    state: str = Field(description="Of the transaction; while it is open, the file may yet be committed.")


class CheckResponse(Answer):
    """What was looked at and what was found; a table is sound without errors."""

    table: str
    version: int = Field(description="The newest; its files were looked at.")
    first_version: int | None = Field(description="The oldest that can be read; absent where none can.")
    num_commits: int = Field(description="Commits that were read.")
    num_data_files: int = Field(description="Live data files that were looked up in storage.")
    num_deletion_vectors: int = Field(description="Live deletion vectors that were read.")
    num_errors: int
    num_warnings: int
    num_orphans: int
    findings: list[CheckFinding] = Field(description="At most 1,000: errors first, then by version.")
    orphans: list[OrphanFile] = Field(description="At most 1,000.")
