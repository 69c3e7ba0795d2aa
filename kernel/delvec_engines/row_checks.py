"""Checks of new rows that need no SQL (NOT NULL, char and varchar lengths), and the constraints that do.

Tested in `tests/integration/engines/test_constraints.py`.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delvec_engines.arrow_conversion import cast_batch
from delvec_engines.protocol import WriteTarget
from delvec_errors import ConstraintViolation, ExpressionNotAllowed, UnsupportedWriterFeature
from delvec_errors.texts import counted
from delvec_kernel.constraints.declared import Check, Constraints, Generated
from delvec_kernel.schema.types import PrimitiveType, StructType

__all__ = ["RowChecks"]


class RowChecks:
    """The checks of one table for new rows; copied rows are not checked again.

    Attributes:
        where: the table, for messages.
        moment: the value of current_timestamp for all rows.
        partition_texts: partition columns in which an empty string is stored as NULL; constraints apply to that.

    Raises:
        UnsupportedWriterFeature: a constraint cannot be parsed.
    """

    def __init__(self, target: WriteTarget) -> None:
        self._schema = target.schema
        self.where = f"the table at {target.location}"
        self.moment = target.moment
        self.constraints: Constraints = target.constraints
        self._inside_structs = [path for path in self.constraints.not_null if len(path) > 1]
        fields = [target.schema.field(name) for name in target.partition_columns]
        self.partition_texts = tuple(
            item.name
            for item in fields
            if item.type == PrimitiveType("string") and item.name not in target.empty_texts
        )

    @property
    def is_needed(self) -> bool:
        """Whether there are checks beyond those that every write does."""
        found = self.constraints
        return bool(self._inside_structs or found.lengths or found.has_expressions)

    def conformed(self, reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """Return rows in the table's schema, without missing columns that are computed.

        Raises:
            SchemaMismatch: while reading: the rows do not fit the table.
        """
        names = {name.lower() for name in reader.schema.names}
        absent = [rule.column for rule in self.constraints.computed if rule.column.lower() not in names]
        schema = self._schema.without(absent)
        arrow = schema.to_arrow()
        batches = (cast_batch(batch, schema, arrow, check_nulls=True) for batch in reader)
        return pa.RecordBatchReader.from_batches(arrow, batches)

    def checked(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield checked rows in the table's schema.

        Raises:
            SchemaMismatch: the rows do not fit the table.
            ConstraintViolation: see :meth:`check`; or a NULL in a NOT NULL column.
        """
        arrow = self._schema.to_arrow()
        for batch in batches:
            rows = cast_batch(batch, self._schema, arrow, check_nulls=True)
            self.check(rows)
            yield rows

    def check(self, batch: pa.RecordBatch) -> None:
        """Check rows in the table's schema.

        Raises:
            ConstraintViolation: a struct with a NOT NULL field is NULL, or a string is too long.
        """
        for path in self._inside_structs:
            for length in range(1, len(path)):
                nulls = self._values(batch, path[:length]).null_count
                if nulls:
                    name, parent = ".".join(path), ".".join(path[:length])
                    raise ConstraintViolation(
                        f"NOT NULL constraint violated for column: {name}. In {counted(nulls, 'row')} for {self.where} "
                        f"'{parent}' is NULL, and so are its fields. Nothing was committed; give it a value.",
                        constraint="NOT NULL",
                        column=name,
                    )
        for rule in self.constraints.lengths:
            values = self._values(batch, rule.path)
            lengths = pc.utf8_length(values)
            longest = pc.max(lengths).as_py()
            if longest is not None and longest > rule.limit:
                raise rule.violated(values[pc.index(lengths, longest).as_py()].as_py(), self.where)

    def tests(self, input_columns: Collection[str], *, replaces: bool) -> list[Check]:
        """Return the checks of a row in SQL.

        Args:
            input_columns: columns that are not computed.
            replaces: whether rows are those of an UPDATE or a MERGE, where computed values are checked, too, as
                in delta-spark: storing may change them.
        """
        names = {name.lower() for name in input_columns}
        texts = {name.lower() for name in self.partition_texts}
        checks = list(self.constraints.checks)
        for rule in self.constraints.generated:
            check = rule.check
            may_differ = replaces and not texts.isdisjoint(name.lower() for name in check.columns)
            if rule.column.lower() in names or may_differ:
                checks.append(check)
        return checks

    def as_stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows as they will be read back: an empty string in a partition column is NULL."""
        for name in self.partition_texts:
            place = batch.schema.get_field_index(name)
            texts = batch.column(place)
            values = pc.if_else(pc.equal(texts, ""), None, texts)
            batch = batch.set_column(place, batch.schema.field(place).with_nullable(nullable=True), values)
        return batch

    def sql(self, rule: Check | Generated) -> str:
        """Return the checked SQL of an expression; engines must never evaluate the text in the log.

        Raises:
            ExpressionNotAllowed: it contains syntax or functions that are not allowed in tables.
        """
        try:
            return rule.sql
        except ExpressionNotAllowed as error:
            raise ExpressionNotAllowed(
                f"{error.message} Nothing was committed to {self.where}.", **error.details
            ) from None

    def error(self, check: Check, row: pa.RecordBatch) -> ConstraintViolation:
        """Return the error about the first row of ``row`` breaking a check; its columns are the table's."""
        values = {}
        for name in check.columns:
            place = row.schema.get_field_index(name)
            if place >= 0:
                values[name] = _python(row.column(place))
        return check.violated(values, self.where)

    def refused(self, check: Check, reason: str, engine: str) -> UnsupportedWriterFeature:
        """Return the error about an expression that an engine cannot evaluate."""
        return UnsupportedWriterFeature(
            f"Constraint {check.name} ({check.expression}) of {self.where} cannot be checked exactly by {engine}: "
            f"{reason.rstrip('.')}. Nothing was committed; use another engine, or rewrite the constraint.",
            constraint=check.name,
            expression=check.expression,
        )

    def _values(self, batch: pa.RecordBatch, path: Sequence[str]) -> pa.Array:
        kind: Any = self._schema
        values: Any = batch
        for name in path:
            if isinstance(kind, StructType):
                place = [each.name for each in kind.fields].index(name)
                # struct_field keeps the NULLs of the struct itself.
                values = (
                    values.column(place)
                    if isinstance(values, pa.RecordBatch)
                    else pc.struct_field(values, [place])
                )
                kind = kind.fields[place].type
            else:
                # flatten() copies: ``values`` includes values outside a slice and below NULL lists.
                whole = values.drop_null()
                values = (
                    whole.flatten() if name == "element" else whole.keys if name == "key" else whole.items
                )
                kind = getattr(kind, name)
        return values


def _python(column: pa.Array) -> Any:
    if pa.types.is_timestamp(column.type):
        # Not as_py(): a time zone would need the system's database.
        return str(column[:1].cast(pa.timestamp("us"))[0].as_py()) if column[0].is_valid else None
    return column[0].as_py()
