"""Files of the change data feed: rows as they were and as they became, for commits that vectors do not tell.

They are data files with one more column, in a folder of their own (PROTOCOL.md, "Change Data Files").
"""

from dataclasses import replace
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from delvec.engines.parquet_writer import DataFileWriter
from delvec.engines.protocol import WriteTarget
from delvec.engines.row_ids import table_columns
from delvec_kernel.change_feed.feed_schema import CHANGE_TYPE
from delvec_kernel.schema.types import PrimitiveType, StructField, StructType
from delvec_kernel.wire import ChangeFile

__all__ = ["CHANGE_TYPE", "ChangeFileWriter"]

_FOLDER: Final = "_change_data/"


class ChangeFileWriter:
    """Writes changed rows; a context manager that removes its files if the block raises.

    Not thread-safe. Constraints are not checked: a row as it was may break what was asked for later.

    Args:
        target: the table, as for its data files.
        task: which of several writers of one transaction this is; goes into the names.
    """

    def __init__(self, target: WriteTarget, *, task: int = 0) -> None:
        columns = tuple(replace(item, nullable=True) for item in table_columns(target.schema).fields)
        kind = StructField(CHANGE_TYPE, PrimitiveType("string"))
        # Rows come with their numbers.
        with_kind = replace(target, schema=StructType((*columns, kind)), identity=())
        self._hidden = set(target.schema.names) - set(with_kind.schema.names)
        self._writer = DataFileWriter(with_kind, task=task, folder=_FOLDER, prefix="cdc", statistics=False)

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)

    @property
    def rows(self) -> int:
        """How many were given."""
        return self._writer.rows

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows with the table's columns and :data:`CHANGE_TYPE`; they are in storage after :meth:`finish`.

        Row ids are left out: readers of the feed know the columns of the table.

        Raises:
            SchemaMismatch: they do not fit the table.
            StorageError: writing earlier rows failed.
        """
        hidden = [name for name in batch.schema.names if name in self._hidden]
        self._writer.write(batch.drop_columns(hidden) if hidden else batch)

    def finish(self) -> list[ChangeFile]:
        """Complete all files, durably, and return their actions; none for no rows.

        Raises:
            StorageError: storage did not answer.
        """
        return [
            ChangeFile(path=file.path, partition_values=file.partition_values, size=file.size)
            for file in self._writer.finish()
        ]
