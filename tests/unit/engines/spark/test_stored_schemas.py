"""Who reads the schemas of files for Spark, and what happens where nobody can."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.typed_files import scan_of

from delvec_engines.spark import local_execution
from delvec_engines.spark import stored_schemas as module
from delvec_engines.spark.recent_failures import RecentFailures
from delvec_errors import MissingDataFile, StorageError
from delvec_kernel.schema.types import StructType
from delvec_parquet.file_schema import FileField


@pytest.fixture
def scan(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "is_remote", lambda _: False)
    monkeypatch.setattr(local_execution, "_unreachable", RecentFailures())
    for name in "abc":
        pq.write_table(pa.table({"x": [1]}), tmp_path / name)
    return scan_of(tmp_path, ["a", "b", "c"], StructType(()))


SCHEMA = (FileField("x", "value"),)
OTHER = (FileField("y", "value"),)


@pytest.fixture
def remote(scan, monkeypatch):
    """A scan of three files in an object store, of which the driver may read two."""
    monkeypatch.setattr(module, "MAX_IN_DRIVER", 2)
    monkeypatch.setattr(module, "file_schemas", lambda scan, **_: [OTHER] * len(scan))
    return replace(scan, location="s3://lake/t")


def test_tasks_read_what_is_too_much_for_the_driver(remote, monkeypatch):
    monkeypatch.setattr(module, "_read_in_tasks", lambda *_: {"a": SCHEMA, "c": SCHEMA})
    assert module.stored_schemas(None, remote) == [SCHEMA, OTHER, SCHEMA]
    assert module.stored_schemas(None, remote.slice(0, 2)) == [OTHER, OTHER]


def test_the_driver_reads_what_tasks_cannot(remote, monkeypatch):
    monkeypatch.setattr(module, "_read_in_tasks", lambda *_: {})
    assert module.stored_schemas(None, remote) == [OTHER] * 3


def test_tasks_do_not_read_local_files(scan, monkeypatch):
    """A local disk is fast, and executors may have another."""
    monkeypatch.setattr(module, "MAX_IN_DRIVER", 0)
    monkeypatch.setattr(module, "_read_in_tasks", None)
    assert [each[0].name for each in module.stored_schemas(None, scan)] == ["x"] * 3


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
