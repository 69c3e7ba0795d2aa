"""Change data files: pre- and post-images of rows, for commits whose changes deletion vectors do not show.

They are data files with the column ``_change_type``, in ``_change_data`` (PROTOCOL.md, "Change Data Files").
"""

from dataclasses import replace
from types import TracebackType
from typing import Self

import pyarrow as pa

from delvec_engines.parquet_writer import DataFileWriter
from delvec_engines.protocol import WriteTarget
from delvec_engines.row_ids import table_columns
from delvec_kernel.actions.actions import Cdc
from delvec_kernel.change_feed.feed_schema import CHANGE_DATA, CHANGE_TYPE
from delvec_kernel.schema.types import PrimitiveType, StructField, StructType

__all__ = ["CHANGE_TYPE", "ChangeFileWriter"]


class ChangeFileWriter:
    """Writes changed rows; a context manager that removes its files if the block raises.

    Not thread-safe. Constraints are not checked: old rows may violate constraints that were added later.

    Args:
        target: the same as for data files.
        task: number of this writer among those of the transaction; part of file names.
    """

    def __init__(self, target: WriteTarget, *, task: int = 0) -> None:
        columns = tuple(replace(item, nullable=True) for item in table_columns(target.schema).fields)
        kind = StructField(CHANGE_TYPE, PrimitiveType("string"))
        # Rows already have their identity values.
        with_kind = replace(target, schema=StructType((*columns, kind)), identity=())
        self._hidden = set(target.schema.names) - set(with_kind.schema.names)
        self._writer = DataFileWriter(
            with_kind, task=task, folder=CHANGE_DATA, prefix="cdc", statistics=False
        )

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)

    @property
    def rows(self) -> int:
        """The number of rows written."""
        return self._writer.rows

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows with the table's columns and :data:`CHANGE_TYPE`; they are durable after :meth:`finish`.

        Row tracking columns are left out: the feed has only the table's columns.

        Raises:
            SchemaMismatch: the rows do not fit the table.
            StorageError: storage failed for earlier rows.
        """
        hidden = [name for name in batch.schema.names if name in self._hidden]
        self._writer.write(batch.drop_columns(hidden) if hidden else batch)

    def finish(self) -> list[Cdc]:
        """Complete all files, durably, and return their actions; none for no rows.

        Raises:
            StorageError: storage did not answer.
        """
        return [
            Cdc(path=file.path, partition_values=file.partition_values, size=file.size)
            for file in self._writer.finish()
        ]
