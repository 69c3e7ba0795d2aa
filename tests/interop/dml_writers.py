"""The writers: Delvec on each engine, and delta-spark."""

import pyarrow as pa
from tests.interop.dml_creation import arrow_schema
from tests.interop.dml_statements import Delete, DeleteKeys, Insert, Optimize, Overwrite, Update
from tests.interop.dml_table import quoted

from delvec_engines.spark.scan import spark_schema
from delvec_errors import DelvecError
from delvec_kernel.schema.types import StructType

__all__ = ["DeltaSpark", "Delvec", "arrow_table"]

SOURCE = "dml_source"


def arrow_table(rows):
    return pa.Table.from_pylist(list(rows.rows), arrow_schema(rows.columns))


class Delvec:
    """Delvec on one engine.

    Args:
        lake: the connection.
        engine: as for :meth:`delvec.Connection.table`.
        name: for reports.
    """

    def __init__(self, lake, engine, name):
        self.lake, self.engine, self.name = lake, engine, name
        self.refusals = (DelvecError,)

    def run(self, location, statement):
        """Run a statement; return counts of updated, deleted and inserted rows if it reports them."""
        table = self.lake.table(str(location), engine=self.engine)
        return getattr(self, f"_{type(statement).__name__.lower()}")(table, statement)

    def _delete(self, table, statement):
        where = None if statement.where is None else statement.where.sql
        if statement.by_sql:
            text = f"DELETE FROM delta.`{table.location.removeprefix('file://')}`"
            metrics = self.lake.sql(text + ("" if where is None else f" WHERE {where}"), engine=self.engine)
        else:
            metrics = table.delete(where)
        return {"deleted": metrics["numDeletedRows"]}

    def _deletekeys(self, table, statement):
        where = None if statement.where is None else statement.where.sql
        keys = arrow_table(statement.source)
        metrics = table.delete(where, keys=keys, on=statement.source.names)
        return {"deleted": metrics["numDeletedRows"]}

    def _update(self, table, statement):
        where = None if statement.where is None else statement.where.sql
        values = {quoted(path): value.sql for path, value in statement.values.items()}
        if statement.by_sql:
            sets = ", ".join(f"{name} = {value}" for name, value in values.items())
            text = f"UPDATE delta.`{table.location.removeprefix('file://')}` SET {sets}"
            metrics = self.lake.sql(text + ("" if where is None else f" WHERE {where}"), engine=self.engine)
        else:
            metrics = table.update(values, where)
        return {"updated": metrics["numUpdatedRows"]}

    def _merge(self, table, statement):
        builder = table.merge(
            arrow_table(statement.source),
            statement.on_.sql,
            source_alias="s",
            target_alias="t",
            merge_schema=statement.evolves,
        )
        for clause in statement.clauses:
            condition = None if clause.condition is None else clause.condition.sql
            begin = "when_" + clause.match.replace("-", "_") + f"_{clause.action}"
            if clause.action == "delete":
                builder = getattr(builder, begin)(condition)
            elif clause.values is None:
                builder = getattr(builder, f"{begin}_all")(condition)
            else:
                values = {quoted(path): value.sql for path, value in clause.values.items()}
                builder = getattr(builder, begin)(values, condition)
        metrics = builder.execute()
        return {done.lower(): metrics[f"numTargetRows{done}"] for done in ("Updated", "Deleted", "Inserted")}

    def _optimize(self, table, statement):
        if statement.zorder_by:
            table.optimize.z_order([each.quoted for each in statement.zorder_by])
        elif statement.vectors:
            table.optimize.deletion_vectors()
        else:
            (table.optimize.purge if statement.purge else table.optimize)()
        return {}

    def _insert(self, table, statement):
        table.append(arrow_table(statement.data), merge_schema=statement.evolves)
        return {}

    def _overwrite(self, table, statement):
        table.overwrite(
            arrow_table(statement.data),
            replace_where=None if statement.where is None else statement.where.sql,
            partition_overwrite="dynamic" if statement.dynamic else "static",
        )
        return {}


class DeltaSpark:
    """delta-spark, through SQL and DataFrames."""

    name = "delta-spark"

    def __init__(self, spark):
        from pyspark.errors import PySparkException

        self.spark = spark
        # Failures in tasks arrive as JVM errors.
        from py4j.protocol import Py4JJavaError

        self.refusals = (PySparkException, Py4JJavaError)

    def run(self, location, statement):
        """Run a statement; no counts are returned."""
        name = f"delta.`{location}`"
        if isinstance(statement, (Insert, Overwrite)):
            self._write(location, statement)
        else:
            text = self._text(name, statement)
            self.spark.sql(text).collect()
        return {}

    def _frame(self, rows):
        table = arrow_table(rows)
        # By default Spark reads timestamps without a zone as instants.
        return self.spark.createDataFrame(table, spark_schema(StructType.from_arrow(table.schema)))

    def _write(self, location, statement):
        writer = self._frame(statement.data).write.format("delta")
        if isinstance(statement, Insert):
            writer.mode("append").option("mergeSchema", str(statement.evolves).lower()).save(str(location))
            return
        writer = writer.mode("overwrite")
        if statement.where is not None:
            writer = writer.option("replaceWhere", statement.where.sql)
        elif statement.dynamic:
            writer = writer.option("partitionOverwriteMode", "dynamic")
        writer.save(str(location))

    def _text(self, name, statement):
        if isinstance(statement, Delete):
            return str(statement).replace("FROM t", f"FROM {name}", 1).removesuffix(" (SQL)")
        if isinstance(statement, Optimize):
            return str(statement).replace(" t", f" {name}", 1)
        if isinstance(statement, Update):
            return str(statement).replace("UPDATE t", f"UPDATE {name}", 1).removesuffix(" (SQL)")
        source = statement.source
        self._frame(source).createOrReplaceTempView(SOURCE)
        if isinstance(statement, DeleteKeys):
            # renamed, so that the condition refers to the table
            keys = ", ".join(f"`{key}` AS key_{number}" for number, key in enumerate(source.names))
            on = " AND ".join(f"t.`{key}` = s.key_{number}" for number, key in enumerate(source.names))
            where = "" if statement.where is None else f" AND {statement.where.sql}"
            using = f"(SELECT {keys} FROM {SOURCE})"
            return f"MERGE INTO {name} AS t USING {using} AS s ON {on}{where} WHEN MATCHED THEN DELETE"
        clauses = " ".join(map(str, statement.clauses))
        how = "WITH SCHEMA EVOLUTION " if statement.evolves else ""
        return f"MERGE {how}INTO {name} AS t USING {SOURCE} AS s ON {statement.on_.sql} {clauses}"
