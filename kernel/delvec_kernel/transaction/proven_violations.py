"""New files that certainly violate constraints, according to their statistics and partition values.

A second line of defence after the engines, which check each row. Only proof counts, so files without statistics pass.

Tested in `tests/unit/kernel/transaction/test_violations.py`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa

from delvec_errors import ConstraintViolation, DelvecError, InvalidPredicate, UnknownColumn
from delvec_kernel.actions.actions import AddFile
from delvec_kernel.constraints.declared import Check, Constraints, MaxLength, constraints_of, generates
from delvec_kernel.data_skipping.truth import prune
from delvec_kernel.expressions.predicate import Predicate, parse
from delvec_kernel.file_index.file_rows import table_from_adds
from delvec_kernel.schema import partition_values
from delvec_kernel.schema.types import PrimitiveType, StructType
from delvec_kernel.snapshot.snapshot import Snapshot

__all__ = ["proven"]

_Path: TypeAlias = tuple[str, ...]


def proven(adds: Sequence[AddFile], snapshot: Snapshot) -> ConstraintViolation | None:
    """Return a certain constraint violation of new files, or None.

    Proof is a ``nullCount`` above 0 in a NOT NULL column, a NULL partition value, bounds within which no row can satisfy
    a constraint, or a bound longer than its ``varchar`` column.

    Args:
        adds: files with new rows. Copied rows may be older than a constraint.
        snapshot: the previous version, whose constraints apply.

    Raises:
        UnsupportedWriterFeature: the table's constraints are malformed.
    """
    schema = snapshot.schema
    rules = constraints_of(
        schema, snapshot.configuration, generates_columns=generates(snapshot.protocol.to_json())
    )
    return (
        _by_values(adds, snapshot, rules) if rules.not_null or rules.lengths else None
    ) or _by_expressions(adds, snapshot, rules)


# --- NULLs and lengths --------------------------------------------------------------------------------------


def _by_values(adds: Sequence[AddFile], snapshot: Snapshot, rules: Constraints) -> ConstraintViolation | None:
    schema, partitions = snapshot.schema, {name.lower() for name in snapshot.partition_columns}
    not_null = [(path, _physical(path, schema)) for path in rules.not_null]
    lengths = [(rule, _physical(rule.path, schema)) for rule in rules.lengths if _is_leaf(rule, schema)]
    for add in adds:
        stats = _tight(add)
        for path, names in not_null:
            if path[0].lower() in partitions:
                nulls = 1 if _partition_value(add, names[0], path[0], schema) is None else 0
            else:
                nulls = _at(stats.get("nullCount"), names)
            if isinstance(nulls, int) and nulls > 0:
                return _null(add, path, snapshot)
        for rule, names in lengths:
            for text in _texts(add, stats, rule, names, partitions, schema):
                if len(text) > rule.limit:
                    return rule.violated(text, _where(add, snapshot))
    return None


def _texts(
    add: AddFile,
    stats: Mapping[str, Any],
    rule: MaxLength,
    names: _Path,
    partitions: set[str],
    schema: StructType,
) -> Iterator[str]:
    """Yield strings no longer than some string in the file."""
    if rule.path[0].lower() in partitions:
        found = [_partition_value(add, names[0], rule.path[0], schema)]
    else:
        # A truncated bound is shorter than the value, even with the character appended to a maximum.
        found = [_at(stats.get(side), names) for side in ("minValues", "maxValues")]
    yield from (each for each in found if isinstance(each, str))


def _is_leaf(rule: MaxLength, schema: StructType) -> bool:
    """Whether the column has statistics, which values inside arrays and maps lack."""
    kind: Any = schema
    for name in rule.path:
        if not isinstance(kind, StructType):
            return False
        kind = kind.field(name).type
    return True


def _physical(path: _Path, schema: StructType) -> _Path:
    names, kind = [], schema
    for name in path:
        if not isinstance(kind, StructType):
            break
        field = kind.field(name)
        names.append(field.physical_name)
        kind = field.type  # type: ignore[assignment]
    return tuple(names)


def _tight(add: AddFile) -> Mapping[str, Any]:
    """Return the statistics if tight, else an empty mapping."""
    try:
        stats = json.loads(add.stats or "{}")
    except (ValueError, RecursionError):
        return {}
    return stats if isinstance(stats, dict) and stats.get("tightBounds") is not False else {}


def _at(value: Any, names: _Path) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _partition_value(add: AddFile, name: str, column: str, schema: StructType) -> Any:
    """Return a partition value; an invalid one is reported elsewhere, and must not count as NULL."""
    if name not in add.partition_values:
        return ""
    try:
        return partition_values.parse(add.partition_values[name], schema.field(column).type)
    except (
        DelvecError,
        ValueError,
        OverflowError,
    ):  # invalid, or out of Python's range, such as after year 9999
        return ""


def _null(add: AddFile, path: _Path, snapshot: Snapshot) -> ConstraintViolation:
    name = ".".join(path)
    return ConstraintViolation(
        f"NOT NULL constraint violated for column: {name}. There are NULLs in {_where(add, snapshot)}. "
        "Nothing was committed; write it without them.",
        constraint="NOT NULL",
        column=name,
        file=add.path,
    )


# --- expressions --------------------------------------------------------------------------------------------


def _by_expressions(
    adds: Sequence[AddFile], snapshot: Snapshot, rules: Constraints
) -> ConstraintViolation | None:
    checks: list[tuple[Check, list[str]]] = [(check, []) for check in rules.checks]
    checks += [(rule.check, _partition_texts(rule.check.columns, snapshot)) for rule in rules.generated]
    files: pa.Table | None = None
    for check, texts in checks:
        predicate = _parsed(check.expression, snapshot.schema)
        if predicate is None:
            continue
        files = table_from_adds(adds) if files is None else files
        pruned = prune(files, predicate, snapshot.schema, snapshot.partition_columns)
        for place, may_match in enumerate(pruned.may_match.to_pylist()):
            rows = files["num_records"][place].as_py()
            # A NULL partition value may represent the empty string that the expression saw, as in delta-spark.
            has_null = any(adds[place].partition_values.get(name) is None for name in texts)
            if not may_match and rows and not has_null:
                return _no_row(check, adds[place], rows, snapshot)
    return None


def _partition_texts(columns: Sequence[str], snapshot: Snapshot) -> list[str]:
    """Return the physical names of those columns that are string partition columns."""
    partitions = {name.lower() for name in snapshot.partition_columns}
    fields = (snapshot.schema.field(name) for name in columns if name.lower() in partitions)
    return [field.physical_name for field in fields if field.type == PrimitiveType("string")]


@lru_cache(maxsize=256)
def _parsed(expression: str, schema: StructType) -> Predicate | None:
    try:
        return parse(expression, schema)
    except (InvalidPredicate, UnknownColumn):
        # Spark may support it.
        return None


def _no_row(check: Check, add: AddFile, rows: int, snapshot: Snapshot) -> ConstraintViolation:
    return ConstraintViolation(
        f"CHECK constraint {check.name} ({check.expression}) is violated by each of the {rows} rows of "
        f"{_where(add, snapshot)}, by the file's statistics or partition values. Nothing was committed; correct "
        "the rows.",
        constraint=check.name,
        expression=check.expression,
        file=add.path,
    )


def _where(add: AddFile, snapshot: Snapshot) -> str:
    return f"file '{add.path}' for the table at {snapshot.location}"
