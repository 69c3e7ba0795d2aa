"""Table features that Delvec can read and write (PROTOCOL.md, "Valid Feature Names in Table Features").

A legacy protocol version lists no features but implies some (PROTOCOL.md, "Table Features"). A supported feature
restricts writers only while it is in use. Unknown features are rejected by name.

Tested in `tests/unit/kernel/features/test_features.py`.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from delvec_errors import InvalidSchema, UnsupportedReaderFeature, UnsupportedWriterFeature
from delvec_kernel.actions.actions import Metadata, Protocol
from delvec_kernel.schema.type_widening import TYPE_CHANGES, widens
from delvec_kernel.schema.types import StructType, has_geospatial
from delvec_kernel.table_properties import is_true

__all__ = [
    "CATALOG_MANAGED",
    "READABLE",
    "WRITABLE",
    "check_readable",
    "check_writable",
    "deletes_by_vector",
    "reader_features",
    "writer_features",
]

READABLE: Final = frozenset(
    {
        "catalogManaged",
        "catalogOwned-preview",
        "columnMapping",
        "deletionVectors",
        "geospatial",
        "geospatial-dev",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    }
)
_MAX_READER: Final = 3
_MAX_WRITER: Final = 7
_TABLE_FEATURES_READER: Final = 3
_TABLE_FEATURES_WRITER: Final = 7
_COLUMN_MAPPING_READER: Final = 2
_LEGACY_WRITER: Final[Mapping[str, int]] = {
    "appendOnly": 2,
    "invariants": 2,
    "checkConstraints": 3,
    "changeDataFeed": 4,
    "generatedColumns": 4,
    "columnMapping": 5,
    "identityColumns": 6,
}
_GEOSPATIAL: Final = frozenset({"geospatial", "geospatial-dev"})
CATALOG_MANAGED: Final = frozenset({"catalogManaged", "catalogOwned-preview"})
"""The names of one feature; :mod:`~delvec_kernel.features.managed_tables` decides by whom a table is managed."""


def reader_features(protocol: Protocol) -> frozenset[str]:
    """Return the features that readers need, including those implied by the version."""
    if protocol.min_reader_version >= _TABLE_FEATURES_READER:
        return frozenset(protocol.reader_features or ())
    return frozenset({"columnMapping"} if protocol.min_reader_version == _COLUMN_MAPPING_READER else ())


def writer_features(protocol: Protocol) -> frozenset[str]:
    """Return the features that writers need, including those implied by the version."""
    if protocol.min_writer_version >= _TABLE_FEATURES_WRITER:
        return frozenset(protocol.writer_features or ())
    return frozenset(name for name, since in _LEGACY_WRITER.items() if protocol.min_writer_version >= since)


def deletes_by_vector(features: Collection[str] | None, configuration: Mapping[str, str]) -> bool:
    """Whether rows may be deleted by deletion vector: the property is on, and the protocol has the writer feature."""
    return "deletionVectors" in (features or ()) and is_true(configuration, "delta.enableDeletionVectors")


def check_readable(protocol: Protocol, metadata: Metadata, table: str) -> None:
    """Reject a table that Delvec might read incorrectly.

    Raises:
        UnsupportedReaderFeature: names the features or the reader version.
    """
    if protocol.min_reader_version > _MAX_READER:
        raise UnsupportedReaderFeature(
            f"Table '{table}' needs reader version {protocol.min_reader_version}, but Delvec supports only "
            f"versions up to {_MAX_READER}; use a reader that supports it.",
            table=table,
            reader_version=protocol.min_reader_version,
        )
    features = reader_features(protocol)
    unknown = sorted(features - READABLE)
    if not unknown:
        mode = metadata.configuration.get("delta.columnMapping.mode", "none").lower()
        if mode not in ("none", "name", "id"):
            raise UnsupportedReaderFeature(
                f"Table '{table}' has the column mapping mode '{mode}', which Delvec does not know.",
                table=table,
            )
        _check_type_changes(metadata, table)
        if not features & _GEOSPATIAL:
            _check_not_geospatial(metadata, table)
        return
    raise UnsupportedReaderFeature(
        f"Table '{table}' uses table features that Delvec cannot read yet: {', '.join(unknown)}; use a reader that "
        "supports them, or drop them from the table.",
        table=table,
        features=unknown,
    )


def _check_not_geospatial(metadata: Metadata, table: str) -> None:
    """Reject geospatial columns in a table that does not list the feature."""
    if '"geo' not in metadata.schema_string.lower():
        return
    try:
        schema = StructType.from_json(metadata.schema_string)
    except InvalidSchema:
        # The schema's parser reports the error.
        return
    names = [item.name for item in schema.fields if has_geospatial(item.type)]
    if names:
        raise UnsupportedReaderFeature(
            f"Table '{table}' has geospatial columns ({', '.join(names[:10])}), and its protocol does not list the feature "
            "'geospatial', which they need; have the writer that made the table add it.",
            table=table,
            columns=names,
            features=["geospatial"],
        )


def _check_type_changes(metadata: Metadata, table: str) -> None:
    """Reject a table with type changes that engines cannot apply on read (PROTOCOL.md, "Type Widening")."""
    if TYPE_CHANGES not in metadata.schema_string:
        return
    for column in _columns(metadata.schema_string):
        for change in (column.get("metadata") or {}).get(TYPE_CHANGES) or ():
            before, after = (change.get(key) for key in ("fromType", "toType"))
            if not (
                isinstance(before, str) and isinstance(after, str) and widens(before, after, legally=False)
            ):
                raise UnsupportedReaderFeature(
                    f"Column '{column.get('name')}' of table '{table}' was changed from {before} to "
                    f"{after}, a type change that Delvec does not support; use a reader that does, or "
                    "rewrite the table's files with the new type.",
                    table=table,
                    column=column.get("name"),
                    features=["typeWidening"],
                )


@dataclass(frozen=True)
class _Facts:
    """What determines whether a feature is in use."""

    configuration: Mapping[str, str]
    keeps_row_ids: bool
    writes_rows: bool

    def on(self, name: str) -> bool:
        return is_true(self.configuration, name)


_Problem = Callable[[_Facts], str | None]


def _never(_: _Facts) -> str | None:
    """Return None: Delvec implements the feature, or it does not affect these commands."""
    return None


def _property(name: str) -> _Problem:
    return lambda facts: f"{name} is true" if facts.on(name) else None


def _row_tracking(facts: _Facts) -> str | None:
    on = facts.on("delta.enableRowTracking") and not facts.keeps_row_ids
    return (
        "delta.enableRowTracking is true and this change rewrites rows without keeping their ids"
        if on
        else None
    )


def _variants(facts: _Facts) -> str | None:
    return "this change writes rows, and Delvec cannot write variants" if facts.writes_rows else None


def _geospatial(facts: _Facts) -> str | None:
    return "this change writes rows, and Delvec cannot write geospatial types" if facts.writes_rows else None


WRITABLE: Final[Mapping[str, _Problem]] = {
    "catalogManaged": _never,  # managed_tables refuses the tables of other catalogs
    "catalogOwned-preview": _never,
    "appendOnly": _never,  # commands that remove rows check delta.appendOnly
    "invariants": _never,  # engines check constraints before the commit
    "checkConstraints": _never,
    "changeDataFeed": _never,  # a commit that lacks required change data files is rejected
    "generatedColumns": _never,
    "columnMapping": _never,  # engines write physical names and field ids
    "clustering": _never,  # statistics are collected for clustering columns
    "identityColumns": _never,  # commands generate the values and raise the high-water mark in the same commit
    "deletionVectors": _never,
    "timestampNtz": _never,
    "typeWidening": _never,  # new files have the current types
    "typeWidening-preview": _never,
    "vacuumProtocolCheck": _never,
    "v2Checkpoint": _never,
    "domainMetadata": _never,
    "rowTracking": _row_tracking,
    "inCommitTimestamp": _never,
    "allowColumnDefaults": _never,  # engines fill in defaults
    "checkpointProtection": _never,  # log clean-up checks it
    "icebergCompatV1": _property("delta.enableIcebergCompatV1"),
    "icebergCompatV2": _property("delta.enableIcebergCompatV2"),
    "icebergCompatV3": _property("delta.enableIcebergCompatV3"),
    "geospatial": _geospatial,
    "geospatial-dev": _geospatial,
    "variantType": _variants,
    "variantType-preview": _variants,
    "variantShredding": _variants,
    "variantShredding-preview": _variants,
}
"""Supported writer features; the function describes an unsupported use of the feature, or returns None."""


def check_writable(
    protocol: Protocol,
    metadata: Metadata,
    table: str,
    *,
    keeps_row_ids: bool = True,
    writes_rows: bool = True,
) -> None:
    """Reject a commit to a table with a feature in use that Delvec does not fully implement.

    Does not check ``delta.appendOnly``.

    Args:
        protocol: the protocol of the version to commit onto.
        metadata: the metadata of the same version.
        table: the table's name, for errors.
        keeps_row_ids: whether all rows keep their row ids: the commit only appends, removes whole files and sets deletion
            vectors, or its rewritten rows include their row ids.
        writes_rows: whether the commit may add data files.

    Raises:
        UnsupportedReaderFeature: the table cannot be read.
        UnsupportedWriterFeature: names the features or the writer version.
    """
    check_readable(protocol, metadata, table)
    if protocol.min_writer_version > _MAX_WRITER:
        raise UnsupportedWriterFeature(
            f"Table '{table}' needs writer version {protocol.min_writer_version}, but Delvec supports only "
            f"versions up to {_MAX_WRITER}; use a writer that supports it.",
            table=table,
            writer_version=protocol.min_writer_version,
        )
    facts = _Facts(metadata.configuration, keeps_row_ids, writes_rows)
    unsupported_features: dict[str, str] = {}
    for name in sorted(writer_features(protocol)):
        if name not in WRITABLE:
            unsupported_features[name] = name
            continue
        problem = WRITABLE[name](facts)
        if problem is not None:
            unsupported_features[name] = f"{name} ({problem})"
    if unsupported_features:
        raise UnsupportedWriterFeature(
            f"Delvec cannot write to table '{table}', because it does not fully support these table "
            f"features yet: {', '.join(unsupported_features.values())}. Use another writer, or turn them off; reading "
            "works.",
            table=table,
            features=list(unsupported_features),
        )


def _columns(schema: str) -> Iterator[Mapping[str, Any]]:
    """Yield every field of a schema, including nested ones and unknown types."""
    try:
        waiting: list[Any] = [json.loads(schema)]
    except (ValueError, RecursionError):
        return
    while waiting:
        item = waiting.pop()
        if not isinstance(item, dict):
            continue
        for field in item.get("fields") or ():
            if isinstance(field, dict):
                yield field
                waiting.append(field.get("type"))
        waiting += [item.get(name) for name in ("elementType", "keyType", "valueType")]
