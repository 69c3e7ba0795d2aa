"""Table properties: Delta's, with their values, the features they need, and who may set them; and Delvec's own.

Tested in `tests/unit/kernel/alter_table/test_properties.py` and `tests/unit/kernel/test_durations.py`.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

from delvec_errors import BadRequest, CorruptTable

__all__ = [
    "AUTO_COMPACT_MIN_FILES",
    "DELETION_VECTORS",
    "GROUP_COMMIT",
    "ICEBERG_CATALOG",
    "ICEBERG_DELETE_GRANULARITY",
    "ICEBERG_FORMAT_VERSIONS",
    "ICEBERG_LOCATION",
    "ICEBERG_TAG_VERSIONS",
    "IN_COMMIT_TIMESTAMPS",
    "IN_COMMIT_TIMESTAMPS_SINCE",
    "OWN_PROPERTIES",
    "PROPERTIES",
    "REWRITE_THRESHOLD",
    "SYMLINK_MANIFESTS",
    "OwnProperty",
    "Property",
    "byte_size_text",
    "is_true",
    "known_property",
    "parse_byte_size",
    "parse_duration",
    "parsed_value",
    "suggestion",
]

IN_COMMIT_TIMESTAMPS: Final = "delta.enableInCommitTimestamps"
IN_COMMIT_TIMESTAMPS_SINCE: Final = (
    "delta.inCommitTimestampEnablementVersion",
    "delta.inCommitTimestampEnablementTimestamp",
)
"""The first version that has them, and its time; missing if all have."""
DELETION_VECTORS: Final = "delta.enableDeletionVectors"

_Parse = Callable[[str], str | None]
_T = TypeVar("_T")
_COUNT_DIGITS: Final = 9


@dataclass(frozen=True, slots=True)
class Property:
    """A ``delta.*`` property.

    Attributes:
        parse: returns a value in Delta's form, or None if invalid.
        takes: the valid values, for messages.
        feature: the table feature it needs unless the value is in ``off``.
        off: values that need no feature.
        refusal: why users may not set or unset it, as the end of a sentence, or None.
    """

    parse: _Parse
    takes: str
    feature: str | None = None
    off: tuple[str, ...] = ("false",)
    refusal: str | None = None


def _boolean(text: str) -> str | None:
    return text.lower() if text.lower() in ("true", "false") else None


def _count(least: int) -> _Parse:
    def parse(text: str) -> str | None:
        try:
            return str(int(text)) if int(text) >= least else None
        except ValueError:
            return None

    return parse


def _one_of(*values: str) -> _Parse:
    return lambda text: next((value for value in values if value.lower() == text.lower()), None)


def _text(text: str) -> str | None:
    return text.strip() or None


def _size(text: str) -> str | None:
    return text.strip() if parse_byte_size(text) else None


def _duration(text: str) -> str | None:
    try:
        parse_duration(text, "")
    except CorruptTable:
        return None
    return text


def _flag(feature: str | None = None) -> Property:
    return Property(_boolean, "true or false", feature=feature)


def _number(least: int) -> Property:
    return Property(_count(least), f"a whole number of at least {least}")


def _time() -> Property:
    return Property(_duration, "a duration such as 'interval 30 days'")


def _refused(why: str) -> Property:
    return Property(_text, "", refusal=why)


_KEPT_BY_WRITERS: Final = "is maintained by writers"
_NOT_YET: Final = "needs a feature that Delvec does not implement yet"

SYMLINK_MANIFESTS: Final = "delta.compatibility.symlinkFormatManifest.enabled"
"""Whether symlink manifests are kept up to date."""
PROPERTIES: Final[Mapping[str, Property]] = {
    "delta.appendOnly": _flag("appendOnly"),
    "delta.autoOptimize.autoCompact": Property(
        _one_of("true", "false", "auto", "legacy"), "true, auto, legacy or false"
    ),
    "delta.autoOptimize.optimizeWrite": _flag(),
    "delta.checkpoint.writeStatsAsJson": _flag(),
    "delta.checkpoint.writeStatsAsStruct": _flag(),
    "delta.checkpointInterval": _number(1),
    "delta.checkpointPolicy": Property(
        _one_of("classic", "v2"), "classic or v2", feature="v2Checkpoint", off=("classic",)
    ),
    "delta.checkpointRetentionDuration": _time(),
    "delta.columnMapping.mode": Property(
        _one_of("none", "name", "id"),
        "none or name, or id for a new table",
        feature="columnMapping",
        off=("none",),
    ),
    SYMLINK_MANIFESTS: _flag(),
    "delta.dataSkippingNumIndexedCols": _number(-1),
    "delta.dataSkippingStatsColumns": Property(_text, "columns, separated by commas"),
    "delta.dataSkippingStringPrefixLength": _number(0),
    "delta.deletedFileRetentionDuration": _time(),
    "delta.enableChangeDataFeed": _flag("changeDataFeed"),
    DELETION_VECTORS: _flag("deletionVectors"),
    "delta.enableExpiredLogCleanup": _flag(),
    "delta.enableFullRetentionRollback": _flag(),
    IN_COMMIT_TIMESTAMPS: _flag("inCommitTimestamp"),
    "delta.enableRowTracking": _flag("rowTracking"),
    "delta.enableTypeWidening": _flag("typeWidening"),
    "delta.isolationLevel": Property(
        _one_of("Serializable", "WriteSerializable"), "Serializable or WriteSerializable"
    ),
    "delta.logRetentionDuration": _time(),
    "delta.parquet.compression.codec": Property(_text, "the name of a codec"),
    "delta.randomPrefixLength": _number(1),
    "delta.randomizeFilePrefixes": _flag(),
    "delta.rowTrackingSuspended": _flag(),
    "delta.sampleRetentionDuration": _time(),
    "delta.setTransactionRetentionDuration": _time(),
    "delta.targetFileSize": Property(_size, "a size such as 128mb"),
    "delta.tuneFileSizesForRewrites": _flag(),
    "delta.columnMapping.maxColumnId": _refused(_KEPT_BY_WRITERS),
    **dict.fromkeys(IN_COMMIT_TIMESTAMPS_SINCE, _refused(_KEPT_BY_WRITERS)),
    "delta.requireCheckpointProtectionBeforeVersion": _refused(_KEPT_BY_WRITERS),
    "delta.rowTracking.materializedRowCommitVersionColumnName": _refused(_KEPT_BY_WRITERS),
    "delta.rowTracking.materializedRowIdColumnName": _refused(_KEPT_BY_WRITERS),
    "delta.coordinatedCommits.commitCoordinator-preview": _refused(_NOT_YET),
    "delta.coordinatedCommits.commitCoordinatorConf-preview": _refused(_NOT_YET),
    "delta.coordinatedCommits.tableConf-preview": _refused(_NOT_YET),
    "delta.enableIcebergCompatV1": _refused(_NOT_YET),
    "delta.enableIcebergCompatV2": _refused(_NOT_YET),
    "delta.enableIcebergCompatV3": _refused(_NOT_YET),
    "delta.enableMaterializePartitionColumnsFeature": _refused(_NOT_YET),
    "delta.enableVariantShredding": _refused(_NOT_YET),
    "delta.redirectReaderWriter-preview": _refused(_NOT_YET),
    "delta.redirectWriterOnly-preview": _refused(_NOT_YET),
    "delta.universalFormat.enabledFormats": _refused(_NOT_YET),
    "delta.minReaderVersion": _refused("is not a table property: upgrade the protocol"),
    "delta.minWriterVersion": _refused("is not a table property: upgrade the protocol"),
}
"""Properties by Delta's spelling."""


