"""Plans a scan: the files of a version that have to be read."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delvec_errors import BadRequest, LocationNotAllowed
from delvec_kernel import locations, row_tracking
from delvec_kernel.data_skipping.file_selection import Selected, page_of, select_files
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, serialize_bitmap
from delvec_kernel.expressions import predicate as predicates
from delvec_kernel.features.table_features import writer_features
from delvec_kernel.file_index.file_rows import DELETION_VECTOR, FILES_SCHEMA, TEXT_MAP
from delvec_kernel.file_index.segment import rows_of
from delvec_kernel.schema.partition_values import naming_files
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.scans.plan_queue import PlanQueue
from delvec_service.telemetry.observer import NO_OBSERVER, Observer
from delvec_storage.files import Allowed, read_deletion_vectors

__all__ = [
    "PLAN_SCHEMA",
    "PlannedScan",
    "check_paths",
    "check_vector_paths",
    "inlined_vectors",
    "naming",
    "plan",
]

PLAN_SCHEMA: Final = pa.schema(
    [
        ("path", pa.string()),
        ("partition_values", TEXT_MAP),
        ("size", pa.int64()),
        ("modification_time", pa.int64()),
        ("num_records", pa.int64()),
        ("matches_all", pa.bool_()),
        ("deletion_vector", DELETION_VECTOR),
        ("deleted_rows", pa.binary()),
        ("stats", pa.string()),
    ]
)
"""The fields of :class:`~delvec_contract.PlanFile` in snake case, without the optional ones."""
_ROW_IDS: Final = ("base_row_id", "default_row_commit_version")
_CLUSTERING: Final = ("tags", "clustering_provider")

_FEW_PER_CHUNK: Final = 4096
_MAX_INLINED: Final = 64 * 1024
_MAX_INLINED_TOTAL: Final = 16 * 1024 * 1024
_ABSOLUTE: Final = r"^(?:/|[A-Za-z][A-Za-z0-9+.\-]*:/)"


@dataclass(frozen=True)
class PlannedScan:
    """The files of one version that may contain rows matching a predicate.

    Attributes:
        files: PLAN_SCHEMA; all of them, or the requested page.
        num_files: files to read, over all pages.
    """

    snapshot: Snapshot
    files: pa.Table
    num_files: int

    @property
    def num_files_total(self) -> int:
        """The number of live files of the version."""
        return self.snapshot.num_files


def plan(
    snapshot: Snapshot,
    table: str,
    *,
    predicate: str | None = None,
    columns: Sequence[str] | None = None,
    stats: bool = False,
    row_ids: bool = False,
    clustering: bool = False,
    inline_deletion_vectors: bool = True,
    offset: int = 0,
    limit: int | None = None,
    is_allowed: Allowed | None = None,
    turns: PlanQueue | None = None,
    observer: Observer = NO_OBSERVER,
) -> PlannedScan:
    """Plan a scan of a version.

    Args:
        snapshot: the version.
        table: the table's name, for errors.
        predicate: SQL text; a file is left out if none of its rows can satisfy it. None means every row.
        columns: the columns to read; they are only validated.
        stats: whether to return the files' statistics.
        row_ids: whether to also return ``base_row_id`` and ``default_row_commit_version``, for a table with row
            tracking.
        clustering: whether to return ``tags`` and ``clustering_provider``.
        inline_deletion_vectors: whether to include small deletion vectors: at most 64 KiB each and 16 MiB in total.
        offset: how many files to skip; the order is the same in every plan of a version.
        limit: the maximum number of files to return.
        is_allowed: decides by URL whether a file outside the table's location may be read; by default none may.
        turns: shared by plans of one process; only reading deletion vectors is not part of a turn.
        observer: notified when deletion vectors are read, and how much was skipped.

    Raises:
        InvalidPredicate: the predicate is not a Boolean expression that Delvec can parse.
        UnknownColumn: predicate or columns name a column that the table does not have.
        CorruptLog: a partition value is not valid for its column's type; names the file.
        CorruptDeletionVector: a small deletion vector cannot be read, or marks a row that its file does not have.
        SegmentsLost: the store has dropped data that the snapshot needs; load it again.
        LocationNotAllowed: a file to read lies outside the table and is not allowed.
    """
    schema = snapshot.schema
    with naming(table, snapshot.version):
        for name in columns or ():
            schema.field(name)
        parsed_predicate = None if predicate is None else predicates.parse(predicate, schema)
    more = (
        *(_ROW_IDS if row_ids and row_tracking.is_enabled(snapshot) else ()),
        *(_CLUSTERING if clustering else ()),
    )
    places = snapshot.live.batches(["path", "partition_values"])
    partitions = snapshot.partition_columns
    with (
        nullcontext() if turns is None else turns.turn(),
        naming_files(places, schema, partitions, table=table, version=snapshot.version),
    ):
        selection = select_files(
            snapshot.live,
            parsed_predicate,
            schema,
            partitions,
            generates_columns="generatedColumns" in writer_features(snapshot.protocol),
        )
        num_files = sum(each.num_rows for each in selection)
        order = None
        if offset or (limit is not None and limit < num_files):
            # Two replays of one version may have its files in different orders.
            selection, order = page_of(selection, offset, limit)
        files = _files(selection, order, [*(["stats"] if stats else ()), *more])
        check_paths(files["path"], snapshot.location, table, is_allowed)
        check_vector_paths(files["deletion_vector"], snapshot.location, table, is_allowed)
    plan_columns = {name: files[name] for name in files.column_names}
    if not stats:
        plan_columns["stats"] = pa.chunked_array([pa.nulls(files.num_rows, pa.string())])
    plan_columns["deleted_rows"] = pa.chunked_array([pa.nulls(files.num_rows, pa.binary())])
    if inline_deletion_vectors and plan_columns["deletion_vector"].null_count < files.num_rows:
        with observer.storage("read-deletion-vectors"):
            plan_columns["deleted_rows"] = inlined_vectors(files, snapshot, table, is_allowed)
    schema_of_plan = pa.schema([*PLAN_SCHEMA, *(FILES_SCHEMA.field(name) for name in more)])
    wanted = pa.table([plan_columns[name] for name in schema_of_plan.names], schema=schema_of_plan)
    if not offset:  # not once per page
        observer.planned(num_files, snapshot.num_files)
    return PlannedScan(snapshot, wanted, num_files)


def _files(
    selection: Sequence[Selected], order: npt.NDArray[np.int64] | None, more: Sequence[str]
) -> pa.Table:
    """Return the rows of the selected files, with ``matches_all`` and ``more``."""
    names = [name for name in FILES_SCHEMA.names if name in PLAN_SCHEMA.names and name != "stats"]
    names += more
    schema = pa.schema([FILES_SCHEMA.field(name) for name in names])
    files = pa.Table.from_batches(rows_of([each.chosen for each in selection], names), schema)
    if files.num_rows < _FEW_PER_CHUNK * files["path"].num_chunks:
        # Every batch of an Arrow stream costs its readers time.
        files = files.combine_chunks()
    known = np.concatenate([each.matches_all for each in selection] or [np.empty(0, np.bool_)])
    files = files.append_column("matches_all", pa.array(known))
    return files if order is None else files.take(pa.array(order))


@contextmanager
def naming(table: str, version: int) -> Iterator[None]:
    """Add the table and version to an error: the protocol's functions only know the schema."""
    try:
        yield
    except BadRequest as error:
        facts = error.details | {"table": table, "version": version}
        message = f"{error.message.rstrip('.')} (table '{table}', version {version})."
        raise type(error)(message, **facts) from error


