"""``DeltaTableBuilder`` with delta-spark's names and arguments."""

# ruff: noqa: N802, N803 - delta-spark's spelling is the point

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Self

from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812 - as everyone calls it

from delvec.commands.table_definition import TableDefinition
from delvec.ddl import parse_ddl
from delvec.protocol.constraints import GENERATION
from delvec.protocol.errors import BadRequest, NotFound, TableAlreadyExists, TableNotFound
from delvec.protocol.types import StructField, StructType, schema_from
from delvec.spark.connections import current
from delvec.table import DeltaTable as Table

__all__ = ["DeltaTableBuilder", "IdentityGenerator"]


@dataclass(frozen=True)
class IdentityGenerator:
    """Numbers that a column is given: the first, and the distance between two."""

    start: int = 1
    step: int = 1


class DeltaTableBuilder:
    """What a new table is to be; :meth:`execute` makes it.

    ``replace`` and ``createOrReplace`` give a table that is there these columns and properties in place of its own, without
    rows, in one version.
    """

    def __init__(
        self,
        spark: SparkSession,
        mode: Literal["create", "createIfNotExists", "replace", "createOrReplace"],
        wrap: Callable[[SparkSession, Table], Any],
    ) -> None:
        self._spark = spark
        self._mode = mode
        self._wrap = wrap
        self._name: str | None = None
        self._location: str | None = None
        self._comment: str | None = None
        self._fields: list[StructField] = []
        self._partitioned: list[str] = []
        self._clustered: list[str] = []
        self._properties: dict[str, str] = {}

    def tableName(self, identifier: str) -> Self:
        """Call the table so; ``delta.`/path` `` is a location."""
        if identifier.lower().startswith("delta.`") and identifier.endswith("`"):
            return self.location(identifier[len("delta.`") : -1])
        self._name = identifier.replace("`", "")
        return self

    def location(self, location: str) -> Self:
        """Put the table there; without it the service chooses the place."""
        self._location = location
        return self

    def comment(self, comment: str) -> Self:
        """Say what the table is."""
        self._comment = comment
        return self

    def addColumn(
        self,
        colName: str,
        dataType: str | T.DataType,
        nullable: bool = True,
        generatedAlwaysAs: str | IdentityGenerator | None = None,
        generatedByDefaultAs: IdentityGenerator | None = None,
        comment: str | None = None,
    ) -> Self:
        """Add a column.

        Args:
            colName: its name.
            dataType: its type, as Spark's or in Spark's DDL.
            nullable: whether it may be null.
            generatedAlwaysAs: the SQL that computes it, or an IdentityGenerator.
            generatedByDefaultAs: an IdentityGenerator for rows that bring no value.
            comment: what it is.

        Raises:
            InvalidSchema: the type is not one.
        """
        if isinstance(dataType, str):
            (field,) = parse_ddl(f"x {dataType}").fields
        else:
            # Its text would say nothing of comments, and of what may be NULL, inside of it.
            (field,) = schema_from(T.StructType([T.StructField("x", dataType)])).fields
        metadata: dict[str, Any] = {} if comment is None else {"comment": comment}
        if generatedAlwaysAs is not None and generatedByDefaultAs is not None:
            raise BadRequest(
                f"Column '{colName}' is generated always or by default; give one of the two arguments"
            )
        if isinstance(generatedAlwaysAs, str):
            metadata[GENERATION] = generatedAlwaysAs
        identity = generatedByDefaultAs if generatedByDefaultAs is not None else generatedAlwaysAs
        if identity is not None and not isinstance(identity, str):
            # Told by its fields: delta-spark's own IdentityGenerator will do, too.
            metadata["delta.identity.start"] = int(identity.start)
            metadata["delta.identity.step"] = int(identity.step)
            metadata["delta.identity.allowExplicitInsert"] = generatedByDefaultAs is not None
        self._fields.append(StructField(colName, field.type, nullable, metadata))
        return self

    def addColumns(self, cols: T.StructType | Iterable[T.StructField]) -> Self:
        """Add columns of a Spark schema."""
        self._fields += schema_from(T.StructType(list(cols))).fields
        return self

    def partitionedBy(self, *cols: str | Iterable[str]) -> Self:
        """Partition the table by these columns."""
        self._partitioned = _names(cols)
        return self

    def clusterBy(self, *cols: str | Iterable[str]) -> Self:
        """Set the columns by which files are to be clustered."""
        self._clustered = _names(cols)
        return self

    def property(self, key: str, value: str) -> Self:
        """Set a table property."""
        self._properties[key] = str(value)
        return self

    def execute(self) -> Any:
        """Make the table; return it as a ``delvec.spark.DeltaTable``.

        Raises:
            TableAlreadyExists: it is there, and the builder is of ``create``.
            TableNotFound: it is not there, and the builder is of ``replace``.
            InvalidSchema: the columns make no table.
            InvalidTableChange: a property, a constraint or a clustering column cannot be.
            ConcurrentModification: or a subclass: others changed the table that is replaced again and again.
        """
        if self._name is None and self._location is None:
            raise BadRequest("a new table needs .tableName(...) or .location(...)")
        there = self._existing() if self._mode in ("createIfNotExists", "replace") else None
        if self._mode == "createIfNotExists" and there is not None:
            return self._wrap(self._spark, there)
        if self._mode == "replace":
            if there is None:
                raise TableNotFound(f"there is no table '{self._name or self._location}' to replace")
            there.replace_with(self._definition(), "REPLACE TABLE")
            return self._wrap(self._spark, there)
        wanted = self._definition()
        try:
            made = current().create_table(
                self._location or str(self._name),
                wanted.schema,
                partition_by=wanted.partition_by,
                properties=wanted.properties,
                description=wanted.description,
                engine=self._spark,
                name=self._name if self._location else None,
                cluster_by=wanted.cluster_by,
                replace=self._mode == "createOrReplace",
            )
        except TableAlreadyExists:
            # Somebody else may have made it just now.
            there = self._existing() if self._mode == "createIfNotExists" else None
            if there is None:
                raise
            return self._wrap(self._spark, there)
        return self._wrap(self._spark, made)

    def _definition(self) -> TableDefinition:
        return TableDefinition(
            StructType(tuple(self._fields)),
            self._partitioned,
            self._properties,
            self._comment,
            self._clustered,
        )

    def _existing(self) -> Table | None:
        try:
            return current().table(self._location or str(self._name), engine=self._spark)
        except NotFound:
            return None


def _names(given: Iterable[str | Iterable[str]]) -> list[str]:
    """Return columns that came one by one, or as one list."""
    return [name for each in given for name in ([each] if isinstance(each, str) else each)]