@dataclass(frozen=True, slots=True)
class OwnProperty(Generic[_T]):
    """A ``delvec.*`` property, which other writers keep and do not read.

    Attributes:
        name: the name; case matters.
        read: returns the value of a text, or None if the text is invalid.
        takes: the valid values, for the documentation.
        default: the value if the property is unset.
        shown: the default in the documentation.
        description: what it does, in one line of Markdown.
    """

    name: str
    read: Callable[[str], _T | None]
    takes: str
    default: _T
    shown: str
    description: str

    def checked(self, configuration: Mapping[str, str]) -> _T | None:
        """Return the value, the default if it is unset, or None if it is invalid."""
        text = configuration.get(self.name)
        return self.default if text is None else self.read(text)

    def of(self, configuration: Mapping[str, str]) -> _T:
        """Return the value, or the default if it is unset or invalid."""
        value = self.checked(configuration)
        return self.default if value is None else value


def _flag_value(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.strip().lower())


def _share(text: str) -> float | None:
    try:
        share = float(text)
    except ValueError:
        return None
    return share if 0 < share <= 1 else None


def _file_count(text: str) -> int | None:
    digits = text.strip()
    return max(2, int(digits)) if digits.isdecimal() and len(digits) <= _COUNT_DIGITS else None


def _format_versions(text: str) -> tuple[int, ...]:
    parts = {part.strip() for part in text.split(",")}
    return tuple(version for version in (2, 3) if str(version) in parts)


