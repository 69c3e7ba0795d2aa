"""Appends: schema changes for new rows, and the data files with them.

Tested in `tests/integration/client/test_table.py` and `tests/integration/engines/test_own_rows.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from delvec_commands.dml import data_schema
from delvec_commands.dml.self_reads import WritableTable
from delvec_commands.dml.table_definition import TableDefinition
from delvec_commands.table_service import TableService, request
from delvec_commands.transaction import Metrics, Transaction, begin
from delvec_contract.commits import BeginResponse
from delvec_engines import identity_values
from delvec_engines.protocol import WriteTarget
from delvec_engines.scan import Scan
from delvec_errors import InvalidTableChange, SchemaMismatch
from delvec_kernel.actions.actions import AddFile, Txn
from delvec_kernel.alter_table.change_types import WriteChange
from delvec_kernel.constraints.declared import generates
from delvec_kernel.schema.types import StructType
from delvec_kernel.table_properties import is_true

__all__ = [
    "NewRows",
    "WriteOptions",
    "add_rows",
    "append",
    "check_identity",
    "is_repeatable",
    "write_target",
]


_ATTEMPTS: Final = 3


@dataclass(frozen=True)
class WriteOptions:
    """Options of a write.

    Attributes:
        merge_schema: add columns that the table lacks.
        overwrite_schema: replace the table's schema by that of the rows.
        partition_by: with ``overwrite_schema``, the new partition columns; None keeps those of the table.
        txn: application id and version of an idempotent write.
        user_metadata: text for the table's history.
        definition: the table's new definition, and the operation that replaces it, for the table's history.
    """

    merge_schema: bool = False
    overwrite_schema: bool = False
    partition_by: Sequence[str] | None = None
    txn: tuple[str, int] | None = None
    user_metadata: str | None = None
    definition: tuple[TableDefinition, str] | None = None

    @property
    def operation(self) -> str:
        """Delta's name of the operation."""
        return "WRITE" if self.definition is None else self.definition[1]


@dataclass(frozen=True)
class NewRows:
    """Rows to write, and the transaction begun for them.

    Attributes:
        data: as the engine takes it; read once.
        target: the table after the commit.
        changes: schema changes to commit with the rows.
        already_applied: the table has this ``txn`` already; nothing to do.
        stream: if the rows are a micro-batch of a stream, its operation parameters for the table's history.
    """

    service: TableService
    table: WritableTable
    begun: BeginResponse
    data: Any
    target: WriteTarget
    options: WriteOptions
    changes: Sequence[WriteChange] = ()
    already_applied: bool = False
    stream: Mapping[str, str] | None = None

    @classmethod
    def begin(
        cls, service: TableService, table: WritableTable, data: Any, options: WriteOptions
    ) -> "NewRows":
        """Begin a transaction for rows.

        Raises:
            SchemaMismatch: the columns do not fit the table.
            InvalidTableChange: the table does not allow the schema change.
            ConcurrentWrite: the rows were read from an older version of the table.
        """
        application = (
            None if options.txn is None else request(Txn, app_id=options.txn[0], version=options.txn[1])
        )
        changes: list[WriteChange] = (
            [] if options.definition is None else [options.definition[0].replacement()]
        )
        begin_response, schema = begin(service, table.id, options.operation, changes)
        known = -1 if application is None else begin_response.app_transactions.get(application.app_id, -1)
        if application is not None and known >= application.version:
            return cls(
                service,
                table,
                begin_response,
                data,
                write_target(begin_response, schema),
                options,
                already_applied=True,
            )
        evolves = options.merge_schema or options.overwrite_schema
        if evolves or identity_values.identity_columns(schema):
            widens = is_true(begin_response.configuration, "delta.enableTypeWidening")
            # With overwrite_schema the types come from the rows, not from the table.
            types = StructType(()) if options.overwrite_schema else schema
            data, columns = data_schema.with_schema(data, types, widens=widens and options.merge_schema)
            if not options.overwrite_schema:
                check_identity(schema, columns)
        if evolves:
            for attempt in range(_ATTEMPTS):
                changes = _changes(schema, begin_response, columns, options)
                if not changes:
                    break
                try:
                    begin_response, schema = begin(service, table.id, "WRITE", changes)
                    break
                except InvalidTableChange:
                    # Another writer may have added the column meanwhile.
                    if attempt == _ATTEMPTS - 1:
                        raise
                    now, schema = begin(service, table.id, "WRITE")
                    if now.version == begin_response.version:
                        raise
                    begin_response = now
        table.check_source_version(begin_response.version)
        return cls(
            service, table, begin_response, data, write_target(begin_response, schema), options, changes
        )

    def transaction(
        self, *, predicate: str | None = None, parameters: Mapping[str, str] | None = None
    ) -> Transaction:
        """Return the transaction, with the schema changes."""
        is_made = self.table.source_version is not None
        rests = parameters is not None or is_made or bool(self.changes or self.target.identity)
        transaction = Transaction(
            self.service,
            self.table.id,
            self.options.operation if self.stream is None else "STREAMING UPDATE",
            self.begun.version,
            # A plain append does not depend on the version it read.
            read_mark=self.begun.read_mark if rests else None,
            transaction_id=self.begun.transaction_id,
            engine_info=self.table.engine.name,
            predicate=predicate,
            txn=self.options.txn,
            operation_parameters=parameters if self.stream is None else self.stream,
            user_metadata=self.options.user_metadata,
        )
        transaction.change_table(self.changes)
        if is_made:
            transaction.mark_read(whole_table=True)
        return transaction

    def write(self, transaction: Transaction, condition: str | None = None) -> Sequence[AddFile]:
        """Write the rows, and add the files to the transaction.

        Args:
            transaction: the transaction of these rows.
            condition: each row must satisfy it, besides the table's constraints.

        Raises:
            SchemaMismatch: the rows do not fit the table.
            ConstraintViolation: a row violates the condition or a constraint.
        """
        target = self.target
        if condition is not None:
            target = replace(target, replace_where=condition)
        adds = self.table.engine.write(self.data, target)
        transaction.change_table(identity_values.advances(target.identity, adds))
        transaction.add(identity_values.without_marks(adds))
        return adds

    def copying(self, scan: Scan) -> WriteTarget:
        """Return the target for unchanged rows of a scan, which keep the schema they were read with."""
        return replace(
            self.target,
            schema=scan.schema,
            partition_columns=scan.partition_columns,
            configuration=scan.configuration,
            empty_texts=scan.empty_texts,
            identity=(),
            replace_where=None,
        )


