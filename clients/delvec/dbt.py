"""Delvec tables in dbt: a plugin of dbt-duckdb.

::

    plugins:
      - module: delvec.dbt
        alias: delvec
        config: {url: "http://delvec:8710", token: "{{ env_var('DELVEC_TOKEN') }}"}

A source with ``plugin: delvec`` reads a table; a model with ``materialized='external', plugin='delvec'`` writes one.
docs/tools.md has the options of both.

Tested in `tests/integration/client/test_dbt.py`.
"""

from collections.abc import Iterable, Mapping
from inspect import signature
from typing import Any, Final

from dbt.adapters.duckdb.plugins import BasePlugin
from dbt.adapters.duckdb.utils import SourceConfig, TargetConfig
from dbt.flags import get_flags
from duckdb import DuckDBPyConnection, DuckDBPyRelation

from delvec.entry_point import connect
from delvec.table import DeltaTable
from delvec_commands.dml.merge_builder import MergeBuilder
from delvec_commands.lazy_rows import Rows
from delvec_commands.transaction import Metrics
from delvec_errors import BadRequest, NotADeltaTable, TableNotFound
from delvec_kernel.schema.column_paths import backticked

__all__ = ["Plugin"]

_OPTIONS: Final = frozenset(signature(connect).parameters)
_TARGET: Final = "DBT_INTERNAL_DEST"
_SOURCE: Final = "DBT_INTERNAL_SOURCE"


class Plugin(BasePlugin):  # type: ignore[misc]  # dbt is optional
    """Reads sources from Delvec tables, and writes external models to them."""

    def initialize(self, plugin_config: dict[str, Any]) -> None:
        """Connect. The options are those of :func:`delvec.connect`, and ``table``, the pattern of table names.

        Raises:
            BadRequest: an option is unknown.
            DelvecError: as for :func:`delvec.connect`.
        """
        settings = (self.creds.settings if self.creds else None) or {}
        options = {name: value for name, value in plugin_config.items() if name not in settings}
        self._pattern = options.pop("table", "{schema}.{identifier}")
        unknown = sorted(options.keys() - _OPTIONS)
        if unknown:
            raise BadRequest(
                f"the plugin delvec.dbt has no option {unknown[0]!r}; it takes table, {', '.join(sorted(_OPTIONS))}"
            )
        self._lake = connect(**options)
        self._views: dict[str, Rows] = {}

    def configure_connection(self, conn: DuckDBPyConnection) -> None:
        """Keep DuckDB's connection: models are read from it, as only their views leave out dbt-duckdb's placeholder rows."""
        self._duckdb = conn

    def configure_cursor(self, cursor: DuckDBPyConnection) -> None:
        """Show a new connection of this process what views of models stand for."""
        for name, rows in list(self._views.items()):
            cursor.register(name, rows)

    def default_materialization(self) -> str:
        """Return ``view`` for DuckDB in memory; a view in a file would not work in the next process."""
        return "view" if self.creds is None or self.creds.path == ":memory:" else "table"

    def load(self, source_config: SourceConfig) -> Rows:
        """Return the rows of a source, which DuckDB reads as a stream.

        Raises:
            DelvecError: as for :meth:`delvec.DeltaTable.scan`.
        """
        timestamp = source_config.get("timestamp")
        return self._lake.table(self._name(source_config.meta, source_config)).scan(
            source_config.get("columns"),
            source_config.get("where"),
            source_config.get("version"),
            None if timestamp is None else str(timestamp),
        )

    def store(self, target_config: TargetConfig) -> None:
        """Write a model's rows to its table, and let the model's relation in DuckDB show the whole table.

        Raises:
            BadRequest: the model's config is contradictory, or not supported.
            DelvecError: as for :meth:`delvec.DeltaTable.overwrite`, ``append`` and ``merge``.
        """
        relation, config = target_config.relation, target_config.config
        options = config.get("meta") or {}
        name, strategy = self._name(options, relation), _strategy(config)
        with self._duckdb.cursor() as cursor:
            rows = cursor.sql(f"SELECT * FROM {relation}")  # noqa: S608 - dbt quotes it
            table = self._table(name)
            if table is None:
                table = self._created(name, rows, config, options)
            else:
                _write(table, rows, strategy, config, options)
            self._show(cursor, relation, table.scan(), options)

    def _name(self, options: Mapping[str, Any], relation: Any) -> str:
        pattern: str = options.get("table", self._pattern)
        return pattern.format(schema=relation.schema, identifier=relation.identifier)

    def _table(self, name: str) -> DeltaTable | None:
        try:
            return self._lake.table(name)
        except (TableNotFound, NotADeltaTable):
            return None

    def _created(
        self, name: str, rows: DuckDBPyRelation, config: Any, options: Mapping[str, Any]
    ) -> DeltaTable:
        return self._lake.create_table(
            name,
            rows.limit(0).to_arrow_table().schema,
            options.get("partition_by"),
            options.get("properties"),
            rows=rows,
            cluster_by=options.get("cluster_by"),
            user_metadata=_user_metadata(config),
        )

    def _show(
        self, cursor: DuckDBPyConnection, relation: Any, rows: Rows, options: Mapping[str, Any]
    ) -> None:
        kind = options.get("materialization", self.default_materialization())
        name = f"delvec_{relation.schema}_{relation.identifier}"
        cursor.register(name, rows)
        if kind == "view":
            self._views[name] = rows
        cursor.begin()
        cursor.execute(f"DROP VIEW {relation}")
        cursor.execute(f'CREATE {kind} {relation} AS SELECT * FROM "{name}"')  # noqa: S608 - as above
        cursor.commit()


