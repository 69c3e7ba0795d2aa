"""Tables whose commits a catalog decides on (PROTOCOL.md, "Catalog-managed tables"), and which of them are Delvec's own.

A catalog may ratify commits that are not in the log yet. Delvec's ratifies a commit by publishing it, so the log of its
own tables is complete. It knows them by their id, which follows from the location: no database has to remember it, and a
copy of the table elsewhere is not taken for the table. Tables of other catalogs have the ids that those gave them.

Tested in `tests/unit/kernel/features/test_managed_tables.py`.
"""

from collections.abc import Mapping
from typing import Final

from delvec_errors import InvalidTableChange, UnsupportedReaderFeature
from delvec_kernel.actions.actions import Metadata, Protocol
from delvec_kernel.features.protocol_upgrade import downgraded
from delvec_kernel.features.table_features import CATALOG_MANAGED, reader_features, writer_features
from delvec_kernel.locations import table_id
from delvec_kernel.table_properties import DELETION_VECTORS, IN_COMMIT_TIMESTAMPS, is_true

__all__ = [
    "MANAGED",
    "REQUIRED_PROPERTIES",
    "TABLE_ID",
    "check_catalog",
    "check_stays_managed",
    "is_catalog_managed",
    "managed_properties",
    "without_catalog",
]

TABLE_ID: Final = "io.unitycatalog.tableId"
"""The table property with the id that the catalog gave the table."""
_OLD_TABLE_ID: Final = "ucTableId"
MANAGED: Final = "catalogManaged"
"""The table feature."""
REQUIRED_PROPERTIES: Final[Mapping[str, str]] = {
    DELETION_VECTORS: "true",
    "delta.checkpointPolicy": "v2",
    IN_COMMIT_TIMESTAMPS: "true",
    "delta.checkpoint.writeStatsAsStruct": "true",
    "delta.checkpoint.writeStatsAsJson": "true",
}
"""What every new managed table has, as in Unity Catalog."""


def is_catalog_managed(protocol: Protocol) -> bool:
    """Whether a catalog decides on the commits of a table."""
    return bool(CATALOG_MANAGED & (reader_features(protocol) | writer_features(protocol)))


def check_catalog(
    protocol: Protocol, metadata: Metadata, table: str, location: str, catalog_id: str | None = None
) -> None:
    """Reject a table that another catalog manages than the one that it is read through.

    Args:
        protocol: the protocol of any version of the table.
        metadata: the metadata of the same version.
        table: the table's name, for errors.
        location: the table's canonical location.
        catalog_id: the table's id in the catalog that it is read through; by default the one that Delvec gives a table at
            the location.

    Raises:
        UnsupportedReaderFeature: the table is managed, and has another id; or has none, and no catalog says that it is its
            table.
    """
    features = sorted(CATALOG_MANAGED & (reader_features(protocol) | writer_features(protocol)))
    written_id = (
        metadata.configuration.get(TABLE_ID) or metadata.configuration.get(_OLD_TABLE_ID) or catalog_id
    )
    if not features or written_id == (catalog_id or table_id(location)):
        return
    raise UnsupportedReaderFeature(
        f"Table '{table}' is managed by a catalog ({', '.join(features)}) other than Delvec, or was copied from "
        "another location: its newest commits may be known only to that catalog, so reading the log could miss "
        "them; read it through the catalog (connect(catalog=...), DELVEC_CATALOGS).",
        table=table,
        features=features,
    )


def check_stays_managed(
    protocol: Protocol, metadata: Metadata, table: str, location: str, catalog_id: str | None = None
) -> None:
    """Reject a new protocol and metadata by which a managed table would no longer be one.

    Args:
        protocol: the protocol of the version to create.
        metadata: the metadata of the same version.
        table: the table's name, for errors.
        location: the table's canonical location.
        catalog_id: as for :func:`check_catalog`.

    Raises:
        InvalidTableChange: the feature, the id, or in-commit timestamps are missing.
    """
    required_id = catalog_id or table_id(location)
    for problem, is_wrong in (
        ("the table feature catalogManaged is missing", not is_catalog_managed(protocol)),
        (
            f"the table property {TABLE_ID} must be {required_id}",
            metadata.configuration.get(TABLE_ID) != required_id,
        ),
        (f"{IN_COMMIT_TIMESTAMPS} must be true", not is_true(metadata.configuration, IN_COMMIT_TIMESTAMPS)),
    ):
        if is_wrong:
            raise InvalidTableChange(
                f"Table '{table}' is managed by a catalog, and the change would end that: {problem}. Leave it "
                "as it is, or write the rows to another table.",
                table=table,
            )


def managed_properties(
    identifier: str, requested_properties: Mapping[str, str], others: Mapping[str, str] = REQUIRED_PROPERTIES
) -> dict[str, str]:
    """Return the properties that a managed table must have.

    Args:
        identifier: that the catalog gives the table.
        requested_properties: the properties that the user sets.
        others: what the catalog requires besides the identifier.

    Raises:
        InvalidTableChange: the user sets one of them to another value.
    """
    required_properties = {**others, TABLE_ID: identifier}
    lower = {name.lower(): value for name, value in requested_properties.items()}
    for name, value in required_properties.items():
        other = lower.get(name.lower(), value)
        if other.strip().lower() != value:
            raise InvalidTableChange(
                f"A managed table must have {name}={value}, not {other!r}; leave the property out, or leave the table "
                "outside the catalog.",
                property=name,
            )
    return required_properties


def without_catalog(protocol: Protocol) -> Protocol:
    """Return the protocol for a copy of a table that no catalog manages."""
    for feature in sorted(CATALOG_MANAGED & (reader_features(protocol) | writer_features(protocol))):
        protocol = downgraded(protocol, feature)
    return protocol
