"""Look-ups in Spark's catalog.

Tested in `tests/integration/spark/test_spark_delta_spark_api.py`.
"""

import re
from dataclasses import dataclass
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from delvec_errors import BadRequest

__all__ = ["CatalogEntry", "catalog_entry", "place_of", "short_name"]

_FORMATS: Final = frozenset({"delta", "delvec"})
_VIEW: Final = "VIEW"
_A_VIEW: Final = "a view"
_DEFAULTS: Final = ("spark_catalog.", "default.")
_FACT: Final = re.compile(r"^(Provider|Location|Type): (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class CatalogEntry:
    """A table or a view of Spark's catalog.

    Attributes:
        what: it is, for messages.
        location: of the Delta table; None for everything else.
    """

    what: str
    location: str | None

    @property
    def is_view(self) -> bool:
        """Whether it is a view."""
        return self.what == _A_VIEW


def catalog_entry(spark: SparkSession, name: str) -> CatalogEntry | None:
    """Return the catalog's entry for a name of one to three parts, or None."""
    quoted = [f"`{part.strip('`').replace('`', '``')}`" for part in name.split(".")]
    try:
        # PySpark logs errors of statements, even expected ones.
        if not spark.catalog.tableExists(".".join(quoted)):
            return None
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {'.'.join(quoted)}").collect()
    except AnalysisException:
        return None
    facts = {row["col_name"]: row["data_type"] for row in rows}
    if str(facts.get("Provider", "")).lower() not in _FORMATS and facts.get("Type") != _VIEW:
        # For tables of Python data sources, that statement returns only the columns.
        facts |= _listed(spark, quoted)
    provider = str(facts.get("Provider", "")).lower()
    if provider in _FORMATS and facts.get("Type") != _VIEW:
        return CatalogEntry("a Delta table", facts.get("Location"))
    if facts.get("Type") == _VIEW or not provider:
        return CatalogEntry(_A_VIEW, None)
    return CatalogEntry(f"a table USING {provider}", None)


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
    for key, value in _FACT.findall(found[0]["information"]):
        facts.setdefault(key, value)
    return facts
