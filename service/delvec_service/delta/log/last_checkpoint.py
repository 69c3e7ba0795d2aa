"""``_last_checkpoint``: a hint where the newest checkpoint is, so that a reader need not list the whole log.

PROTOCOL.md, "Last Checkpoint File". The schema and the checksum, which are optional, are left out: a reader gets the
first from the checkpoint itself, and nobody trusts a hint further than the next listing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from delvec_service.delta.log.log_json import json_text, present

__all__ = ["LAST_CHECKPOINT", "LastCheckpoint", "hinted_version"]

LAST_CHECKPOINT: Final = "_last_checkpoint"
_UNKNOWN: Final = -1


@dataclass(frozen=True)
class LastCheckpoint:
    """What the hint says of a checkpoint.

    Attributes:
        size: actions in it, those in sidecars included; None where that was not counted.
        size_in_bytes: of its files, sidecars included.
        num_of_add_files: live files.
        parts: of a multi-part checkpoint.
        manifest: of a V2 checkpoint: name, bytes and time (milliseconds since the epoch) of its top-level file.
    """

    version: int
    size: int | None = None
    size_in_bytes: int | None = None
    num_of_add_files: int | None = None
    parts: int | None = None
    manifest: tuple[str, int, int] | None = None

    def serialize(self) -> bytes:
        """Return the content of the file."""
        v2: Mapping[str, Any] | None = None
        if self.manifest is not None:
            name, size, time = self.manifest
            v2 = {"path": name, "sizeInBytes": size, "modificationTime": time}
        document = present(
            version=self.version,
            size=_UNKNOWN if self.size is None else self.size,
            parts=self.parts,
            sizeInBytes=self.size_in_bytes,
            numOfAddFiles=self.num_of_add_files,
            v2Checkpoint=v2,
        )
        return json_text(document).encode()


def hinted_version(data: bytes) -> int | None:
    """Return the version that a hint names; anything wrong with it means there is no hint."""
    try:
        version = json.loads(data)["version"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    usable = isinstance(version, int) and not isinstance(version, bool) and 0 <= version < 2**63
    return version if usable else None
