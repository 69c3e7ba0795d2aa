"""Log settings from table properties: checkpoint interval and format, and retention.

Tested in `tests/integration/service/maintenance/test_log_cleanup.py` and
`tests/integration/service/maintenance/test_log_maintenance.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from delvec_errors import CorruptTable, UnsupportedWriterFeature
from delvec_kernel.actions.actions import Metadata, Protocol
from delvec_kernel.features.table_features import (
    READABLE,
    WRITABLE,
    check_readable,
    reader_features,
    writer_features,
)
from delvec_kernel.table_properties import parse_duration

__all__ = ["LogPolicy", "check_understood"]

_INTERVAL: Final = 10
_WEEK: Final = timedelta(days=7)
_MONTH: Final = timedelta(days=30)
_MAX_WRITER: Final = 7
_PRESERVED_FEATURES: Final = frozenset({"rowTracking", "clustering", "materializePartitionColumns"})
"""Features that Delvec cannot write to, but whose state its checkpoints preserve."""


@dataclass(frozen=True)
class LogPolicy:
    """A table's log settings; defaults are delta-spark's.

    Attributes:
        checkpoint_interval: versions between checkpoints.
        v2: whether to write V2 checkpoints with sidecars, not single-file classic ones.
        stats_as_json: whether checkpoints have statistics as JSON text.
        stats_as_struct: whether checkpoints have statistics and partition values as typed columns; None if not set, in
            which case it depends on the number of files.
        deleted_file_retention: how long checkpoints keep tombstones.
        transaction_retention: how long checkpoints keep transaction identifiers; None is forever.
        log_retention: how long a version can be read after it was superseded.
        clean_up: whether to delete expired log files.
        protected_before: checkpoint protection: versions before this one must be cleaned up together; 0 for none.
    """

    checkpoint_interval: int = _INTERVAL
    v2: bool = False
    stats_as_json: bool = True
    stats_as_struct: bool | None = None
    deleted_file_retention: timedelta = _WEEK
    transaction_retention: timedelta | None = None
    log_retention: timedelta = _MONTH
    clean_up: bool = True
    protected_before: int = 0

    @classmethod
    def of(cls, configuration: Mapping[str, str], protocol: Protocol) -> "LogPolicy":
        """Read the properties of a version.

        Raises:
            CorruptTable: a property has an invalid value, so that nothing can be deleted safely.
        """
        features = reader_features(protocol) | writer_features(protocol)
        policy = configuration.get("delta.checkpointPolicy", "classic").strip().lower()
        has_protection = "checkpointProtection" in features
        return cls(
            checkpoint_interval=max(1, _integer(configuration, "delta.checkpointInterval", _INTERVAL)),
            # Other values that start with v2 are newer formats, which this feature does not cover.
            v2=policy == "v2" and "v2Checkpoint" in features,
            stats_as_json=_boolean(configuration, "delta.checkpoint.writeStatsAsJson"),
            stats_as_struct=(
                _boolean(configuration, "delta.checkpoint.writeStatsAsStruct")
                if "delta.checkpoint.writeStatsAsStruct" in configuration
                else None
            ),
            deleted_file_retention=_duration(configuration, "delta.deletedFileRetentionDuration", _WEEK),
            transaction_retention=(
                _duration(configuration, "delta.setTransactionRetentionDuration", _WEEK)
                if "delta.setTransactionRetentionDuration" in configuration
                else None
            ),
            log_retention=_duration(configuration, "delta.logRetentionDuration", _MONTH),
            clean_up=_boolean(configuration, "delta.enableExpiredLogCleanup"),
            protected_before=(
                _integer(configuration, "delta.requireCheckpointProtectionBeforeVersion", 0)
                if has_protection
                else 0
            ),
        )


def _duration(configuration: Mapping[str, str], name: str, default: timedelta) -> timedelta:
    text = configuration.get(name)
    return default if text is None else parse_duration(text, name)


def _boolean(configuration: Mapping[str, str], name: str) -> bool:
    """Return a Boolean property with default true."""
    text = configuration.get(name, "true").strip().lower()
    if text not in ("true", "false"):
        raise CorruptTable(
            f"The table property {name} is '{text[:80]}'; it must be true or false.", property=name
        )
    return text == "true"


def _integer(configuration: Mapping[str, str], name: str, default: int) -> int:
    text = configuration.get(name, str(default)).strip()
    if not (text.isascii() and text.isdecimal() and len(text) < 19):  # noqa: PLR2004 - fits 64 bits
        raise CorruptTable(
            f"The table property {name} is '{text[:80]}'; it must be a whole number.", property=name
        )
    return int(text)


def check_understood(protocol: Protocol, metadata: Metadata, table: str) -> None:
    """Reject checkpoints and log clean-up of a table with a feature that Delvec does not know.

    Features that block only commits are allowed, because checkpoints preserve all their actions.

    Raises:
        UnsupportedReaderFeature: the table cannot be read.
        UnsupportedWriterFeature: names the features.
    """
    check_readable(protocol, metadata, table)
    unknown = sorted(writer_features(protocol) - _PRESERVED_FEATURES - READABLE - set(WRITABLE))
    if unknown or protocol.min_writer_version > _MAX_WRITER:
        found = ", ".join(unknown) or f"writer version {protocol.min_writer_version}"
        raise UnsupportedWriterFeature(
            f"Delvec cannot checkpoint table '{table}' or clean up its log, because it does not support "
            f"{found}; use a writer that does.",
            table=table,
            features=unknown,
        )
