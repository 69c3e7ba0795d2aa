"""Recovers the rows of a deletion vector whose file is lost, from what the log and storage still have.

The descriptor has the number of rows. Rows found another way are accepted only if there are exactly as many: all
deleted rows are among those found, so an equal number means the same rows.

Tested in `tests/integration/client/test_repair.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from delvec_errors import DelvecError, StorageError
from delvec_kernel.actions.actions import Action, AddFile, Cdc, RemoveFile
from delvec_kernel.locations import canonical_log_path
from delvec_kernel.log.commit_file import parse_commit
from delvec_kernel.log.log_segment import LogListing, commit_name
from delvec_maintenance.checks.stray_files import vector_id
from delvec_parquet.parquet_file import open_parquet
from delvec_service.snapshots.log_reader import LogReader
from delvec_storage import files as storage
from delvec_storage.files import Allowed

__all__ = ["LostVectors", "Recovered", "Rows"]

Rows: TypeAlias = Callable[[AddFile], BitMap64 | None]
"""The deleted rows of a file, None if its deletion vector cannot be read."""

_MAX_BYTES: Final = 1 << 30
"""Bytes of a data file and change files to compare in memory."""
_MAX_DECODED: Final = 4 << 30
_CHANGE_TYPE: Final = "_change_type"
_PREIMAGE_TYPES: Final = ("delete", "update_preimage")


@dataclass(frozen=True, slots=True)
class Recovered:
    """The rows, and how they were found.

    Attributes:
        how: a sentence.
    """

    rows: BitMap64
    how: str


@dataclass(frozen=True, slots=True)
class _Step:
    """An add of the file.

    Attributes:
        grew_from: the unique id of the deletion vector that the same version removed.
        changes_data: whether rows changed.
    """

    version: int
    add: AddFile
    grew_from: str | None
    changes_data: bool
    change_files: tuple[Cdc, ...]


@dataclass
class LostVectors:
    """Finds the rows of lost deletion vectors.

    Args:
        reader: the log.
        listing: its commits, from the oldest needed.
        location: the location of the table.
        rows: reads deletion vectors that exist.
        is_allowed: whether a file outside the table may be read.
    """

    reader: LogReader
    listing: LogListing
    location: str
    rows: Rows
    is_allowed: Allowed
    _histories: dict[str, list[_Step]] = field(default_factory=dict)

    def follow(self, keys: Sequence[str]) -> None:
        """Read what the log has about these files, by canonical path."""
        self._histories = {key: [] for key in keys}
        for version in sorted(self.listing.commits):
            name = commit_name(version)
            try:
                data = self.reader.objects.get(f"_delta_log/{name}")
                actions = parse_commit(data, self.reader.where(version, name))
            except StorageError:
                raise
            except (DelvecError, FileNotFoundError):
                for history in self._histories.values():
                    history.clear()  # what follows a gap is based on an unknown state
                continue
            self._take(version, actions)

    def _take(self, version: int, actions: Sequence[Action]) -> None:
        adds: dict[str, AddFile] = {}
        removes: dict[str, RemoveFile] = {}
        for action in actions:
            if not isinstance(action, AddFile | RemoveFile):
                continue
            try:
                key = canonical_log_path(action.path, self.location)
            except DelvecError:
                continue
            if key in self._histories and isinstance(action, AddFile):
                adds[key] = action
            elif key in self._histories and isinstance(action, RemoveFile):
                removes[key] = action
        if not adds:
            return
        change_files = tuple(action for action in actions if isinstance(action, Cdc))
        for key, add in adds.items():
            remove = removes.get(key)
            changes_data = add.data_change or (remove is not None and remove.data_change)
            step = _Step(version, add, vector_id(remove), changes_data, change_files)
            self._histories[key].append(step)

    def recover(self, key: str, file: AddFile) -> Recovered | str:
        """Return the deleted rows of a live file, or why they are unknown: the end of a sentence."""
        vector = file.deletion_vector
        if vector is None:
            return Recovered(BitMap64(), "the file has no deletion vector")
        steps = self._histories.get(key, [])
        place = next((n for n, step in enumerate(steps) if vector_id(step.add) == vector_id(file)), None)
        if place is None:
            return "the log no longer has the commit that wrote it"
        lost_steps: list[_Step] = []
        while True:
            step = steps[place]
            rows = self.rows(step.add)
            if rows is not None:
                break
            lost_steps.append(step)
            if place == 0 or vector_id(steps[place - 1].add) != step.grew_from:
                return "the log no longer has the deletion vector before it"
            place -= 1
        how: list[str] = []
        for step in reversed(lost_steps):
            grown = self._grown(step, rows)
            if isinstance(grown, str):
                return grown
            rows = grown.rows
            how.append(grown.how)
        return Recovered(rows, "; ".join(how))

    def _grown(self, step: _Step, before: BitMap64) -> Recovered | str:  # noqa: PLR0911 - one answer per reason
        """Return the rows that a version deleted from the file, or why they are unknown."""
        assert step.add.deletion_vector is not None  # noqa: S101 - it cannot be read
        cardinality = step.add.deletion_vector.cardinality
        if not step.changes_data:
            if len(before) == cardinality:
                return Recovered(before, f"version {step.version} rewrote the rows of an older vector")
            return (
                f"version {step.version} claims that it changed no row, but marks a different number of rows than "
                "before"
            )
        if not step.change_files:
            return f"the change data feed has no files of version {step.version}"
        size = step.add.size + sum(file.size for file in step.change_files)
        if size > _MAX_BYTES:
            return f"the files to compare have {size} bytes"
        try:
            deleted_rows = self._among_changed(step)
        except StorageError:
            raise
        except FileNotFoundError:
            return f"the data file, or a change file of version {step.version}, does not exist in storage"
        except (DelvecError, pa.ArrowException, OSError):
            return f"the data file, or a change file of version {step.version}, cannot be read"
        rows = before | deleted_rows
        if len(rows) != cardinality:
            return (
                f"{len(rows)} rows of the file match those that the change data feed of version {step.version} "
                f"lists, but the deletion vector marked {cardinality}"
            )
        return Recovered(
            rows, f"the change data feed of version {step.version} lists exactly as many rows of the file"
        )

    def _among_changed(self, step: _Step) -> BitMap64:
        """Return the rows of the file that match a row of the version's change files."""
        rows = self._read(step.add.path)
        preimages = []
        for file in step.change_files:
            if dict(file.partition_values) == dict(step.add.partition_values):
                changed = self._read(file.path)
                if changed.column_names.count(_CHANGE_TYPE) != 1:
                    raise pa.ArrowInvalid(f"'{file.path}' is not a change file")
                kinds = pc.is_in(changed[_CHANGE_TYPE], value_set=pa.array(_PREIMAGE_TYPES))
                preimages.append(changed.filter(kinds).drop_columns([_CHANGE_TYPE]))
        if not preimages:
            return BitMap64()
        like = _alike(rows, pa.concat_tables(preimages, promote_options="default"))
        return BitMap64(np.flatnonzero(like).astype(np.uint64).tolist())

    def _read(self, path: str) -> pa.Table:
        with storage.open_input(self.location, path, is_allowed=self.is_allowed) as source:
            file = open_parquet(source, path)
            groups = range(file.metadata.num_row_groups)
            if sum(file.metadata.row_group(group).total_byte_size for group in groups) > _MAX_DECODED:
                raise pa.ArrowInvalid(f"'{path}' is too large to compare")
            return file.read()