def _strategy(config: Any) -> str:
    """Return how a model is written: by dbt's own options of incremental models; without any, it replaces all rows."""
    full_refresh = config.get("full_refresh")
    if get_flags().FULL_REFRESH if full_refresh is None else full_refresh:
        return "full_refresh"
    keys = config.get("unique_key")
    strategy: str = config.get("incremental_strategy") or ("merge" if keys else "overwrite")
    if strategy not in ("overwrite", "append", "insert_overwrite", "merge") or (
        strategy == "merge" and not keys
    ):
        raise BadRequest(
            f"{config.model.unique_id}: incremental_strategy must be 'overwrite', 'append', 'insert_overwrite', or 'merge' "
            f"with a unique_key, not {strategy!r} with unique_key={keys!r}"
        )
    return strategy


def _user_metadata(config: Any) -> str:
    return f"dbt: {config.model.unique_id}"


def _write(
    table: DeltaTable, rows: DuckDBPyRelation, strategy: str, config: Any, options: Mapping[str, Any]
) -> Metrics:
    user_metadata = _user_metadata(config)
    if strategy in ("overwrite", "full_refresh"):
        partition_by = options.get("partition_by", []) if strategy == "full_refresh" else None
        return table.overwrite(
            rows, overwrite_schema=True, partition_by=partition_by, user_metadata=user_metadata
        )
    rows, evolves = _columns(table, rows, config.get("on_schema_change"))
    if strategy == "append":
        return table.append(rows, merge_schema=evolves, user_metadata=user_metadata)
    if strategy == "insert_overwrite":
        return table.overwrite(
            rows, partition_overwrite="dynamic", merge_schema=evolves, user_metadata=user_metadata
        )
    return _merge(table, rows, config, merge_schema=evolves).execute(user_metadata=user_metadata)


def _merge(table: DeltaTable, rows: DuckDBPyRelation, config: Any, *, merge_schema: bool) -> MergeBuilder:
    keys = config.get("unique_key")
    on = [
        f"{_TARGET}.{backticked(key)} = {_SOURCE}.{backticked(key)}"
        for key in ([keys] if isinstance(keys, str) else keys)
    ]
    on += config.get("incremental_predicates") or []
    merge = table.merge(rows, " AND ".join(f"({each})" for each in on), _SOURCE, _TARGET, merge_schema)
    excluded = config.get("merge_exclude_columns") or []
    updated = config.get("merge_update_columns") or [name for name in rows.columns if name not in excluded]
    return merge.when_matched_update(_values(updated)).when_not_matched_insert(_values(rows.columns))


def _values(columns: Iterable[str]) -> dict[str, str]:
    return {backticked(name): f"{_SOURCE}.{backticked(name)}" for name in columns}


def _columns(
    table: DeltaTable, rows: DuckDBPyRelation, on_schema_change: str | None
) -> tuple[DuckDBPyRelation, bool]:
    """Return the rows as ``on_schema_change`` has them, and whether the table gets their new columns."""
    names = {name.lower() for name in table.schema().names}
    if on_schema_change == "append_new_columns":
        return rows, True
    if on_schema_change == "fail" and names != {name.lower() for name in rows.columns}:
        raise BadRequest(
            f"table '{table.name}' has the columns {', '.join(table.schema().names)}, and the model "
            f"{', '.join(rows.columns)}: run with --full-refresh, or set on_schema_change='append_new_columns'"
        )
    if on_schema_change == "sync_all_columns":
        raise BadRequest(
            "on_schema_change='sync_all_columns' is not supported: run with --full-refresh instead"
        )
    shared = [f'"{name.replace(chr(34), chr(34) * 2)}"' for name in rows.columns if name.lower() in names]
    return rows.project(", ".join(shared)), False
