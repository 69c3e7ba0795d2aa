"""Turns the files of a change data feed plan into scans.

The plan lists a file once for each version that removed rows from it. If the removed rows are few, the file is read once and
each row is repeated for its versions, by a lookup of its row index (:mod:`delvec_engines.repeated_rows`).

Tested in `tests/integration/engines/test_changes.py`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from delvec_contract.plans import ChangesResponse
from delvec_engines.repeated_rows import listed
from delvec_engines.scan import OCCURRENCES, Scan
from delvec_kernel.change_feed.feed_schema import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    feed_columns,
    feed_values,
)
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, deserialize_bitmap, serialize_bitmap
from delvec_kernel.schema.column_mapping import MODE, mapping_mode
from delvec_kernel.schema.types import StructType
from delvec_storage.files import read_deletion_vectors
from delvec_storage.roots import Roots

__all__ = ["scans_of"]

_LOOKED_UP: Final = 1 << 21
"""Maximum rows of a feed in the lookup: each takes about 40 bytes, and more on a Spark driver."""

_Numbers = npt.NDArray[np.int64]


def scans_of(plan: ChangesResponse, schema: StructType, files: pa.Table, roots: Roots) -> Iterator[Scan]:
    """Yield at least one scan; no scan lists a path twice.

    Args:
        plan: the plan of the feed.
        schema: the table's schema with the columns of the feed.
        files: the files of the plan.
        roots: allowed locations of files.

    Raises:
        CorruptDeletionVector: or a subclass; a deletion vector cannot be read.
    """
    for scan in _scans(plan, schema, files, roots):
        yield replace(scan, roots=roots)


def _scans(plan: ChangesResponse, schema: StructType, files: pa.Table, roots: Roots) -> Iterator[Scan]:
    if not files.num_rows:
        yield _scan(plan, schema, files, is_change_file=True)
        return
    is_change_file = pc.is_null(files["change_type"])
    for tells_kinds in (True, False):
        for marked_only in (False, True):
            part = files.filter(
                pc.and_(pc.equal(is_change_file, tells_kinds), pc.equal(files["marked_only"], marked_only))
            )
            if marked_only:
                often = _looked_up(part)
                if often.any():
                    yield _repeated(plan, schema, part.filter(pa.array(often)), roots)
                    part = part.filter(pa.array(~often))
            rounds = _rounds(part["path"])
            for number in range(rounds.max(initial=-1) + 1):
                chosen = part.filter(pa.array(rounds == number))
                yield _scan(plan, schema, chosen, is_change_file=tells_kinds, marked_only=marked_only)


def _codes(paths: pa.ChunkedArray) -> _Numbers:
    """Return a number for each path; equal paths have equal numbers."""
    codes = paths.combine_chunks().dictionary_encode().indices
    return np.asarray(codes.to_numpy(zero_copy_only=False), np.int64)


def _rounds(paths: pa.ChunkedArray) -> _Numbers:
    """Return for each entry how many earlier entries have the same path."""
    codes = _codes(paths)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    lengths = np.diff(np.append(starts, len(codes)))
    rounds = np.empty(len(codes), np.int64)
    rounds[order] = np.arange(len(codes)) - np.repeat(starts, lengths)
    return rounds


def _scan(
    plan: ChangesResponse,
    schema: StructType,
    files: pa.Table,
    *,
    is_change_file: bool,
    marked_only: bool = False,
) -> Scan:
    scan = _read_as(
        plan, schema, _planned(files, _with_feed(files), _vectors(files)), marked_only=marked_only
    )
    return replace(
        scan,
        partition_columns=[*plan.partition_columns, *feed_columns(is_change_file=is_change_file)],
        configuration=_by_name(plan.configuration) if is_change_file else plan.configuration,
    )


def _read_as(plan: ChangesResponse, schema: StructType, files: pa.Table, *, marked_only: bool) -> Scan:
    """Return a scan of data files, as a plan of the table would give it."""
    return Scan(
        table_id=plan.table_id,
        name=plan.name,
        location=plan.location,
        version=plan.version,
        schema=schema,
        partition_columns=plan.partition_columns,
        configuration=plan.configuration,
        files=files,
        num_files_total=files.num_rows,
        marked_only=marked_only,
    )


def _by_name(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return properties with column mapping by name: ``_change_type`` has no field id in change files."""
    return {**configuration, **({MODE: "name"} if mapping_mode(configuration) == "id" else {})}


def _planned(files: pa.Table, partition_values: pa.Array, vectors: pa.Array) -> pa.Table:
    """Return files with the columns of ``Scan.files``."""
    count = files.num_rows
    return pa.table(
        {
            "path": files["path"],
            "partition_values": partition_values,
            "size": files["size"],
            "modification_time": files["commit_timestamp"],
            "num_records": files["num_records"],
            "matches_all": pa.repeat(pa.scalar(value=False), count),
            "deletion_vector": vectors,
            "deleted_rows": files["deleted_rows"],
            "stats": pa.nulls(count, pa.string()),
        }
    )


