"""The changes of ALTER TABLE, and those that a commit of rows may make in its version.

The docstring of each class, and the value of ``change``, are also those of the HTTP interface
(``delvec_contract.alterations``), which adds limits and descriptions of the fields.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

__all__ = [
    "AddColumns",
    "AddConstraint",
    "AddFeature",
    "AdvanceIdentity",
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

_Type: TypeAlias = str | Mapping[str, Any]
"""A type in Delta's schema JSON."""


@dataclass(frozen=True, kw_only=True)
class _Positioned:
    first: bool = False
    after: str | None = None

    def __post_init__(self) -> None:
        if self.first and self.after is not None:
            raise ValueError("give first, or after, not both")

    @property
    def position(self) -> str | None:
        """FIRST or AFTER and a name, as Delta records it; None for the default position."""
        return "FIRST" if self.first else None if self.after is None else f"AFTER {self.after}"


@dataclass(frozen=True, kw_only=True)
class NewColumn(_Positioned):
    """A column to add; without a position it is added at the end."""

    column: str
    type: _Type
    comment: str | None = None
    nullable: bool = True


@dataclass(frozen=True, kw_only=True)
class AddColumns:
    """Add columns, or fields of structs. Existing rows read as null."""

    change: ClassVar[str] = "add-columns"
    columns: Sequence[NewColumn]


@dataclass(frozen=True, kw_only=True)
class RenameColumn:
    """Rename a column; needs column mapping."""

    change: ClassVar[str] = "rename-column"
    column: str
    to: str


@dataclass(frozen=True, kw_only=True)
class DropColumns:
    """Drop columns; needs column mapping. The files keep the values."""

    change: ClassVar[str] = "drop-columns"
    columns: Sequence[str]
    if_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class ChangeColumn(_Positioned):
    """Change a column's type, nullability, default, comment or position, whichever are given."""

    change: ClassVar[str] = "change-column"
    column: str
    type: _Type | None = None
    nullable: bool | None = None
    default: str | None = None
    comment: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if all(
            each is None for each in (self.type, self.nullable, self.default, self.comment, self.position)
        ):
            raise ValueError("give what to change: type, nullable, default, comment, first or after")


@dataclass(frozen=True, kw_only=True)
class SetProperties:
    """Set table properties; the table features that they need are added to the protocol."""

    change: ClassVar[str] = "set-properties"
    properties: Mapping[str, str]
    allow_unknown: bool = False


@dataclass(frozen=True, kw_only=True)
class UnsetProperties:
    """Unset table properties."""

    change: ClassVar[str] = "unset-properties"
    names: Sequence[str]
    if_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class AddConstraint:
    """Add a CHECK constraint, after verifying that every row satisfies it."""

    change: ClassVar[str] = "add-constraint"
    name: str
    expression: str


@dataclass(frozen=True, kw_only=True)
class DropConstraint:
    """Drop a CHECK constraint."""

    change: ClassVar[str] = "drop-constraint"
    name: str
    if_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class AddFeature:
    """Add a table feature to the protocol, together with the features that it needs."""

    change: ClassVar[str] = "add-feature"
    feature: str


@dataclass(frozen=True, kw_only=True)
class DropFeature:
    """Drop a table feature from the protocol, once nothing needs it; must be the only change of the request.

    This may take several versions: properties that enable the feature are turned off first. When a reader feature is
    dropped, the log is protected so that clients without it never need older versions.
    """

    change: ClassVar[str] = "drop-feature"
    feature: str
    truncate_history: bool = False


@dataclass(frozen=True, kw_only=True)
class UpgradeProtocol:
    """Raise the protocol versions; versions lower than the table's are ignored."""

    change: ClassVar[str] = "upgrade-protocol"
    min_reader_version: int
    min_writer_version: int


@dataclass(frozen=True, kw_only=True)
class SetComment:
    """Set the table's description, or remove it."""

    change: ClassVar[str] = "set-comment"
    comment: str | None = None


@dataclass(frozen=True, kw_only=True)
class ClusterBy:
    """Set the clustering columns; an empty list removes clustering."""

    change: ClassVar[str] = "cluster-by"
    columns: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class SyncIdentity:
    """Advance an identity column past all values in the table, including explicitly inserted ones; never moves it back."""

    change: ClassVar[str] = "sync-identity"
    column: str
    reached: int | None = None


@dataclass(frozen=True, kw_only=True)
class ReplaceSchema:
    """Replace all columns, for a commit that removes every file. Column ids and physical names are new."""

    change: ClassVar[str] = "replace-schema"
    table_schema: Mapping[str, Any]
    partition_columns: Sequence[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ReplaceTable:
    """Replace the table's definition, for a commit that removes every file.

    Properties that are not listed are removed; features stay in the protocol.
    """

    change: ClassVar[str] = "replace-table"
    table_schema: Mapping[str, Any]
    partition_columns: Sequence[str] = field(default_factory=list)
    properties: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None
    cluster_by: Sequence[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class AdvanceIdentity:
    """Advance an identity column to the last value in the commit's files, in the direction of the step."""

    change: ClassVar[str] = "advance-identity"
    column: str
    high_water_mark: int


TableChange: TypeAlias = (
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
    | SyncIdentity
)
WriteChange: TypeAlias = (
    AddColumns | ChangeColumn | AddFeature | ReplaceSchema | ReplaceTable | AdvanceIdentity
)
"""Table changes that a commit of rows may include in its version."""
