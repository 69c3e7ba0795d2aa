"""Entries of Spark's catalog.

Tested in `tests/integration/spark/test_spark_delta_spark_api.py`.
"""

import logging
import re
from dataclasses import dataclass
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from delvec_engines.spark.manifest import hadoop_path
from delvec_errors import BadRequest
from delvec_kernel import locations

__all__ = ["CatalogEntry", "add_entry", "catalog_entry", "place_of", "remove_entry", "short_name"]

_LOGGER: Final = logging.getLogger(__name__)
_FORMATS: Final = frozenset({"delta", "delvec"})
_VIEW: Final = "VIEW"
_A_VIEW: Final = "a view"
_DEFAULTS: Final = ("spark_catalog.", "default.")
_SESSION_CATALOG: Final = "spark.sql.catalog.spark_catalog"
_DELTA_CATALOG: Final = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_DESCRIPTION_LINE: Final = re.compile(r"^(Provider|Location|Type): (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class CatalogEntry:
    """A table or a view of Spark's catalog.

    Attributes:
        what: it is, for messages.
        location: the location of the Delta table; None for everything else.
        is_external: whether the table's files stay if it is dropped.
    """

    what: str
    location: str | None
    is_external: bool = False

    @property
    def is_view(self) -> bool:
        """Whether it is a view."""
        return self.what == _A_VIEW


def catalog_entry(spark: SparkSession, name: str) -> CatalogEntry | None:
    """Return the catalog's entry for a name of one to three parts, or None."""
    quoted_name = _quoted(name)
    try:
        # PySpark logs errors of statements, even expected ones.
        if not spark.catalog.tableExists(".".join(quoted_name)):
            return None
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {'.'.join(quoted_name)}").collect()
    except AnalysisException:
        return None
    facts = {row["col_name"]: row["data_type"] for row in rows}
    if str(facts.get("Provider", "")).lower() not in _FORMATS and facts.get("Type") != _VIEW:
        # For tables of Python data sources, that statement returns only the columns.
        facts |= _listed(spark, quoted_name)
    provider = str(facts.get("Provider", "")).lower()
    if provider in _FORMATS and facts.get("Type") != _VIEW:
        return CatalogEntry("a Delta table", facts.get("Location"), facts.get("Type") == "EXTERNAL")
    if facts.get("Type") == _VIEW or not provider:
        return CatalogEntry(_A_VIEW, None)
    return CatalogEntry(f"a table USING {provider}", None)


def add_entry(spark: SparkSession, name: str, location: str) -> None:
    """Give a table a name in Spark's catalog, if that is delta-spark's and has its database but not the name.

    Spark's own catalog cannot have the table: Spark would not tell a Python data source which one is read.
    """
    if spark.conf.get(_SESSION_CATALOG, "") != _DELTA_CATALOG:
        return
    quoted = ".".join(_quoted(name))
    try:
        if not spark.catalog.tableExists(quoted):
            spark.catalog.createTable(quoted, path=hadoop_path(location), source="delta")
    except Exception as error:  # noqa: BLE001 - the table exists, whatever delta-spark cannot read of it
        _LOGGER.warning("Spark's catalog does not get the table '%s': %.200s", name, error)


def remove_entry(spark: SparkSession, name: str, location: str) -> None:
    """Remove what :func:`add_entry` added; other tables of that name stay."""
    entry = catalog_entry(spark, name)
    if entry is None or entry.location is None or not entry.is_external:
        return
    if locations.canonical(entry.location) == location:
        spark.sql(f"DROP TABLE IF EXISTS {'.'.join(_quoted(name))}")


def _quoted(name: str) -> list[str]:
    return [f"`{part.strip('`').replace('`', '``')}`" for part in name.split(".")]


def short_name(name: str) -> str:
    """Return a name without backticks and without default catalog and database."""
    short = name.replace("`", "")
    for prefix in _DEFAULTS:
        short = short[len(prefix) :] if short.lower().startswith(prefix) else short
    return short


def place_of(spark: SparkSession, name: str) -> str:
    """Return the location that Spark's catalog would give a table of this name.

    Raises:
        BadRequest: the database does not exist.
    """
    *above, table = name.split(".")
    database = above[-1] if above else spark.catalog.currentDatabase()
    try:
        folder = spark.catalog.getDatabase(database).locationUri
    except AnalysisException as error:
        raise BadRequest(
            f"Spark has no database '{database}' for the table '{name}': create the database, or give the table a "
            "location."
        ) from error
    return f"{folder.rstrip('/')}/{table.lower()}"


def _listed(spark: SparkSession, quoted: list[str]) -> dict[str, str]:
    """Return what SHOW TABLE EXTENDED shows of a table in the session's own catalog."""
    *above, last = quoted
    # A pattern, in which only * and | mean something.
    pattern = last[1:-1].replace("``", "`").replace("\\", "\\\\").replace("'", "\\'")
    inside = f"IN {'.'.join(above)} " if above else ""
    try:
        rows = spark.sql(f"SHOW TABLE EXTENDED {inside}LIKE '{pattern}'").collect()
    except AnalysisException:
        return {}
    found = [row for row in rows if row["tableName"].lower() == last[1:-1].lower()]
    if len(found) != 1:
        return {}
    facts: dict[str, str] = {}
    for key, value in _DESCRIPTION_LINE.findall(found[0]["information"]):
        facts.setdefault(key, value)
    return facts
