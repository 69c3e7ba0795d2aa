"""Names and arguments of deltalake and delta-spark: accepted if equivalent, else refused with the right call."""

from collections.abc import Mapping
from typing import Any, Final

from delvec_kernel.errors import BadRequest
from delvec_kernel.expressions.literals import lit

__all__ = [
    "MERGE_HINTS",
    "MODULE_HINTS",
    "OPTIMIZE_HINTS",
    "TABLE_HINTS",
    "assignments",
    "condition_of",
    "no_attribute",
]

_LATER: Final = "Delvec does not support this yet; use deltalake or delta-spark on the same table"

TABLE_HINTS: Final = {
    "add_columns": "table.alter.add_columns('age int')",
    "addFeatureSupport": "table.alter.add_feature(name)",
    "alias": "merge(source, on, target_alias=...)",
    "cleanup_metadata": "checkpoint(clean_up=True)",
    "cloneAtTimestamp": "clone(target, timestamp='2026-01-31')",
    "cloneAtVersion": "clone(target, version=3)",
    "compact_logs": "checkpoint(), after which readers skip the commits before it",
    "convertToDelta": "delvec.connect().convert(path)",
    "create_checkpoint": "checkpoint()",
    "dropFeatureSupport": "table.alter.drop_feature(name)",
    "file_uris": "files()",
    "forName": "delvec.connect().table(name), or delvec.spark.DeltaTable.forName(spark, name)",
    "forPath": "delvec.connect().table(path), or delvec.spark.DeltaTable.forPath(spark, path)",
    "get_add_actions": "partitions() and files()",
    "load_as_version": "to_arrow(version=3), scan(version=3) or to_arrow(timestamp='2026-01-31'): each read names its version",
    "load_cdf": "changes(start_version)",
    "metadata": "detail() or snapshot()",
    "overwrite_dynamic": "overwrite(data, partition_overwrite='dynamic')",
    "protocol": "snapshot().protocol",
    "restoreToTimestamp": "restore('2026-01-31')",
    "restoreToVersion": "restore(3)",
    "toDF": "to_df()",
    "to_pyarrow_dataset": "to_duckdb() or to_lazyframe(), which skip deleted rows, or to_batches()",
    "updateAll": "merge(source, on).when_matched_update_all()",
    "upgradeTableProtocol": "table.alter.upgrade_protocol(reader, writer)",
    "write": "append(data) or overwrite(data)",
}
"""What to call instead of a method of deltalake's or delta-spark's table."""

MERGE_HINTS: Final = {
    "whenMatchedDelete": "when_matched_delete(predicate)",
    "whenMatchedUpdate": "when_matched_update(set, predicate)",
    "whenMatchedUpdateAll": "when_matched_update_all(predicate)",
    "whenNotMatchedBySourceDelete": "when_not_matched_by_source_delete(predicate)",
    "whenNotMatchedBySourceUpdate": "when_not_matched_by_source_update(set, predicate)",
    "whenNotMatchedInsert": "when_not_matched_insert(values, predicate)",
    "whenNotMatchedInsertAll": "when_not_matched_insert_all(predicate)",
    "withSchemaEvolution": "merge(source, on, merge_schema=True)",
}

OPTIMIZE_HINTS: Final = {
    "executeCompaction": "table.optimize(where)",
    "executeZOrderBy": "table.optimize.z_order(['column'], where)",
    "where": "table.optimize(where) or table.optimize.z_order(['column'], where)",
}

MODULE_HINTS: Final = {
    "write_deltalake": "delvec.connect().create_table(path, data.schema, if_not_exists=True).append(data), or .overwrite(data)",
    "convert_to_deltalake": "delvec.connect().convert(path, partition_by='day date')",
}


def no_attribute(owner: str, name: str, hints: Mapping[str, str]) -> AttributeError:
    """Return the error for a missing name; suggests what to call instead if a peer has the name."""
    hint = hints.get(name)
    if hint is None:
        return AttributeError(f"{owner} has no attribute {name!r}")
    return AttributeError(f"{owner} has no attribute {name!r}: {hint if hint is _LATER else f'call {hint}'}")


def condition_of(predicate: Any, condition: str | None, command: str) -> str | None:
    """Return the condition of a command: ``condition`` is delta-spark's name of it.

    Raises:
        BadRequest: both are given, or it is not a string.
    """
    if predicate is not None and condition is not None:
        raise BadRequest(f"{command} takes predicate= or condition=, which mean the same, but not both")
    found = condition if predicate is None else predicate
    if found is not None and not isinstance(found, str):
        raise BadRequest(
            f"the predicate of {command} must be SQL text, not {type(found).__name__}; for Spark Columns use "
            "delvec.spark.DeltaTable"
        )
    return found


def assignments(
    given: Any, predicate: Any, updates: Any, new_values: Any, condition: str | None
) -> tuple[Mapping[str, Any], str | None]:
    """Return the assignments and condition of ``update()``, from its own arguments, deltalake's or delta-spark's.

    Raises:
        BadRequest: they contradict each other, or set nothing.
    """
    if (given is None or isinstance(given, str)) and isinstance(predicate, Mapping):
        given, predicate = predicate, given  # delta-spark takes the condition first
    if isinstance(given, str):
        raise BadRequest(f"update() takes the values to set first: update({{'column': 'value'}}, {given!r})")
    where = condition_of(predicate, condition, "update()")
    wanted = [each for each in (given, updates, new_values) if each is not None]
    if len(wanted) != 1:
        raise BadRequest(
            "update() takes either set= (or updates=), a dictionary of SQL by column, or new_values=, a dictionary of "
            "values by column"
        )
    if not isinstance(wanted[0], Mapping):
        raise BadRequest(
            f"update() takes a dictionary of SQL by column, {{'age': 'age + 1'}}, not {type(wanted[0]).__name__}"
        )
    if new_values is not None:
        return {name: lit(value) for name, value in new_values.items()}, where
    return wanted[0], where
