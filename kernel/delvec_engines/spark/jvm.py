"""What classic PySpark tells only through its private handles on the JVM; no other module uses them.

Any version of Spark may change what is behind them, so each function asks in several ways, the last of which is public
if PySpark has a public one, and returns None if all of them fail. Callers must then do what is always right: let Spark run
the command as a job, or refuse by name.

Tested in `tests/integration/spark/test_spark_jvm.py`.
"""

# ruff: noqa: SLF001 - that is this module's subject
# ruff: noqa: PLW0108 - a handle that is gone must only be missed where it is asked

import io
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pyspark.sql import Column, DataFrame, SparkSession

__all__ = [
    "FrameRead",
    "PlanSize",
    "alias",
    "analyzed_plan",
    "column_node",
    "expected_size",
    "file_system_error",
    "frame_reads",
    "function_class",
    "settings",
]

_LOGGER: Final = logging.getLogger(__name__)
_ALIAS: Final = re.compile(r"\s*SubqueryAlias (\S+)\s*$", re.MULTILINE)
_ANALYZED: Final = re.compile(r"== Analyzed Logical Plan ==\n[^\n]*\n(.*?)\n\n== ", re.DOTALL)
_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class FrameRead:
    """A leaf of a DataFrame's plan.

    Attributes:
        paths: the root paths of the files that it reads.
        source: name of the Python or Java data source; empty for files.
        options: those of ``source``; Spark ignores the case of their names.
    """

    paths: tuple[str, ...] = ()
    source: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PlanSize:
    """What Spark's optimizer expects of a DataFrame.

    Attributes:
        nbytes: the number of bytes of its rows.
        plan: the optimized plan, as text.
    """

    nbytes: int
    plan: str


def settings(spark: SparkSession) -> str | None:
    """Return the names and values of the session's settings as one text; None if unknown."""
    return _first(
        "the session's settings",
        # As one string: reading settings one by one can take hundreds of JVM calls.
        lambda: str(spark.conf._jconf.getAll().toString()),
        lambda: str(spark.conf.getAll),
    )


def function_class(spark: SparkSession, name: str) -> str | None:
    """Return the Java class behind a function's name in this session; None if unknown.

    Args:
        spark: the session.
        name: an unqualified identifier, of which Spark ignores the case.
    """
    # Not the session's function registry: from Spark 4.3 on, it wants to know whether a built-in function or one of the
    # session is meant, which settings decide.
    return _first(f"function {name}", lambda: str(spark.catalog.getFunction(name).className))


def expected_size(frame: DataFrame) -> PlanSize | None:
    """Return what Spark's optimizer expects of a frame, without a job; None if unknown."""

    def ask() -> PlanSize:
        plan = frame._jdf.queryExecution().optimizedPlan()
        return PlanSize(int(plan.stats().sizeInBytes()), str(plan.toString()))

    return _first("the size that Spark expects", ask)


def analyzed_plan(frame: DataFrame) -> str | None:
    """Return the analyzed plan as text, with views expanded; None if unknown."""
    return _first(
        "the analyzed plan",
        lambda: str(frame._jdf.queryExecution().analyzed().toString()),
        lambda: _ANALYZED.findall(_explained(frame))[0],
    )


def alias(frame: DataFrame) -> str | None:
    """Return the alias of a frame, or the name of its table or view; None if it has none, or if unknown."""

    def ask() -> str:
        plan = frame._jdf.queryExecution().analyzed()
        return str(plan.alias()) if plan.getClass().getSimpleName() == "SubqueryAlias" else ""

    def read() -> str:
        found = _ALIAS.match(analyzed_plan(frame) or "")
        return found[1].rpartition(".")[2].strip("`") if found else ""

    return _first("the alias of a DataFrame", ask, read) or None


def frame_reads(frame: DataFrame) -> list[FrameRead] | None:
    """Return what a frame reads, also in subqueries and views; None if unknown."""
    return _first("what a DataFrame reads", lambda: [_of_leaf(leaf) for leaf in _leaves(frame)])


def column_node(column: Column) -> Any:
    """Return the JVM's tree of a Column's expression; None if it has none."""
    return _first("the expression of a Column", lambda: column._jc.node())


def file_system_error(spark: SparkSession, scheme: str) -> str | None:
    """Return Java's error if Hadoop has no file system for a scheme; None if it has one, or if unknown."""
    configuration = _first(
        "Hadoop's settings",
        lambda: spark._jsparkSession.sessionState().newHadoopConf(),
        lambda: spark.sparkContext._jsc.hadoopConfiguration(),
    )
    if configuration is None:
        return None
    try:
        spark.sparkContext._jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, configuration)
    except Exception as error:  # noqa: BLE001 - the caller looks for what it knows
        return str(error)
    return None


def _first(what: str, *ways: Callable[[], _Answer]) -> _Answer | None:
    """Return the first answer; None if every way fails."""
    for way in ways:
        try:
            return way()
        except Exception as error:  # noqa: BLE001 - whatever a new version of Spark raises
            _LOGGER.debug("Spark did not tell %s: %s", what, str(error).partition("\n")[0])
    return None


def _explained(frame: DataFrame) -> str:
    with redirect_stdout(io.StringIO()) as printed:
        frame.explain(extended=True)
    return printed.getvalue()


def _of_leaf(leaf: Any) -> FrameRead:
    kind = leaf.getClass().getSimpleName()
    if kind == "DataSourceV2Relation":
        options = {
            str(entry.getKey()): str(entry.getValue())
            for entry in leaf.options().asCaseSensitiveMap().entrySet()
        }
        return FrameRead(source=str(leaf.table().name()), options=options)
    if kind == "LogicalRelation":
        relation = leaf.relation()
        if relation.getClass().getSimpleName() == "HadoopFsRelation":
            return FrameRead(tuple(str(path.toString()) for path in _each(relation.location().rootPaths())))
    return FrameRead()


def _leaves(frame: DataFrame) -> Iterator[Any]:
    plan = frame._jdf.queryExecution().analyzed()
    for each in (plan, *_each(plan.subqueriesAll())):
        yield from _each(each.collectLeaves())


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(at) for at in range(sequence.size()))