def _changes(
    schema: StructType, begin_response: BeginResponse, columns: StructType, options: WriteOptions
) -> list[WriteChange]:
    if options.overwrite_schema:
        return data_schema.replaced(schema, begin_response.partition_columns, columns, options.partition_by)
    widens = is_true(begin_response.configuration, "delta.enableTypeWidening")
    return data_schema.evolved(schema, columns, widens=widens)


def write_target(begin_response: BeginResponse, schema: StructType) -> WriteTarget:
    """Return where and how rows are written in a transaction that has begun."""
    return WriteTarget(
        location=begin_response.location,
        schema=identity_values.fillable(schema),
        partition_columns=begin_response.partition_columns,
        configuration=begin_response.configuration,
        transaction_id=begin_response.transaction_id,
        generated_columns=generates(begin_response.protocol),
        identity=identity_values.identity_columns(schema),
    )


def check_identity(schema: StructType, data: StructType) -> None:
    """Refuse values for a column GENERATED ALWAYS AS IDENTITY.

    Raises:
        SchemaMismatch: names the column.
    """
    for column in identity_values.identity_columns(schema):
        if column.name in data and not column.explicit:
            raise SchemaMismatch(
                f"Column '{column.name}' is GENERATED ALWAYS AS IDENTITY: Delta generates its values; leave it out of "
                "the data.",
                column=column.name,
            )


_METRICS: Final[Mapping[str, int]] = dict.fromkeys(("numFiles", "numOutputRows", "numOutputBytes"), 0)
_READ_AGAIN: Final = frozenset(
    {"delvec", "delvec_commands", "delvec_engines", "duckdb", "pandas", "polars", "pyarrow", "pyspark"}
)


def append(service: TableService, table: WritableTable, data: Any, options: WriteOptions) -> Metrics:
    """Write ``data`` as new files, and commit them; see :meth:`delvec.DeltaTable.append`."""
    return add_rows(NewRows.begin(service, table, data, options))


def add_rows(rows: NewRows) -> Metrics:
    """Write and commit rows whose transaction has begun."""
    if rows.already_applied:
        return Metrics(_METRICS, None, already_applied=True)
    transaction = rows.transaction()
    rows.write(transaction)
    if transaction.is_empty:
        return Metrics(_METRICS, None)
    return Metrics.of(transaction.commit(), _METRICS)


def is_repeatable(data: Any) -> bool:
    """Whether rows can be read a second time: a stream cannot."""
    if isinstance(data, pa.RecordBatchReader) or hasattr(data, "__next__"):
        return False
    return isinstance(data, list) or type(data).__module__.partition(".")[0] in _READ_AGAIN
