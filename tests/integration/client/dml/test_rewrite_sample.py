"""PURGE and OPTIMIZE gain what their dry runs predict, for files of any writer and any deleted rows."""

from dataclasses import replace

import deltalake
import numpy as np
import pyarrow as pa
import pytest

from delvec_commands.dml import rewrite_sample
from delvec_maintenance.compaction import Bin

ROWS = 20_000
DRAW = np.random.default_rng(3)


def rows(first, count):
    """Rows of which every other is wide."""
    numbers = np.arange(first, first + count)
    wide = [DRAW.bytes(60).hex() if number % 2 else None for number in numbers]
    country = pa.array([f"country-{number:03}" for number in DRAW.integers(0, 200, count)])
    return pa.table(
        {
            "id": numbers,
            "amount": DRAW.integers(0, 10**9, count),
            "country": country,
            "text": pa.array(wide, pa.string()),
        }
    )


def unused(*_):
    pytest.fail("nothing is written")


def of_delvec(lake, folder, **properties):
    table = lake.create_table(folder / "own", rows(0, 1).schema, properties=properties)
    table.append(rows(0, ROWS))
    return table


def of_small_files(lake, folder):
    table = lake.create_table(folder / "small", rows(0, 1).schema)
    for number in range(20):
        table.append(rows(50 * number, 50))
    return table


def of_deltalake(lake, folder):
    """Uncompressed, with dictionaries of all columns."""
    properties = deltalake.WriterProperties(compression="UNCOMPRESSED")
    deltalake.write_deltalake(folder / "foreign", rows(0, ROWS), writer_properties=properties)
    table = lake.table(folder / "foreign")
    table.alter.enable_deletion_vectors()
    return table


def of_row_ids(lake, folder):
    return of_delvec(lake, folder, **{"delta.enableRowTracking": "true"})


def of_mapped_columns(lake, folder):
    return of_delvec(lake, folder, **{"delta.columnMapping.mode": "name"})


KINDS = [of_delvec, of_small_files, of_deltalake, of_row_ids, of_mapped_columns]


def data_files(folder):
    return {path for path in folder.rglob("*") if path.is_file() and "_delta_log" not in path.parts}


def gained(table, command):
    before = table.detail()["sizeInBytes"]
    command()
    return before - table.detail()["sizeInBytes"]


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("where", ["id % 10 < 3", "id % 2 = 1", "id < 300"])
def test_the_gain_of_a_purge_is_predicted(make, where, lake, tmp_path):
    table = make(lake, tmp_path)
    table.delete(where)
    files = data_files(tmp_path)
    planned = table.optimize.purge(dry_run=True)
    assert data_files(tmp_path) == files
    assert planned.gain_bytes == pytest.approx(gained(table, table.optimize.purge), rel=0.05)


def test_the_gain_of_compaction_is_predicted(lake, tmp_path):
    table = of_small_files(lake, tmp_path)
    planned = table.optimize(dry_run=True)
    assert planned.gain_bytes == pytest.approx(gained(table, table.optimize), rel=0.05)
    assert planned.gain_bytes > 20_000


@pytest.mark.parametrize(
    "partitioned", [pytest.param(False, marks=pytest.mark.full("the other has more steps")), True]
)
def test_a_sample_of_the_files_and_of_their_rows_says_it_of_all(partitioned, lake, tmp_path, monkeypatch):
    monkeypatch.setattr(rewrite_sample, "SAMPLE_BYTES", 2_500_000)
    table = lake.create_table(
        tmp_path / "many",
        rows(0, 1).append_column("part", pa.array(["a"])).schema,
        ["part"] if partitioned else [],
    )
    for number in range(12):
        some = rows(ROWS * number, ROWS)
        table.append(some.append_column("part", pa.array([f"p{number % 6}"] * ROWS)))
    table.delete("id % 10 < 3 AND id % 2 = 1")
    planned = table.optimize.purge(dry_run=True)
    assert planned["numRemovedBytes"] > 3 * rewrite_sample.SAMPLE_BYTES
    by_share = planned["numRemovedBytes"] * 0.1
    measured = gained(table, table.optimize.purge)
    assert planned.gain_bytes == pytest.approx(measured, rel=0.1)
    assert by_share != pytest.approx(measured, rel=0.3)


def test_a_number_of_rows_that_no_file_has_makes_no_bitmap_of_them(lake, tmp_path):
    table = lake.create_table(tmp_path / "false", rows(0, 1).schema)
    table.append(rows(0, 10))
    scan, _ = table.plan()
    columns = {"num_records": 1 << 36, "size": 1 << 26}
    files = scan.files
    for name, value in columns.items():
        files = files.set_column(files.schema.get_field_index(name), name, pa.array([value], pa.int64()))
    bins = [Bin(np.array([0]), 1 << 26, 1 << 26)]
    assert rewrite_sample.with_measured_sizes(replace(scan, files=files), bins, unused) == bins


def test_a_file_that_cannot_be_read_is_left_to_the_command_to_name(lake, tmp_path):
    table = of_delvec(lake, tmp_path)
    table.delete("id % 10 < 3")
    (path,) = (tmp_path / "own").glob("*.parquet")
    path.write_bytes(b"PAR1" * 100)
    planned = table.optimize.purge(dry_run=True)
    assert planned.gain_bytes == pytest.approx(planned["numRemovedBytes"] * 0.3, rel=0.01)
