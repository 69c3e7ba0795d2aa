"""Random tables, and their creation."""

import pyarrow as pa
from tests.interop.dml_expressions import Expressions
from tests.interop.dml_operators import Expression, Scope, read, remainder, strict, wider
from tests.interop.dml_table import Identity, Table
from tests.interop.dml_values import ARROW, INTEGERS, NESTED, POOLS, Column, literal

from delvec_engines.spark.scan import spark_schema
from delvec_kernel.schema.types import StructType

__all__ = ["MODE", "TableMaker", "arrow_schema", "make", "random_kind"]

MODE = "delta.columnMapping.mode"
PARTITIONED = ("string", "int", "date", "boolean", "short", "decimal(10,2)", "timestamp_ntz")
KEYS = (
    *("long", "string", "date", "decimal(10,2)", "double", "int", "long", "string", "int"),
    *("float", "short", "byte", "binary", "timestamp", "timestamp_ntz", "decimal(38,18)"),
)
FLAT = [kind for kind in POOLS if kind not in NESTED]
PLAIN_NAMES = ["n", "Name", "größe", "at", "x_1", "value", "order", "t"]
MAPPED_NAMES = [*PLAIN_NAMES, "a b", "x,y;z"]


def arrow_schema(columns):
    return pa.schema({column.name: ARROW[column.kind] for column in columns})


def random_kind(random):
    """Return a random type for a non-key column."""
    return random.choice([*FLAT, *POOLS, "string", "int"])


class TableMaker:
    """Makes random tables.

    Args:
        random: the source of all decisions.
        mapping: the mode of column mapping.
    """

    def __init__(self, random, mapping):
        self._random = random
        self._mapping = mapping

    def table(self):
        """Return a table."""
        random = self._random
        computes = self._mapping == "none" or (self._mapping == "name" and random.random() < 0.5)
        names = random.sample(PLAIN_NAMES if computes else MAPPED_NAMES, random.randint(2, 5))
        columns = [Column("id", random.choice(KEYS))]
        columns += [Column(name, random_kind(random)) for name in names]
        generated = self._generated(columns) if computes and random.random() < 0.3 else {}
        columns += [Column(name, expression.kind) for name, expression in generated.items()]
        based = {column.name for column in columns if any(column.quoted in e.sql for e in generated.values())}
        partition_by = self._partition_by([each for each in columns[1:] if each.name not in based])
        plain = [each for each in columns[1:] if each.name not in generated]
        defaults = {
            each.name: random.choice(POOLS[each.kind])
            for each in plain
            if computes and each.kind not in NESTED and random.random() < 0.12
        }
        not_null = {
            each.name
            for each in columns
            if computes and each.name not in {*partition_by, *generated} and random.random() < 0.06
        }
        identity = None
        if computes and random.random() < 0.15:
            identity = Identity("serial", random.choice([1, 100, -5]), random.choice([1, 1, 10, -3]))
        return Table(
            tuple(columns),
            partition_by,
            self._properties(),
            self._checks(columns, partition_by),
            generated,
            defaults,
            frozenset(not_null),
            identity,
        )

    def _partition_by(self, columns):
        parted = [each.name for each in columns if each.kind in PARTITIONED]
        count = min(len(parted), self._random.choice([0, 0, 1, 1, 2]))
        return tuple(self._random.sample(parted, min(count, max(0, len(columns) - 1))))

    def _properties(self):
        random = self._random
        properties = {
            "delta.enableDeletionVectors": random.choice(["true", "true", "false"]),
            "delta.enableChangeDataFeed": random.choice(["true", "true", "false"]),
        }
        if self._mapping != "none":
            properties[MODE] = self._mapping
        if random.random() < 0.15:
            properties["delvec.rewriteThreshold"] = random.choice(["0.3", "1"])
        return properties

    def _checks(self, columns, partition_by):
        random = self._random
        able = [each for each in columns if each.kind not in NESTED and each.name not in partition_by]
        # Most numbers satisfy a random condition; few Booleans do.
        numbers = [each for each in able if each.kind in INTEGERS] or [
            each for each in able if each.kind.startswith("decimal")
        ]
        checks = {}
        if numbers and random.random() < 0.3:
            scope = Scope("t", "", (random.choice(numbers),))
            checks["some_check"] = Expressions(random, [scope]).condition(random.choice([0, 0, 1]))
        return checks

    def _generated(self, columns):
        """Return one or two generated columns."""
        random = self._random
        found = {}
        bases = random.sample(columns, len(columns))
        for name, column in zip(("made", "made_2")[: random.randint(1, 2)], bases, strict=False):
            expression = self._computed(read(Scope("t", "", ()), column))
            if expression is not None:
                found[name] = expression
        return found

    def _computed(self, value):
        random = self._random
        if value.kind in INTEGERS:
            by = random.randint(2, 9)
            rest = strict(lambda each: remainder(each, by), value)
            return Expression(f"({value.sql} % {by})", wider(value.kind, "int"), rest)
        as_date = Expression(f"CAST({value.sql} AS DATE)", "date", strict(lambda at: at.date(), value))
        made = {
            "string": [
                Expression(f"upper({value.sql})", "string", strict(str.upper, value)),
                Expression(f"substring({value.sql}, 1, 2)", "string", strict(lambda text: text[:2], value)),
                Expression(f"length({value.sql})", "int", strict(len, value)),
            ],
            "date": [Expression(f"year({value.sql})", "int", strict(lambda day: day.year, value))],
            "double": [Expression(f"(- {value.sql})", "double", strict(lambda number: -number, value))],
            "timestamp": [as_date],
            "timestamp_ntz": [as_date],
        }
        return random.choice(made[value.kind]) if value.kind in made else None