def check_paths(paths: pa.ChunkedArray, location: str, table: str, is_allowed: Allowed | None) -> None:
    """Reject files outside the table that may not be read: the log may come from anyone."""
    for path in paths.filter(pc.match_substring_regex(paths, _ABSOLUTE)).to_pylist():
        url = locations.resolve(location, path)
        if not locations.within(url, location) and not (is_allowed is not None and is_allowed(url)):
            raise LocationNotAllowed(
                f"The log of table '{table}' names the file {url}, which is outside the table's location "
                f"{location}. If the table was moved or copied, its log still refers to the old location. If the table "
                "may use that directory, as a shallow clone uses its source's, name it in DELVEC_ROOTS. If it is another "
                "table's, somebody who reads both has to register this one again.",
                table=table,
                file=url,
            )


def check_vector_paths(
    vectors: pa.ChunkedArray, location: str, table: str, is_allowed: Allowed | None
) -> None:
    """Reject deletion vectors with absolute paths that may not be read: the client would read them."""
    if vectors.null_count < len(vectors):
        absolute = vectors.filter(pc.equal(pc.struct_field(vectors, "storageType"), "p"))
        check_paths(pc.struct_field(absolute, "pathOrInlineDv"), location, table, is_allowed)


def inlined_vectors(
    files: pa.Table, snapshot: Snapshot, table: str, is_allowed: Allowed | None
) -> pa.ChunkedArray:
    """Return the small deletion vectors as bitmaps, and null for the rest."""
    sizes = pc.struct_field(files["deletion_vector"], "sizeInBytes").to_numpy()
    small = sizes <= _MAX_INLINED  # nan, for files without one, is not
    small &= np.cumsum(np.where(small, sizes, 0)) <= _MAX_INLINED_TOTAL
    small_rows = files.select(["path", "deletion_vector", "num_records"]).filter(pa.array(small)).to_pylist()
    descriptors = [(row["path"], Descriptor.from_json(row["deletion_vector"])) for row in small_rows]
    bitmaps = read_deletion_vectors(
        snapshot.location,
        descriptors,
        table=table,
        version=snapshot.version,
        is_allowed=is_allowed,
        num_records={row["path"]: row["num_records"] for row in small_rows},
    )
    values = pa.array([serialize_bitmap(bitmaps[path]) for path, _ in descriptors], pa.binary())
    empty = pa.nulls(files.num_rows, pa.binary())
    return pa.chunked_array([pc.replace_with_mask(empty, pa.array(small), values)])
