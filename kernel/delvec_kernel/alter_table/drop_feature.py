"""Dropping features from a table's protocol, by the rules of delta-spark, once nothing in the table needs them.

The properties that enable a feature are turned off first, in a separate version (:func:`properties_turned_off`), so that
no writer uses it again. Older versions still need a reader feature; :func:`needs_barrier` says whether checkpoint
protection must keep them together from then on (PROTOCOL.md, "Checkpoint Protection").
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from delvec_errors import InvalidTableChange
from delvec_errors.texts import counted
from delvec_kernel.actions.actions import Metadata
from delvec_kernel.alter_table.change_types import DropFeature
from delvec_kernel.alter_table.clustering import CLUSTERING_DOMAIN
from delvec_kernel.alter_table.table_update import Recorded, TableUpdate
from delvec_kernel.constraints.declared import CONSTRAINT_PREFIX, DEFAULT
from delvec_kernel.features.managed_tables import MANAGED, TABLE_ID
from delvec_kernel.features.protocol_upgrade import FEATURES, downgraded, feature_named, supported
from delvec_kernel.row_tracking import DOMAIN, ENABLED, MATERIALIZED, SUSPENDED
from delvec_kernel.schema.column_mapping import all_fields
from delvec_kernel.schema.type_widening import TYPE_CHANGES
from delvec_kernel.schema.types import FIELD_ID, GENERATION, IDENTITY_START, PHYSICAL_NAME
from delvec_kernel.table_properties import DELETION_VECTORS, IN_COMMIT_TIMESTAMPS, is_true

__all__ = [
    "drop_feature",
    "leaves_deletion_vectors",
    "needs_barrier",
    "properties_turned_off",
    "with_checkpoint_protection",
]

_PROTECTION: Final = "checkpointProtection"
_PROTECTED_BEFORE: Final = "delta.requireCheckpointProtectionBeforeVersion"
_Use = Callable[[TableUpdate], str | None]


def properties_turned_off(update: TableUpdate, change: DropFeature) -> Mapping[str, str | None]:
    """Return the properties to set before dropping a feature, None for those to unset; empty if all are set already.

    Raises:
        InvalidTableChange: the table lacks the feature, needs it, or the feature cannot be dropped.
    """
    name, rule = _rule(update, change)
    _refuse(name, rule.in_use(update))
    return {key: value for key, value in rule.off.items() if update.configuration.get(key) != value}


def needs_barrier(change: DropFeature) -> bool:
    """Whether it is a reader feature, so that readers without it must not need the versions that had it."""
    feature = feature_named(change.feature)
    return feature is not None and feature.binds_readers


def leaves_deletion_vectors(change: DropFeature) -> bool:
    """Whether older versions keep deletion vectors that the protocol no longer mentions."""
    feature = feature_named(change.feature)
    return feature is not None and feature.name == "deletionVectors"


def drop_feature(update: TableUpdate, change: DropFeature) -> Recorded:
    """Remove a feature from the protocol.

    Raises:
        InvalidTableChange: the table lacks the feature, something needs it, or the feature cannot be dropped.
    """
    name, rule = _rule(update, change)
    on = [key for key, value in rule.off.items() if update.configuration.get(key) != value]
    _refuse(
        name,
        f"{on[0]} was set again in the meantime; try again"
        if on
        else rule.in_use(update) or rule.left(update),
    )
    update.protocol = downgraded(update.protocol, name)
    for key in rule.properties:
        update.configuration.pop(key, None)
    for domain in rule.domains:
        update.remove_domain(domain)
    if FEATURES[name].binds_readers:
        update.need(_PROTECTION)
        update.configuration[_PROTECTED_BEFORE] = str(update.state.version + 1)
    return Recorded("DROP FEATURE", {"featureName": name, "truncateHistory": change.truncate_history})


def with_checkpoint_protection(metadata: Metadata, before: Metadata, version: int) -> Metadata:
    """Return metadata that protects all versions before the one that drops a feature.

    Called late, since commits by other writers may have changed the version number.

    Args:
        metadata: the metadata of the commit; returned unchanged if the commit drops no such feature.
        before: metadata of the previous version.
        version: the commit's version.
    """
    given = metadata.configuration.get(_PROTECTED_BEFORE)
    if given is None or given == before.configuration.get(_PROTECTED_BEFORE):
        return metadata
    return replace(metadata, configuration={**metadata.configuration, _PROTECTED_BEFORE: str(version)})


def _rule(update: TableUpdate, change: DropFeature) -> tuple[str, "_FeatureRemoval"]:
    has = supported(update.protocol)
    feature = feature_named(change.feature)
    name = change.feature if feature is None else feature.name
    if name not in has:
        raise InvalidTableChange(
            f"The table does not have the feature '{name}'; it has {', '.join(sorted(has)) or 'none'}.",
            feature=name,
        )
    rule = _RULES.get(name)
    if rule is None:
        raise InvalidTableChange(
            f"The table feature '{name}' cannot be dropped; write the rows to a table without it. These "
            f"features can be dropped: {', '.join(sorted(_RULES))}.",
            feature=name,
        )
    needing = sorted(other for other in has if other in FEATURES and name in FEATURES[other].needs)
    _refuse(
        name,
        f"{', '.join(needing)} {'depends' if len(needing) == 1 else 'depend'} on it; drop that first"
        if needing
        else None,
    )
    if change.truncate_history != (name == _PROTECTION):
        raise InvalidTableChange(
            f"Drop '{name}' {'with' if name == _PROTECTION else 'without'} truncate-history; only "
            f"{_PROTECTION} is dropped with it, once the versions that it protects are gone.",
            feature=name,
        )
    return name, rule


def _refuse(name: str, why: str | None) -> None:
    if why is not None:
        raise InvalidTableChange(f"The table feature '{name}' cannot be dropped yet: {why}.", feature=name)


# --- what needs a feature -----------------------------------------------------------------------------------


def _property_on(name: str) -> _Use:
    def use(update: TableUpdate) -> str | None:
        return f"{name} is true; unset it first" if is_true(update.configuration, name) else None

    return use


def _columns_with(key: str, what: str) -> _Use:
    def use(update: TableUpdate) -> str | None:
        column_names = [item.name for item in all_fields(update.schema) if key in item.metadata]
        return f"{what}: {', '.join(column_names[:10])}" if column_names else None

    return use


def _invariants(update: TableUpdate) -> str | None:
    constrained_columns = [
        item.name
        for item in all_fields(update.schema)
        if not item.nullable or "delta.invariants" in item.metadata
    ]
    return (
        f"these columns are NOT NULL or have invariants: {', '.join(constrained_columns[:10])}; make them nullable first"
        if constrained_columns
        else None
    )


def _constraints(update: TableUpdate) -> str | None:
    constraint_names = [
        key[len(CONSTRAINT_PREFIX) :]
        for key in update.configuration
        if key.lower().startswith(CONSTRAINT_PREFIX)
    ]
    return (
        f"the table has the constraints {', '.join(sorted(constraint_names))}; drop them first"
        if constraint_names
        else None
    )


def _mapped_columns(update: TableUpdate) -> str | None:
    left = any({FIELD_ID, PHYSICAL_NAME} & set(item.metadata) for item in all_fields(update.schema))
    if update.is_mapped or left:
        return (
            "the table's files use physical column names, and Delvec does not rewrite them; drop the "
            "feature with delta-spark, or write the rows to a new table"
        )
    return None


def _vectors(update: TableUpdate) -> str | None:
    count = update.state.deletion_vectors
    if not count:
        return None
    return (
        f"{count} {'file has a deletion vector' if count == 1 else 'files have deletion vectors'}; rewrite "
        "them first with table.optimize.purge() or REORG TABLE ... APPLY (PURGE), or use "
        "table.downgrade(), which does both"
    )


def _domains(update: TableUpdate) -> str | None:
    user_domains = [
        name
        for name, domain in update.domains.items()
        if not domain.removed and not name.startswith("delta.")
    ]
    return (
        (f"the table has domain metadata that other software set: {', '.join(sorted(user_domains))}")
        if user_domains
        else None
    )


def _clustering(update: TableUpdate) -> str | None:
    return (
        ("the table has clustering columns; remove them first (CLUSTER BY NONE)")
        if update.clustering
        else None
    )


def _protected(update: TableUpdate) -> str | None:
    before = update.configuration.get(_PROTECTED_BEFORE, "0")
    oldest = update.state.oldest_version
    if not before.isdecimal() or oldest >= int(before):
        return None
    return (
        f"the log still has versions from {oldest} on, and those before {before} use features that were "
        "dropped since; wait until they are older than delta.logRetentionDuration, then write a checkpoint "
        "and clean up the log"
    )


def _row_ids(update: TableUpdate) -> str | None:
    count = update.state.with_row_ids
    return f"{counted(count, 'file')} got row ids in the meantime; try again" if count else None


@dataclass(frozen=True, slots=True)
class _FeatureRemoval:
    """How to drop a feature.

    Attributes:
        in_use: returns what needs the feature and how to remove it, as part of a sentence, or None.
        off: properties that must be set before, None for those that must be unset.
        left: returns what remains once ``off`` holds, which is removed automatically.
        properties: removed along with the feature.
        domains: domain metadata removed along with the feature.
    """

    in_use: _Use = lambda _: None
    off: Mapping[str, str | None] = field(default_factory=dict)
    left: _Use = lambda _: None
    properties: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()


_WIDENING: Final = _FeatureRemoval(
    _columns_with(
        TYPE_CHANGES,
        "files may still have the old types, and Delvec does not rewrite them; drop the feature with "
        "delta-spark. Columns with changed types",
    ),
    off={"delta.enableTypeWidening": None},
)
_ICT: Final = "delta.inCommitTimestampEnablement"
_RULES: Final[Mapping[str, _FeatureRemoval]] = {
    "appendOnly": _FeatureRemoval(_property_on("delta.appendOnly")),
    "invariants": _FeatureRemoval(_invariants),
    "checkConstraints": _FeatureRemoval(_constraints),
    "changeDataFeed": _FeatureRemoval(_property_on("delta.enableChangeDataFeed")),
    "generatedColumns": _FeatureRemoval(_columns_with(GENERATION, "the table has generated columns")),
    "identityColumns": _FeatureRemoval(_columns_with(IDENTITY_START, "the table has identity columns")),
    "allowColumnDefaults": _FeatureRemoval(
        _columns_with(DEFAULT, "these columns have defaults, which must be dropped first")
    ),
    MANAGED: _FeatureRemoval(properties=(TABLE_ID,)),
    "columnMapping": _FeatureRemoval(_mapped_columns),
    "deletionVectors": _FeatureRemoval(_vectors, off={DELETION_VECTORS: None}),
    "typeWidening": _WIDENING,
    "typeWidening-preview": _WIDENING,
    "v2Checkpoint": _FeatureRemoval(off={"delta.checkpointPolicy": "classic"}),
    "vacuumProtocolCheck": _FeatureRemoval(),
    "inCommitTimestamp": _FeatureRemoval(
        properties=(IN_COMMIT_TIMESTAMPS, f"{_ICT}Version", f"{_ICT}Timestamp")
    ),
    "domainMetadata": _FeatureRemoval(_domains, domains=(CLUSTERING_DOMAIN, DOMAIN)),
    "clustering": _FeatureRemoval(_clustering, domains=(CLUSTERING_DOMAIN,)),
    "rowTracking": _FeatureRemoval(
        off={ENABLED: "false", SUSPENDED: "true"},
        left=_row_ids,
        properties=(ENABLED, SUSPENDED, *MATERIALIZED),
        domains=(DOMAIN,),
    ),
    _PROTECTION: _FeatureRemoval(_protected, properties=(_PROTECTED_BEFORE,)),
}
