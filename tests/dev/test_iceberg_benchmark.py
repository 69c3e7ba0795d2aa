"""``python -m benchmarks.iceberg``: it measures conversions of a table that is one, and all of it."""

from types import SimpleNamespace

import pytest
from benchmarks.iceberg import GeneratedTable, measured

from delvec_kernel.locations import canonical
from delvec_service.iceberg.conversion import IcebergConversion
from delvec_service.iceberg.published_check import check_published
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.open_table import OpenTable
from delvec_storage.roots import Roots


@pytest.mark.parametrize("format_version", [2, 3])
def test_what_is_measured_is_right(tmp_path, format_version):
    table = GeneratedTable(tmp_path / "table", 100, 3000)
    opened = OpenTable(SimpleNamespace(name="table", location=canonical(str(table.location))), Roots(()))
    loader = SnapshotLoader()
    conversion = IcebergConversion(loader)
    conversion.convert(opened, format_version=format_version)
    table.delete(7)
    conversion.convert(opened, format_version=format_version)

    snapshot = loader.load(opened.objects, "table")
    assert (snapshot.num_files, snapshot.num_deleted_rows) == (100, 3007)
    [checked] = check_published(loader, opened)
    assert checked.findings == []
    assert checked.delta_version == 1


@pytest.mark.parametrize("format_version", [2, 3])
def test_every_job_has_its_figure(tmp_path, format_version):
    found = measured(format_version, 100, 3000, 1, tmp_path)
    assert {"whole", "memory", "one", "percent", "bytes"} <= found.keys()
    assert ("copy" in found) == (format_version == 3)
