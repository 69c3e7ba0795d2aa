"""Every Parquet file is opened here: footers that claim a huge size are not read, and none is read twice."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delvec_engines.data_file import DataFile, open_data_file
from delvec_errors import UnusableFile
from delvec_parquet.parquet_file import MAX_FOOTER_BYTES, open_parquet, read_footer
from delvec_storage import files as storage
from delvec_storage.roots import Roots


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
        read_footer(source, "part-0.parquet")
    file = DataFile(tmp_path.as_uri(), huge.name, "people", 1, Roots())
    with pytest.raises(UnusableFile, match="footer of"), open_data_file(file):
        pass


@pytest.mark.parametrize("content", [b"", b"x", b"PAR1", bytes(100), b"PAR1" + b"\xff" * 4 + b"PAR1"])
def test_a_file_that_is_not_parquet_is_an_arrow_error(content):
    with pytest.raises(pa.ArrowInvalid, match="not a Parquet file"):
        open_parquet(content, "part-0.parquet")


def test_a_name_that_is_not_utf_8_is_an_arrow_error():
    written = io.BytesIO()
    pq.write_table(pa.table({"zzzz": [1]}), written, store_schema=False)
    with pytest.raises(pa.ArrowInvalid, match="name is not UTF-8"):
        open_parquet(written.getvalue().replace(b"zzzz", b"\xaczzz"), "part-0.parquet")


@pytest.mark.parametrize("padding", [0, 200_000])
def test_a_footer_is_read_once_however_long_it_is(tmp_path, padding):
    rows = pa.table({"id": [1, 2]}).replace_schema_metadata({"padding": "x" * padding})
    pq.write_table(rows, tmp_path / "part-0.parquet")
    source = _Counted((tmp_path / "part-0.parquet").read_bytes())
    with open_parquet(pa.PythonFile(source, mode="r"), "part-0.parquet") as opened:
        assert opened.metadata.num_rows == 2
        assert opened.schema_arrow.metadata == rows.schema.metadata
        assert source.reads == (2 if padding else 1)
        assert opened.read() == rows


class _Counted(io.BytesIO):
    reads = 0

    def read(self, size=-1):
        self.reads += 1
        return super().read(size)


def test_the_rest_of_the_file_is_read_by_the_checked_footer(tmp_path):
    """A file that is replaced after the check must not bring another footer."""
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "part-0.parquet")
    with storage.open_input(tmp_path.as_uri(), "part-0.parquet") as source:
        opened = open_parquet(source, "part-0.parquet")
        (tmp_path / "part-0.parquet").write_bytes(b"PAR1" + bytes(1000))
        assert opened.schema_arrow.names == ["id"]
        assert opened.metadata.num_rows == 2
