"""``DeltaTableBuilder`` with delta-spark's names and arguments.

Tested in `tests/integration/spark/test_spark_delta_spark_api.py`.
"""

# ruff: noqa: N802, N803 - delta-spark's spelling is the point

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Final, Literal, Self

from pyspark.errors import AnalysisException, ParseException, UnsupportedOperationException
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812 - as everyone calls it

from delvec.ddl import parse_type
from delvec.spark.arguments import check_kind
from delvec.spark.catalog_entries import add_entry, catalog_entry, place_of, short_name
from delvec.spark.current_connection import current
from delvec.table import DeltaTable as Table
from delvec_commands.dml.table_definition import TableDefinition
from delvec_engines.spark.typed_errors import with_base
from delvec_errors import BadRequest, InvalidSchema, NotFound, TableAlreadyExists, TableNotFound
from delvec_kernel import locations
from delvec_kernel.schema.types import (
    GENERATION,
    IDENTITY_ALLOWS_EXPLICIT,
    IDENTITY_START,
    IDENTITY_STEP,
    PrimitiveType,
    StructField,
    StructType,
    schema_from,
)

__all__ = ["DeltaTableBuilder", "IdentityGenerator"]


@dataclass(frozen=True)
class IdentityGenerator:
    """The values of an identity column: start and step."""

    start: int = 1
    step: int = 1


_TEXT: Final = "a string"
_LONG: Final = PrimitiveType("long")


