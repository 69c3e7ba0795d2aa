"""Tables created with rows, in one version: the files are written first, and the table is created with them.

Tested in `tests/integration/engines/test_first_rows.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from delvec_commands.dml import data_schema
from delvec_commands.dml.append import check_identity, is_repeatable, write_target
from delvec_commands.table_service import TableService, request
from delvec_commands.transaction import Metrics
from delvec_contract import operations
from delvec_contract.commits import BeginResponse
from delvec_contract.tables import FirstRows, TableRequest, TableResource
from delvec_engines import identity_values
from delvec_engines.protocol import Engine, WriteTarget
from delvec_errors import UnsupportedOperation
from delvec_kernel.actions.actions import AddFile, Txn
from delvec_kernel.schema.types import StructType
from delvec_kernel.statistics.file_statistics import num_records

__all__ = ["CREATING", "FirstWrite", "with_columns"]

CREATING: Final = "CREATE TABLE AS SELECT"


@dataclass(frozen=True)
class FirstWrite:
    """The first rows of a table, which is created with them; pickled by ``format("delvec")``.

    Attributes:
        definition: the request that creates the table.
        begun: the table as it will be.
        target: where and how the rows are written.
    """

    definition: TableRequest
    begun: BeginResponse
    target: WriteTarget

    @classmethod
    def begin(cls, service: TableService, definition: TableRequest) -> "FirstWrite | None":
        """Begin; None if this process can write files only to a table that exists.

        Raises:
            TableAlreadyExists: the location or name is taken.
            DelvecError: the definition is invalid, or not allowed.
        """
        if service.vends_credentials:
            return None
        try:
            state = service.call(operations.BEGIN_TABLE, definition)
        except UnsupportedOperation:  # another catalog creates it
            return None
        return cls(definition, state, write_target(state, StructType.from_json(state.table_schema)))

    def write(self, engine: Engine, data: Any) -> Sequence[AddFile]:
        """Write the rows to new files.

        Raises:
            SchemaMismatch: they do not fit the table.
            ConstraintViolation: a row violates a constraint.
        """
        if self.target.identity:
            schema = StructType.from_json(self.begun.table_schema)
            data, columns = data_schema.with_schema(data, schema, widens=False)
            check_identity(schema, columns)
        return engine.write(data, self.target)

    def create(
        self,
        service: TableService,
        adds: Sequence[AddFile],
        operation: str,
        *,
        engine_info: str,
        parameters: Mapping[str, str] | None = None,
        txn: tuple[str, int] | None = None,
        user_metadata: str | None = None,
    ) -> tuple[TableResource, Metrics]:
        """Create the table with files that are written; return it, and the metrics of the write.

        Raises:
            TableAlreadyExists: somebody else has created it meanwhile.
            InvalidCommit: or a subclass: storage does not have the files as described.
        """
        files = identity_values.without_marks(adds)
        rows = request(
            FirstRows,
            transaction_id=self.begun.transaction_id,
            operation=operation,
            operation_parameters=dict(parameters or {}),
            adds=files,
            identity_changes=identity_values.advances(self.target.identity, adds),
            app_transaction=None if txn is None else request(Txn, app_id=txn[0], version=txn[1]),
            user_metadata=user_metadata,
            engine_info=engine_info,
        )
        body = self.definition.model_copy(update={"first_rows": rows})
        made = service.call(operations.REGISTER_TABLE, body)
        return made, Metrics(_metrics(files), made.version)


def with_columns(data: Any) -> tuple[Any, StructType]:
    """Return the rows of a new table, and its columns, which are those of the rows; all may be NULL, as in Spark.

    Raises:
        SchemaMismatch: the data is not tabular, or a column has no Delta type.
    """
    read, columns = data_schema.with_schema(data, StructType(()), widens=False)
    return data if is_repeatable(data) else read, columns.as_nullable()


def _metrics(files: Sequence[AddFile]) -> Mapping[str, int]:
    return {
        "numFiles": len(files),
        "numOutputRows": sum(num_records(each.stats) or 0 for each in files),
        "numOutputBytes": sum(each.size for each in files),
    }
