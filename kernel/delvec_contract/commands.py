"""DELETE, UPDATE and OPTIMIZE run by the service.

Tested in `tests/integration/service/test_dml.py`.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator

from delvec_contract.shapes import Answer, Column, Envelope, Long, few

__all__ = ["DeleteRequest", "OptimizePlan", "OptimizeRequest", "PlannedFiles", "Rewrite", "UpdateRequest"]

Rewrite: TypeAlias = Literal["auto", "always", "never"]
"""Whether OPTIMIZE decodes and re-encodes the rows of files that it combines."""

_Value: TypeAlias = (
    Annotated[StrictStr, Field(max_length=100_000)]
    | StrictBool
    | Annotated[StrictInt, Field(gt=-(10**38), lt=10**38)]
    | StrictFloat
    | None
)
_Values: TypeAlias = Annotated[
    dict[Annotated[str, Field(min_length=1, max_length=1024)], _Value],
    Field(min_length=1, max_length=1000),
    BeforeValidator(few),
]

_Predicate: TypeAlias = Annotated[
    str,
    Field(
        min_length=1,
        max_length=100_000,
        description="Which rows: a Boolean expression in Spark's SQL. `true` means every row.",
        examples=["age < 18"],
    ),
]
_Metadata: TypeAlias = Annotated[
    str | None,
    Field(
        max_length=65_536,
        description="Text for the table's history.",
        examples=["request 4711 of the data protection officer"],
    ),
]


_ReadVersion: TypeAlias = Annotated[
    Long | None,
    Field(
        description="A version that was the newest before the request was first sent: a retry with the same "
        "`Idempotency-Key` looks for its commit from there on, even if the service's database was lost. The command "
        "always reads the newest version."
    ),
]


_Ratio: TypeAlias = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]


class DeleteRequest(Envelope):
    """Delete the rows that match a predicate."""

    predicate: _Predicate
    user_metadata: _Metadata = None
    read_version: _ReadVersion = None


class OptimizeRequest(Envelope):
    """Compact small files, and files with many deleted rows; the table's rows stay the same."""

    predicate: _Predicate | None = Field(
        default=None,
        description="Only the partitions for which this is true: SQL over partition columns.",
        examples=["country = 'NZ'"],
    )
    purge: StrictBool = Field(
        default=False,
        description=(
            "Rewrite every file that has a deletion vector, and no others: REORG TABLE ... APPLY (PURGE)."
        ),
    )
    min_deleted_ratio: _Ratio = Field(
        default=0.0,
        description="With purge: only files with a larger share of deleted rows; 0 for all.",
        examples=[0.05],
    )
    max_deleted_ratio: _Ratio | None = Field(
        default=None,
        description="Without purge: files with a larger share of deleted rows are rewritten even if they are large, or alone; "
        "by default 0.05.",
        examples=[0.2],
    )
    zorder_by: Annotated[list[Column], Field(max_length=32, fail_fast=True)] = Field(
        default_factory=list,
        description="Sort rows so that files have narrow ranges in each of these columns, or fields of structs.",
        examples=[["country", "born"]],
    )
    full: StrictBool = Field(
        default=False,
        description=(
            "For a clustered table, also sort files that were clustered by other columns, and sort all "
            "files together."
        ),
    )
    target_size: Annotated[StrictInt, Field(ge=1, lt=2**63)] | None = Field(
        default=None,
        description="Bytes of new files; by default delta.targetFileSize, else 256 MiB.",
        examples=[134217728],
    )
    max_bytes: Annotated[StrictInt, Field(ge=1, lt=2**63)] | None = Field(
        default=None,
        description="Rewrite files of at most this many bytes, those that gain most per byte first; by default all, if the "
        "service's limit allows it.",
        examples=[134217728],
    )
    rewrite: Rewrite = Field(
        default="auto",
        description="Whether rows are decoded and encoded. `auto` copies row groups byte for byte if they are large and the files "
        "similar; `never` only copies, and leaves other files as they are. Cannot be combined with purge, full or zorder-by.",
    )
    dry_run: StrictBool = Field(
        default=False,
        description="Commit nothing, but return what would be rewritten, and why. No byte limit applies.",
    )
    limit: Annotated[StrictInt, Field(ge=0, le=10_000)] = Field(
        default=1000,
        description=("The maximum number of files listed in a dry run; the counts include all files."),
    )
    user_metadata: _Metadata = None
    read_version: _ReadVersion = None

    @model_validator(mode="after")
    def _one_command(self) -> "OptimizeRequest":
        if sum((self.purge, self.full, bool(self.zorder_by))) > 1:
            raise ValueError("give at most one of purge, full and zorder-by")
        if self.min_deleted_ratio and not self.purge:
            raise ValueError("min-deleted-ratio needs purge; without it, give max-deleted-ratio")
        if self.max_deleted_ratio is not None and self.purge:
            raise ValueError("purge takes min-deleted-ratio, not max-deleted-ratio")
        if self.rewrite != "auto" and (self.purge or self.full or self.zorder_by):
            raise ValueError(
                "rewrite cannot be combined with purge, full or zorder-by, which rewrite all rows"
            )
        return self


class PlannedFiles(Answer):
    """Files that OPTIMIZE would rewrite together."""

    reason: str = Field(description="Why.")
    num_files: int
    size_in_bytes: int = Field(description="Bytes that would be read.")
    new_size_in_bytes: int = Field(
        description="Approximate number of bytes that would be written, without deleted rows."
    )
    files: list[str] = Field(description="Paths, as in the log, up to the request's limit.")


class OptimizePlan(Answer):
    """What OPTIMIZE would do; nothing was committed."""

    result: Literal["dry-run"]
    read_version: int = Field(description="The version that was examined.")
    num_files: int = Field(description="Files that would be rewritten.")
    new_files: int = Field(description="Approximate number of new files.")
    size_in_bytes: int = Field(description="Bytes that would be read.")
    new_size_in_bytes: int = Field(description="Approximate number of bytes that would be written.")
    gain_bytes: int = Field(
        description="Approximate bytes of deleted rows that a full scan would no longer read."
    )
    num_considered_files: int = Field(description="Live files that were examined.")
    exceeds_limit: bool = Field(
        description="Whether that is more than this service rewrites itself (`DELVEC_DML_MAX_BYTES`)."
    )
    num_groups: int = Field(description="Groups of files that would be written together.")
    groups: list[PlannedFiles] = Field(description="These groups, up to the request's limit.")


class UpdateRequest(Envelope):
    """Set columns of the rows that match a predicate."""

    set: _Values = Field(
        description="By column, or field of a struct (`address.city`). A string is SQL that may read every column "
        "as it was: `age + 1`, `'Ada'` (a literal, in quotes), `DEFAULT`. A number, true, false or "
        "null is the value itself.",
        examples=[{"age": "age + 1", "name": "'Ada'", "active": True}],
    )
    predicate: _Predicate
    user_metadata: _Metadata = None
    read_version: _ReadVersion = None
