"""A table whose files are written with Arrow and whose scan is built by hand, for engines."""

from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from delvec_engines.protocol import WriteTarget
from delvec_engines.scan import Scan
from delvec_kernel.deletion_vectors.deletion_vector import inline, serialize_bitmap
from delvec_kernel.expressions.predicate import parse
from delvec_kernel.schema.types import StructField, StructType
from delvec_service.scans.plan import PLAN_SCHEMA
from delvec_storage import files as storage


class Table:
    """Builds a table: files are written with Arrow, and the scan is built by hand."""

    def __init__(self, location, schema, partition_by=(), configuration=None):
        self.location = location
        self.schema = schema if isinstance(schema, StructType) else StructType.from_arrow(schema)
        self.partition_by = list(partition_by)
        self.configuration = configuration or {}
        self.rows = []

    def add(self, name, data, deleted=None, values=None, num_records=True):
        path = quote(name)
        sink = pa.BufferOutputStream()
        pq.write_table(data, sink, row_group_size=1000)
        body = sink.getvalue().to_pybytes()
        storage.write_file(self.location, path, body)
        vector = None if deleted is None else BitMap64(deleted)
        self.rows.append(
            {
                "path": path,
                "partition_values": list((values or {}).items()),
                "size": len(body),
                "modification_time": storage.stat(self.location, path).last_modified_ms,
                "num_records": data.num_rows if num_records else None,
                "matches_all": False,
                "deletion_vector": None if vector is None else inline(vector).to_json(),
                "deleted_rows": None if vector is None else serialize_bitmap(vector),
            }
        )
        return path

    def scan(self):
        return Scan(
            table_id="1",
            name="people",
            location=self.location,
            version=7,
            schema=self.schema,
            partition_columns=self.partition_by,
            configuration=self.configuration,
            files=pa.Table.from_pylist(self.rows, PLAN_SCHEMA),
            num_files_total=len(self.rows),
        )

    def where(self, text):
        return parse(text, self.schema)

    def target(self):
        return WriteTarget(self.location, self.schema, self.partition_by, self.configuration, "tx-1")


def mapped(name, kind, number):
    metadata = {"delta.columnMapping.physicalName": f"col-{number}", "delta.columnMapping.id": number}
    return StructField(name, kind, metadata=metadata)


def ids(table):
    return sorted(table["id"].to_pylist())


PEOPLE = pa.schema([("id", pa.int64()), ("name", pa.string())])


def people(start, stop):
    return pa.table(
        {"id": range(start, stop), "name": [f"n{number}" for number in range(start, stop)]}, PEOPLE
    )
