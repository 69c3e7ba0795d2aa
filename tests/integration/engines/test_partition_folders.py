"""Partition folders: ASCII names of limited length for any values."""

import pyarrow as pa
import pytest

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate")


def test_long_values_that_are_not_ascii_are_written_and_told_apart(lake, engine, tmp_path):
    values = ["é" * 80, "é" * 79 + "è", "日本" * 40, "x" * 190]
    table = lake.create_table(tmp_path / "t", "id long, p string", partition_by=["p"], engine=engine)

    table.append(pa.table({"id": range(4), "p": values}))

    assert table.to_arrow().sort_by("id")["p"].to_pylist() == values
    assert table.count(f"p = '{values[1]}'") == 1
    folders = {path.name for path in (tmp_path / "t").iterdir() if path.name.startswith("p=")}
    assert len(folders) == 4
    assert all(name.isascii() and len(name) <= 255 for name in folders)
    assert table.check()["num-errors"] == 0
