"""What is known of a DataFrame without a job: the tables and versions that it reads, and its number of rows."""

import weakref
from collections.abc import Collection
from urllib.parse import unquote

from pyspark.sql import DataFrame

from delvec_engines.protocol import marked
from delvec_engines.spark import jvm
from delvec_engines.spark.session_properties import is_remote

__all__ = ["answer_count", "may_read", "options_of_reads", "versions_read", "without_scheme"]


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
    paths = [path for read in jvm.frame_reads(frame) or () for path in read.paths]
    # A read without files has no file list; its marker is in the name of its local relation.
    return marked(" ".join(paths)) | marked(jvm.analyzed_plan(frame) or "")


def may_read(frame: DataFrame, location: str) -> bool:
    """Whether a classic frame reads files below a location, but Spark does not show in which version."""
    if is_remote(frame) or jvm.frame_reads(frame) is not None:
        return False
    folder = without_scheme(location).rstrip("/") + "/"
    return any(without_scheme(url).startswith(folder) for url in frame.inputFiles())


def without_scheme(url: str) -> str:
    """Return the path of a URL as Spark writes it: it may use s3a: for s3:, and file:/ for file:///."""
    return unquote(url.partition(":")[2]).lstrip("/")


def options_of_reads(frame: DataFrame, source: str, names: Collection[str]) -> list[dict[str, str]]:
    """Return the options of each read by ``format(source)`` in a frame; Spark Connect does not show them.

    Args:
        frame: the frame of classic Spark; one of Spark Connect gives an empty list.
        source: name of the data source.
        names: the options to return, where set; Spark ignores their case.
    """
    if is_remote(frame):
        return []
    found = []
    for read in jvm.frame_reads(frame) or ():
        if read.source == source:
            options = {name.lower(): value for name, value in read.options.items()}
            found.append({name: options[name.lower()] for name in names if name.lower() in options})
    return found
