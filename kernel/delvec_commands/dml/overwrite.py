"""Overwrites: replace all rows, those that match ``replaceWhere``, or whole partitions.

Tested in `tests/integration/engines/test_overwrite.py`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from delvec_commands.dml import touched_files
from delvec_commands.dml.append import NewRows, WriteOptions
from delvec_commands.dml.self_reads import WritableTable
from delvec_commands.table_service import TableService
from delvec_commands.transaction import Metrics, Transaction
from delvec_engines.scan import Scan
from delvec_errors import BadRequest, ConstraintViolation, UnsupportedWriterFeature
from delvec_errors.texts import counted
from delvec_kernel.constraints.declared import REPLACE_WHERE
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.schema import partition_values
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import INTEGER_NAMES

__all__ = ["PartitionOverwrite", "Replacement", "overwrite", "replace_rows"]

PartitionOverwrite: TypeAlias = Literal["static", "dynamic"]

_METRICS: Final[Mapping[str, int]] = dict.fromkeys(
    ("numFiles", "numOutputRows", "numOutputBytes", "numRemovedFiles", "numRemovedBytes"), 0
)
_EVERYTHING: Final = "true"
_MAX_PARTITIONS: Final = 200
"""Maximum partitions in the condition of a commit; with more, the whole table counts as read."""


@dataclass(frozen=True)
class Replacement:
    """The rows that an overwrite replaces.

    Attributes:
        where: predicate of the replaced rows, or None.
        partitions: ``static`` replaces all rows; ``dynamic`` replaces the partitions that the new rows are in.

    Raises:
        BadRequest: ``where`` and ``dynamic`` are combined.
    """

    where: str | None = None
    partitions: PartitionOverwrite = "static"

    def __post_init__(self) -> None:
        if self.partitions not in ("static", "dynamic"):
            raise BadRequest(
                f"partition_overwrite must be 'static' or 'dynamic' (given: {self.partitions!r})"
            )
        if self.where is not None and self.partitions == "dynamic":
            raise BadRequest("Give replace_where or partition_overwrite='dynamic', not both.")

    def check(self, options: WriteOptions) -> None:
        """Check that the options are compatible.

        Raises:
            BadRequest: the schema would be replaced, but rows with the old schema would stay.
        """
        if options.overwrite_schema and (self.where is not None or self.partitions == "dynamic"):
            other = "replace_where" if self.where is not None else "partition_overwrite='dynamic'"
            raise BadRequest(
                f"overwrite_schema replaces the table's columns, but with {other} existing rows would stay that do not "
                "have them; overwrite all rows, or use merge_schema."
            )
        if options.partition_by is not None and not options.overwrite_schema:
            raise BadRequest(
                "partition_by changes the table's partitioning, which also needs overwrite_schema=True."
            )


def overwrite(
    service: TableService, table: WritableTable, data: Any, replacement: Replacement, options: WriteOptions
) -> Metrics:
    """Replace rows by ``data`` in one commit; see :meth:`delvec.DeltaTable.overwrite`."""
    replacement.check(options)
    return replace_rows(NewRows.begin(service, table, data, options), replacement)


def replace_rows(rows: NewRows, replacement: Replacement) -> Metrics:
    """Replace rows by rows whose transaction has begun."""
    if rows.already_applied:
        return Metrics(_METRICS, None, already_applied=True)
    parameters = {
        "mode": "Overwrite",
        "partitionBy": json.dumps(
            list(rows.target.partition_columns), separators=(",", ":"), ensure_ascii=False
        ),
    }
    if rows.options.definition is not None:
        parameters = rows.options.definition[0].recorded()
    metrics: dict[str, int] = {}
    predicate: str | None = None
    if replacement.where is not None:
        transaction = rows.transaction(
            predicate=replacement.where, parameters={**parameters, "predicate": replacement.where}
        )
        metrics = _replace_where(rows, transaction, replacement.where)
    elif replacement.partitions == "dynamic" and rows.target.partition_columns:
        parameters["isDynamicPartitionOverwrite"] = "true"
        transaction = rows.transaction(parameters=parameters)
        predicate = _replace_partitions(rows, transaction)
    else:
        transaction = rows.transaction(predicate=_EVERYTHING, parameters=parameters)
        rows.write(transaction)
        scan, _ = rows.table.plan(version=rows.begun.version)
        transaction.remove(scan.files["path"].to_pylist())
    if transaction.is_empty:
        return Metrics(_METRICS, None)
    return Metrics.of(transaction.commit(metrics=metrics, predicate=predicate), _METRICS)


# --- rows that match a condition ------------------------------------------------------------------------------


def _replace_where(rows: NewRows, transaction: Transaction, where: str) -> dict[str, int]:
    """Write the rows, which must all match ``where``, and delete the old matching rows; return the metrics."""
    scan, condition = rows.table.plan(predicate=where, version=rows.begun.version, row_ids=True)
    assert condition is not None  # noqa: S101 - it was given
    try:
        rows.write(transaction, where)
    except ConstraintViolation as error:
        if error.details.get("constraint") == REPLACE_WHERE:
            raise _where_violation(error, where) from error
        raise
    whole = scan.filter(scan.files["matches_all"])
    transaction.remove(whole.files["path"].to_pylist())
    rest = scan.filter(pc.invert(scan.files["matches_all"]))
    copied = _delete_replaced(rows, transaction, rest, condition) if len(rest) else 0
    return {"numCopiedRows": copied}


def _delete_replaced(rows: NewRows, transaction: Transaction, rest: Scan, condition: Predicate) -> int:
    table = rows.table
    vectors = rest.deletes_by_vector
    row_deletes = table.engine.find_rows(
        rest, condition, transaction.deletion_vector_files(rest.location) if vectors else None
    )
    feed = rest.keeps_change_feed
    files = touched_files.touched_files(rest, row_deletes, vectors=vectors, may_rewrite=not feed)
    rewritten = [file.path for file in files if file.means == "rewrite"]
    if rewritten and feed:
        raise UnsupportedWriterFeature(
            f"Rows of {counted(len(rewritten), 'file')} of table '{rest.name}' (version {rest.version}) match replace_where only "
            "in part, and with delta.enableChangeDataFeed=true Delvec does not rewrite such files; set "
            "delta.enableDeletionVectors=true, or replace whole partitions. Nothing was committed.",
            table=rest.name,
            version=rest.version,
        )
    target = None
    if rewritten:
        # Copied rows keep the schema they were read with.
        target = rows.copying(rest)
        if table.source_version is None:  # otherwise the transaction has read the whole table
            # A concurrent delete of replaced rows is no conflict, but copying rows that it deleted would undo it.
            transaction.mark_read(files=rewritten)
    return touched_files.change(transaction, table.engine, rest, row_deletes, files, target, vectors=vectors)


def _where_violation(error: ConstraintViolation, where: str) -> ConstraintViolation:
    values = error.details.get("values") or {}
    shown = ", ".join(f"{name}={value}" for name, value in sorted(values.items()))
    return ConstraintViolation(
        f"replace_where replaces rows with {where}, but a new row does not match it ({shown}). Nothing was committed; "
        "leave out such rows, or append them.",
        constraint="replace_where",
        expression=where,
        values=values,
    )


# --- rows in the same partitions ------------------------------------------------------------------------------


def _replace_partitions(rows: NewRows, transaction: Transaction) -> str | None:
    """Write the rows, and remove the other files of their partitions; return the predicate of these partitions."""
    adds = rows.write(transaction)
    scan, _ = rows.table.plan(version=rows.begun.version)
    physical = [scan.schema.field(name) for name in scan.partition_columns]
    keys = {tuple(add.partition_values.get(field.physical_name) for field in physical) for add in adds}
    files = [(file.path, file.partition_values) for file in scan]
    columns = []
    for position, field in enumerate(physical):
        # Writers serialize the same partition value differently.
        texts = [values.get(field.physical_name) for _, values in files] + [key[position] for key in keys]
        with partition_values.naming_files(
            [scan.files], scan.schema, scan.partition_columns, table=scan.name, version=scan.version
        ):
            parsed = partition_values.parse_column(pa.array(texts, pa.string()), field.type)
        columns.append(parsed.dictionary_encode("encode").indices.to_pylist())
    numbers = list(zip(*columns, strict=True))
    written = set(numbers[len(files) :])
    gone = [path for (path, _), key in zip(files, numbers[: len(files)], strict=True) if key in written]
    transaction.remove(gone)
    if len(keys) > _MAX_PARTITIONS:
        transaction.mark_read(whole_table=True)
        return None
    return " OR ".join(
        " AND ".join(
            _equals(field.name, field.type.to_json(), value)
            for field, value in zip(physical, key, strict=True)
        )
        for key in sorted(keys, key=str)
    )


def _equals(name: str, kind: Any, value: str | None) -> str:
    column = backticked(name)
    if value is None:
        return f"{column} IS NULL"
    text = "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return (
        f"{column} = {text}"
        if kind == "string"
        else f"{column} = CAST({text} AS {INTEGER_NAMES.get(kind, kind)})"
    )
