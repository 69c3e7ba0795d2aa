"""Fixtures: tables written by hand, as other Delta writers may write them, and each engine."""

import json
import math
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from tests.conftest import as_users_have_it

from delvec_kernel.deletion_vectors.deletion_vector import inline
from delvec_kernel.schema.types import StructType

READER_FEATURES = {
    "columnMapping",
    "deletionVectors",
    "geospatial",
    "geospatial-dev",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "variantType",
    "variantType-preview",
    "variantShredding-preview",
}


@dataclass
class DataFile:
    """A Parquet file and its entry in the log.

    Attributes:
        rows: its rows; None if the file exists.
        values: its partition values, serialized.
        deleted: row indexes for an inline deletion vector, or the descriptor itself.
        name: below the table's folder.
        stats: the entry's statistics; by default the number of rows.
        options: for the Parquet writer.
    """

    rows: pa.Table | None
    values: dict[str, str | None] = field(default_factory=dict)
    deleted: Any = None
    name: str | None = None
    stats: dict[str, Any] | None = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


class TableWriter:
    """Writes a table's log by hand, as a single version."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, name, schema, files, *, partition_by=(), properties=None, features=(), protocol=None):
        """Write a table and return its folder.

        Args:
            name: of the folder.
            schema: Arrow's, Delvec's, or Delta's JSON object.
            files: the data files.
            partition_by: logical names.
            properties: the table's configuration.
            features: table features, in addition to those that schema and files need.
            protocol: the protocol action, instead of ``features``.
        """
        folder = self.folder / name
        (folder / "_delta_log").mkdir(parents=True, exist_ok=True)
        if isinstance(schema, pa.Schema):
            schema = StructType.from_arrow(schema)
        document = schema.to_json() if isinstance(schema, StructType) else schema
        needed = set(features)
        if '"timestamp_ntz"' in json.dumps(document):
            needed.add("timestampNtz")
        adds = [self._add(folder, number, file) for number, file in enumerate(files)]
        if any("deletionVector" in add for add in adds):
            needed.add("deletionVectors")
        actions = [{"protocol": protocol or _protocol(needed)}]
        actions.append(
            {
                "metaData": {
                    "id": "00000000-0000-0000-0000-000000000001",
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": json.dumps(document),
                    "partitionColumns": list(partition_by),
                    "configuration": properties or {},
                    "createdTime": 1_600_000_000_000,
                }
            }
        )
        actions += [{"add": add} for add in adds]
        commit = folder / "_delta_log" / f"{0:020}.json"
        commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
        return folder

    def _add(self, folder, number, file):
        name = file.name or f"part-{number:05}.parquet"
        path = folder / name
        if file.rows is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(file.rows, path, **file.options)
        stats = file.stats
        if stats == {} and file.rows is not None:
            stats = {"numRecords": file.rows.num_rows}
        add = {
            "path": quote(name, safe="/=+"),
            "partitionValues": file.values,
            "size": path.stat().st_size,
            "modificationTime": 1_700_000_000_000,
            "dataChange": True,
        }
        if stats:
            add["stats"] = json.dumps(stats)
        if file.deleted is not None:
            deleted = file.deleted
            add["deletionVector"] = (
                deleted if isinstance(deleted, dict) else inline(BitMap64(deleted)).to_json()
            )
        return add


def _protocol(features):
    if not features:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": sorted(features & READER_FEATURES),
        "writerFeatures": sorted(features),
    }


@pytest.fixture
def write_table(tmp_path):
    """A :class:`TableWriter` for this test's folder."""
    return TableWriter(tmp_path)


@pytest.fixture(scope="module")
def write_shared_table(tmp_path_factory):
    """A :class:`TableWriter` whose tables are shared by a module's tests."""
    return TableWriter(tmp_path_factory.mktemp("tables"))


_AS_JOBS = pytest.mark.full("the gate has the main cases of Spark's own plans in tests/integration/spark")


@pytest.fixture(
    scope="session",
    params=[
        "duckdb",
        pytest.param("spark", marks=pytest.mark.spark),
        pytest.param("spark-jobs", marks=[pytest.mark.spark, _AS_JOBS]),
    ],
)
def engine(request):
    """Each engine in turn: DuckDB, Spark as users have it, which leaves small changes to DuckDB, and Spark alone."""
    if request.param == "duckdb":
        return request.param
    session = request.getfixturevalue("spark")
    return as_users_have_it(session) if request.param == "spark" else session


@pytest.fixture
def read(lake, engine):
    """``read(folder, columns=None, predicate=None)`` returns a table's rows from the engine."""

    def read(folder, columns=None, predicate=None):
        return lake.table(str(folder), engine=engine).to_arrow(columns=columns, predicate=predicate)

    return read


def plain(column):
    """Return a column as Python values that compare exactly and are sortable for any range.

    Days and microseconds are integers; floats are told apart by sign, and NaN equals NaN.
    """
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = column.type
    if pa.types.is_date32(kind):
        column = column.view(pa.int32())
    elif pa.types.is_timestamp(kind):
        column = column.view(pa.int64())
    elif pa.types.is_floating(kind):
        return [None if v is None else "NaN" if math.isnan(v) else repr(v) for v in column.to_pylist()]
    elif pa.types.is_nested(kind):
        return [_nested(value) if value.is_valid else None for value in column]
    return column.to_pylist()


def _nested(value):
    if pa.types.is_struct(value.type):
        return {name: plain(pa.array([item], item.type))[0] for name, item in value.items()}
    if pa.types.is_map(value.type):
        return list(zip(plain(value.values.field(0)), plain(value.values.field(1)), strict=True))
    return plain(value.values)


def rows_of(table):
    """Return a table's rows as dicts of :func:`plain` values, in a canonical order."""
    columns = {name: plain(table[name]) for name in table.column_names}
    return sorted(
        (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)), key=repr
    )


def check_same(found, expected):
    """Check that two tables have the same schema, except for metadata, and the same rows in any order."""
    assert found.schema.equals(expected.schema, check_metadata=False), (found.schema, expected.schema)
    ours, theirs = rows_of(found), rows_of(expected)
    for name in expected.column_names:  # first by column, because a difference then is short
        assert [row[name] for row in ours] == [row[name] for row in theirs], name


@pytest.fixture(scope="session")
def same():
    return check_same


@pytest.fixture(scope="session")
def rows():
    return rows_of


@pytest.fixture(scope="session")
def data_file():
    return DataFile