def _granularity(text: str) -> str | None:
    lower = text.strip().lower()
    return lower if lower in {"file", "partition"} else None


AUTO_COMPACT_MIN_FILES: Final = OwnProperty(
    "delvec.autoCompact.minNumFiles",
    _file_count,
    "a whole number from 2",
    50,
    "`50`",
    "how many small files of a partition [auto compaction](optimize.md) waits for",
)
GROUP_COMMIT: Final = OwnProperty(
    "delvec.groupCommit",
    _flag_value,
    "`true`, `false`",
    default=True,
    shown="`true`",
    description="whether commits that wait for each other may [share a version](transactions.md)",
)
ICEBERG_CATALOG: Final = OwnProperty(
    "delvec.iceberg.catalog",
    str,
    "a catalog, or a table in one",
    "",
    "none",
    "the [Iceberg catalog](iceberg.md) that each conversion updates",
)
ICEBERG_DELETE_GRANULARITY: Final = OwnProperty(
    "delvec.iceberg.deleteGranularity",
    _granularity,
    "`file`, `partition`",
    "file",
    "`file`",
    "which data files share a file of [Iceberg's position deletes](iceberg.md)",
)
ICEBERG_FORMAT_VERSIONS: Final[OwnProperty[tuple[int, ...]]] = OwnProperty(
    "delvec.iceberg.formatVersions",
    _format_versions,
    "`2`, `3`, `2,3`",
    (),
    "none",
    "the format versions to which each commit is [converted to Iceberg](iceberg.md)",
)
ICEBERG_LOCATION: Final = OwnProperty(
    "delvec.iceberg.location",
    str,  # other writers' VACUUM does not look into names that begin with an underscore, as the default's
    "a directory below the table, `.` for the table's own, or a path or URL",
    "_iceberg",
    "`_iceberg`",
    "where [Iceberg's metadata](iceberg.md) and delete files are",
)
ICEBERG_TAG_VERSIONS: Final = OwnProperty(
    "delvec.iceberg.tagVersions",
    _flag_value,
    "`true`, `false`",
    default=False,
    shown="`false`",
    description="whether each converted version gets [a tag in Iceberg](iceberg.md)",
)
REWRITE_THRESHOLD: Final = OwnProperty(
    "delvec.rewriteThreshold",
    _share,
    "a number above 0 and up to 1",
    0.9,
    "`0.9`",
    "the share of deleted rows above which [a command rewrites a file](dml.md)",
)

OWN_PROPERTIES: Final[tuple[OwnProperty[Any], ...]] = (
    AUTO_COMPACT_MIN_FILES,
    GROUP_COMMIT,
    ICEBERG_CATALOG,
    ICEBERG_DELETE_GRANULARITY,
    ICEBERG_FORMAT_VERSIONS,
    ICEBERG_LOCATION,
    ICEBERG_TAG_VERSIONS,
    REWRITE_THRESHOLD,
)
"""Delvec's own properties, in the order of the documentation."""


def known_property(name: str) -> str | None:
    """Return Delta's spelling of a property, or None if it is not in PROPERTIES."""
    return next((known for known in PROPERTIES if known.lower() == name.lower()), None)


