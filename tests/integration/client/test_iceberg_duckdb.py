"""Converted tables read by DuckDB's Iceberg extension, from files and through the catalog."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.support import duckdb_extensions
from tests.support.iceberg_tables import delta_rows, iceberg_table
from tests.support.packages import NotInstalledError

pytestmark = pytest.mark.long("installs a DuckDB that has the Iceberg extension")

BOTH = pytest.mark.parametrize("format_version", [2, 3])


@pytest.fixture(scope="module", autouse=True)
def extension():
    try:
        duckdb_extensions.packages()
    except NotInstalledError as error:
        pytest.skip(f"DuckDB's extensions could not be installed: {error}")


@pytest.fixture
def rows(tmp_path):
    """Reads a conversion's rows, sorted by their first column."""

    def read(converted, snapshot_id=None):
        at = "" if snapshot_id is None else f", snapshot_from_id = {snapshot_id}"
        return duckdb_extensions.query(
            f"SELECT * FROM iceberg_scan('{converted['metadata-location']}'{at}) ORDER BY 1", tmp_path
        ).to_pylist()

    return read


@BOTH
@pytest.mark.parametrize("parted", [[], ["p"]])
def test_rows_are_deltas_after_every_statement(lake, tmp_path, rows, parted, format_version):
    table = lake.create_table(tmp_path / "a b%20c", "id long, p string, x double", partition_by=parted)
    table.append([{"id": n, "p": [None, "a b%1", "ä/="][n % 3], "x": n / 3} for n in range(100)])

    def check():
        assert rows(table.to_iceberg(format_version=format_version)) == delta_rows(table)

    check()
    table.delete("id % 7 = 0")
    check()
    table.delete("id % 11 = 0")
    table.update({"x": "-1.0"}, "id % 5 = 0")
    check()
    table.restore(2)
    check()
    table.optimize.compact()
    table.optimize.purge()
    check()
    table.delete("p = 'a b%1'")
    check()


@pytest.mark.parametrize("parted", [[], ["p"]])
def test_delete_files_shared_by_a_partition(lake, tmp_path, rows, parted):
    table = lake.create_table(
        tmp_path / "a b%20c",
        "id long, p string, x double",
        partition_by=parted,
        properties={"delvec.iceberg.deleteGranularity": "partition"},
    )
    for start in (0, 40, 80):
        table.append([{"id": n, "p": [None, "a b%1"][n % 2], "x": n / 3} for n in range(start, start + 40)])

    def check():
        done = table.to_iceberg()
        assert rows(done) == delta_rows(table)
        return done

    table.delete("id % 7 = 0")
    first = check()
    table.delete("id in (41, 43)")
    table.update({"x": "-1.0"}, "id % 5 = 0")
    check()
    table.delete("id < 40")
    check()
    table.restore(4)
    check()
    table.optimize.purge()
    check()
    table.overwrite([{"id": 1, "p": "x", "x": 0.5}])
    done = check()
    assert rows(done, first["snapshot-id"]) == delta_rows(table, version=4)


@BOTH
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int32(), [1, -5, None]),
        (pa.date32(), [date(2024, 1, 1), date(1960, 1, 1), None]),
        (pa.timestamp("us"), [datetime(2024, 1, 1, 0, 0, 0, 7), None]),  # noqa: DTZ001 - it has no zone
        (pa.decimal128(12, 3), [Decimal("1.500"), Decimal("-2.250"), None]),
        (pa.bool_(), [True, False, None]),
    ],
    ids=str,
)
def test_partition_values_of_every_type(lake, tmp_path, rows, kind, values, format_version):
    schema = pa.schema([("id", pa.int64()), ("p", kind)])
    table = lake.create_table(tmp_path / "t", schema, partition_by=["p"])
    table.append(pa.Table.from_pylist([{"id": n, "p": values[n % len(values)]} for n in range(20)], schema))
    table.delete("id in (3, 4, 5)")
    assert rows(table.to_iceberg(format_version=format_version)) == delta_rows(table)


@BOTH
@pytest.mark.parametrize("mode", ["name", "id"])
def test_columns_come_go_and_change_their_names(lake, tmp_path, rows, mode, format_version):
    properties = {"delta.columnMapping.mode": mode, "delta.enableTypeWidening": "true"}
    table = lake.create_table(tmp_path / "t", "id long, a string, b int, w int", properties=properties)
    table.append([{"id": 1, "a": "x", "b": 7, "w": 1}])
    table.to_iceberg(format_version=format_version)
    table.alter.rename_column("a", "c")
    table.alter.drop_columns(["b"])
    table.alter.add_columns("a long")
    table.alter.change_type("w", "long")
    table.append([{"id": 2, "c": "y", "a": 9, "w": 2**40}])
    done = table.to_iceberg(format_version=format_version)
    assert rows(done) == delta_rows(table)
    first = iceberg_table(done).metadata.snapshots[0]
    assert [row["id"] for row in rows(done, first.snapshot_id)] == [1]


@BOTH
def test_times_with_a_zone(lake, tmp_path, rows, format_version):
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    table = lake.create_table(tmp_path / "t", schema)
    table.append(pa.table({"id": [1, 2], "at": [datetime(2024, 2, 29, 1, 2, 3, 456789, UTC), None]}, schema))
    found = rows(table.to_iceberg(format_version=format_version))
    assert [row["at"] and row["at"].astimezone(UTC) for row in found] == [
        row["at"] for row in delta_rows(table)
    ]
