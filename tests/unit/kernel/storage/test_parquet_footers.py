"""Footers that claim a huge size are not read."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delvec.engines.data_file import DataFile, open_data_file
from delvec_kernel.errors import UnusableFile
from delvec_kernel.storage import files as storage
from delvec_kernel.storage.parquet_footers import MAX_FOOTER_BYTES, check_footer
from delvec_kernel.storage.roots import Roots


@pytest.fixture
def huge(tmp_path):
    """A sparse gigabyte whose trailer claims that nearly all of it is the footer."""
    path = tmp_path / "part-0.parquet"
    with path.open("wb") as file:
        file.truncate(1 << 30)
        file.seek(0, 2)
        file.write(((1 << 30) - 8).to_bytes(4, "little") + b"PAR1")
    return path


def test_a_footer_that_is_too_large_is_not_read(huge, tmp_path):
    with (
        storage.open_input(tmp_path.as_uri(), "part-0.parquet") as source,
        pytest.raises(UnusableFile, match=f"footer of 1,073,741,816 bytes.*{MAX_FOOTER_BYTES:,}"),
    ):
        check_footer(source, "part-0.parquet")
    file = DataFile(tmp_path.as_uri(), huge.name, "people", 1, Roots())
    with pytest.raises(UnusableFile, match="footer of"), open_data_file(file):
        pass


def test_other_files_pass(huge, tmp_path):
    rows = pa.table({"id": [1]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    with huge.open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"none")
    (tmp_path / "short").write_bytes(b"x")
    for name in ("rows.parquet", huge.name, "short"):
        with storage.open_input(tmp_path.as_uri(), name) as source:
            check_footer(source, name)
    with open_data_file(DataFile(tmp_path.as_uri(), "rows.parquet", "people", 1, Roots())) as opened:
        assert opened.read() == rows
