"""The name and the options of ``format("delvec")`` that more than the data source needs: versions and streams.

Tested in `tests/integration/spark/test_spark_stream_source.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from delvec_errors import BadRequest
from delvec_kernel.table_properties import parse_byte_size

__all__ = ["FORMAT", "VERSION_OPTIONS", "StreamOptions"]

FORMAT: Final = "delvec"
"""Name of the Spark data source."""
VERSION_OPTIONS: Final[Mapping[str, str]] = {
    "version": "version",
    "versionasof": "version",
    "timestamp": "timestamp",
    "timestampasof": "timestamp",
}
"""The options of ``spark.read`` that choose a version, in lower case, and what each of them gives."""


@dataclass(frozen=True)
class StreamOptions:
    """Options of a stream, under Delta's names.

    Attributes:
        starting_version: the first version to read; ``latest`` for future versions only. Without a start, the whole
            table is read first.
        starting_timestamp: read from the first version committed at or after this time.
        max_files: maximum files per step.
        max_bytes: a step takes more files while it has fewer bytes than this.
        ignore_deletes: skip versions that only remove rows.
        skip_change_commits: skip versions that remove or change rows.
        read_change_feed: read the changes of each version instead of the rows it added.
        fail_on_data_loss: fail if the log was cleaned up before the stream had read it.
    """

    starting_version: int | str | None = None
    starting_timestamp: str | None = None
    max_files: int | None = None
    max_bytes: int | None = None
    ignore_deletes: bool = False
    skip_change_commits: bool = False
    read_change_feed: bool = False
    fail_on_data_loss: bool = True

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "StreamOptions":
        """Build the options from names in lower case; ignores those that streams do not have.

        Raises:
            BadRequest: a value is invalid, or two options contradict each other.
        """
        if "ignorechanges" in options:
            raise BadRequest(
                "the option ignoreChanges is not supported, as it would repeat unchanged rows; use skipChangeCommits "
                "to skip versions that change rows, or readChangeFeed to read the changes"
            )
        values: dict[str, Any] = {}
        for name, (field, read) in _OPTIONS.items():
            if name in options:
                values[field] = read(name, options[name].strip())
        if "starting_version" in values and "starting_timestamp" in values:
            raise BadRequest("give the option startingVersion or startingTimestamp, not both")
        return cls(**values)

    @classmethod
    def names(cls) -> frozenset[str]:
        """Return all names, in lower case."""
        return frozenset(_OPTIONS) | {"ignorechanges"}


def _count(name: str, text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise BadRequest(f"the option {_SPELLING[name]} must be a whole number of at least 1, not {text!r}")
    return int(text)


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise BadRequest(f"the option {_SPELLING[name]} must be true or false, not {text!r}")
    return text.lower() == "true"


def _version(name: str, text: str) -> int | str:
    if text.lower() == "latest":
        return "latest"
    if not text.isdecimal():
        raise BadRequest(f"the option {_SPELLING[name]} must be a version or 'latest', not {text!r}")
    return int(text)


def _size(name: str, text: str) -> int:
    nbytes = parse_byte_size(text)
    if not nbytes:
        raise BadRequest(f"the option {_SPELLING[name]} must be a size such as 1048576 or 100m, not {text!r}")
    return nbytes


_SPELLING: Final = {
    name.lower(): name
    for name in (
        "startingVersion",
        "startingTimestamp",
        "maxFilesPerTrigger",
        "maxBytesPerTrigger",
        "ignoreDeletes",
        "skipChangeCommits",
        "readChangeFeed",
        "readChangeData",
        "failOnDataLoss",
    )
}
_OPTIONS: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = {
    "startingversion": ("starting_version", _version),
    "startingtimestamp": ("starting_timestamp", lambda _, text: text),
    "maxfilespertrigger": ("max_files", _count),
    "maxbytespertrigger": ("max_bytes", _size),
    "ignoredeletes": ("ignore_deletes", _flag),
    "skipchangecommits": ("skip_change_commits", _flag),
    "readchangefeed": ("read_change_feed", _flag),
    "readchangedata": ("read_change_feed", _flag),
    "failondataloss": ("fail_on_data_loss", _flag),
}
