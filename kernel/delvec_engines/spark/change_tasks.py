"""Tasks of UPDATE and MERGE: write new rows or send them to the driver, and report the old rows they replace.

A task answers once, at its end. Answers of failed or superseded attempts are discarded; their files carry the
transaction's id in their names, and nothing refers to them.

Tested in `tests/integration/spark/test_spark_row_changes.py`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame

from delvec_contract.codec import as_json, from_json
from delvec_engines.change_files import CHANGE_TYPE, ChangeFileWriter
from delvec_engines.internal_names import INTERNAL, InternalNames
from delvec_engines.parquet_writer import DataFileWriter
from delvec_engines.protocol import WriteTarget
from delvec_engines.spark.row_expressions import TaskChecks
from delvec_engines.spark.row_sets import RowSets
from delvec_engines.spark.task_rows import BufferedWriter, batches_in, sendable_bytes
from delvec_engines.spark.write import in_tasks
from delvec_errors import DelvecError, StorageError, from_wire
from delvec_kernel.actions.actions import AddFile, Cdc
from delvec_kernel.constraints.declared import Check

__all__ = ["CLAUSE", "OLD", "ChangeOutcome", "ChangeTask", "run", "write_few"]

CLAUSE: Final = INTERNAL("clause")
"""Column with the number of the clause that applies to a row."""
OLD: Final = INTERNAL("old") + "_"
"""Prefix of columns with old values; followed by the position in the schema."""

_BATCH_ROWS: Final = 65_536
_ANSWER: Final = "kind string, number long, pairs long, payload binary"
_ANSWER_SCHEMA: Final = pa.schema(
    [("kind", pa.string()), ("number", pa.int64()), ("pairs", pa.int64()), ("payload", pa.binary())]
)
_CODES: Final = {"update": 1, "delete": 2, "insert": 3}
_UPDATE, _DELETE, _INSERT = _CODES.values()

_Answer = tuple[str, int, int, bytes]
_NewRows = BufferedWriter[DataFileWriter]
_Changes = BufferedWriter[ChangeFileWriter]


@dataclass(frozen=True)
class ChangeTask:
    """The common state of all tasks of a pass; sent to executors.

    Attributes:
        target: the table.
        actions: the actions of the clauses, by clause number.
        tests: the checks that :data:`BROKEN` numbers.
        is_checked: whether there are checks of new rows beyond those that every write does.
        change_feed: whether change files are written.
        matches: whether matching rows of table and source are reported.
        is_dry: whether this is a dry run, which writes nothing.
        sends_few: whether small numbers of new rows are sent to the driver instead of written.
        names: the driver's internal names of the columns that it adds.
    """

    target: WriteTarget
    actions: tuple[str, ...]
    tests: tuple[Check, ...]
    is_checked: bool
    change_feed: bool
    matches: bool
    is_dry: bool
    sends_few: bool
    names: InternalNames = INTERNAL


@dataclass
class ChangeOutcome:
    """The combined answers of the tasks of all passes.

    Attributes:
        few: new rows sent by tasks.
        new: new rows of the driver.
        few_changes: rows of the change feed sent by tasks.
        changed: updated or deleted rows by file number.
        matched: matching rows of the table by file number.
        sources: numbers of matching source rows, under key 0.
        rows: number of rows by action.
    """

    adds: list[AddFile] = field(default_factory=list)
    change_files: list[Cdc] = field(default_factory=list)
    few: list[bytes] = field(default_factory=list)
    new: pa.Table | None = None
    few_changes: list[bytes] = field(default_factory=list)
    changed: RowSets = field(default_factory=RowSets)
    matched: RowSets = field(default_factory=RowSets)
    sources: RowSets = field(default_factory=RowSets)
    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_CODES, 0))

    def take_new(self, rows: pa.Table, *, is_dry: bool) -> None:
        """Add new rows that the driver has; of a dry run only their number."""
        self.rows["insert"] += rows.num_rows
        self.new = None if is_dry else rows

    def take(self, answer: dict[str, Any]) -> None:
        """Add one answer of a task.

        Raises:
            DelvecError: the error of the task.
        """
        kind, payload = answer["kind"], answer["payload"]
        match kind:
            case "error":
                raise from_wire(json.loads(payload))
            case "add":
                self.adds.append(from_json(AddFile, payload))
            case "change":
                self.change_files.append(from_json(Cdc, payload))
            case "few":
                self.few.append(payload)
            case "few-changes":
                self.few_changes.append(payload)
            case "changed" | "matched" | "sources":
                sets: RowSets = getattr(self, kind)
                sets.merge(answer["number"], payload, answer["pairs"])
            case _:
                self.rows[kind] += answer["number"]


def run(frame: DataFrame, task: ChangeTask, outcome: ChangeOutcome) -> None:
    """Run a pass, and add the answers of its tasks.

    Raises:
        SchemaMismatch: a value does not fit the table.
        ConstraintViolation: a new row does not satisfy the table's constraints.
        StorageError: storage did not answer.
    """
    batches = in_tasks(frame, partial(_run, task), _ANSWER).toArrow().to_batches()[::-1]
    while batches:
        # One at a time: collecting all answers would hold the bitmaps of a large change three times.
        for answer in batches.pop().to_pylist():
            outcome.take(answer)


def write_few(target: WriteTarget, outcome: ChangeOutcome) -> None:
    """Write the rows that the driver has, and add their files to the outcome.

    Args:
        target: the table.
        outcome: of all passes.

    Raises:
        SchemaMismatch: a value does not fit the table.
        StorageError: storage did not answer.
    """
    new = [] if outcome.new is None else outcome.new.to_batches(_BATCH_ROWS)
    if outcome.few or new:
        with DataFileWriter(target) as writer:
            for batch in new:
                writer.write(batch)
            for message in outcome.few:
                for batch in batches_in(message):
                    writer.write(batch)
            outcome.adds += writer.finish()
    if outcome.few_changes:
        with ChangeFileWriter(target) as feed:
            for message in outcome.few_changes:
                for batch in batches_in(message):
                    feed.write(batch)
            outcome.change_files += feed.finish()


def _run(task: ChangeTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs on executors."""
    from pyspark import TaskContext

    context = TaskContext.get()
    try:
        yield _sent(_ChangeTaskRun(task).done(batches, context.partitionId() if context else 0))
    except DelvecError as error:
        # Not raised: Spark would retry in vain, and the error would reach the driver as text.
        yield _sent([("error", 0, 0, json.dumps(error.to_wire()).encode())])
        for _ in batches:
            pass


