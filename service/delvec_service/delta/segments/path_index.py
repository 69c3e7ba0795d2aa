"""Where files are, over many segments: one search in place of one in each."""

from collections.abc import Collection, Container, Sequence

import numpy as np
import numpy.typing as npt

from delvec_service.delta.segments.segment import Segment, load_parts
from delvec_service.delta.segments.segment_parts import KEYS, Rows

__all__ = ["PathIndex"]

_FEW_SEGMENTS = 16
"""So many are searched one by one as quickly."""

_MOST_SEGMENTS = 65_536


class PathIndex:
    """The hashes of the paths of some segments, in one order. Immutable.

    It outlives the version that it was made for: what segments it has does not change, and who asks knows which of
    them still count.

    Args:
        segments: at most 65,536.

    Raises:
        SegmentsLost: a store does not have one of them any more.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        parts = load_parts(segments, KEYS, keep=False)
        hashes = np.concatenate([keys.hashes for keys in parts])
        places = np.repeat(np.arange(len(parts), dtype=np.uint16), [len(keys.hashes) for keys in parts])
        order = np.argsort(hashes, kind="stable")
        self._ids = [segment.id for segment in segments]
        self._hashes = hashes[order]
        self._places = places[order]
        self._rows: Rows = np.concatenate([keys.rows for keys in parts])[order]
        self.segments = frozenset(self._ids)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._hashes.nbytes + self._places.nbytes + self._rows.nbytes

    def find(self, hashes: npt.NDArray[np.uint64], among: Container[str]) -> dict[str, Rows]:
        """Return, by the id of a segment ``among`` these, the rows that have one of the hashes; in no order."""
        first = np.searchsorted(self._hashes, hashes, "left")
        last = np.searchsorted(self._hashes, hashes, "right")
        found: dict[str, list[int]] = {}
        for index in np.flatnonzero(last > first):
            for place in range(first[index], last[index]):
                id_ = self._ids[self._places[place]]
                if id_ in among:
                    found.setdefault(id_, []).append(int(self._rows[place]))
        return {id_: np.array(rows, np.uint16) for id_, rows in found.items()}

    @classmethod
    def following(cls, before: "PathIndex | None", segments: Collection[Segment]) -> "PathIndex | None":
        """Return an index for these segments: the one from before as long as it has nearly all of them.

        Returns:
            None where they are few, or too many.
        """
        known = frozenset() if before is None else before.segments
        new = sum(segment.id not in known for segment in segments)
        if new < _FEW_SEGMENTS:
            return before if any(segment.id in known for segment in segments) else None
        return cls(list(segments)) if len(segments) <= _MOST_SEGMENTS else None
