"""ALTER TABLE: the changes in a request, which are committed together, and the response.

The changes are those of :mod:`delvec_kernel.alter_table.change_types`; here are their limits and the descriptions of fields.

Tested in `tests/integration/service/alter_table/test_alteration_commit.py`.
"""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from delvec_contract.codec import Body
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
    few,
)
from delvec_kernel.alter_table import change_types

__all__ = ["AdvanceIdentity", "AlterRequest", "AlterResponse", "AnyTableChange", "AnyWriteChange"]

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
_POSITION: dict[str, Any] = {
    "first": Field(description="Put the column before all others of the table or struct."),
    "after": Annotated[
        Annotated[str, Field(max_length=4096)] | None,
        Field(description="Put the column after this one; a name without the path before it."),
    ],
}
_Name = Field(min_length=1, max_length=255)
_SomeColumns = Annotated[list[_Column], Field(min_length=1, max_length=1000, fail_fast=True)]
_Schema = Annotated[JsonObject, Field(alias="schema", description="Delta's schema JSON.")]

_NewColumn: TypeAlias = Annotated[
    change_types.NewColumn,
    Body(
        Envelope,
        column=_Column,
        type=Annotated[_Type, Field(description="A type in Delta's schema JSON.")],
        comment=Text | None,
        nullable=Field(description="Must be true, because existing rows have no value."),
        **_POSITION,
    ),
]
_AddColumns: TypeAlias = Annotated[
    change_types.AddColumns,
    Body(
        Envelope,
        columns=Annotated[list[_NewColumn], Field(min_length=1, max_length=1000, fail_fast=True)],
    ),
]
_RenameColumn: TypeAlias = Annotated[
    change_types.RenameColumn,
    Body(
        Envelope,
        column=_Column,
        to=Field(min_length=1, max_length=4096, description="The new name, without the path before it."),
    ),
]
_DropColumns: TypeAlias = Annotated[change_types.DropColumns, Body(Envelope, columns=_SomeColumns)]
_ChangeColumn: TypeAlias = Annotated[
    change_types.ChangeColumn,
    Body(
        Envelope,
        column=_Column,
        type=Annotated[_Type | None, Field(description="A wider type; needs delta.enableTypeWidening=true.")],
        nullable=Field(description="If false, every row must have a value; this is verified first."),
        default=Field(
            max_length=4096,
            description="An expression in Spark's SQL that reads no columns: the value of rows written without the "
            "column from now on. Empty: remove the default.",
        ),
        comment=Annotated[Text | None, Field(description="Empty: remove the comment.")],
        **_POSITION,
    ),
]
_SetProperties: TypeAlias = Annotated[
    change_types.SetProperties,
    Body(
        Envelope,
        properties=Annotated[
            dict[Identifier, Text], Field(min_length=1, max_length=1000), BeforeValidator(few)
        ],
        allow_unknown=Field(description="Also set delta.* properties that Delvec does not know."),
    ),
]
_UnsetProperties: TypeAlias = Annotated[
    change_types.UnsetProperties,
    Body(
        Envelope,
        names=Annotated[list[Identifier], Field(min_length=1, max_length=1000, fail_fast=True)],
    ),
]
_AddConstraint: TypeAlias = Annotated[
    change_types.AddConstraint,
    Body(
        Envelope,
        name=_Name,
        expression=Annotated[
            Expression,
            Field(description="A Boolean expression in Spark's SQL that must be true for every row."),
        ],
    ),
]
_DropConstraint: TypeAlias = Annotated[change_types.DropConstraint, Body(Envelope, name=_Name)]
_AddFeature: TypeAlias = Annotated[change_types.AddFeature, Body(Envelope, feature=_Name)]
_DropFeature: TypeAlias = Annotated[
    change_types.DropFeature,
    Body(
        Envelope,
        feature=_Name,
        truncate_history=Field(
            description="Only for checkpointProtection, which can be dropped only once the versions that it protects "
            "are gone."
        ),
    ),
]
_UpgradeProtocol: TypeAlias = Annotated[
    change_types.UpgradeProtocol,
    Body(Envelope, min_reader_version=Field(ge=1, le=3), min_writer_version=Field(ge=1, le=7)),
]
_SetComment: TypeAlias = Annotated[
    change_types.SetComment,
    Body(Envelope, comment=Annotated[Text | None, Field(description="If absent, the comment is removed.")]),
]
_ClusterBy: TypeAlias = Annotated[
    change_types.ClusterBy,
    Body(Envelope, columns=Annotated[list[_Column], Field(max_length=1000, fail_fast=True)]),
]
_SyncIdentity: TypeAlias = Annotated[
    change_types.SyncIdentity,
    Body(
        Envelope,
        column=_Column,
        reached=Field(
            ge=-(2**63),
            lt=2**63,
            description="The greatest number in the rows, or the least if the step is negative; absent if no row has "
            "one. The service verifies that no row goes beyond it.",
        ),
    ),
]
_ReplaceSchema: TypeAlias = Annotated[
    change_types.ReplaceSchema, Body(Envelope, table_schema=_Schema, partition_columns=Columns)
]
_ReplaceTable: TypeAlias = Annotated[
    change_types.ReplaceTable,
    Body(
        Envelope,
        table_schema=_Schema,
        partition_columns=Columns,
        properties=Properties,
        description=Text | None,
        cluster_by=Annotated[list[_Column], Field(max_length=1000, fail_fast=True)],
    ),
]
AdvanceIdentity: TypeAlias = Annotated[
    change_types.AdvanceIdentity,
    Body(Envelope, column=_Column, high_water_mark=Field(ge=-(2**63), lt=2**63)),
]

AnyTableChange: TypeAlias = Annotated[
    _AddColumns
    | _RenameColumn
    | _DropColumns
    | _ChangeColumn
    | _SetProperties
    | _UnsetProperties
    | _AddConstraint
    | _DropConstraint
    | _AddFeature
    | _DropFeature
    | _UpgradeProtocol
    | _SetComment
    | _ClusterBy
    | _SyncIdentity,
    Field(discriminator="change"),
]
AnyWriteChange: TypeAlias = Annotated[
    _AddColumns | _ChangeColumn | _AddFeature | _ReplaceSchema | _ReplaceTable | AdvanceIdentity,
    Field(discriminator="change"),
]
"""A table change that a commit of rows may include in its version."""


class AlterRequest(Envelope):
    """Changes to a table, applied in order and committed together: all of them or none."""

    changes: list[AnyTableChange] = Field(min_length=1, max_length=1000, fail_fast=True)
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
