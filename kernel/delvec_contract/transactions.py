"""Transactions over several tables, and reads of several tables at one moment.

Tested in `tests/integration/service/commits/test_multi_table_commit.py`.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from delvec_contract.commits import Commit, CommitResponse
from delvec_contract.shapes import Answer, Envelope, TransactionId
from delvec_contract.tables import SnapshotResponse

__all__ = [
    "CommittedTable",
    "SnapshotsRequest",
    "SnapshotsResponse",
    "TableCommit",
    "TransactionOutcome",
    "TransactionRequest",
    "TransactionResponse",
]

_Table: TypeAlias = Annotated[str, Field(max_length=200, description="The table's name or id.")]


class TableCommit(Envelope):
    """What a transaction changes in one table."""

    table: _Table
    commit: Commit = Field(
        description="The same as a commit to this table alone, with the transaction's id. If it changes nothing, only what it "
        "read is checked."
    )


class TransactionRequest(Envelope):
    """Commits to several tables, which take effect together or not at all."""

    transaction_id: TransactionId | None = Field(
        default=None, description="The idempotency key; if absent, a new one is created."
    )
    tables: list[TableCommit] = Field(
        min_length=1, max_length=64, fail_fast=True, description="Each table once; all are managed tables."
    )


class CommittedTable(Answer):
    """What a transaction did to one table."""

    table_id: str
    name: str
    commit: CommitResponse = Field(
        description="What was committed, as the answer to a commit to this table alone."
    )


class TransactionResponse(Answer):
    """A transaction that took effect. A conflict is an error response with status 409, which names the table."""

    transaction_id: str
    tables: list[CommittedTable] = Field(description="In the order of the request.")


class TransactionOutcome(Answer):
    """The outcome of a transaction over several tables."""

    transaction_id: str
    result: Literal["committed", "undone", "unknown"] = Field(
        description="`undone`: nothing was committed, but the request, if it is still under way, may try again. `unknown`: in "
        "progress, or never sent."
    )
    tables: list[CommittedTable] = Field(description="What it did, to those tables that the caller may read.")
    reason: str | None = Field(default=None, description="Why it was undone.")


class SnapshotsRequest(Envelope):
    """Read several tables at one moment."""

    tables: list[_Table] = Field(min_length=1, max_length=64, fail_fast=True, description="The tables.")


class SnapshotsResponse(Answer):
    """The tables at one moment: every transaction over several of them is in all of these versions, or in none."""

    snapshots: list[SnapshotResponse] = Field(description="In the order of the request.")
