"""From the features that a table needs to the weakest protocol that has them (PROTOCOL.md, "Table Features").

A protocol whose features are exactly those of an old version is written as that version; otherwise its features are
listed, those that its old version implied among them. So does delta-spark.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from delvec_kernel.actions.actions import Protocol
from delvec_kernel.errors import InvalidTableChange
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
        reader: the least reader version with it.
        writer: the least writer version with it.
        needs: other features.
    """

    name: str
    reader: int
    writer: int
    needs: tuple[str, ...] = ()

    @property
    def binds_readers(self) -> bool:
        """Whether a reader must know it."""
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
    Feature("clustering", 1, _LISTED_WRITER, ("domainMetadata",)),
    Feature("rowTracking", 1, _LISTED_WRITER, ("domainMetadata",)),
    Feature("icebergCompatV1", 1, _LISTED_WRITER, ("columnMapping",)),
    Feature("icebergCompatV2", 1, _LISTED_WRITER, ("columnMapping",)),
    Feature("icebergCompatV3", 1, _LISTED_WRITER, ("columnMapping", "rowTracking")),
)
FEATURES: Final[Mapping[str, Feature]] = {feature.name: feature for feature in _FEATURES}
"""The features whose place in a protocol is known."""


def feature_named(name: str) -> Feature | None:
    """Return the feature of that name, whatever its case, or None."""
    return next((feature for key, feature in FEATURES.items() if key.lower() == name.lower()), None)


def supported(protocol: Protocol) -> frozenset[str]:
    """Return the features that a protocol has, by its versions or by name."""
    return reader_features(protocol) | writer_features(protocol)


def upgraded(protocol: Protocol, wanted: Iterable[str]) -> Protocol:
    """Return a protocol that also has some features and what these need; the same one where it has them.

    Args:
        protocol: of a table that may be written, so that its features are known.
        wanted: names out of FEATURES.
    """
    before = supported(protocol)
    missing = _closed(wanted) - before
    return _weakest(protocol, before | missing) if missing else protocol


def downgraded(protocol: Protocol, gone: str) -> Protocol:
    """Return the weakest protocol with all features of one but for one of them, which nothing else needs."""
    return _weakest(protocol, supported(protocol) - {gone})


def merged(protocol: Protocol, other: Protocol) -> Protocol:
    """Return a protocol that also has the features of another one; the same one where it has them.

    Args:
        protocol: of a table that may be written, so that its features are known.
        other: of a table that may be written, too.
    """
    before = supported(protocol)
    missing = supported(other) - before
    return _weakest(protocol, before | missing) if missing else protocol


def with_versions(protocol: Protocol, reader: int, writer: int) -> Protocol:
    """Return a protocol that has all of this one and all that two versions stand for.

    Versions that stand for nothing new change nothing: features are listed as soon as one has to be.

    Raises:
        InvalidTableChange: the versions do not go together.
    """
    if reader >= _LISTED_READER and writer < _LISTED_WRITER:
        raise InvalidTableChange(
            f"Reader version {reader} needs writer version {_LISTED_WRITER}, not {writer}, because table "
            "features have to be listed for both."
        )
    before = supported(protocol)
    missing = supported(Protocol(reader, writer)) - before
    return _weakest(protocol, before | missing) if missing else protocol


def _closed(names: Iterable[str]) -> frozenset[str]:
    waiting, found = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += FEATURES[name].needs
    return frozenset(found)


def _weakest(protocol: Protocol, wanted: frozenset[str]) -> Protocol:
    """Return the weakest protocol with some features; those that it has already keep their places."""
    features = [FEATURES[name] for name in FEATURES if name in wanted]
    unknown = sorted(wanted - set(FEATURES))
    reader = max([1, *(feature.reader for feature in features)])
    writer = max([1, *(feature.writer for feature in features)])
    if unknown:
        reader, writer = max(reader, protocol.min_reader_version), _LISTED_WRITER
    old = Protocol(reader, writer)
    if writer < _LISTED_WRITER and supported(old) == wanted:
        return old
    # What the table lists keeps its place; what is new comes after it.
    listed = [name for name in (protocol.writer_features or ()) if name in wanted]
    written = [*listed, *(feature.name for feature in features if feature.name not in listed)]
    if reader < _LISTED_READER:
        return Protocol(reader, _LISTED_WRITER, None, tuple(written))
    read = [name for name in (protocol.reader_features or ()) if name in wanted]
    read += [feature.name for feature in features if feature.binds_readers and feature.name not in read]
    return Protocol(reader, _LISTED_WRITER, tuple(read), tuple(written))
