"""New rows, written with DuckDB."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from delvec.engines.conform import conform_batch
from delvec.engines.duckdb.row_expressions import RowExpressions
from delvec.engines.duckdb.statements import Session
from delvec.engines.engine import WriteTarget
from delvec.engines.parquet_writer import DataFileWriter
from delvec.engines.row_checks import RowChecks
from delvec.engines.tabular import to_reader
from delvec.protocol.wire import AddFile

__all__ = ["append", "completion"]


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
    session: Session,
    names: Sequence[str],
    target: WriteTarget,
    checks: RowChecks,
    *,
    replaces: bool = False,
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Return what checks new rows, which have these columns, and adds their generated columns.

    Args:
        session: DuckDB.
        names: of the columns.
        target: the table.
        checks: what it asks of rows.
        replaces: whether rows are those of an UPDATE or a MERGE.
    """
    if not checks.is_needed:
        return lambda batch: batch
    given_names = {name.lower() for name in names}
    expressions = RowExpressions(session, target.schema, checks, given_names, replaces=replaces)
    given = target.schema.without(expressions.absent)
    arrow = given.to_arrow()

    def complete(batch: pa.RecordBatch) -> pa.RecordBatch:
        # Compared as the values that the table will hold, not as those that come.
        whole = expressions.complete(conform_batch(batch, given, arrow, check_nulls=True))
        checks.check(whole)
        return whole

    return complete
