"""The mutable metadata, protocol and domains to which changes are applied, and the table state they depend on.

Tested in `tests/unit/kernel/alter_table/test_properties.py` and
`tests/unit/kernel/alter_table/test_alteration.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delvec_errors import InvalidTableChange
from delvec_kernel.actions.action_json import json_text
from delvec_kernel.actions.actions import DomainMetadata, Metadata, Protocol
from delvec_kernel.alter_table.clustering import clustering_domain, clustering_paths
from delvec_kernel.constraints.declared import CONSTRAINT_PREFIX
from delvec_kernel.features.managed_tables import MANAGED, managed_properties
from delvec_kernel.features.protocol_upgrade import supported, upgraded, with_versions
from delvec_kernel.schema.column_mapping import MAX_COLUMN_ID, is_mapped, mapped, max_column_id
from delvec_kernel.schema.column_paths import ColumnPath
from delvec_kernel.schema.types import PrimitiveType, StructType, leaves
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.table_properties import (
    DELETION_VECTORS,
    ICEBERG_FORMAT_VERSIONS,
    PROPERTIES,
    SYMLINK_MANIFESTS,
    is_true,
)

__all__ = ["Recorded", "Requirement", "TableState", "TableUpdate", "files_by_row_ids"]


@dataclass(frozen=True, slots=True)
class TableState:
    """Counts of live files, and the extent of the log.

    Attributes:
        version: the version of the table.
        deletion_vectors: files with a deletion vector.
        with_row_ids: files with row ids.
        without_row_ids: files without row ids.
        oldest_version: the oldest version in the log.
    """

    version: int
    deletion_vectors: int
    with_row_ids: int
    without_row_ids: int
    oldest_version: int

    @classmethod
    def of(cls, snapshot: Snapshot, oldest_version: int) -> "TableState":
        """Return the state of a version.

        Raises:
            SegmentsLost: the store lost segments; reload the snapshot.
        """
        return cls(
            snapshot.version,
            snapshot.num_deletion_vectors,
            files_by_row_ids(snapshot, have=True).num_rows,
            files_by_row_ids(snapshot, have=False).num_rows,
            oldest_version,
        )


def files_by_row_ids(snapshot: Snapshot, *, have: bool) -> pa.Table:
    """Return ``path`` and ``num_records`` of the live files with row ids (``have``) or without.

    Raises:
        SegmentsLost: the store lost segments; reload the snapshot.
    """
    files = snapshot.live.columns(["path", "num_records", "base_row_id", "default_row_commit_version"])
    ids, versions = files["base_row_id"], files["default_row_commit_version"]
    wanted = pc.or_(pc.is_valid(ids), pc.is_valid(versions)) if have else pc.is_null(ids)
    return files.filter(wanted).select(["path", "num_records"])


@dataclass(frozen=True, slots=True)
class Requirement:
    """A condition that all existing rows must satisfy before a change can be committed.

    Attributes:
        condition: SQL over the table before the change.
        what: the source of the requirement, for messages.
    """

    condition: str
    what: str


@dataclass(frozen=True, slots=True)
class Recorded:
    """A change as recorded in Delta's history.

    Attributes:
        listed: the parameter, if any, whose lists are concatenated when several such changes share a commit.
    """

    operation: str
    parameters: Mapping[str, Any]
    listed: str | None = None


class TableUpdate:
    """A table's metadata, protocol and domains, modified in place by the functions of ``alter_table``.

    Args:
        metadata: the metadata of the version being changed.
        protocol: the protocol of the same version.
        domains: the domains of the same version.
        schema: the schema of the same version.
        new_name: returns a new physical name.
        state: computes the version's state, for changes that depend on it.
        catalog_id: the id that the table has in its catalog, or would have, for changes that depend on it.
    """

    def __init__(
        self,
        metadata: Metadata,
        protocol: Protocol,
        domains: Mapping[str, DomainMetadata],
        schema: StructType,
        new_name: Callable[[], str],
        state: Callable[[], TableState],
        catalog_id: str = "",
    ) -> None:
        self.catalog_id = catalog_id
        self._before = metadata
        self._protocol_before = protocol
        self._schema_before = schema
        self._clustering_before = clustering_paths(domains)
        self._new_name = new_name
        self._look = state
        self._domains_gone: list[DomainMetadata] = []
        self.schema = schema
        self.domains = domains
        self.partition_columns = metadata.partition_columns
        self.configuration = dict(metadata.configuration)
        self.description = metadata.description
        self.protocol = protocol
        self.clustering: tuple[ColumnPath, ...] = self._clustering_before
        self.requirements: list[Requirement] = []

    @property
    def configuration_before(self) -> Mapping[str, str]:
        """The table properties before the update."""
        return self._before.configuration

    @property
    def is_mapped(self) -> bool:
        """Whether column mapping is enabled."""
        return is_mapped(self.configuration)

    @property
    def widens_types(self) -> bool:
        """Whether type widening is enabled."""
        return is_true(self.configuration, "delta.enableTypeWidening")

    @cached_property
    def state(self) -> TableState:
        """The state of the version's files and log, computed on first use."""
        return self._look()

    def remove_domain(self, name: str) -> None:
        """Remove domain metadata if present."""
        domain = self.domains.get(name)
        if domain is not None and not domain.removed:
            self._domains_gone.append(replace(domain, removed=True))

    def assign_ids(self, *, enabling: bool = False) -> None:
        """Give an id and a physical name to every field that lacks them."""
        if self.is_mapped:
            self.schema, highest = mapped(
                self.schema,
                max_column_id(self.configuration),
                enabling=enabling,
                with_nested_ids=ICEBERG_FORMAT_VERSIONS.name in self.configuration,
                new_name=self._new_name,
            )
            self.configuration[MAX_COLUMN_ID] = str(highest)

    def need(self, feature: str) -> None:
        """Add a feature to the protocol."""
        self.protocol = upgraded(self.protocol, [feature])

    def manage(self, requested_properties: Mapping[str, str]) -> None:
        """Make the table one that the catalog manages, or keep it one.

        Args:
            requested_properties: the properties that the user sets.

        Raises:
            InvalidTableChange: one of them contradicts that, or the table's id is not known yet.
        """
        if not self.catalog_id:
            raise InvalidTableChange(
                f"This command cannot make a table that has the feature {MANAGED}; add the feature afterwards.",
                feature=MANAGED,
            )
        self.need(MANAGED)
        self.configuration |= managed_properties(self.catalog_id, requested_properties)

    def need_versions(self, reader: int, writer: int) -> None:
        """Upgrade the protocol versions.

        Raises:
            InvalidTableChange: the reader and writer versions are incompatible.
        """
        self.protocol = with_versions(self.protocol, reader, writer)

    def finish(self) -> tuple[Metadata | None, Protocol | None, tuple[DomainMetadata, ...]]:
        """Return what changed: None or an empty tuple for anything unchanged.

        Raises:
            InvalidSchema: the schema is nested too deeply.
            InvalidTableChange: a column's type needs a feature that must be added explicitly, or manifests are enabled
                together with deletion vectors.
        """
        self._need_what_metadata_implies()
        self._check_manifests()
        schema_string = self._before.schema_string
        if self.schema != self._schema_before:
            self.schema.check_nesting()
            schema_string = json_text(self.schema.to_json())
        metadata = replace(
            self._before,
            schema_string=schema_string,
            partition_columns=tuple(self.partition_columns),
            configuration=self.configuration,
            description=self.description,
        )
        changes_clustering = self.clustering != self._clustering_before
        return (
            None if metadata == self._before else metadata,
            None if self.protocol == self._protocol_before else self.protocol,
            (
                *([clustering_domain(self.clustering)] if changes_clustering else ()),
                *self._domains_gone,
            ),
        )

    def _check_manifests(self) -> None:
        """Reject manifests together with deletion vectors, which manifest readers do not support."""
        before, now = self._before.configuration, self.configuration
        if not is_true(now, SYMLINK_MANIFESTS):
            return
        is_new = not is_true(before, SYMLINK_MANIFESTS)
        if is_true(now, DELETION_VECTORS) and (is_new or not is_true(before, DELETION_VECTORS)):
            raise InvalidTableChange(
                f"{SYMLINK_MANIFESTS} and {DELETION_VECTORS} cannot both be true: readers of manifests do "
                "not support deletion vectors, so they would return deleted rows. Set one of the two to "
                "false.",
                property=SYMLINK_MANIFESTS,
            )
        count = self.state.deletion_vectors if is_new else 0
        if count:
            raise InvalidTableChange(
                f"{SYMLINK_MANIFESTS} cannot be true: {count} of the table's files "
                f"{'has a deletion vector' if count == 1 else 'have deletion vectors'}, which readers of "
                "manifests do not support. Run REORG TABLE ... APPLY (PURGE) first.",
                property=SYMLINK_MANIFESTS,
                deletion_vectors=count,
            )

    def _need_what_metadata_implies(self) -> None:
        required_features = {
            delta_property.feature
            for name, delta_property in PROPERTIES.items()
            if delta_property.feature is not None
            and self.configuration.get(name, delta_property.off[0]).strip().lower() not in delta_property.off
        }
        has = supported(self.protocol)
        if "typeWidening-preview" in has:
            required_features.discard("typeWidening")
        if any(name.lower().startswith(CONSTRAINT_PREFIX) for name in self.configuration):
            required_features.add("checkConstraints")
        if "timestampNtz" not in has and PrimitiveType("timestamp_ntz") in leaves(self.schema):
            raise InvalidTableChange(
                "A column of type timestamp_ntz needs the table feature timestampNtz, which readers must "
                "support. Add the feature first: table.alter.add_feature('timestampNtz'), in the shell "
                "delvec alter add-feature TABLE timestampNtz.",
                feature="timestampNtz",
            )
        self.protocol = upgraded(self.protocol, required_features)
