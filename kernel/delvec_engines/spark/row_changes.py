"""UPDATE and MERGE on Spark: one pass over the table writes new rows and finds the old ones.

A MERGE never uses an outer join that keeps source rows: that would shuffle the whole table, where a typical
source can be broadcast. The pass over the table reports which source rows matched, and a second pass
over the source inserts the others; the driver does if it has them and they are inserted as they are.

Tested in `tests/integration/spark/test_spark_row_changes.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from delvec_engines.protocol import WriteTarget
from delvec_engines.row_changes import SOURCE, TARGET, ChangedRows, RowChange
from delvec_engines.scan import Scan
from delvec_engines.spark import failures
from delvec_engines.spark.change_frames import ChangeFrames, Numbered, sql_column
from delvec_engines.spark.change_tasks import ChangeOutcome, run, write_few
from delvec_engines.spark.file_values import FILE
from delvec_engines.spark.find_rows import opaque
from delvec_engines.spark.job_descriptions import described
from delvec_engines.spark.manifest import file_numbers
from delvec_engines.spark.merge_source import SOURCE_ROW, PinnedSource
from delvec_engines.spark.row_sets import drop_zip_importers
from delvec_engines.spark.scan import ROW, ScanFrames, spark_schema
from delvec_engines.spark.source_copies import SourceCopies
from delvec_errors import MultipleMatches
from delvec_kernel.deletion_vectors.deletion_vector import deserialize_bitmap, serialize_bitmap
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import has_float

__all__ = ["RowChanger"]

_BROADCAST_BYTES: Final = 64 << 20
"""Maximum bytes of a source that is broadcast, which avoids a shuffle of the table."""


class RowChanger:
    """One UPDATE or MERGE of a session.

    Args:
        spark: classic or Connect.
        frames: the frames of the session.
        scan: the files whose rows may change.
        change: the clauses.
        target: the table after the commit.
        sends_few: whether tasks may send small numbers of new rows to the driver, which writes them together.

    Raises:
        UnsupportedWriterFeature: Spark cannot evaluate a constraint or a generated column.
    """

    def __init__(
        self,
        spark: SparkSession,
        frames: ScanFrames,
        scan: Scan,
        change: RowChange,
        target: WriteTarget,
        *,
        sends_few: bool,
    ) -> None:
        self._spark = spark
        self._frames = frames
        self._scan = scan
        self._change = change
        self._numbers = file_numbers(len(scan))
        self._target = target
        self._passes = ChangeFrames(change, target, scan.schema, sends_few=sends_few)
        self._outcome = ChangeOutcome()
        self._copies = SourceCopies.of(change, target) if sends_few else None
        # What the driver copies needs no evaluation.
        self._evaluated = [
            each for each in change.clauses if self._copies is None or each.match != "not-matched"
        ]
        numbered: Sequence[Numbered] = list(enumerate(change.clauses))
        self._inserts = [each for each in numbered if each[1].match == "not-matched"]
        self._matched = [each for each in numbered if each[1].match == "matched"]
        self._unmatched = [each for each in numbered if each[1].match == "not-matched-by-source"]

    def run(self) -> ChangedRows:
        """Run the change; see :meth:`delvec_engines.protocol.Engine.change_rows`."""
        with failures.of_change(self._scan):
            source = self._source()
            if source is None:
                self._update()
            else:
                self._merge(source)
            changed = self._changed(0 if source is None else source.rows)
            write_few(replace(self._target, identity=()), self._outcome)
            return replace(changed, adds=self._outcome.adds, change_files=self._outcome.change_files)

    def _source(self) -> PinnedSource | None:
        if self._change.source is None:
            return None
        data = self._change.source.data
        if self._copies is None:
            pinned: PinnedSource = data.pinned
            return pinned
        read = self._change.columns_read(SOURCE, self._evaluated)
        names = [name for name in self._change.source.schema.names if name in read]
        numbered: PinnedSource = data.numbered(self._copies.rows.select(names))
        return numbered

    def _update(self) -> None:
        if len(self._scan):
            table = self._table()
            self._passes.analyse(table, self._evaluated)
            self._run(self._passes.changed(table, self._matched, keep_matches=False))

    def _merge(self, source: PinnedSource) -> None:
        rows = source.frame.alias(SOURCE)
        table = self._table()
        self._passes.analyse(table.crossJoin(rows), self._evaluated)
        if len(self._scan) and (source.rows or self._unmatched):
            self._match(table, source)
        if self._inserts and source.rows:
            matched = self._outcome.sources.found.get(0, BitMap64())
            if self._copies is not None:
                self._outcome.take_new(self._copies.without(matched), is_dry=self._change.dry_run)
            elif len(matched) < source.rows:
                rest = (
                    source.frame.filter(_is_not_in(matched, F.col(SOURCE_ROW))) if matched else source.frame
                )
                with described(self._spark, self._scan.name, "insert rows"):
                    self._run(self._passes.inserted(rest.alias(SOURCE), self._inserts))

    def _match(self, table: DataFrame, source: PinnedSource) -> None:
        frame = source.frame
        clauses = [*self._matched, *self._unmatched]
        keep = self._change.marks
        if source.nbytes <= _BROADCAST_BYTES:
            frame = F.broadcast(frame)
        how = "left" if self._unmatched else "inner"
        on = None if self._change.on is None else sql_column(self._change.on)
        joined_rows = table.join(frame.alias(SOURCE), on, how)
        if self._change.may_match_twice and self._change.change_feed:
            # Report a row once even if several source rows delete it.
            if keep:
                self._run(self._passes.changed(joined_rows, [], keep_matches=True))
            self._run(
                self._passes.changed(joined_rows.dropDuplicates([FILE, ROW]), clauses, keep_matches=False)
            )
            return
        self._run(self._passes.changed(joined_rows, clauses, keep_matches=keep))

    def _table(self) -> DataFrame:
        """Return the live rows, aliased by the table's name, with the columns that the passes read."""
        columns = self._passes.columns()
        schema = self._scan.schema.select(columns)
        if not len(self._scan):
            located_rows = self._spark.createDataFrame([], spark_schema(schema))
            nowhere = [F.lit(None).cast("int").alias(FILE), F.lit(None).cast("long").alias(ROW)]
            return located_rows.select("*", *nowhere).alias(TARGET)
        located_rows = self._frames.located(self._scan, columns, self._numbers, only_live=True)
        conditions = [each.condition for each in self._change.clauses] + [self._change.on]
        read = {name for each in conditions if each for name in each.columns.get(TARGET, ())}
        # Bounds of float columns in files disagree with Spark's comparisons (NaN, -0.0), so prevent pushdown.
        floats = {
            item.name: opaque(F.col(backticked(item.name)), item.type)
            for item in schema.fields
            if item.name in read and has_float(item.type)
        }
        return (located_rows.withColumns(floats) if floats else located_rows).alias(TARGET)

    def _run(self, made: Any) -> None:
        run(made.frame, made.task, self._outcome)

    def _changed(self, source_rows: int) -> ChangedRows:
        outcome = self._outcome
        paths = dict(zip(self._numbers, self._scan.files["path"].to_pylist(), strict=True))
        if (outcome.changed.found.keys() | outcome.matched.found.keys()) - paths.keys():
            raise failures.unknown_file(self._scan)
        self._check_unambiguous(paths)
        row_deletes = {paths[number]: rows for number, rows in outcome.changed.found.items()}
        rows_updated = outcome.rows["update"]
        return ChangedRows(
            row_deletes=row_deletes,
            adds=outcome.adds,
            change_files=outcome.change_files,
            matched={paths[number]: rows for number, rows in outcome.matched.found.items()}
            if self._inserts
            else {},
            rows_updated=rows_updated,
            # A row is reported once per source row that deletes it.
            rows_deleted=sum(len(rows) for rows in row_deletes.values()) - rows_updated,
            rows_inserted=outcome.rows["insert"],
            source_rows=source_rows,
        )

    def _check_unambiguous(self, paths: dict[int, str]) -> None:
        if self._change.may_match_twice:
            return
        are_marked = self._change.refuses_several and self._change.marks
        rows_by_file = self._outcome.matched if are_marked else self._outcome.changed
        for number, rows in rows_by_file.found.items():
            if rows_by_file.pairs[number] > len(rows):
                scan = self._scan
                raise MultipleMatches(
                    f"Multiple source rows match one row of table '{scan.name}' (version {scan.version}); the MERGE is "
                    f"ambiguous: {rows_by_file.pairs[number]} source rows match {len(rows)} rows of file '{paths[number]}'. "
                    "Nothing was committed; deduplicate the source, or add a condition that selects one row.",
                    table=scan.name,
                    version=scan.version,
                    file=paths[number],
                )


def _is_not_in(numbers: BitMap64, column: Column) -> Column:
    """Return whether a number is not in a set; evaluated before other expressions of the row."""
    function = F.pandas_udf(_function(serialize_bitmap(numbers)), "boolean")
    return function.asNondeterministic()(column)


def _function(sent: bytes) -> Callable[..., Any]:
    import pandas as pd

    def absent(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        return _absent(sent, batches)

    return absent


def _absent(sent: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Runs on executors."""
    import pandas as pd

    drop_zip_importers()
    members: npt.NDArray[np.uint64] = np.frombuffer(deserialize_bitmap(sent).to_array(), np.uint64)
    for batch in batches:
        numbers = batch.to_numpy().astype(np.uint64)
        at = np.minimum(np.searchsorted(members, numbers), len(members) - 1)
        yield pd.Series(members[at] != numbers)
