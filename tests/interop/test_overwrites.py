"""Overwrites by Delvec, with schema evolution, are ordinary commits to delta-spark and deltalake."""

import pyarrow as pa
import pytest

pytestmark = [
    pytest.mark.jars,
    pytest.mark.spark,
    pytest.mark.full_on_spark(
        "delta-spark takes seconds for each; the gate has both ways of reading and writing, and a race"
    ),
]


def of(country, *ids, **more):
    return pa.table({"country": [country] * len(ids), "id": pa.array(ids, pa.int64()), **more})


def ids(rows):
    return sorted(row["id"] for row in rows)


def test_overwritten_rows_are_read_alike(lake, agreed, tmp_path):
    location = tmp_path / "table"
    table = lake.create_table(str(location), "country string, id long", partition_by=["country"])
    table.append(of("NZ", 1, 2, 3))
    table.append(of("FR", 4, 5))

    table.overwrite(of("NZ", 3, 30), replace_where="country = 'NZ' AND id >= 3")
    table.overwrite(of("FR", 6, age=[60]), partition_overwrite="dynamic", merge_schema=True)

    rows = agreed(location)
    assert ids(rows) == [1, 2, 3, 6, 30]
    assert [row["age"] for row in rows if row["id"] == 6] == [60]

    table.overwrite(pa.table({"id": ["x"], "deep": [{"a": 1}]}), overwrite_schema=True, partition_by=[])
    assert agreed(location) == [{"id": "x", "deep": {"a": 1}}]
