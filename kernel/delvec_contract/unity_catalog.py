"""Request bodies of the Unity Catalog Delta API v1 and of the classic routes that its clients need.

The catalog's own document (``api/delta.yaml`` of unitycatalog) describes them; fields that Delvec does not use are ignored.

Tested in `tests/integration/service/catalog/test_unity_catalog.py`.
"""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, Field

from delvec_contract.shapes import Answer, FilePath, Identifier, JsonObject, Long

__all__ = [
    "CreateManagedTableRequest",
    "CreateSchemaRequest",
    "RenameManagedTableRequest",
    "StagedCommitFile",
    "StagingTableRequest",
    "TableRequirement",
    "TableUpdate",
    "TemporaryCredentialsRequest",
    "UpdateManagedTableRequest",
]

_Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=128)]


class StagingTableRequest(Answer):
    """A table about to be created."""

    name: _Name


class CreateManagedTableRequest(Answer):
    """A table whose version 0 the client has written; the log says what it is."""

    name: _Name
    table_type: Literal["MANAGED", "EXTERNAL"] = "MANAGED"
    location: FilePath


class StagedCommitFile(Answer):
    """A commit in ``_delta_log/_staged_commits``."""

    version: Annotated[int, Field(gt=0, lt=2**63)]
    timestamp: Long
    file_name: Annotated[str, Field(max_length=1024)]
    file_size: Annotated[int, Field(gt=0, lt=2**63)]
    file_modification_timestamp: Long = 0


class TableRequirement(Answer):
    """What must be true of the table before the request."""

    type: Literal["assert-table-uuid", "assert-etag"]
    uuid: Annotated[str | None, Field(max_length=64)] = None
    etag: Annotated[str | None, Field(max_length=1024)] = None


class TableUpdate(Answer):
    """One change: a staged commit, a report that versions are published, or a change that the commit's file carries."""

    action: Identifier
    commit: StagedCommitFile | None = None
    latest_published_version: Annotated[int | None, Field(ge=0, lt=2**63)] = None
    uniform: JsonObject | None = None


class UpdateManagedTableRequest(Answer):
    """Changes of a table, all or none."""

    requirements: Annotated[list[TableRequirement], Field(max_length=16, fail_fast=True)]
    updates: Annotated[list[TableUpdate], Field(max_length=64, fail_fast=True)]


class RenameManagedTableRequest(Answer):
    """A new name in the same schema."""

    new_name: _Name


class _Classic(Answer):
    model_config = ConfigDict(alias_generator=None, extra="ignore")


class CreateSchemaRequest(_Classic):
    """A schema."""

    name: _Name
    catalog_name: _Name
    comment: Annotated[Any, Field(default=None)] = None


class TemporaryCredentialsRequest(_Classic):
    """The table to issue credentials for."""

    table_id: Annotated[str, Field(max_length=64)]
    operation: Literal["READ", "READ_WRITE"] = "READ"