def make(lake, spark, table, location):
    """Create an empty table.

    Args:
        lake: a connection.
        spark: a session with delta-spark, for tables that only it can create.
        table: its definition.
        location: its folder.
    """
    mapping = table.properties.get(MODE, "none")
    if mapping == "id":
        return _made_by_delta_spark(lake, spark, table, location)
    properties = {name: value for name, value in table.properties.items() if name != MODE}
    # Arbitrary column names need column mapping.
    names = {name: name if name in PLAIN_NAMES else f"c{i}" for i, name in enumerate(table.names)}
    if mapping == "none" or table.identity or table.generated or table.defaults or table.not_null:
        names = {name: name for name in names}
    parts = [names[name] for name in table.partition_by]
    made = lake.create_table(location, _schema(table, names), parts, properties)
    if mapping != "none":
        made.alter.set_properties({MODE: mapping})
        for name, plain_name in names.items():
            if name != plain_name:
                made.alter.rename_column(plain_name, name)
    return made


def _schema(table, names):
    """Return a table's schema as Delta's JSON."""
    schema = StructType.from_arrow(arrow_schema(table.columns)).to_json()
    for field in schema["fields"]:
        name = field["name"]
        field["name"] = names[name]
        field["nullable"] = name not in table.not_null
        if name in table.generated:
            field["metadata"]["delta.generationExpression"] = table.generated[name].sql
        if name in table.defaults:
            field["metadata"]["CURRENT_DEFAULT"] = literal(table.defaults[name], table.kind(name))
    if table.identity is not None:
        metadata = {
            "delta.identity.start": table.identity.start,
            "delta.identity.step": table.identity.step,
            "delta.identity.allowExplicitInsert": False,
        }
        field = {"name": table.identity.name, "type": "long", "nullable": True, "metadata": metadata}
        schema["fields"].append(field)
    return schema


def _made_by_delta_spark(lake, spark, table, location):
    # Delvec does not create tables with column mapping by id.
    empty = spark.createDataFrame([], spark_schema(StructType.from_arrow(arrow_schema(table.columns))))
    known = {name: value for name, value in table.properties.items() if not name.startswith("delvec.")}
    empty.write.format("delta").options(**known).partitionBy(*table.partition_by).save(str(location))
    return lake.table(str(location), engine="duckdb")
