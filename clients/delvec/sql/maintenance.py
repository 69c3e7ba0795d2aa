"""OPTIMIZE, REORG TABLE, ANALYZE TABLE, VACUUM, RESTORE, FSCK REPAIR TABLE and GENERATE: statements about a table as a whole.

Tested in `tests/integration/client/sql/test_statements.py`.
"""

from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa

from delvec.sql.constant_times import parse_constant_time
from delvec.sql.queries import parse_query
from delvec.sql.tokens import Cursor, invalid, newest_version
from delvec_commands.dml.optimize_options import OptimizeOptions
from delvec_commands.transaction import Metrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delvec.sql.row_statements import OpenTable, RunQuery

__all__ = ["analyze", "fsck", "generate", "optimize", "reorg", "restore", "vacuum"]

_MAX_PATHS: Final = 1000
"""Number of paths that delta-spark shows in a dry run."""


def optimize(cursor: Cursor, open_table: "OpenTable") -> Metrics:
    """Run OPTIMIZE table [FULL] [WHERE condition over partition columns] [ZORDER BY (columns)] [DRY RUN]."""
    cursor.expect("OPTIMIZE")
    name = newest_version(cursor)
    full = cursor.take("FULL")
    where = cursor.expression("ZORDER", "DRY") if cursor.take("WHERE") else None
    columns = _zorder_by(cursor) if cursor.take("ZORDER") else []
    dry_run = cursor.take("DRY", "RUN")
    cursor.end()
    options = OptimizeOptions(where, zorder_by=columns, full=full and not columns, dry_run=dry_run)
    return open_table(name).optimize.run(options)


def _zorder_by(cursor: Cursor) -> list[str]:
    """Parse BY and columns, with or without parentheses."""
    cursor.expect("BY")
    in_parentheses = cursor.take("(")
    found = [cursor.column()]
    while cursor.take(","):
        found.append(cursor.column())
    if in_parentheses:
        cursor.expect(")")
    return found


def analyze(cursor: Cursor, open_table: "OpenTable") -> Metrics:
    """Run ANALYZE TABLE table COMPUTE DELTA STATISTICS."""
    cursor.expect("ANALYZE", "TABLE")
    name = newest_version(cursor)
    cursor.expect("COMPUTE", "DELTA", "STATISTICS")
    cursor.end()
    return open_table(name).compute_statistics()


def reorg(cursor: Cursor, open_table: "OpenTable") -> Metrics:
    """Run REORG TABLE table [WHERE condition over partition columns] APPLY (PURGE) [DRY RUN]."""
    cursor.expect("REORG")
    cursor.take("TABLE")
    name = newest_version(cursor)
    where = cursor.expression("APPLY") if cursor.take("WHERE") else None
    cursor.expect("APPLY", "(", "PURGE", ")")
    dry_run = cursor.take("DRY", "RUN")
    cursor.end()
    return open_table(name).optimize.run(OptimizeOptions(where, purge=True, dry_run=dry_run))


def vacuum(
    cursor: Cursor, open_table: "OpenTable", rows: "RunQuery", spark: "SparkSession | None" = None
) -> pa.Table:
    """Run VACUUM table [FULL | LITE] [USING INVENTORY table | (query)] [RETAIN n HOURS] [DRY RUN].

    A Spark session decides whether the retention is checked, as for ``DeltaTable.vacuum``.

    Returns:
        One column ``path``, as in delta-spark: the files of a dry run, otherwise the table's location.

    Raises:
        InvalidStatement: it is another statement.
    """
    cursor.expect("VACUUM")
    name = newest_version(cursor)
    hours: float | None = None
    dry_run = False
    inventory: str | None = None
    mode: Literal["full", "lite"] = "full"
    # In any order, as in delta-spark.
    while not cursor.at_end:
        if cursor.take("FULL"):
            mode = "full"
        elif cursor.take("LITE"):
            mode = "lite"
        elif cursor.take("DRY", "RUN"):
            dry_run = True
        elif cursor.take("RETAIN"):
            hours = cursor.number("a number of hours")
            cursor.expect("HOURS")
        elif inventory is None and cursor.take("USING"):
            cursor.expect("INVENTORY")
            inventory = _inventory(cursor)
        else:
            cursor.fail(
                "FULL, LITE, USING INVENTORY, RETAIN n HOURS, DRY RUN or the end of the statement is expected"
            )
    table = open_table(name)
    files = None if inventory is None else rows(parse_query(inventory, "spark"))
    vacuum_result = table.vacuum(
        hours,
        dry_run,
        mode=mode,
        limit=_MAX_PATHS,
        inventory=files,
        enforce_retention_duration=spark is None or _is_retention_checked(spark),
    )
    paths = [f"{table.location}/{path}" for path in vacuum_result["files"]] if dry_run else [table.location]
    return pa.table({"path": pa.array(paths, pa.string())})


