"""Lazy rows: one version of a table, columns and a condition, and the formats to read them in.

Tested in `tests/integration/client/test_reading.py` and `tests/integration/client/test_peer_names.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from delvec_commands.failed_reads import reporting
from delvec_commands.filters import of_polars
from delvec_commands.table_service import TableService
from delvec_engines.protocol import Engine
from delvec_engines.scan import Scan
from delvec_errors import BadRequest, EngineUnavailable
from delvec_kernel import locations
from delvec_kernel.expressions.predicate import Predicate

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    from pyspark.sql import DataFrame

__all__ = ["Rows"]


class Rows:
    """Lazy rows and columns of one version of a table; see :meth:`delvec.DeltaTable.scan`.

    Nothing is read until a method is called, and each call reads again. Programs that accept Arrow streams (polars,
    pyarrow, DuckDB, Delvec's own ``append`` and ``merge``) accept it directly.

    Attributes:
        version: the pinned version.
    """

    def __init__(
        self,
        engine: Engine,
        scan: Scan,
        columns: Sequence[str] | None,
        predicate: Predicate | None,
        service: TableService | None = None,
    ) -> None:
        self._service = service
        self._engine = engine
        self._scan = scan
        self._predicate = predicate
        # Spelled as in the schema, without duplicates.
        self._columns = (
            None if columns is None else list(dict.fromkeys(scan.schema.field(name).name for name in columns))
        )
        self.version = scan.version

    def __repr__(self) -> str:
        where = "" if self._predicate is None else f", predicate={self._predicate.text!r}"
        return f"Rows(table={self._scan.name!r}, version={self.version}, files={len(self._scan)}{where})"

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_batches().__arrow_c_stream__(requested_schema)

    @property
    def reads(self) -> frozenset[tuple[str, int]]:
        """(table id, version) if these rows are of the newest version at the time; empty for a chosen version."""
        return frozenset({(self._scan.table_id, self.version)} if self._scan.is_newest else ())

    @property
    def schema(self) -> pa.Schema:
        """The columns, as Arrow's schema."""
        schema = self._scan.schema.to_arrow()
        return schema if self._columns is None else pa.schema([schema.field(name) for name in self._columns])

    def files(self) -> list[str]:
        """Return the URLs of the data files that may have such rows."""
        return [locations.resolve(self._scan.location, path) for path in self._scan.files["path"].to_pylist()]

    def count(self) -> int:
        """Return the number of rows, from the log alone if its statistics suffice."""
        known = self._known_by_log()
        exact = _live_rows(self._scan.filter(known))
        rest = self._scan.filter(pc.invert(known))
        if not len(rest):
            return exact
        with self._reading():
            return exact + self._engine.count(rest, self._predicate)

    def _reading(self) -> AbstractContextManager[None]:
        return reporting(self._service, self._scan.table_id)

    def _known_by_log(self) -> pa.ChunkedArray:
        """Return of which files the log tells the number of rows."""
        known = pc.is_valid(self._scan.files["num_records"])
        if self._predicate is not None:
            known = pc.and_(known, self._scan.files["matches_all"])
        return known

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table.

        Raises:
            CorruptTable: or a subclass: a data file or a deletion vector is damaged or missing.
            InvalidPredicate: the condition fails for a row.
        """
        with self._reading():
            rows = self._engine.read(self._scan, self._columns, self._predicate)
        return rows if self._columns is None else rows.select(self._columns)

    def to_batches(self) -> pa.RecordBatchReader:
        """Return the rows as a stream, for results larger than memory; as :meth:`to_arrow`."""
        names = self.schema.names

        def batches() -> Iterator[pa.RecordBatch]:
            with self._reading():
                for batch in self._engine.read_batches(self._scan, self._columns, self._predicate):
                    yield batch.select(names)

        return pa.RecordBatchReader.from_batches(self.schema, batches())

    def to_pandas(self, *, types_mapper: Callable[[pa.DataType], Any] | None = None) -> "pd.DataFrame":
        """Return the rows as a pandas DataFrame.

        Args:
            types_mapper: maps Arrow types to pandas types, as in ``pyarrow.Table.to_pandas``. By default, integers
                become pandas' nullable types if some are NULL: as floats they would lose digits.

        Raises:
            EngineUnavailable: pandas is not installed.
        """
        rows = self.to_arrow()
        with _needed("pandas"):
            import pandas as pd

            return rows.to_pandas(types_mapper=types_mapper or _nullable_integers(pd, rows).get)

    def to_polars(self) -> "pl.DataFrame":
        """Return the rows as a polars DataFrame.

        Raises:
            EngineUnavailable: polars is not installed.
        """
        with _needed("polars"):
            import polars as pl
        return pl.DataFrame(pl.from_arrow(self.to_arrow()))

    def head(self, n: int = 5) -> "pd.DataFrame":
        """Return some rows, in no particular order, as a pandas DataFrame; reads only as much as needed.

        Raises:
            BadRequest: ``n`` is negative.
            EngineUnavailable: pandas is not installed.
        """
        if n < 0:
            raise BadRequest(f"head() takes 0 or more rows (given: {n})")
        stream, batches, left = self.to_batches(), [], n
        for batch in stream if n else ():
            batches.append(batch.slice(0, left))
            left -= batches[-1].num_rows
            if left <= 0:
                break
        rows = pa.Table.from_batches(batches, stream.schema)
        with _needed("pandas"):
            import pandas as pd

            return rows.to_pandas(types_mapper=_nullable_integers(pd, rows).get)

    def to_lazyframe(self, plan: Callable[[int, str], Scan]) -> "pl.LazyFrame":
        """Return the rows as a polars LazyFrame; see :meth:`delvec.DeltaTable.to_lazyframe`.

        Args:
            plan: returns the files of a version that can match a condition.

        Raises:
            EngineUnavailable: polars is not installed.
        """
        with _needed("polars"):
            import polars as pl
            from polars.io.plugins import register_io_source

        def read(columns: list[str] | None, condition: str | None) -> Rows:
            scan = self._scan if condition is None else plan(self.version, condition)
            chosen = self._columns if columns is None else columns
            return Rows(self._engine, scan, chosen, self._predicate, self._service)

        schema = self._scan.schema

        def batches(
            columns: list[str] | None, predicate: Any, n_rows: int | None, _batch_size: int | None
        ) -> Iterator[Any]:
            # polars applies the whole filter itself. The parts with an SQL equivalent only skip files: the two
            # compare some values differently, so they must not filter rows.
            condition = None if predicate is None else of_polars(predicate, schema)
            left = n_rows
            for batch in read(columns or None, condition).to_batches():
                frame = pl.DataFrame(pl.from_arrow(batch))
                if left is not None:
                    frame = frame.head(left)
                    left -= len(frame)
                yield frame if predicate is None else frame.filter(predicate)
                if left is not None and left <= 0:
                    return

        return register_io_source(
            batches, schema=pl.DataFrame(pl.from_arrow(self.schema.empty_table())).schema
        )

    def to_duckdb(self, connection: Any = None) -> "duckdb.DuckDBPyRelation":
        """Return the rows as a DuckDB relation, to filter, join and group them there.

        DuckDB reads the files itself, in this process, when the relation is evaluated and only the columns that it
        needs, whatever the table's engine. Rows with a condition are read now and kept in memory.

        Args:
            connection: the DuckDB connection of the relation; by default a new one, in memory. Queries of that
                connection find the rows by the variable that holds the relation.

        Raises:
            EngineUnavailable: DuckDB is not installed.
            MissingDataFile: a local file is missing; later, or in an object store, the error is DuckDB's own.
            UnsupportedReaderFeature: DuckDB cannot return a column.
        """
        with _needed("duckdb"):
            from delvec_engines.duckdb.relation import arrow_relation, check_files, relation
        if self._predicate is None:
            with self._reading():
                check_files(self._scan)
                return relation(self._scan, self._columns, connection)
        return arrow_relation(self.to_arrow(), connection)

    def to_df(self) -> "DataFrame":
        """Return the rows as a lazy Spark DataFrame; its own ``count()`` is answered from the log if statistics suffice.

        Raises:
            EngineUnavailable: the table's engine is not Spark.
        """
        known = pc.all(self._known_by_log(), min_count=0).as_py()
        num_rows = _live_rows(self._scan) if known else None
        with self._reading():
            return self._engine.to_df(self._scan, self._columns, self._predicate, num_rows)


def _live_rows(scan: Scan) -> int:
    physical = pc.sum(scan.files["num_records"]).as_py() or 0
    vectors = scan.files["deletion_vector"].combine_chunks()
    deleted = pc.sum(pc.struct_field(vectors, "cardinality")).as_py() or 0
    return int(physical) - int(deleted)


def _nullable_integers(pd: Any, rows: pa.Table) -> dict[pa.DataType, Any]:
    """Return pandas' nullable types for integer columns with NULLs."""
    sizes = {pa.int8(): "Int8", pa.int16(): "Int16", pa.int32(): "Int32", pa.int64(): "Int64"}
    found = {column.type for column in rows.columns if column.null_count}
    return {kind: getattr(pd, f"{name}Dtype")() for kind, name in sizes.items() if kind in found}


@contextmanager
def _needed(package: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise EngineUnavailable(
            f"to_{package}() needs {package}: pip install {package}, or call .to_arrow()"
        ) from error