def _sent(answers: list[_Answer]) -> pa.RecordBatch:
    columns = [[answer[place] for answer in answers] for place in range(len(_ANSWER_SCHEMA))]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, _ANSWER_SCHEMA, strict=True)],
        schema=_ANSWER_SCHEMA,
    )


class _ChangeTaskRun:
    """One task."""

    def __init__(self, task: ChangeTask) -> None:
        self._task = task
        self._codes = np.array([*(_CODES[action] for action in task.actions), 0], np.int8)
        self._names = task.target.schema.names
        self._checks = TaskChecks(task.target, task.tests, (), task.names)
        self._changed, self._matched, self._sources = RowSets(), RowSets(), RowSets()
        self._rows = dict.fromkeys(_CODES.values(), 0)
        self._feeds = task.change_feed and not task.is_dry

    def done(self, batches: Iterator[pa.RecordBatch], number: int) -> list[_Answer]:
        """Do the task's work, and return its answers."""
        task = self._task
        # Rows and change feed share the limit.
        limit = sendable_bytes(number) // (3 if self._feeds else 1) if task.sends_few else 0
        try:
            with (
                BufferedWriter(limit, lambda: DataFileWriter(task.target, task=number)) as writer,
                BufferedWriter(limit, lambda: ChangeFileWriter(task.target, task=number)) as feed,
            ):
                for batch in batches:
                    if batch.num_rows:
                        self._take(batch, writer, feed)
                changes, few_changes = feed.finish()
                adds, few = writer.finish()
        except OSError as error:
            raise StorageError(
                f"A task cannot write its files to {task.target.location}: {error}; retry, or check storage."
            ) from error
        answers: list[_Answer] = [("add", 0, 0, as_json(add).encode()) for add in adds]
        answers += [("change", 0, 0, as_json(change).encode()) for change in changes]
        answers += [("few", 0, 0, rows) for rows in few]
        answers += [("few-changes", 0, 0, rows) for rows in few_changes]
        for kind in ("changed", "matched", "sources"):
            sets: RowSets = getattr(self, f"_{kind}")
            answers += [(kind, file, pairs, rows) for file, rows, pairs in sets.serialized()]
        return answers + [(action, self._rows[code], 0, b"") for action, code in _CODES.items()]

    def _take(self, batch: pa.RecordBatch, writer: _NewRows, feed: _Changes) -> None:
        codes = self._codes[_numbers(batch, self._task.names("clause"), -1)]
        names = self._task.names
        files, rows = _numbers(batch, names("file"), 0), _numbers(batch, names("row"), 0)
        for code in self._rows:
            self._rows[code] += int((codes == code).sum())
        old = (codes == _UPDATE) | (codes == _DELETE)
        self._changed.add(files[old], rows[old])
        if self._task.matches:
            numbers = _numbers(batch, names("source_row"), -1)
            pairs = numbers >= 0
            self._matched.add(files[pairs], rows[pairs])
            self._sources.add(np.zeros(int(pairs.sum()), np.int64), numbers[pairs])
        new = (codes == _UPDATE) | (codes == _INSERT)
        if new.any():
            fresh = self._new_rows(_filtered(batch, new))
            if self._task.target.identity:
                # Only the writer can generate identity values.
                fresh = writer.opened().numbered(fresh)
            if not self._task.is_dry:
                writer.write(fresh)
            if self._feeds:
                kinds = codes[new]
                _tell(feed, fresh, kinds == _UPDATE, "update_postimage")
                _tell(feed, fresh, kinds == _INSERT, "insert")
        if self._feeds and old.any():
            before = self._old_rows(_filtered(batch, old))
            kinds = codes[old]
            _tell(feed, before, kinds == _UPDATE, "update_preimage")
            _tell(feed, before, kinds == _DELETE, "delete")

    def _new_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = [*self._names, self._task.names("broken")] if self._task.tests else self._names
        rows = batch.select(names)
        if not self._task.is_checked:
            return rows
        (checked,) = self._checks.checked(iter([rows]))
        return checked

    def _old_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            batch.column(f"{self._task.names('old')}_{position}") for position in range(len(self._names))
        ]
        return pa.RecordBatch.from_arrays(columns, names=self._names)


def _numbers(batch: pa.RecordBatch, name: str, absent: int) -> npt.NDArray[np.int64]:
    found = batch.column(name)
    filled = found.fill_null(absent) if found.null_count else found
    numbers: npt.NDArray[np.int64] = filled.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _filtered(batch: pa.RecordBatch, mask: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    return batch if mask.all() else batch.filter(pa.array(mask))


def _tell(feed: _Changes, rows: pa.RecordBatch, mask: npt.NDArray[np.bool_], kind: str) -> None:
    if mask.any():
        changed = _filtered(rows, mask)
        feed.write(changed.append_column(CHANGE_TYPE, pa.array([kind] * changed.num_rows, pa.string())))
