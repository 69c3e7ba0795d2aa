"""Names and arguments of deltalake and delta-spark: accepted if equivalent, else refused with the right call."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from inspect import signature
from typing import Any, Final

from delvec_commands.filters import both
from delvec_errors import BadRequest
from delvec_kernel.expressions.literals import lit

__all__ = [
    "MERGE_HINTS",
    "MODULE_HINTS",
    "OPTIMIZE_ARGUMENTS",
    "OPTIMIZE_HINTS",
    "ROW_ARGUMENTS",
    "TABLE_HINTS",
    "VACUUM_ARGUMENTS",
    "assignments",
    "condition_of",
    "memory_of",
    "no_argument",
    "no_attribute",
    "partitions_of",
    "vacuum_mode",
]

_NOT_YET: Final = "Delvec does not support this yet; use deltalake or delta-spark on the same table"

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

_COMMIT_PROPERTIES: Final = "user_metadata='text' for the table's history"
_COMMIT_HOOKS: Final = "nothing: checkpoints and log clean-up are the service's"

OPTIMIZE_ARGUMENTS: Final = {
    "commit_properties": _COMMIT_PROPERTIES,
    "max_concurrent_tasks": "max_memory=, which bounds what is held at once",
    "max_temp_directory_size": "max_bytes=, which bounds what is written again",
    "min_commit_interval": "commit_bytes=: what is written again is committed in steps of about so many bytes",
    "post_commithook_properties": _COMMIT_HOOKS,
    "writer_properties": "target_size= for the size of files",
}
"""What to give instead of an argument of deltalake's ``optimize.compact`` and ``optimize.z_order``."""

VACUUM_ARGUMENTS: Final = {
    "commit_properties": "nothing: a VACUUM's commits have no text of yours",
    "post_commithook_properties": _COMMIT_HOOKS,
}

ROW_ARGUMENTS: Final = {
    "commit_properties": _COMMIT_PROPERTIES,
    "filter": "predicate='id = 1'",
    "post_commithook_properties": _COMMIT_HOOKS,
    "where": "predicate='id = 1'",
    "writer_properties": "nothing: table properties decide how files are written",
}
"""What to give instead of an argument of ``delete`` and ``update`` that deltalake has, or that somebody may guess."""

MODULE_HINTS: Final = {
    "write_deltalake": "delvec.connect().create_table(path, data.schema, if_not_exists=True).append(data), or .overwrite(data)",
    "convert_to_deltalake": "delvec.connect().convert(path, partition_by='day date')",
}


def no_attribute(owner: str, name: str, hints: Mapping[str, str]) -> AttributeError:
    """Return the error for a missing name; suggests what to call instead if a peer has the name."""
    hint = hints.get(name)
    if hint is None:
        return AttributeError(f"{owner} has no attribute {name!r}")
    return AttributeError(
        f"{owner} has no attribute {name!r}: {hint if hint is _NOT_YET else f'call {hint}'}"
    )


def no_argument(
    command: str, arguments: Mapping[str, Any], hints: Mapping[str, str], method: Callable[..., Any]
) -> None:
    """Refuse unknown arguments; for a peer's argument, say what to give instead.

    Args:
        command: how the method is called.
        arguments: the unknown ones.
        hints: what to give instead.
        method: whose arguments may be meant.

    Raises:
        TypeError: there is an unknown argument.
    """
    for name in arguments:
        near = get_close_matches(name, signature(method).parameters, 1)
        hint = f": give {hints[name]}" if name in hints else f"; did you mean {near[0]!r}?" if near else ""
        raise TypeError(f"{command} has no argument {name!r}{hint}")


def memory_of(max_memory: int | None, max_spill_size: int | None) -> int | None:
    """Return the memory limit in bytes: ``max_spill_size`` is deltalake's name for ``max_memory``.

    Raises:
        BadRequest: both are given.
    """
    if max_memory is not None and max_spill_size is not None:
        raise BadRequest("give max_memory= or max_spill_size=, not both: they mean the same")
    return max_spill_size if max_memory is None else max_memory


def partitions_of(where: Any, partition_filters: Any) -> str | None:
    """Return the condition on partitions: deltalake takes tuples, as first argument or as ``partition_filters``.

    Raises:
        BadRequest: these are not filters.
    """
    return both(None, where) if isinstance(where, list) else both(where, partition_filters)


def vacuum_mode(mode: Any, full: bool | None) -> Any:
    """Return the mode of a VACUUM: deltalake says ``full=True`` for ``"full"``, and ``full=False`` for ``"lite"``.

    Raises:
        BadRequest: the two contradict each other.
    """
    if full is None:
        return mode or "full"
    found = "full" if full else "lite"
    if mode not in (None, found):
        raise BadRequest(f"full={full} is mode='{found}', and not mode={mode!r}; leave one of them out")
    return found


def condition_of(predicate: Any, condition: str | None, command: str) -> str | None:
    """Return the condition of a command: ``condition`` is delta-spark's name of it.

    Raises:
        BadRequest: both are given, or it is not a string.
    """
    if predicate is not None and condition is not None:
        raise BadRequest(f"{command} takes predicate= or condition=, which mean the same, but not both")
    sql_condition = condition if predicate is None else predicate
    if sql_condition is not None and not isinstance(sql_condition, str):
        raise BadRequest(
            f"the predicate of {command} must be SQL text, not {type(sql_condition).__name__}; for Spark Columns use "
            "delvec.spark.DeltaTable"
        )
    return sql_condition


def assignments(
    assigned_values: Any, predicate: Any, updates: Any, new_values: Any, condition: str | None
) -> tuple[Mapping[str, Any], str | None]:
    """Return the assignments and condition of ``update()``, from its own arguments, deltalake's or delta-spark's.

    Raises:
        BadRequest: they contradict each other, or set nothing.
    """
    if (assigned_values is None or isinstance(assigned_values, str)) and isinstance(predicate, Mapping):
        assigned_values, predicate = predicate, assigned_values  # delta-spark takes the condition first
    if isinstance(assigned_values, str):
        raise BadRequest(
            f"update() takes the values to set first: update({{'column': 'value'}}, {assigned_values!r})"
        )
    where = condition_of(predicate, condition, "update()")
    assignment_dicts = [each for each in (assigned_values, updates, new_values) if each is not None]
    if len(assignment_dicts) != 1:
        raise BadRequest(
            "update() takes either set= (or updates=), a dictionary of SQL by column, or new_values=, a dictionary of "
            "values by column"
        )
    if not isinstance(assignment_dicts[0], Mapping):
        raise BadRequest(
            f"update() takes a dictionary of SQL by column, {{'age': 'age + 1'}}, not {type(assignment_dicts[0]).__name__}"
        )
    if new_values is not None:
        return {name: lit(value) for name, value in new_values.items()}, where
    return assignment_dicts[0], where
