"""Change data files: location and content."""

from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delvec_engines.change_files import ChangeFileWriter
from delvec_engines.protocol import WriteTarget
from delvec_errors import SchemaMismatch
from delvec_kernel.schema.types import PrimitiveType, StructField, StructType


def target(place: Path, configuration: dict[str, str] | None = None, *, mapped: bool = False) -> WriteTarget:
    def field(name: str, kind: str, number: int) -> StructField:
        metadata = {"delta.columnMapping.physicalName": f"col-{name}", "delta.columnMapping.id": number}
        return StructField(
            name, PrimitiveType(kind), nullable=name != "id", metadata=metadata if mapped else {}
        )

    mode = {"delta.columnMapping.mode": "name"} if mapped else {}
    schema = StructType((field("id", "long", 1), field("country", "string", 2)))
    return WriteTarget(place.as_uri(), schema, ["country"], mode | (configuration or {}), "tx")


def rows(*, ids: list[int | None]) -> pa.RecordBatch:
    columns = {
        "id": pa.array(ids, pa.int64()),
        "country": pa.array(["N Z"] * len(ids)),
        "_change_type": pa.array(["update_preimage"] * len(ids)),
    }
    return pa.RecordBatch.from_pydict(columns)


def test_change_files_are_data_files_with_the_kind_of_change_in_a_folder_of_their_own(tmp_path: Path) -> None:
    with ChangeFileWriter(target(tmp_path), task=3) as writer:
        writer.write(rows(ids=[1, 2]))
        (file,) = writer.finish()
    assert file.path.startswith("_change_data/country=N%20Z/cdc-00003-")
    assert file.path.endswith("-tx.c000.zstd.parquet")
    assert file.partition_values == {"country": "N Z"}
    stored = tmp_path / unquote(file.path)
    assert stored.stat().st_size == file.size
    found = pq.ParquetFile(stored).read()
    assert found.to_pydict() == {"id": [1, 2], "_change_type": ["update_preimage"] * 2}


def test_columns_have_their_physical_names(tmp_path: Path) -> None:
    with ChangeFileWriter(target(tmp_path, mapped=True)) as writer:
        writer.write(rows(ids=[1]))
        (file,) = writer.finish()
    assert file.partition_values == {"col-country": "N Z"}
    found = pq.ParquetFile(tmp_path / unquote(file.path)).read()
    assert found.column_names == ["col-id", "_change_type"]


def test_a_row_as_it_was_may_break_what_was_asked_for_later(tmp_path: Path) -> None:
    with ChangeFileWriter(target(tmp_path)) as writer:
        writer.write(rows(ids=[None]))
        assert len(writer.finish()) == 1


def test_no_rows_no_files(tmp_path: Path) -> None:
    with ChangeFileWriter(target(tmp_path)) as writer:
        writer.write(rows(ids=[]))
        assert writer.finish() == []


def test_nothing_is_left_of_a_writer_that_failed(tmp_path: Path) -> None:
    def write() -> None:
        with ChangeFileWriter(target(tmp_path)) as writer:
            writer.write(rows(ids=[1]))
            writer.write(pa.RecordBatch.from_pydict({"unknown": [1]}))

    with pytest.raises(SchemaMismatch):
        write()
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]
