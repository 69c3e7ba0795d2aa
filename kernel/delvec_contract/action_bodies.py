"""The kernel's actions and deletion vectors in requests and answers: limits, descriptions, and Delta's camelCase.

Tested in `tests/integration/service/commits/test_commit.py`.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from delvec_contract.codec import Body
from delvec_contract.shapes import Delta, Envelope, FilePath, PartitionValues, Tags, Text
from delvec_kernel.actions import actions
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor

__all__ = ["AddFile", "AppTransaction", "ChangeFile", "DeletionVectorDescriptor", "RemoveFile"]

_FILE: Final[dict[str, Any]] = {
    "partition_values": Annotated[PartitionValues, Field(alias="partitionValues", default_factory=dict)],
    "size": Field(ge=0, lt=2**63, description="Bytes."),
    "tags": Tags | None,
}

DeletionVectorDescriptor: TypeAlias = Annotated[
    Descriptor,
    Body(
        Delta,
        title="DeletionVectorDescriptor",
        doc='Locates a deletion vector (PROTOCOL.md, "Deletion Vector Descriptor Schema").',
        storage_type=Annotated[Literal["u", "p", "i"], Field(alias="storageType")],
        path_or_inline_dv=Annotated[Text, Field(alias="pathOrInlineDv")],
        offset=Field(default=None, ge=0, lt=2**31),
        size_in_bytes=Field(alias="sizeInBytes", ge=0, lt=2**31),
        cardinality=Field(ge=0, lt=2**63),
    ),
]
AddFile: TypeAlias = Annotated[
    actions.AddFile,
    Body(
        Delta,
        doc='A data file that an engine wrote (PROTOCOL.md, "Add File and Remove File").',
        only=(
            "path",
            "partition_values",
            "size",
            "modification_time",
            "stats",
            "tags",
            "clustering_provider",
        ),
        path=Annotated[FilePath, Field(description="Relative to the table's location, URL-encoded.")],
        modification_time=Field(
            alias="modificationTime", ge=-(2**63), lt=2**63, description="Milliseconds since the epoch."
        ),
        stats=Annotated[
            Annotated[str, Field(max_length=4_000_000)] | None,
            Field(description="Statistics as a JSON document."),
        ],
        clustering_provider=Annotated[
            Annotated[str, Field(max_length=256)] | None,
            Field(
                alias="clusteringProvider",
                description="The program that clustered the file by the table's clustering columns.",
            ),
        ],
        **_FILE,
    ),
]
ChangeFile: TypeAlias = Annotated[
    actions.Cdc,
    Body(
        Delta,
        title="ChangeFile",
        doc='A change data file that an engine wrote (PROTOCOL.md, "Add CDC File").',
        path=Annotated[
            FilePath,
            Field(description="Relative to the table's location, URL-encoded; below `_change_data`."),
        ],
        **_FILE,
    ),
]
RemoveFile: TypeAlias = Annotated[
    actions.RemoveFile,
    Body(
        Delta,
        doc="A whole file that the commit removes, with its deletion vector at that time.",
        only=("path",),
        path=FilePath,
    ),
]
AppTransaction: TypeAlias = Annotated[
    actions.Txn,
    Body(
        Envelope,
        title="AppTransaction",
        doc="The version of an application's transaction; if the table has it or a later one, it was already committed.",
        only=("app_id", "version"),
        app_id=Field(min_length=1, max_length=1024),
        version=Field(ge=0, lt=2**63),
    ),
]