def _with_feed(files: pa.Table) -> pa.MapArray:
    """Return the partition values, extended by the values of the feed's columns."""
    own = files["partition_values"].combine_chunks()
    feed_columns = [files[name].to_pylist() for name in ("commit_version", "commit_timestamp", "change_type")]
    values = [
        dict(before or ()) | feed_values(*each)
        for before, *each in zip(own.to_pylist(), *feed_columns, strict=True)
    ]
    return pa.array([list(each.items()) for each in values], own.type)


def _vectors(files: pa.Table) -> pa.Array:
    """Return deletion vectors, including those inlined in the plan, whose encoded text is left out."""
    vectors, rows = files["deletion_vector"].combine_chunks(), files["deleted_rows"]
    if rows.null_count == len(rows):
        return vectors
    described = [
        vector if sent is None else _described(sent, len(deserialize_bitmap(sent)))
        for vector, sent in zip(vectors.to_pylist(), rows.to_pylist(), strict=True)
    ]
    return pa.array(described, vectors.type)


def _described(rows: bytes, cardinality: int) -> dict[str, Any]:
    return Descriptor("i", "", None, len(rows), cardinality).to_json()


# --- files that changed often ---------------------------------------------------------------------------------


def _looked_up(files: pa.Table) -> npt.NDArray[np.bool_]:
    """Return which entries share one read of their file."""
    codes = _codes(files["path"])
    times = np.bincount(codes)
    several = np.flatnonzero(times[codes] > 1)
    rows = np.zeros(len(times), np.int64)
    for place in several.tolist():
        sent = files["deleted_rows"][place].as_py()
        found = (
            files["deletion_vector"][place].as_py()["cardinality"]
            if sent is None
            else len(deserialize_bitmap(sent))
        )
        rows[codes[place]] += found
    candidates = np.flatnonzero(times > 1)
    candidates = candidates[np.argsort(rows[candidates], kind="stable")]
    chosen = np.zeros(len(times), np.bool_)
    chosen[candidates[np.cumsum(rows[candidates]) <= _LOOKED_UP]] = True
    return chosen[codes]


def _repeated(plan: ChangesResponse, schema: StructType, files: pa.Table, roots: Roots) -> Scan:
    """Return a scan that lists each file once, and repeats its rows once per change."""
    codes = _codes(files["path"])
    order = np.argsort(codes, kind="stable")
    files = files.take(pa.array(order))
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    counts = np.diff(np.append(starts, len(codes)))
    sets = _row_sets(plan, files, roots)
    unions = [
        BitMap64.union(*sets[start : start + count]) for start, count in zip(starts, counts, strict=True)
    ]
    once = files.take(pa.array(starts))
    place = once.schema.get_field_index("deleted_rows")
    once = once.set_column(place, "deleted_rows", pa.array(map(serialize_bitmap, unions), pa.binary()))
    columns = {
        COMMIT_VERSION: files["commit_version"].combine_chunks(),
        COMMIT_TIMESTAMP: files["commit_timestamp"]
        .cast(pa.timestamp("ms", "UTC"))
        .cast(pa.timestamp("us", "UTC"))
        .combine_chunks(),
        CHANGE_TYPE: files["change_type"].combine_chunks(),
    }
    indexes = [np.frombuffer(each.to_array(), np.uint64) for each in sets]
    planned = _planned(once, once["partition_values"], _vectors(once))
    planned = planned.append_column(OCCURRENCES, listed(indexes, columns, counts))
    return _read_as(plan, schema, planned, marked_only=True)


def _row_sets(plan: ChangesResponse, files: pa.Table, roots: Roots) -> list[BitMap64]:
    """Return the row indexes of each entry."""
    row_sets = [
        None if sent is None else deserialize_bitmap(sent) for sent in files["deleted_rows"].to_pylist()
    ]
    absent = np.flatnonzero([each is None for each in row_sets])
    rounds = _rounds(files["path"].take(pa.array(absent)))
    for number in range(rounds.max(initial=-1) + 1):
        places = absent[rounds == number].tolist()
        descriptors = [
            (files["path"][place].as_py(), Descriptor.from_json(files["deletion_vector"][place].as_py()))
            for place in places
        ]
        read = read_deletion_vectors(
            plan.location,
            descriptors,
            table=plan.name,
            version=plan.version,
            is_allowed=roots.allows,
            num_records={
                files["path"][place].as_py(): files["num_records"][place].as_py() for place in places
            },
        )
        for place, (path, _) in zip(places, descriptors, strict=True):
            row_sets[place] = read[path]
    return [each for each in row_sets if each is not None]
