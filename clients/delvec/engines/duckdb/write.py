"""Writing with DuckDB: appends, and copy-on-write where a table has no deletion vectors."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delvec.engines.conform import conform_batch
from delvec.engines.duckdb.find_rows import count_rows_by_file
from delvec.engines.duckdb.row_expressions import RowExpressions
from delvec.engines.duckdb.scan import quoted, sources
from delvec.engines.duckdb.statements import Session
from delvec.engines.engine import RewrittenFiles, WriteTarget
from delvec.engines.parquet_writer import DataFileWriter
from delvec.engines.row_checks import RowChecks
from delvec.engines.tabular import to_reader
from delvec.protocol.errors import CorruptTable
from delvec.protocol.predicate import Predicate
from delvec.protocol.wire import AddFile
from delvec.scan import Scan

__all__ = ["append", "completion", "rewrite"]


def append(session: Session, data: Any, target: WriteTarget) -> list[AddFile]:
    """Write rows as new files; streams are not collected.

    Raises:
        SchemaMismatch: they do not fit the table.
        ConstraintViolation: a row does not satisfy the table's constraints.
        UnsupportedWriterFeature: DuckDB cannot evaluate one of them; nothing was written.
        StorageError: storage did not answer.
    """
    checks = RowChecks(target)
    reader = to_reader(data)
    complete = completion(session, reader.schema.names, target, checks)
    with DataFileWriter(target) as writer:
        # Columns that do not fit are an error without rows, too.
        empty = [pa.array([], field.type) for field in reader.schema]
        writer.write(complete(pa.RecordBatch.from_arrays(empty, schema=reader.schema)))
        for batch in reader:
            writer.write(complete(batch))
        return writer.finish()


def completion(
    session: Session, names: Sequence[str], target: WriteTarget, checks: RowChecks
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Return what checks new rows, which have these columns, and adds their generated columns."""
    if not checks.is_needed:
        return lambda batch: batch
    expressions = RowExpressions(session, target.schema, checks, {name.lower() for name in names})
    given = target.schema.without(expressions.absent)
    arrow = given.to_arrow()

    def complete(batch: pa.RecordBatch) -> pa.RecordBatch:
        # Compared as the values that the table will hold, not as those that come.
        whole = expressions.complete(conform_batch(batch, given, arrow, check_nulls=True))
        checks.check(whole)
        return whole

    return complete


def rewrite(session: Session, scan: Scan, predicate: Predicate, target: WriteTarget) -> RewrittenFiles:
    """Write the files that have matching rows again, without those rows.

    Raises:
        InvalidPredicate: evaluating the predicate fails for a live row.
        CorruptTable: a file cannot be read, or does not have the rows that its statistics say.
        StorageError: storage did not answer.
    """
    started = time.perf_counter()
    matched = count_rows_by_file(session, scan, predicate)
    scanned = time.perf_counter()
    paths = scan.files["path"].combine_chunks()
    touched = scan.filter(pc.is_in(paths, value_set=pa.array(list(matched), paths.type)))
    keep = f"({predicate.sql('duckdb')}) IS NOT TRUE"
    columns = ", ".join(quoted(name) for name in scan.schema.names)
    with DataFileWriter(target) as writer:
        for source in sources(touched, scan.schema.names, predicate):
            for batch in session.batches(touched, source, source.select_strictly(columns, keep), predicate):
                writer.write(batch)
        _check_all_read(touched, sum(matched.values()) + writer.rows)
        adds = writer.finish()
    return RewrittenFiles(
        adds=adds,
        removed=touched.files["path"].to_pylist(),
        rows_deleted=sum(matched.values()),
        rows_copied=writer.rows,
        timings_ms={
            "scanTimeMs": round(1000 * (scanned - started)),
            "rewriteTimeMs": round(1000 * (time.perf_counter() - scanned)),
        },
    )


def _check_all_read(scan: Scan, rows: int) -> None:
    """Refuse to replace files of which not every live row was read."""
    records = scan.files["num_records"]
    if records.null_count:
        return
    vectors = scan.files["deletion_vector"].combine_chunks()
    deleted = pc.sum(pc.struct_field(vectors, "cardinality")).as_py() or 0
    expected = (pc.sum(records).as_py() or 0) - deleted
    if rows != expected:
        raise CorruptTable(
            f"The {len(scan)} files to rewrite of table '{scan.name}' (version {scan.version}) gave {rows} live "
            f"rows, but their statistics say {expected}; nothing was changed. Check the table's statistics.",
            table=scan.name,
            version=scan.version,
        )
