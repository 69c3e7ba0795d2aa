"""Who reads the schemas of files for Spark, and what happens where nobody can."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.typed_files import scan_of

from delvec.engines.spark import local_execution
from delvec.engines.spark import stored_schemas as module
from delvec_kernel.errors import MissingDataFile, StorageError
from delvec_kernel.schema.types import StructType


@pytest.fixture
def scan(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "is_remote", lambda _: False)
    monkeypatch.setattr(local_execution, "_unreachable", {})
    for name in "abc":
        pq.write_table(pa.table({"x": [1]}), tmp_path / name)
    return scan_of(tmp_path, ["a", "b", "c"], StructType(()))


@pytest.mark.parametrize(("most", "expected"), [(2, [3]), (3, [])])
def test_tasks_read_what_is_too_much_for_the_driver(scan, monkeypatch, most, expected):
    asked = []
    monkeypatch.setattr(module, "MOST_IN_DRIVER", most)
    monkeypatch.setattr(module, "_read_in_tasks", lambda _, scan: asked.append(len(scan)))
    monkeypatch.setattr(module, "file_schemas", lambda scan, **_: [()] * len(scan))
    assert module.stored_schemas(None, replace(scan, location="s3://lake/t")) == [()] * 3
    assert asked == expected
    assert module.stored_schemas(None, scan) == [()] * 3
    assert asked == expected  # a local disk is fast, and executors may have another


def test_files_of_storage_that_the_driver_cannot_read_are_left_to_spark(scan, monkeypatch, caplog):
    def fail(*_, **__):
        raise StorageError("no credentials")

    monkeypatch.setattr(module, "file_schemas", fail)
    assert module.stored_schemas(None, scan) == [None] * 3
    assert "'people' (version 7)" in caplog.text
    monkeypatch.setattr(module, "file_schemas", None)
    assert module.stored_schemas(None, scan) == [None] * 3  # does not ask again for some minutes


def test_files_that_the_driver_does_not_have_are_left_to_spark(scan, tmp_path):
    (tmp_path / "b").unlink()
    assert [each is None for each in module.stored_schemas(None, scan)] == [False, True, False]


def test_columns_are_not_looked_for_by_field_id_in_a_file_that_is_not_there(scan, tmp_path):
    """Spark would be asked for names that no file has, and return NULL."""
    (tmp_path / "b").unlink()
    with pytest.raises(MissingDataFile):
        module.stored_schemas(None, replace(scan, configuration={"delta.columnMapping.mode": "id"}))