class DeltaTableBuilder:
    """The definition of a new table; :meth:`execute` creates it.

    ``replace`` and ``createOrReplace`` replace the columns and properties of an existing table, and remove its rows, in
    one version.
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
        """Set the table's name; ``delta.`/path` `` is a location."""
        check_kind(identifier, str, "The name of a table", _TEXT)
        if identifier.lower().startswith("delta.`") and identifier.endswith("`"):
            return self.location(identifier[len("delta.`") : -1])
        self._name = short_name(identifier)
        return self

    def location(self, location: str) -> Self:
        """Set the table's location; by default the service chooses it.

        A service in this process without a warehouse uses Spark's warehouse, as delta-spark does.
        """
        check_kind(location, str, "The location", _TEXT)
        self._location = location
        return self

    def comment(self, comment: str) -> Self:
        """Comment on the table."""
        check_kind(comment, str, "The comment", _TEXT)
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
            dataType: a Spark type, or Spark DDL.
            nullable: whether NULL is allowed.
            generatedAlwaysAs: SQL that computes its values, or an IdentityGenerator.
            generatedByDefaultAs: an IdentityGenerator for rows without a value.
            comment: on the column.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: it is generated both always and by default, or the step is 0.
            InvalidSchema: the type is invalid (also a ``ParseException``), or an identity column is not long (also an
                ``UnsupportedOperationException``).
        """
        check_kind(colName, str, "The name of a column", _TEXT)
        check_kind(dataType, (str, T.DataType), f"The type of column '{colName}'", "a string or a DataType")
        check_kind(nullable, bool, f"nullable of column '{colName}'", "a bool")
        check_kind(comment, (str, NoneType), f"The comment of column '{colName}'", _TEXT)
        identity = _identity(colName, generatedAlwaysAs, generatedByDefaultAs)
        if isinstance(dataType, str):
            try:
                field = parse_type(dataType, colName)
            except InvalidSchema as error:
                refusal = InvalidSchema(f"Column '{colName}': {error.message}", **error.details)
                raise with_base(refusal, ParseException) from None
        else:
            # Not as DDL text, which loses nested comments and nullability.
            (field,) = schema_from(T.StructType([T.StructField("x", dataType)])).fields
        metadata = dict(field.metadata) | ({} if comment is None else {"comment": comment})
        if isinstance(generatedAlwaysAs, str):
            metadata[GENERATION] = generatedAlwaysAs
        if identity is not None and field.type != _LONG:
            raise with_base(
                InvalidSchema(f"Identity column '{colName}' must be of type long, not {field.type}."),
                UnsupportedOperationException,
            )
        if identity is not None:
            metadata[IDENTITY_START] = int(identity.start)
            metadata[IDENTITY_STEP] = int(identity.step)
            metadata[IDENTITY_ALLOWS_EXPLICIT] = generatedByDefaultAs is not None
        self._fields.append(StructField(colName, field.type, nullable, metadata))
        return self

    def addColumns(self, cols: T.StructType | Iterable[T.StructField]) -> Self:
        """Add columns of a Spark schema.

        Raises:
            TypeError: they are not columns.
        """
        check_kind(cols, Iterable, "The columns", "a StructType or a list of StructFields")
        cols = list(cols)
        for each in cols:
            check_kind(each, T.StructField, "A column", "a StructField")
        self._fields += schema_from(T.StructType(cols)).fields
        return self

    def partitionedBy(self, *cols: str | Iterable[str]) -> Self:
        """Partition the table by these columns."""
        self._partitioned = _names(cols)
        return self

    def clusterBy(self, *cols: str | Iterable[str]) -> Self:
        """Set the clustering columns."""
        self._clustered = _names(cols)
        return self

    def property(self, key: str, value: str) -> Self:
        """Set a table property."""
        check_kind(key, str, "The name of a property", _TEXT)
        check_kind(value, str, f"The value of property '{key}'", _TEXT)
        self._properties[key] = value
        return self

    def execute(self) -> Any:
        """Create the table; return it as a ``delvec.spark.DeltaTable``.

        Raises:
            TableAlreadyExists: it exists, and the builder is from ``create``; also an ``AnalysisException``.
            TableNotFound: it does not exist, and the builder is from ``replace``; also an ``AnalysisException``.
            InvalidSchema: the columns are not a valid schema.
            InvalidTableChange: a property, constraint or clustering column is not allowed.
            ConcurrentModification: or a subclass: other writers kept changing the replaced table.
        """
        if self._name is None and self._location is None:
            raise BadRequest("a new table needs .tableName(...) or .location(...)")
        try:
            table = self._execute()
        except (TableAlreadyExists, TableNotFound) as error:
            raise with_base(error, AnalysisException) from None
        if self._name is not None:
            add_entry(self._spark, self._name, table.location)
        return self._wrap(self._spark, table)

    def _execute(self) -> Table:
        if self._location is None:
            self._look_up(str(self._name))
        there = self._existing() if self._mode in ("createIfNotExists", "replace") else None
        if self._mode == "createIfNotExists" and there is not None:
            return there
        if self._mode == "replace":
            if there is None:
                raise TableNotFound(
                    f"The table '{self._name or self._location}' cannot be found, so it cannot be replaced; use "
                    "createOrReplace to create it."
                )
            there.replace_with(self._definition(), "REPLACE TABLE")
            return there
        definition = self._definition()
        try:
            return self._create(definition)
        except TableAlreadyExists:
            # Another writer may have just created it.
            there = self._existing() if self._mode == "createIfNotExists" else None
            if there is None:
                raise
            return there

    def _create(self, definition: TableDefinition) -> Table:
        if self._location is not None or current().url is not None or current().has_warehouse:
            return self._create_at(self._location, definition)
        there = self._existing()
        self._location = place_of(self._spark, str(self._name))
        if there is not None and self._mode == "createOrReplace":
            self._location = there.location
        elif there is not None and there.location != locations.canonical(locations.absolute(self._location)):
            raise TableAlreadyExists(
                f"The table '{self._name}' already exists at {there.location}, which is not in Spark's warehouse; "
                "give that location, or choose another name.",
                location=there.location,
            )
        return self._create_at(self._location, definition)

    def _create_at(self, location: str | None, definition: TableDefinition) -> Table:
        return current().create_table(
            location or str(self._name),
            definition.schema,
            partition_by=definition.partition_by,
            properties=definition.properties,
            description=definition.description,
            engine=self._spark,
            name=self._name if location else None,
            cluster_by=definition.cluster_by,
            replace=self._mode == "createOrReplace",
        )

    def _look_up(self, name: str) -> None:
        """Use the table of that name in Spark's catalog, as forName does."""
        entry = catalog_entry(self._spark, name)
        if entry is None:
            return
        if entry.location is not None:
            self._location, self._name = entry.location, None
        elif not entry.is_view:
            raise TableAlreadyExists(
                f"'{name}' already exists in Spark's catalog as {entry.what}; give the new table another name, or a "
                "location."
            )

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
            there = current().table(self._location or str(self._name), engine=self._spark)
            there.version()  # raises if the log of a registered table is gone
        except NotFound:
            return None
        return there


def _names(given: Sequence[str | Iterable[str]]) -> list[str]:
    """Return columns given one by one, or as a list."""
    is_list = len(given) == 1 and isinstance(given[0], list | tuple)
    names: list[Any] = list(given[0] if is_list else given)
    for each in names:
        check_kind(each, str, "The name of a column", _TEXT)
    return names


def _identity(name: str, always: Any, by_default: Any) -> Any:
    """Return the identity specification of a column, or None.

    Raises:
        TypeError: the generator is neither SQL nor an IdentityGenerator.
        ValueError: both are given, or the step is 0.
    """
    if always is not None and by_default is not None:
        raise ValueError(
            f"Column '{name}' can be generated always or by default; give only one of the two arguments"
        )
    identity_generator = always if by_default is None else by_default
    if identity_generator is None or (isinstance(identity_generator, str) and by_default is None):
        return None
    # Duck-typed, so that delta-spark's IdentityGenerator is accepted, too.
    if not (hasattr(identity_generator, "start") and hasattr(identity_generator, "step")):
        check_kind(
            identity_generator,
            IdentityGenerator,
            f"What generates column '{name}'",
            "an IdentityGenerator, or SQL if always",
        )
    if identity_generator.step == 0:
        raise ValueError(
            f"The step of identity column '{name}' must not be 0, as all rows would get the same number"
        )
    return identity_generator
