"""Bodies of the Unity Catalog Delta API v1 and of the classic routes: requests to Delvec, and answers of other catalogs.

The catalog's own document (``api/delta.yaml`` of unitycatalog) describes them; fields that Delvec does not use are ignored.

Tested in `tests/integration/service/catalog/test_unity_catalog.py`.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AliasChoices, ConfigDict, Field

from delvec_contract.shapes import Answer, FilePath, Identifier, JsonObject, Long

__all__ = [
    "CatalogColumn",
    "ClassicStagingTableRequest",
    "CreateManagedTableRequest",
    "CreateSchemaRequest",
    "CreateTableRequest",
    "ListedNames",
    "LoadedTable",
    "PathCredentialsRequest",
    "PreviewCommitRequest",
    "PreviewCommitsRequest",
    "RenameManagedTableRequest",
    "StagedCommitFile",
    "StagedTable",
    "StagingTableRequest",
    "StorageCredentialsAnswer",
    "TableRequirement",
    "TableUpdate",
    "TemporaryCredentialsRequest",
    "UpdateManagedTableRequest",
    "hyphenated",
]

_HYPHENATED: Final = {
    "elementType": "element-type",
    "containsNull": "contains-null",
    "keyType": "key-type",
    "valueType": "value-type",
    "valueContainsNull": "value-contains-null",
}

_Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=128)]
_SchemaName: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]
_Identifier: TypeAlias = Annotated[str, Field(max_length=64)]


class StagingTableRequest(Answer):
    """A table about to be created."""

    name: _Name


class CreateManagedTableRequest(Answer):
    """A table whose version 0 the client has written; the log says what it is."""

    name: _Name
    table_type: Literal["MANAGED", "EXTERNAL"] = "MANAGED"
    location: FilePath
    uniform: JsonObject | None = None


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
    comment: Annotated[str | None, Field(max_length=100_000)] = None
    updates: Annotated[dict[str, Any], Field(max_length=10_000)] = Field(default_factory=dict)
    removals: Annotated[list[str], Field(max_length=10_000, fail_fast=True)] = Field(default_factory=list)
    domains: Annotated[list[str], Field(max_length=1000, fail_fast=True)] = Field(default_factory=list)


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


class ClassicStagingTableRequest(_Classic):
    """A managed table about to be created."""

    name: _Name
    catalog_name: _Name
    schema_name: _SchemaName


class PreviewCommitsRequest(_Classic):
    """The table whose commits to list."""

    table_id: _Identifier
    table_uri: FilePath


class PreviewCommitRequest(PreviewCommitsRequest):
    """A staged commit, or a report that versions are published."""

    commit_info: StagedCommitFile | None = None
    latest_backfilled_version: Annotated[int | None, Field(ge=0, lt=2**63)] = None


class CatalogColumn(_Classic):
    """A column of a table to create: a field of Delta's schema, as JSON in a string."""

    name: _Name
    type_json: Annotated[str, Field(max_length=1_000_000)]
    position: Annotated[int, Field(ge=0)] = 0
    partition_index: Annotated[int | None, Field(ge=0)] = None


class CreateTableRequest(_Classic):
    """A table whose log is written already; of a managed one Delvec writes it if the client has not."""

    name: _Name
    catalog_name: _Name
    schema_name: _SchemaName
    table_type: Annotated[str, Field(max_length=64)]
    data_source_format: Annotated[str, Field(max_length=64)] = "DELTA"
    storage_location: FilePath | None = None
    columns: Annotated[list[CatalogColumn], Field(max_length=32768, fail_fast=True)] = Field(
        default_factory=list
    )
    comment: Annotated[str | None, Field(max_length=100_000)] = None
    properties: Annotated[dict[str, str] | None, Field(max_length=10_000)] = None


class PathCredentialsRequest(_Classic):
    """The place to issue credentials for."""

    url: FilePath


class TemporaryCredentialsRequest(_Classic):
    """The table to issue credentials for."""

    table_id: _Identifier
    operation: Literal["READ", "READ_WRITE"] = "READ"


# --- answers of other catalogs ----------------------------------------------------------------------------


class LoadedMetadata(Answer):
    """What Delvec needs to know of a table; the log has the rest."""

    table_uuid: Annotated[str, Field(min_length=1, max_length=64)]
    location: FilePath
    properties: Annotated[dict[str, str | None] | None, Field(max_length=10_000)] = None


class LoadedTable(Answer):
    """A table, and the commits that nobody has reported as published."""

    metadata: LoadedMetadata
    commits: Annotated[list[StagedCommitFile] | None, Field(max_length=1000)] = None
    latest_table_version: Annotated[int | None, Field(ge=0, lt=2**63)] = None
    allowed_maintenance_operations: Annotated[list[Identifier] | None, Field(max_length=64)] = None


class IssuedCredentials(Answer):
    """Credentials for files that begin with a prefix."""

    prefix: FilePath
    operation: str = "READ"
    expiration_time_ms: Long | None = None
    config: Annotated[dict[str, str], Field(max_length=64)] = Field(default_factory=dict, repr=False)


class StorageCredentialsAnswer(Answer):
    """Credentials for a table; empty where its storage needs none, or none are issued."""

    storage_credentials: Annotated[list[IssuedCredentials], Field(max_length=64)] = Field(
        default_factory=list
    )


class RequiredProtocol(Answer):
    """Table features that a new table must have."""

    reader_features: Annotated[list[Identifier] | None, Field(max_length=256)] = None
    writer_features: Annotated[list[Identifier] | None, Field(max_length=256)] = None


class StagedTable(StorageCredentialsAnswer):
    """A place for a new table, and what its version 0 must have; a property without a value is the writer's to set."""

    table_id: Annotated[str, Field(min_length=1, max_length=64)]
    location: FilePath
    required_protocol: RequiredProtocol = Field(default_factory=RequiredProtocol)
    required_properties: Annotated[dict[str, str | None] | None, Field(max_length=1000)] = None


class ListedName(_Classic):
    """A catalog, schema or table of a listing."""

    name: Annotated[str, Field(max_length=1024)]
    storage_location: str | None = None
    properties: dict[str, str | None] | None = None
    created_at: Long | None = None


class ListedNames(_Classic):
    """A page of a listing."""

    names: Annotated[list[ListedName], Field(max_length=10_000, fail_fast=True)] = Field(
        default_factory=list, validation_alias=AliasChoices("catalogs", "schemas", "tables")
    )
    next_page_token: Annotated[str | None, Field(max_length=4096)] = None


def hyphenated(node: Any) -> Any:
    """Return a schema's JSON with the hyphenated keys that the Delta API has in types; metadata stays as it is."""
    if not isinstance(node, dict):
        return node
    result: dict[str, Any] = {}
    for key, value in node.items():
        if key == "fields":
            result[key] = [{**field, "type": hyphenated(field["type"])} for field in value]
        else:
            is_type = key in ("elementType", "keyType", "valueType")
            result[_HYPHENATED.get(key) or key] = hyphenated(value) if is_type else value
    return result
