"""Tables of a connection by name in Spark SQL, as temporary views of a session.

Tested in `tests/integration/spark/test_spark_views.py`.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

from delvec.catalog import Catalog
from delvec_errors import BadRequest, DelvecError, TableAlreadyExists
from delvec_kernel.schema.column_paths import backticked

__all__ = ["SparkViews"]

_made: Final["WeakKeyDictionary[Any, set[str]]"] = WeakKeyDictionary()
"""The views created here, by session; creating one again, as when a notebook cell is rerun, replaces it."""


class SparkViews:
    """Temporary views of a Spark session, each pinned to one version of a table; Spark reads the Parquet files itself.

    ``spark.sql`` sees the versions as of the last :meth:`refresh`, so that several queries agree; :meth:`sql` sees the
    newest ones. Get it from :meth:`delvec.Connection.register_views`.
    """

    def __init__(self, lake: Catalog, spark: Any, tables: Mapping[str, str]) -> None:
        self._lake = lake
        self._spark = spark
        self._tables = dict(tables)
        self._versions: dict[str, int] = {}

    @classmethod
    def of(cls, lake: Catalog, spark: Any, tables: Sequence[str] | Mapping[str, str] | None) -> "SparkViews":
        """Create the views; see :meth:`delvec.Connection.register_views`."""
        if isinstance(tables, str):
            raise BadRequest(
                f"tables must be a list of names, or a dict from views to tables, not the string {tables!r}"
            )
        if isinstance(tables, Mapping):
            views = cls(lake, spark, tables)
        else:
            names = [table.name for table in lake.tables()] if tables is None else tables
            views = cls(lake, spark, {name.replace(".", "_"): name for name in names})
        views._check_free()
        if tables is None:
            views._make_readable()
        else:
            views.refresh()
        return views

    def __repr__(self) -> str:
        return f"SparkViews({', '.join(f'{view} (version {self._versions[view]})' for view in self.names)})"

    @property
    def names(self) -> list[str]:
        """The names of the views."""
        return sorted(self._versions)

    def refresh(self) -> None:
        """Move each view to the newest version of its table; existing DataFrames keep their versions.

        Raises:
            TableNotFound: or another error of a table that cannot be read; its view does not change.
        """
        for view, name in self._tables.items():
            self._make(view, name)

    def sql(self, text: str) -> Any:
        """Run any query of ``spark.sql`` over the newest versions."""
        self.refresh()
        return self._spark.sql(text)

    def drop(self) -> None:
        """Drop the views."""
        for view in self.names:
            self._spark.catalog.dropTempView(view)
            _made.get(self._spark, set()).discard(view)
        self._tables.clear()
        self._versions.clear()

    def _check_free(self) -> None:
        for view in self._tables:
            if view not in _made.get(self._spark, ()) and self._spark.catalog.tableExists(backticked(view)):
                raise TableAlreadyExists(
                    f"Spark already has a table or view '{view}', which the new view would hide; drop it, or choose "
                    f"another name for the view: register_views(spark, {{'other_name': '{self._tables[view]}'}})."
                )

    def _make_readable(self) -> None:
        for view, name in list(self._tables.items()):
            try:
                self._make(view, name)
            except DelvecError as error:
                del self._tables[view]
                warnings.warn(f"No view was made of table '{name}': {error.message}", stacklevel=4)

    def _make(self, view: str, name: str) -> None:
        table = self._lake.table(name, engine=self._spark)
        newest = table.version()
        if self._versions.get(view) != newest:
            table.to_df(version=newest).createOrReplaceTempView(backticked(view))
            self._versions[view] = newest
            _made.setdefault(self._spark, set()).add(view)
