"""CREATE TABLE, DROP TABLE, UNDROP TABLE and CONVERT TO DELTA.

Tested in `tests/integration/client/sql/test_table_definitions.py` and `tests/integration/client/test_clone.py`.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from delvec.alterations import Altered
from delvec.catalog import Catalog
from delvec.ddl import parse_ddl
from delvec.sql.definitions import definition_of
from delvec.sql.queries import QUERIES, parse_query
from delvec.sql.row_statements import with_rows
from delvec.sql.tokens import Cursor, invalid, newest_version
from delvec_commands.dml.first_rows import CREATING
from delvec_commands.dml.table_definition import REPLACING, TableDefinition
from delvec_commands.transaction import Metrics
from delvec_errors import BadRequest, NotFound, TableNotFound
from delvec_kernel.schema.types import StructType, schema_from

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delvec.sql.row_statements import OpenTable, RunQuery
    from delvec.table import DeltaTable

__all__ = ["convert", "create", "drop", "table_properties", "undrop"]


@dataclass(frozen=True)
class _Target:
    """The table that a statement creates: its name or location, and whether it may exist."""

    name: str
    replaces: bool
    must_exist: bool
    if_not_exists: bool

    def at(self, location: str | None) -> str:
        """Return the location, which LOCATION gives or the name is; else the name.

        Raises:
            BadRequest: both are locations.
        """
        if location is not None and "/" in self.name:
            raise BadRequest(
                f"The table already has the location {self.name}: leave out LOCATION, or give the table a name."
            )
        return location or self.name


def create(
    lake: Catalog, cursor: Cursor, open_table: "OpenTable", run: "RunQuery", engine: Any
) -> Metrics | Altered:
    """Run CREATE [OR REPLACE] TABLE [IF NOT EXISTS] or REPLACE TABLE: with columns, AS query, LIKE table, or as a clone.

    Raises:
        InvalidStatement: it is another statement.
        TableAlreadyExists: the table exists, and the statement does not replace it.
    """
    must_exist = cursor.take("REPLACE")
    if not must_exist:
        cursor.expect("CREATE")
    replaces = must_exist or cursor.take("OR", "REPLACE")
    cursor.expect("TABLE")
    if_not_exists = not replaces and cursor.take("IF", "NOT", "EXISTS")
    target = _Target(newest_version(cursor).name, replaces, must_exist, if_not_exists)
    if cursor.word() in ("SHALLOW", "DEEP", "CLONE"):
        return _clone(cursor, open_table, target)
    source = cursor.table() if cursor.take("LIKE") else None
    schema: Any = None
    if source is None and cursor.take("("):
        schema = parse_ddl(cursor.columns())
        cursor.expect(")")
    clauses = _Clauses.parse(cursor, is_copy=source is not None)
    is_query = cursor.take("AS") or (schema is None and cursor.word() in QUERIES and source is None)
    query = cursor.rest() if is_query else None
    cursor.end()
    if query is not None and schema is not None:
        cursor.fail("the columns are those of the query: leave out the list of columns")
    making = _Creation(lake, target, clauses, engine)
    if query is not None:
        return making.as_query(query, open_table, run)
    if source is not None:
        return making.create(
            clauses.over(definition_of(open_table(source), source.version, source.timestamp))
        )
    if schema is not None:
        return making.create(clauses.definition(schema))
    if clauses.location is None or clauses.defines:
        cursor.fail(
            "columns in parentheses, AS and a query, LIKE and a table, or CLONE and a table are expected"
        )
    lake.register(clauses.location, target.name, engine)
    return Altered(None, None)


@dataclass
class _Clauses:
    """What may follow the columns, in any order."""

    location: str | None = None
    comment: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    partition_by: list[str] = field(default_factory=list)
    cluster_by: list[str] = field(default_factory=list)

    @classmethod
    def parse(cls, cursor: Cursor, *, is_copy: bool) -> "_Clauses":
        """Parse them up to AS, a query or the end."""
        clauses = cls()
        while not cursor.at_end and cursor.word() not in ("AS", *QUERIES):
            if cursor.take("USING"):
                if cursor.name("DELTA").lower() not in ("delta", "delvec"):
                    raise invalid(
                        cursor.text, cursor.position, "all tables here are Delta tables: write USING DELTA."
                    )
            elif cursor.take("LOCATION"):
                clauses.location = cursor.literal("a path in quotes")
            elif cursor.take("COMMENT"):
                clauses.comment = cursor.literal("a comment in quotes")
            elif cursor.take("TBLPROPERTIES"):
                clauses.properties = table_properties(cursor)
            elif not is_copy and cursor.take("PARTITIONED", "BY"):
                clauses.partition_by = cursor.names()
            elif not is_copy and cursor.take("CLUSTER", "BY"):
                clauses.cluster_by = cursor.in_parentheses(cursor.column)
            else:
                others = "" if is_copy else "PARTITIONED BY (...), CLUSTER BY (...), AS and a query, "
                cursor.fail(
                    f"USING DELTA, {others}LOCATION, COMMENT, TBLPROPERTIES (...) or the end is expected"
                )
        return clauses

    @property
    def defines(self) -> bool:
        """Whether they say more than where the table is."""
        return bool(self.comment or self.properties or self.partition_by or self.cluster_by)

    def definition(self, schema: StructType) -> TableDefinition:
        """Return the definition of a table with these columns."""
        return TableDefinition(schema, self.partition_by, self.properties, self.comment, self.cluster_by)

    def over(self, definition: TableDefinition) -> TableDefinition:
        """Return a definition with these properties and this comment."""
        return replace(
            definition,
            properties={**definition.properties, **self.properties},
            description=self.comment or definition.description,
        )


@dataclass(frozen=True)
class _Creation:
    lake: Catalog
    target: _Target
    clauses: _Clauses
    engine: Any

    def create(self, definition: TableDefinition) -> Altered:
        """Create or replace the table, without rows."""
        existing = self._existing()
        if existing is None:
            table, _ = self._new(definition)
            return Altered(table.version(), "CREATE TABLE")
        if not self.target.replaces:
            return Altered(None, None)
        operation = "REPLACE TABLE" if self.target.must_exist else REPLACING
        return Altered(existing.replace_with(definition, operation).version, operation)

    def as_query(self, query: str, open_table: "OpenTable", run: "RunQuery") -> Metrics | Altered:
        """Create or replace the table with the rows of a query, in one version."""
        existing = self._existing()
        if existing is not None and not self.target.replaces:
            return Altered(None, None)
        if existing is None:
            rows = run(parse_query(query, "spark"))
            operation = f"{REPLACING} AS SELECT" if self.target.replaces else CREATING
            table, metrics = self._new(self._of_rows(rows), rows, operation)
            return Altered(table.version(), operation) if metrics is None else metrics

        def change(table: "DeltaTable", rows: Any) -> Metrics:
            operation = "REPLACE TABLE" if self.target.must_exist else REPLACING
            return table.replace_with(self._of_rows(rows), f"{operation} AS SELECT", rows)

        return with_rows(query, existing, open_table, run, change)

    def _of_rows(self, rows: Any) -> TableDefinition:
        return self.clauses.definition(schema_from(rows.schema))

    def _new(
        self, definition: TableDefinition, rows: Any = None, operation: str = CREATING
    ) -> "tuple[DeltaTable, Metrics | None]":
        if self.target.must_exist:
            raise TableNotFound(
                f"The table '{self.target.name}' does not exist, so it cannot be replaced; CREATE OR REPLACE TABLE also "
                "creates it."
            )
        location = self.clauses.location
        return self.lake.run_create(
            self.target.at(location),
            definition,
            rows,
            self.engine,
            name=None if location is None else self.target.name,
            replace=self.target.replaces,  # a dropped table whose files are still there
            if_not_exists=self.target.if_not_exists,
            operation=operation,
        )

    def _existing(self) -> "DeltaTable | None":
        """Return the table that is there, if the statement allows one."""
        if not (self.target.replaces or self.target.if_not_exists):
            return None
        place = self.target.at(self.clauses.location)
        try:
            if self.clauses.location is None:
                table = self.lake.table(place, engine=self.engine)
            else:
                # Raises if that table has another name.
                table = self.lake.register(place, self.target.name, self.engine)
            table.version()  # raises if the log of a registered table is gone
        except NotFound:
            return None
        return table


def _clone(cursor: Cursor, open_table: "OpenTable", target: _Target) -> Metrics:
    """Run the rest of CREATE TABLE target [SHALLOW | DEEP] CLONE source [VERSION | TIMESTAMP AS OF ...].

    TBLPROPERTIES (key = value, ...) and LOCATION 'path' may follow, in any order.
    """
    shallow = cursor.take("SHALLOW")
    if not shallow:
        cursor.take("DEEP")
    cursor.expect("CLONE")
    source = cursor.table()
    properties: dict[str, str] = {}
    location: str | None = None
    while not cursor.at_end:
        if location is None and cursor.take("LOCATION"):
            location = cursor.literal("a path in quotes")
        elif not properties and cursor.take("TBLPROPERTIES"):
            properties = table_properties(cursor)
        else:
            cursor.fail("TBLPROPERTIES (...), LOCATION '...' or the end of the statement is expected")
    return open_table(source).run_clone(
        target.at(location),
        name=None if location is None else target.name,
        shallow=shallow,
        version=source.version,
        timestamp=source.timestamp,
        replace=target.replaces,
        if_not_exists=target.if_not_exists,
        properties=properties,
    )[1]


def drop(lake: Catalog, cursor: Cursor, spark: "SparkSession | None" = None) -> Altered:
    """Run DROP TABLE [IF EXISTS] table [PURGE]: its name is dropped, also from delta-spark's catalog; its files stay, or go.

    Raises:
        InvalidStatement: it is another statement.
        TableNotFound: it does not exist.
    """
    cursor.expect("DROP", "TABLE")
    if_exists = cursor.take("IF", "EXISTS")
    name = newest_version(cursor)
    purge = cursor.take("PURGE")
    cursor.end()
    try:
        in_catalog = spark is not None and "/" not in name.name
        location = lake.table(name.name).location if in_catalog else None
        lake.drop(name.name, purge=purge)
    except NotFound:
        if not if_exists:
            raise
        return Altered(None, None)
    if spark is not None and location is not None:
        from delvec.spark.catalog_entries import remove_entry

        remove_entry(spark, name.name, location)
    return Altered(None, "DROP TABLE")


def undrop(lake: Catalog, cursor: Cursor, engine: Any) -> Altered:
    """Run UNDROP TABLE table.

    Raises:
        InvalidStatement: it is another statement.
        TableNotFound: no managed table of that name was dropped.
    """
    cursor.expect("UNDROP", "TABLE")
    name = newest_version(cursor)
    cursor.end()
    lake.undrop_table(name.name, engine=engine)
    return Altered(None, "UNDROP TABLE")


def convert(lake: Catalog, cursor: Cursor, engine: Any) -> Metrics:
    """Run CONVERT TO DELTA parquet.`path` [NO STATISTICS] [PARTITIONED BY (column type, ...)], or of iceberg.`path`.

    Raises:
        InvalidStatement: it is another statement.
        UnsupportedOperation: the Iceberg table has features that Delta lacks.
    """
    cursor.expect("CONVERT", "TO", "DELTA")
    at = cursor.position
    source = cursor.name("parquet.`path`").lower()
    if source not in ("parquet", "iceberg") or not cursor.take("."):
        raise invalid(
            cursor.text,
            at,
            "parquet.`path` is expected, the directory of the files, or iceberg.`path`, that of an Iceberg table.",
        )
    path = cursor.name("a path in backticks")
    collects = not cursor.take("NO", "STATISTICS")
    partitions = None
    if cursor.take("PARTITIONED", "BY"):
        cursor.expect("(")
        partitions = cursor.columns()
        cursor.expect(")")
    cursor.end()
    if source == "iceberg":
        if partitions is not None:
            raise invalid(
                cursor.text,
                at,
                "leave out PARTITIONED BY; an Iceberg table defines its own partition columns.",
            )
        return lake.run_import_iceberg(path, collect_statistics=collects, engine=engine)[1]
    return lake.run_convert(path, partitions, collect_statistics=collects, engine=engine)[1]


def table_properties(cursor: Cursor) -> dict[str, str]:
    """Parse ``(key = value, ...)``; keys are string literals or dotted names.

    Raises:
        InvalidStatement: it is another statement.
    """

    def entry() -> tuple[str, str]:
        key = cursor.text_or_path("a property")
        if not cursor.take("="):
            cursor.fail("= is expected")
        return key, cursor.text_or_path("a value")

    return dict(cursor.in_parentheses(entry))
