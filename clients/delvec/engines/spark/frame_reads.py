"""What is known of a DataFrame without a job: the tables and versions that it reads, and its number of rows."""

import weakref
from collections.abc import Collection, Iterator
from typing import Any

from pyspark.sql import DataFrame

from delvec.engines.protocol import marked
from delvec.engines.spark.session import is_remote

__all__ = ["answer_count", "options_of_reads", "versions_read"]


def answer_count(frame: DataFrame, num_rows: int) -> None:
    """Let ``frame.count()`` return ``num_rows`` without a job, as delta-spark's optimizer does for its tables.

    Only for this object: frames made from it count as usual. So does the frame itself once it is cached, because
    ``count()`` is how programs fill a cache.
    """
    this = weakref.ref(frame)  # a cycle would keep the JVM's frame until the next collection

    def count() -> int:
        here = this()
        return num_rows if here is None or not here.is_cached else type(here).count(here)

    vars(frame)["count"] = count


def versions_read(frame: DataFrame) -> frozenset[tuple[str, int]]:
    """Return (table id, version) of each read of a table's newest version that the plan shows.

    A Spark Connect plan names temporary views instead of expanding them, so reads inside views are missed.
    """
    if is_remote(frame):
        plan = frame._plan.to_proto(frame._session.client)  # noqa: SLF001 - no public API
        return marked(plan.SerializeToString().decode("latin-1"))
    # A read without files has no file list; its marker is in the name of its local relation.
    plan = frame._jdf.queryExecution().analyzed().toString()  # noqa: SLF001 - no public API
    return marked(" ".join(_file_lists(frame))) | marked(plan)


def options_of_reads(frame: DataFrame, source: str, names: Collection[str]) -> list[dict[str, str]]:
    """Return the options of each read by ``format(source)`` in a frame; Spark Connect does not show them.

    Args:
        frame: of classic Spark; one of Spark Connect gives an empty list.
        source: name of the data source.
        names: the options to return, where set; Spark ignores their case.
    """
    if is_remote(frame):
        return []
    found = []
    for leaf in _leaves(frame):
        if leaf.getClass().getSimpleName() == "DataSourceV2Relation" and leaf.table().name() == source:
            options = leaf.options()
            found.append({name: str(options.get(name)) for name in names if options.containsKey(name)})
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
    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - no public API
    for each in (plan, *_each(plan.subqueriesAll())):
        yield from _each(each.collectLeaves())


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(at) for at in range(sequence.size()))
