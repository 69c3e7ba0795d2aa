"""ALTER TABLE: the changes in a request, which are committed together, and the response.

Tested in `tests/integration/service/alter_table/test_alter.py`.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from delvec_contract.shapes import (
    Answer,
    Columns,
    Envelope,
    Expression,
    Identifier,
    JsonObject,
    Long,
    Properties,
    Text,
    TransactionId,
)

__all__ = [
    "AddColumns",
    "AddConstraint",
    "AddFeature",
    "AdvanceIdentity",
    "AlterRequest",
    "AlterResponse",
    "ChangeColumn",
    "ClusterBy",
    "DropColumns",
    "DropConstraint",
    "DropFeature",
    "NewColumn",
    "RenameColumn",
    "ReplaceSchema",
    "ReplaceTable",
    "SetComment",
    "SetProperties",
    "SyncIdentity",
    "TableChange",
    "UnsetProperties",
    "UpgradeProtocol",
    "WriteChange",
]

_Column = Annotated[
    str,
    Field(
        min_length=1,
        max_length=4096,
        description="A column, or a field of a struct, separated by dots: address.city; `element` for an array, "
        "`key` and `value` for a map. Put backticks around a name that has characters other than "
        "letters, digits and underscores.",
    ),
]
_Type: TypeAlias = Text | JsonObject
_After = Annotated[
    Annotated[str, Field(max_length=4096)] | None,
    Field(description="Put the column after this one; a name without the path before it."),
]
_First = Annotated[bool, Field(description="Put the column before all others of the table or struct.")]


class _Positioned(Envelope):
    first: _First = False
    after: _After = None

    @model_validator(mode="after")
    def _one_place(self) -> "_Positioned":
        if self.first and self.after is not None:
            raise ValueError("give first, or after, not both")
        return self

    @property
    def position(self) -> str | None:
        """FIRST or AFTER and a name, as Delta records it; None for the default position."""
        return "FIRST" if self.first else None if self.after is None else f"AFTER {self.after}"


class NewColumn(_Positioned):
    """A column to add; without a position it is added at the end."""

    column: _Column
    type: _Type = Field(description="A type in Delta's schema JSON.")
    comment: Text | None = None
    nullable: bool = Field(default=True, description="Must be true, because existing rows have no value.")


class AddColumns(Envelope):
    """Add columns, or fields of structs. Existing rows read as null."""

    change: Literal["add-columns"]
    columns: list[NewColumn] = Field(min_length=1, max_length=1000, fail_fast=True)


class RenameColumn(Envelope):
    """Rename a column; needs column mapping."""

    change: Literal["rename-column"]
    column: _Column
    to: str = Field(min_length=1, max_length=4096, description="The new name, without the path before it.")


class DropColumns(Envelope):
    """Drop columns; needs column mapping. The files keep the values."""

    change: Literal["drop-columns"]
    columns: list[_Column] = Field(min_length=1, max_length=1000, fail_fast=True)
    if_exists: bool = False


class ChangeColumn(_Positioned):
    """Change a column's type, nullability, default, comment or position, whichever are given."""

    change: Literal["change-column"]
    column: _Column
    type: _Type | None = Field(default=None, description="A wider type; needs delta.enableTypeWidening=true.")
    nullable: bool | None = Field(
        default=None, description="If false, every row must have a value; this is verified first."
    )
    default: str | None = Field(
        default=None,
        max_length=4096,
        description="An expression in Spark's SQL that reads no columns: the value of rows written without the "
        "column from now on. Empty: remove the default.",
    )
    comment: Text | None = Field(default=None, description="Empty: remove the comment.")

    @model_validator(mode="after")
    def _something(self) -> "ChangeColumn":
        if all(
            each is None for each in (self.type, self.nullable, self.default, self.comment, self.position)
        ):
            raise ValueError("give what to change: type, nullable, default, comment, first or after")
        return self


class SetProperties(Envelope):
    """Set table properties; the table features that they need are added to the protocol."""

    change: Literal["set-properties"]
    properties: Properties = Field(min_length=1)
    allow_unknown: bool = Field(
        default=False, description="Also set delta.* properties that Delvec does not know."
    )


class UnsetProperties(Envelope):
    """Unset table properties."""

    change: Literal["unset-properties"]
    names: list[Identifier] = Field(min_length=1, max_length=1000, fail_fast=True)
    if_exists: bool = False


class AddConstraint(Envelope):
    """Add a CHECK constraint, after verifying that every row satisfies it."""

    change: Literal["add-constraint"]
    name: str = Field(min_length=1, max_length=255)
    expression: Expression = Field(
        description="A Boolean expression in Spark's SQL that must be true for every row."
    )