def parsed_value(name: str, value: str) -> str:
    """Return a property's value in Delta's form.

    Raises:
        BadRequest: the value is invalid for the property.
    """
    canonical_value = PROPERTIES[name].parse(value.strip())
    if canonical_value is None:
        raise BadRequest(
            f"'{value}' is not a valid value for the table property '{name}', which takes "
            f"{PROPERTIES[name].takes}.",
            property=name,
        )
    return canonical_value


def suggestion(name: str) -> str:
    """Return the end of a message about an unknown property: a similar name."""
    lower = {known.lower(): known for known in _settable()}
    near = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.6)
    return (
        f"; did you mean {lower[near[0]]}?"
        if near
        else "; see docs/table-changes.md for the properties that it knows."
    )


def _settable() -> Iterator[str]:
    return (name for name, known in PROPERTIES.items() if known.refusal is None)


def is_true(configuration: Mapping[str, str], name: str) -> bool:
    """Whether a property is true; an unset one is not."""
    return configuration.get(name, "").strip().lower() == "true"


_BYTE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_BYTE_UNIT: Final = 1024
_BYTE_SIZE: Final = re.compile(r"\s*(\d{1,15})\s*(?:([kmgtp])i?)?b?\s*", re.IGNORECASE | re.ASCII)


def byte_size_text(size: float) -> str:
    """Return a number of bytes in the largest unit that fits, such as ``12.3 MiB``."""
    number, unit = float(size), 0
    while abs(number) >= _BYTE_UNIT and unit < len(_BYTE_UNITS) - 1:
        number, unit = number / _BYTE_UNIT, unit + 1
    return f"{number:.1f} {_BYTE_UNITS[unit]}" if unit else f"{number:.0f} {_BYTE_UNITS[unit]}"


def parse_byte_size(text: str) -> int | None:
    """Parse a size in the format of Spark's settings, such as ``1048576``, ``100m`` or ``1 GiB``; None if invalid."""
    found = _BYTE_SIZE.fullmatch(text)
    return int(found[1]) << (10 * " kmgtp".index((found[2] or " ").lower())) if found else None


_MICROSECONDS: Final = {
    "week": 7 * 86_400_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1000,
    "microsecond": 1,
}
_CALENDAR: Final = ("month", "year")
_PART: Final = re.compile(r"\s*([+-]?)\s*(\d{1,15})(?:\.(\d{0,9}))?\s+([a-z]+)(?=\s|$)")
_MAX: Final = timedelta(days=3_650_000)


def parse_duration(text: str, name: str) -> timedelta:
    """Parse the duration in a table property.

    Args:
        text: numbers with units from microsecond to week, case-insensitive, optionally after ``interval``.
        name: the name of the property, for errors.

    Raises:
        CorruptTable: it is malformed or negative, or has months or years, whose length varies.
    """
    rest = text.strip().lower()
    rest = rest.removeprefix("interval").lstrip() if rest.startswith("interval ") else rest
    micros, position = 0, 0
    while part_match := _PART.match(rest, position):
        sign, whole, fraction, unit = part_match.groups()
        unit = unit.removesuffix("s")
        if unit in _CALENDAR:
            raise _not_a_duration(text, name, "uses months or years, whose lengths vary")
        if unit not in _MICROSECONDS or (fraction is not None and unit != "second"):
            raise _not_a_duration(text, name, "is not a duration")
        part = int(whole) * _MICROSECONDS[unit] + (int(fraction.ljust(9, "0")) // 1000 if fraction else 0)
        micros += -part if sign == "-" else part
        position = part_match.end()
    if not position or rest[position:].strip():
        raise _not_a_duration(text, name, "is not a duration")
    if micros < 0:
        raise _not_a_duration(text, name, "is negative")
    return min(timedelta(microseconds=min(micros, 2**62)), _MAX)


def _not_a_duration(text: str, name: str, problem: str) -> CorruptTable:
    return CorruptTable(
        f"The table property {name} is '{text[:80]}', which {problem}; set it to text like 'interval 30 days'.",
        property=name,
        value=text[:80],
    )
