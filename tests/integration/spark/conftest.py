"""Hand-made scans."""

import json
from types import SimpleNamespace
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

import delvec
from delvec.spark import use
from delvec_engines.scan import Scan
from delvec_engines.spark import SparkEngine
from delvec_kernel.deletion_vectors.deletion_vector import inline, serialize_bitmap
from delvec_kernel.expressions import predicate as predicates
from delvec_kernel.schema.types import StructType, schema_from
from delvec_service.scans.plan import PLAN_SCHEMA


class ScanMaker:
    """Writes data files and returns the scan that a plan would."""

    def __init__(self, folder):
        self.folder = folder
        self.location = "file://" + quote(str(folder))

    def __call__(self, files, schema, *, partition_by=(), configuration=None):
        """Return a scan.

        Args:
            files: dicts with ``name`` (decoded path), ``rows`` (Arrow), ``values`` (partition values), ``deleted``.
            schema: Arrow or Delta.
            partition_by: names.
            configuration: table properties.
        """
        rows = []
        for file in files:
            path = self.folder / file["name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(file["rows"], path, **file.get("options", {}))
            deleted = BitMap64(file["deleted"]) if file.get("deleted") is not None else None
            rows.append(
                {
                    "path": quote(file["name"], safe="/=+!$&'(),;@*"),
                    "partition_values": list(file.get("values", {}).items()),
                    "size": file.get("size", path.stat().st_size),
                    "modification_time": 1_700_000_000_000,
                    "num_records": file.get("num_records", file["rows"].num_rows),
                    "matches_all": False,
                    "deletion_vector": None if deleted is None else inline(deleted).to_json(),
                    "deleted_rows": None if deleted is None else serialize_bitmap(deleted),
                    "stats": json.dumps({"numRecords": file["rows"].num_rows}),
                }
            )
        schema = schema if isinstance(schema, StructType) else schema_from(schema)
        table = pa.Table.from_pylist(rows, schema=PLAN_SCHEMA)
        return Scan(
            "id",
            "people",
            self.location,
            3,
            schema,
            list(partition_by),
            configuration or {},
            table,
            len(rows),
        )


@pytest.fixture(scope="session")
def scan_maker():
    """Return a factory of :class:`ScanMaker` for a folder."""
    return ScanMaker


@pytest.fixture
def make_scan(tmp_path):
    return ScanMaker(tmp_path / "table")


@pytest.fixture(scope="session")
def numbers_scan(tmp_path_factory):
    """100,000 rows in one file with several row groups, and 1,000 in another; the first with deleted rows."""
    maker = ScanMaker(tmp_path_factory.mktemp("numbers"))
    big = pa.table({"id": range(100_000), "text": [f"t{i % 97}" for i in range(100_000)]})
    small = pa.table({"id": range(100_000, 101_000), "text": ["s"] * 1000})
    deleted = [*range(0, 50_000, 3), 99_999]
    scan = maker(
        [
            {"name": "a.parquet", "rows": big, "deleted": deleted, "options": {"row_group_size": 10_000}},
            {"name": "b.parquet", "rows": small},
        ],
        big.schema,
    )
    live = sorted(set(range(101_000)) - set(deleted))
    return SimpleNamespace(scan=scan, live=live, deleted=deleted)


@pytest.fixture
def where():
    """Parse a predicate against a scan's schema."""
    return lambda scan, text: predicates.parse(text, scan.schema)


@pytest.fixture(scope="module")
def used_connection(tmp_path_factory):
    """The connection that ``delvec.spark.DeltaTable`` uses."""
    database = tmp_path_factory.mktemp("state") / "delvec.db"
    with delvec.connect(database_url=f"sqlite:///{database}") as connection:
        use(connection)
        yield connection
        use(None)


@pytest.fixture
def engine(spark):
    return SparkEngine(spark)