def _alike(rows: pa.Table, others: pa.Table) -> npt.NDArray[np.bool_]:
    """Return for each row whether one of the others has the same values, in the comparable columns."""
    codes: npt.NDArray[np.int64] = np.zeros(len(rows) + len(others), np.int64)
    for name, ours, theirs in _common(rows, others):
        del name
        both = pa.chunked_array([*ours.chunks, *theirs.chunks], ours.type).combine_chunks()
        places = pc.fill_null(both.dictionary_encode().indices.cast(pa.int64()), -1).to_numpy() + 1
        codes = np.unique(codes * (int(places.max(initial=0)) + 1) + places, return_inverse=True)[1]
    return np.isin(codes[: len(rows)], codes[len(rows) :])


def _common(rows: pa.Table, others: pa.Table) -> list[tuple[str, pa.ChunkedArray, pa.ChunkedArray]]:
    """Return columns of both that have comparable values; fewer columns never match fewer rows."""
    common_columns = []
    names: Mapping[str, None] = dict.fromkeys(others.column_names)
    for name in rows.column_names:
        if name not in names or rows.column_names.count(name) > 1 or others.column_names.count(name) > 1:
            continue
        ours, theirs = rows[name], others[name]
        if pa.types.is_nested(ours.type) or pa.types.is_dictionary(ours.type):
            continue
        if ours.type != theirs.type:
            try:
                theirs = theirs.cast(ours.type)
            except pa.ArrowException:
                continue
        common_columns.append((name, ours, theirs))
    return common_columns