class DropConstraint(Envelope):
    """Drop a CHECK constraint."""

    change: Literal["drop-constraint"]
    name: str = Field(min_length=1, max_length=255)
    if_exists: bool = False


class AddFeature(Envelope):
    """Add a table feature to the protocol, together with the features that it needs."""

    change: Literal["add-feature"]
    feature: str = Field(min_length=1, max_length=255)


class DropFeature(Envelope):
    """Drop a table feature from the protocol, once nothing needs it; must be the only change of the request.

    This may take several versions: properties that enable the feature are turned off first. When a reader feature is
    dropped, the log is protected so that clients without it never need older versions.
    """

    change: Literal["drop-feature"]
    feature: str = Field(min_length=1, max_length=255)
    truncate_history: bool = Field(
        default=False,
        description=(
            "Only for checkpointProtection, which can be dropped only once the versions that it protects "
            "are gone."
        ),
    )


class UpgradeProtocol(Envelope):
    """Raise the protocol versions; versions lower than the table's are ignored."""

    change: Literal["upgrade-protocol"]
    min_reader_version: int = Field(ge=1, le=3)
    min_writer_version: int = Field(ge=1, le=7)


class SetComment(Envelope):
    """Set the table's description, or remove it."""

    change: Literal["set-comment"]
    comment: Text | None = Field(default=None, description="If absent, the comment is removed.")


class ClusterBy(Envelope):
    """Set the clustering columns; an empty list removes clustering."""

    change: Literal["cluster-by"]
    columns: list[_Column] = Field(max_length=1000, fail_fast=True)


class SyncIdentity(Envelope):
    """Advance an identity column past all values in the table, including explicitly inserted ones; never moves it back."""

    change: Literal["sync-identity"]
    column: _Column
    reached: int | None = Field(
        default=None,
        ge=-(2**63),
        lt=2**63,
        description="The greatest number in the rows, or the least if the step is negative; absent if no row has "
        "one. The service verifies that no row goes beyond it.",
    )


TableChange: TypeAlias = Annotated[
    AddColumns
    | RenameColumn
    | DropColumns
    | ChangeColumn
    | SetProperties
    | UnsetProperties
    | AddConstraint
    | DropConstraint
    | AddFeature
    | DropFeature
    | UpgradeProtocol
    | SetComment
    | ClusterBy
    | SyncIdentity,
    Field(discriminator="change"),
]


class ReplaceSchema(Envelope):
    """Replace all columns, for a commit that removes every file. Column ids and physical names are new."""

    change: Literal["replace-schema"]
    table_schema: JsonObject = Field(alias="schema", description="Delta's schema JSON.")
    partition_columns: Columns = Field(default_factory=list)


class ReplaceTable(Envelope):
    """Replace the table's definition, for a commit that removes every file.

    Properties that are not listed are removed; features stay in the protocol.
    """

    change: Literal["replace-table"]
    table_schema: JsonObject = Field(alias="schema", description="Delta's schema JSON.")
    partition_columns: Columns = Field(default_factory=list)
    properties: Properties = Field(default_factory=dict)
    description: Text | None = None
    cluster_by: list[_Column] = Field(default_factory=list, max_length=1000, fail_fast=True)


class AdvanceIdentity(Envelope):
    """Advance an identity column to the last value in the commit's files, in the direction of the step."""

    change: Literal["advance-identity"]
    column: _Column
    high_water_mark: int = Field(ge=-(2**63), lt=2**63)


WriteChange: TypeAlias = Annotated[
    AddColumns | ChangeColumn | AddFeature | ReplaceSchema | ReplaceTable | AdvanceIdentity,
    Field(discriminator="change"),
]
"""Table changes that a commit of rows may include in its version."""


class AlterRequest(Envelope):
    """Changes to a table, applied in order and committed together: all of them or none."""

    changes: list[TableChange] = Field(min_length=1, max_length=1000, fail_fast=True)
    verified_version: Long | None = Field(
        default=None,
        description="The version at which all rows were found to satisfy the changes. If absent, the service "
        "accepts what statistics prove and refuses the rest.",
    )
    read_version: Long | None = Field(
        default=None,
        description="A version that was the newest before the request was first sent; on a retry, the service "
        "looks for its commit from there on. The changes are always made to the newest version.",
    )
    transaction_id: TransactionId | None = Field(default=None, description="If absent, a new one is created.")
    user_metadata: Text | None = None
    engine_info: str | None = Field(default=None, max_length=256)


class AlterResponse(Answer):
    """The result; nothing-to-do if the table already is as requested."""

    result: Literal["committed", "rebased", "nothing-to-do"]
    version: int | None = Field(description="Absent if no version was created.")
    read_version: int
    transaction_id: str
    winners_passed: list[int] = Field(default_factory=list)
    operation: str | None = Field(default=None, description="Its name in the table's history.")
