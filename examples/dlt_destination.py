"""Loads into Delvec tables with dlt: a custom destination. Tried with dlt 1.31.

    DELVEC_URL=http://localhost:8710 python examples/dlt_destination.py

Each file of a load is one commit: appended once, however often dlt repeats the job, or merged by primary key. Without
DELVEC_URL the tables are created under ./lake.
"""

import os
from typing import Any

import dlt
import pyarrow.parquet as pq
from dlt.common.destination.exceptions import DestinationTerminalException
from dlt.common.schema import TTableSchema
from dlt.common.storages.load_package import ParsedLoadJobFileName

import delvec


# batch_size=0 hands over whole files; one job for a table at a time, so that jobs do not race.
@dlt.destination(
    name="delvec", batch_size=0, loader_file_format="parquet", loader_parallelism_strategy="table-sequential"
)
def delvec_destination(
    items: str, table: TTableSchema, url: str = "./lake", token: str | None = None
) -> None:
    """Write one file of rows: by ``[destination.delvec]`` of dlt's configuration, ``url`` and ``token``."""
    rows = pq.read_table(items)
    with delvec.connect(url, token=token) as lake:
        target = lake.create_table(table["name"], rows.schema, if_not_exists=True)
        match table.get("write_disposition"):
            case "append":
                job = ParsedLoadJobFileName.parse(items).file_id
                target.append(rows, merge_schema=True, txn=(f"dlt-{job}", 0))
            case "merge":
                keys = [name for name, column in table["columns"].items() if column.get("primary_key")]
                on = " AND ".join(f"target.`{key}` = source.`{key}`" for key in keys)
                merge = target.merge(rows, on, merge_schema=True)
                merge.when_matched_update_all().when_not_matched_insert_all().execute()
            case other:
                raise DestinationTerminalException(
                    f"{table['name']}: write_disposition {other} is not supported"
                )


@dlt.resource(primary_key="id", write_disposition="merge")
def people() -> Any:
    """Yield rows, as an API would."""
    yield [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Grace"}]


@dlt.resource(write_disposition="append")
def visits() -> Any:
    """Yield rows without a key."""
    yield [{"person": 1, "page": "/"}, {"person": 2, "page": "/docs"}]


if __name__ == "__main__":
    where = os.environ.get("DELVEC_URL", "./lake")
    pipeline = dlt.pipeline(
        "delvec_example",
        destination=delvec_destination(url=where, token=os.environ.get("DELVEC_TOKEN")),
    )
    print(pipeline.run([people, visits]))
    with delvec.connect(where) as lake:
        for name in ("people", "visits"):
            print(name, lake.table(name).to_arrow().to_pylist())