def _is_retention_checked(spark: "SparkSession") -> bool:
    from delvec.spark.frames import is_retention_checked

    return is_retention_checked(spark)


def _inventory(cursor: Cursor) -> str:
    """Parse a table or a query in parentheses; return the query."""
    start = cursor.position
    if cursor.take("("):
        cursor.anything()
        cursor.expect(")")
        return cursor.text[start : cursor.position].strip()[1:-1]
    cursor.table()
    return f"SELECT * FROM {cursor.text[start : cursor.position]}"  # noqa: S608 - parsed before it runs


def restore(cursor: Cursor, open_table: "OpenTable") -> Metrics:
    """Run RESTORE [TABLE] table TO VERSION AS OF version | TIMESTAMP AS OF 'timestamp'."""
    cursor.expect("RESTORE")
    if cursor.word(1) not in ("TO", "."):
        cursor.take("TABLE")
    name = newest_version(cursor)
    cursor.expect("TO")
    target: int | str
    if cursor.take("TIMESTAMP", "AS", "OF"):
        at = cursor.position
        time = parse_constant_time(cursor.rest())
        if time is None:
            raise invalid(
                cursor.text, at, "a time is expected: '2026-01-31', or current_timestamp() - INTERVAL 1 DAY."
            )
        target = time
    else:
        cursor.expect("VERSION", "AS", "OF")
        target = cursor.whole_number("a version")
    cursor.end()
    return open_table(name).restore(target)


def fsck(cursor: Cursor, open_table: "OpenTable") -> pa.Table:
    """Run FSCK REPAIR TABLE table [METADATA ONLY] [DRY RUN]: as on Databricks, METADATA ONLY keeps missing files.

    Returns:
        A row for each finding: the repair and its reason, or why it is not repaired.
    """
    cursor.expect("FSCK", "REPAIR", "TABLE")
    name = newest_version(cursor)
    keeps = cursor.take("METADATA", "ONLY")
    dry_run = cursor.take("DRY", "RUN")
    cursor.end()
    repair_result = open_table(name).repair(dry_run=dry_run, drop_missing_files=not keeps)
    rows = [{**entry, "repaired": not dry_run} for entry in repair_result["repaired"]]
    rows += [
        {**entry, "repaired": False, "action": None, "repair": None} for entry in repair_result["unrepaired"]
    ]
    columns = {name: pa.string() for name in ("invariant", "file", "message", "action", "repair", "reason")}
    schema = pa.schema({**columns, "version": pa.int64(), "repaired": pa.bool_()})
    return pa.Table.from_pylist(rows, schema)


def generate(cursor: Cursor, open_table: "OpenTable") -> pa.Table:
    """Run GENERATE symlink_format_manifest FOR TABLE table.

    Returns:
        No column and no row, as in delta-spark.
    """
    cursor.expect("GENERATE")
    at, mode = cursor.position, cursor.name("symlink_format_manifest")
    if mode.lower() != "symlink_format_manifest":
        raise invalid(cursor.text, at, "the mode of GENERATE must be symlink_format_manifest.")
    cursor.expect("FOR", "TABLE")
    name = newest_version(cursor)
    cursor.end()
    open_table(name).generate()
    return pa.table({})
