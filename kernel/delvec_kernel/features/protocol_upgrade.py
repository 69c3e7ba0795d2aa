"""The minimal protocol for a set of table features (PROTOCOL.md, "Table Features").

As in delta-spark, a protocol whose features are exactly those of a legacy version is written as that version; otherwise
all features are listed, including those that its legacy version implied.

Tested in `tests/unit/kernel/alter_table/test_properties.py` and
`tests/unit/kernel/alter_table/test_table_change_histories.py`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from delvec_errors import InvalidTableChange
from delvec_kernel.actions.actions import Protocol
from delvec_kernel.features.table_features import reader_features, writer_features

__all__ = [
    "FEATURES",
    "Feature",
    "downgraded",
    "feature_named",
    "merged",
    "supported",
    "upgraded",
    "with_versions",
]

_LISTED_READER: Final = 3
_LISTED_WRITER: Final = 7


@dataclass(frozen=True, slots=True)
class Feature:
    """A table feature.

    Attributes:
        reader: the minimum reader version.
        writer: the minimum writer version.
        needs: features it depends on.
    """

    name: str
    reader: int
    writer: int
    needs: tuple[str, ...] = ()

    @property
    def binds_readers(self) -> bool:
        """Whether it is a reader-writer feature."""
        return self.reader > 1


_MAPPING: Final = Feature("columnMapping", 2, 5)
_FEATURES: Final = (
    Feature("appendOnly", 1, 2),
    Feature("invariants", 1, 2),
    Feature("checkConstraints", 1, 3),
    Feature("changeDataFeed", 1, 4),
    Feature("generatedColumns", 1, 4),
    _MAPPING,
    Feature("identityColumns", 1, 6),
    *(
        Feature(name, _LISTED_READER, _LISTED_WRITER)
        for name in (
            "deletionVectors",
            "geospatial",
            "geospatial-dev",
            "timestampNtz",
            "typeWidening",
            "typeWidening-preview",
            "v2Checkpoint",
            "vacuumProtocolCheck",
            "variantType",
            "variantType-preview",
            "variantShredding-preview",
        )
    ),
    Feature("variantShredding", _LISTED_READER, _LISTED_WRITER, ("variantType",)),
    *(
        Feature(name, 1, _LISTED_WRITER)
        for name in (
            "domainMetadata",
            "inCommitTimestamp",
            "allowColumnDefaults",
            "checkpointProtection",
            "materializePartitionColumns",
        )
    ),
    Feature("catalogManaged", _LISTED_READER, _LISTED_WRITER, ("inCommitTimestamp", "vacuumProtocolCheck")),
    Feature("clustering", 1, _LISTED_WRITER, ("domainMetadata",)),
    Feature("rowTracking", 1, _LISTED_WRITER, ("domainMetadata",)),
    Feature("icebergCompatV1", 1, _LISTED_WRITER, ("columnMapping",)),
    Feature("icebergCompatV2", 1, _LISTED_WRITER, ("columnMapping",)),
    Feature("icebergCompatV3", 1, _LISTED_WRITER, ("columnMapping", "rowTracking")),
)
FEATURES: Final[Mapping[str, Feature]] = {feature.name: feature for feature in _FEATURES}
"""The known features by name."""


def feature_named(name: str) -> Feature | None:
    """Return the feature with that name, case-insensitive, or None."""
    return next((feature for key, feature in FEATURES.items() if key.lower() == name.lower()), None)


def supported(protocol: Protocol) -> frozenset[str]:
    """Return all features of a protocol, implied by its versions or listed."""
    return reader_features(protocol) | writer_features(protocol)


def upgraded(protocol: Protocol, feature_names: Iterable[str]) -> Protocol:
    """Return the protocol with more features and their dependencies, or the same object if it has all of them.

    Args:
        protocol: the protocol of a writable table, so that all its features are known.
        feature_names: names from FEATURES.
    """
    before = supported(protocol)
    missing = _with_dependencies(feature_names) - before
    return _minimal(protocol, before | missing) if missing else protocol


def downgraded(protocol: Protocol, gone: str) -> Protocol:
    """Return the minimal protocol without one feature, on which no other feature depends."""
    return _minimal(protocol, supported(protocol) - {gone})


def merged(protocol: Protocol, other: Protocol) -> Protocol:
    """Return the protocol with the features of another added, or the same object if it has all of them.

    Args:
        protocol: the protocol of a writable table, so that all its features are known.
        other: of another writable table.
    """
    before = supported(protocol)
    missing = supported(other) - before
    return _minimal(protocol, before | missing) if missing else protocol


def with_versions(protocol: Protocol, reader: int, writer: int) -> Protocol:
    """Return the protocol upgraded to at least these versions and the features they imply.

    Versions that imply no new feature change nothing, because features are listed once any of them must be.

    Raises:
        InvalidTableChange: the versions are incompatible.
    """
    if reader >= _LISTED_READER and writer < _LISTED_WRITER:
        raise InvalidTableChange(
            f"Reader version {reader} needs writer version {_LISTED_WRITER}, not {writer}, because table "
            "features have to be listed for both."
        )
    before = supported(protocol)
    missing = supported(Protocol(reader, writer)) - before
    return _minimal(protocol, before | missing) if missing else protocol


def _with_dependencies(names: Iterable[str]) -> frozenset[str]:
    waiting, feature_names = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in feature_names:
            feature_names.add(name)
            waiting += FEATURES[name].needs
    return frozenset(feature_names)


def _minimal(protocol: Protocol, feature_names: frozenset[str]) -> Protocol:
    """Return the minimal protocol with these features, keeping the order of those already listed."""
    features = [FEATURES[name] for name in FEATURES if name in feature_names]
    unknown = sorted(feature_names - set(FEATURES))
    reader = max([1, *(feature.reader for feature in features)])
    writer = max([1, *(feature.writer for feature in features)])
    if unknown:
        reader, writer = max(reader, protocol.min_reader_version), _LISTED_WRITER
    old = Protocol(reader, writer)
    if writer < _LISTED_WRITER and supported(old) == feature_names:
        return old
    # Listed features keep their order, and new ones follow.
    listed = [name for name in (protocol.writer_features or ()) if name in feature_names]
    written = [*listed, *(feature.name for feature in features if feature.name not in listed)]
    if reader < _LISTED_READER:
        return Protocol(reader, _LISTED_WRITER, None, tuple(written))
    read = [name for name in (protocol.reader_features or ()) if name in feature_names]
    read += [feature.name for feature in features if feature.binds_readers and feature.name not in read]
    return Protocol(reader, _LISTED_WRITER, tuple(read), tuple(written))
