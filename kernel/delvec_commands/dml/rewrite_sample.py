"""Predicts the size of rewritten files from a sample.

The share of live rows predicts it only if the file was written with Delvec's settings and its rows are alike: a footer, a
dictionary, another codec or wide deleted rows can make it wrong by half.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from delvec_engines.scan import Scan
from delvec_errors import DelvecError
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, serialize_bitmap
from delvec_maintenance.compaction import Bin, deleted_ratios

__all__ = ["SAMPLE_BYTES", "with_measured_sizes"]

SAMPLE_BYTES: Final = 32 << 20
"""Approximate bytes to sample from all bins: a second of CPU time. Much smaller parts would compress differently."""
_BINS: Final = 4
_FILES_OF_BIN: Final = 16
_MAX_SAMPLE_BYTES: Final = 1 << 30
"""A file is read whole even if only some of its rows are sampled."""
_STRETCHES: Final = 4
_MAX_ROWS: Final = 1 << 32
"""Of a file: the log may claim any number, and a bitmap of that many rows is made."""

Write = Callable[[Scan, Sequence[Sequence[str]], str], int]
"""Writes the live rows of each bin's files, below a location, and returns the bytes."""


@dataclass(frozen=True)
class _Sample:
    """Files of one bin.

    Attributes:
        files: their indexes in the scan's table of files.
        share: the share of their rows to sample.
    """

    files: npt.NDArray[np.int64]
    share: float


def with_measured_sizes(scan: Scan, bins: Sequence[Bin], write: Write) -> list[Bin]:
    """Return the bins with the sizes of their new files: measured by writing small bins, estimated from a sample for others.

    Args:
        scan: the plan; nothing below its location is written.
        bins: bins of its files.
        write: writes files as the command will.

    Returns:
        The bins; unchanged if a sample cannot be read or has no live rows.
    """
    sizes = scan.files["size"].to_numpy()
    ratios = deleted_ratios(scan.files)
    counted = pc.is_valid(scan.files["num_records"]).to_numpy()
    counts = pc.fill_null(scan.files["num_records"], 0).to_numpy()
    live = np.where(counted, sizes * (1.0 - ratios), np.nan)
    live[counts > _MAX_ROWS] = np.nan
    samples = [each for each in _samples(bins, sizes) if not np.isnan(live[each.files]).any()]
    expected_size = float(sum(each.share * live[each.files].sum() for each in samples))
    if expected_size < 1:
        return list(bins)
    try:
        with tempfile.TemporaryDirectory(prefix="delvec-sample-") as folder:
            written = _written(scan, samples, write, Path(folder).as_uri())
    except (DelvecError, OSError):
        return list(bins)  # the command itself will raise this error
    return [replace(each, live_size=round(each.live_size * written / expected_size)) for each in bins]


def _samples(bins: Sequence[Bin], sizes: npt.NDArray[np.int64]) -> list[_Sample]:
    """Return whole bins if they are few and small; otherwise some of their files, or some rows of those."""
    if sum(each.size for each in bins) <= SAMPLE_BYTES and sum(len(each.files) for each in bins) <= (
        _BINS * _FILES_OF_BIN
    ):
        return [_Sample(each.files, 1.0) for each in bins]
    chosen = [bins[place] for place in _evenly(len(bins), _BINS)]
    quota = SAMPLE_BYTES / len(chosen)
    samples = []
    for each in chosen:
        count = int(min(max(1, quota * len(each.files) // max(1, each.size)), _FILES_OF_BIN))
        files = each.files[_evenly(len(each.files), count)]
        files = files[sizes[files] <= _MAX_SAMPLE_BYTES]
        if len(files):
            samples.append(_Sample(files, min(1.0, quota / max(1, int(sizes[files].sum())))))
    return samples


def _evenly(count: int, wanted: int) -> npt.NDArray[np.int64]:
    """Return ``wanted`` evenly spaced indexes below ``count``."""
    wanted = min(count, wanted)
    return ((np.arange(wanted) + 0.5) * count / max(1, wanted)).astype(np.int64)


def _written(scan: Scan, samples: Sequence[_Sample], write: Write, location: str) -> int:
    paths = scan.files["path"].to_pylist()
    masks: dict[str, BitMap64] = {}
    for each in samples:
        if each.share < 1:
            part = scan.only(paths[place] for place in each.files)
            masks |= _left_out(part, each.share)
    places = np.concatenate([each.files for each in samples])
    bins = [[paths[place] for place in each.files] for each in samples]
    return write(_without(scan.only(paths[place] for place in places), masks), bins, location)


def _left_out(scan: Scan, share: float) -> dict[str, BitMap64]:
    """Return each file's rows that are deleted or outside the sampled stretches."""
    deletion_vectors = scan.deletion_vectors if scan.has_deletion_vectors else {}
    counts = scan.files.select(["path", "num_records"]).to_pylist()
    excluded_rows = {}
    for path, count in ((row["path"], row["num_records"]) for row in counts):
        sampled_rows, width = BitMap64(), max(1, int(count * share / _STRETCHES))
        for middle in _evenly(count, _STRETCHES).tolist():
            sampled_rows.add_range(max(0, middle - width // 2), min(count, middle - width // 2 + width))
        everything = BitMap64()
        everything.add_range(0, count)
        excluded_rows[path] = (everything - sampled_rows) | deletion_vectors.get(path, BitMap64())
    return excluded_rows


def _without(scan: Scan, masks: Mapping[str, BitMap64]) -> Scan:
    """Return the scan with these rows treated as deleted."""
    files = scan.files
    if not masks:
        return scan
    vectors, rows = [], []
    columns = (files[name].to_pylist() for name in ("path", "deletion_vector", "deleted_rows"))
    for path, vector, inlined in zip(*columns, strict=True):
        mask = masks.get(path)
        vectors.append(vector if mask is None else _descriptor(mask))
        rows.append(inlined if mask is None else serialize_bitmap(mask))
    for name, values in (("deletion_vector", vectors), ("deleted_rows", rows)):
        place = files.schema.get_field_index(name)
        files = files.set_column(
            place, files.schema.field(place), pa.array(values, files.schema.field(place).type)
        )
    return replace(scan, files=files)


def _descriptor(mask: BitMap64) -> Mapping[str, object]:
    """Return the descriptor of a vector that exists only in this process."""
    return Descriptor("i", "", None, 0, len(mask)).to_json()
