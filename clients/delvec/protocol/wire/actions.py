"""Shapes of the Delta protocol, in Delta's own spelling."""

from typing import Annotated, Literal

from pydantic import Field

from delvec.protocol.wire.shapes import Delta, FilePath, PartitionValues, Tags, Text

__all__ = [
    "AddFile",
    "ChangeFile",
    "DeletionVectorDescriptor",
    "RemoveFile",
]


class DeletionVectorDescriptor(Delta):
    """Where a deletion vector is (PROTOCOL.md, "Deletion Vector Descriptor Schema")."""

    storage_type: Literal["u", "p", "i"] = Field(alias="storageType")
    path_or_inline_dv: Text = Field(alias="pathOrInlineDv")
    offset: int | None = Field(default=None, ge=0, lt=2**31)
    size_in_bytes: int = Field(alias="sizeInBytes", ge=0, lt=2**31)
    cardinality: int = Field(ge=0, lt=2**63)


class AddFile(Delta):
    """A data file that an engine wrote (PROTOCOL.md, "Add File and Remove File")."""

    path: FilePath = Field(description="Relative to the table's location, URL-encoded.")
    partition_values: PartitionValues = Field(alias="partitionValues", default_factory=dict)
    size: int = Field(ge=0, lt=2**63, description="Bytes.")
    modification_time: int = Field(
        alias="modificationTime", ge=-(2**63), lt=2**63, description="Milliseconds since the epoch."
    )
    stats: Annotated[str, Field(max_length=4_000_000)] | None = Field(
        default=None, description="Statistics as a JSON document."
    )
    tags: Tags | None = None


class ChangeFile(Delta):
    """A file of the change data feed that an engine wrote (PROTOCOL.md, "Add CDC File")."""

    path: FilePath = Field(description="Relative to the table's location, URL-encoded; below `_change_data`.")
    partition_values: PartitionValues = Field(alias="partitionValues", default_factory=dict)
    size: int = Field(ge=0, lt=2**63, description="Bytes.")
    tags: Tags | None = None


class RemoveFile(Delta):
    """A whole file that the commit removes, with whatever deletion vector it has by then."""

    path: FilePath
