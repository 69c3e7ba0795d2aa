"""Which tables a DataFrame reads, and which versions of them: told by its plan, without running anything."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from delvec.engines.protocol import marked
from delvec.engines.spark.session import is_remote

__all__ = ["paths_by_format", "versions_read"]


def versions_read(frame: DataFrame) -> frozenset[tuple[str, int]]:
    """Return the ids and versions of the tables whose newest version a frame reads, as far as its plan shows.

    With Spark Connect views of the session are names in the plan, and what they read is not seen.
    """
    if is_remote(frame):
        plan = frame._plan.to_proto(frame._session.client)  # noqa: SLF001 - there is nothing public
        return marked(plan.SerializeToString().decode("latin-1"))
    # Of a read without files there is but the name of its rows.
    plan = frame._jdf.queryExecution().analyzed().toString()  # noqa: SLF001 - there is nothing public
    return marked(" ".join(_file_lists(frame))) | marked(plan)


def paths_by_format(frame: DataFrame) -> list[str]:
    """Return the paths, or names, of tables that a frame of classic Spark reads by ``format("delvec")``, newest version."""
    if is_remote(frame):
        return []
    found = []
    for leaf in _leaves(frame):
        if leaf.getClass().getSimpleName() == "DataSourceV2Relation" and leaf.table().name() == "delvec":
            options = leaf.options()
            chosen = any(options.containsKey(each) for each in ("version", "versionAsOf", "timestamp"))
            if options.containsKey("path") and not (chosen or options.containsKey("timestampAsOf")):
                found.append(str(options.get("path")))
    return found


def _file_lists(frame: DataFrame) -> Iterator[str]:
    for leaf in _leaves(frame):
        if leaf.getClass().getSimpleName() != "LogicalRelation":
            continue
        relation = leaf.relation()
        if relation.getClass().getSimpleName() == "HadoopFsRelation":
            for path in _each(relation.location().rootPaths()):
                yield path.toString()


def _leaves(frame: DataFrame) -> Iterator[Any]:
    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - there is nothing public
    for each in (plan, *_each(plan.subqueriesAll())):
        yield from _each(each.collectLeaves())


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(at) for at in range(sequence.size()))
