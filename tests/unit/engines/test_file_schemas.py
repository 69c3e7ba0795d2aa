"""The schemas of a scan's files, read once per file."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.typed_files import scan_of

from delvec_engines import file_schemas as module
from delvec_engines.data_file import DataFile
from delvec_engines.file_schemas import FileEnds, check_schema, checked_schema, file_schemas
from delvec_errors import CorruptTable, MissingDataFile
from delvec_kernel.schema.types import PrimitiveType, StructField, StructType

SCHEMA = StructType((StructField("x", PrimitiveType("long")),))


@pytest.fixture
def scan(tmp_path):
    for name, values in (("a", [1]), ("b", [2, 3]), ("c", [1.5])):
        pq.write_table(pa.table({"x": values}), tmp_path / name)
    return scan_of(tmp_path, ["a", "b", "c"], SCHEMA)


def test_a_footer_is_read_once_and_again_after_the_file_changed(scan, tmp_path, monkeypatch):
    read = []
    genuine = module._reader.read_local
    monkeypatch.setattr(module._reader, "read_local", lambda *given: read.append(given[1]) or genuine(*given))
    local = [str(tmp_path / name) for name in "abc"]
    first = file_schemas(scan, local)
    assert first[0] is first[1]
    assert first[0] != first[2]
    assert file_schemas(scan, local) == first
    assert read == ["a", "b", "c"]
    pq.write_table(pa.table({"y": ["text"]}), tmp_path / "b")
    assert [each.name for each in file_schemas(scan, local)[1]] == ["y"]
    assert read == ["a", "b", "c", "b"]


def test_a_file_that_contradicts_the_table_is_named(scan, tmp_path):
    file, schemas = DataFile.of(scan, "c"), file_schemas(scan)
    with pytest.raises(
        CorruptTable, match=r"'c' of table 'people' \(version 7\).*'x': it has double, and the table long"
    ):
        check_schema(file, schemas[2], SCHEMA.fields, "name")
    check_schema(file, schemas[1], SCHEMA.fields, "name")
    with pytest.raises(CorruptTable) as caught:
        checked_schema(file, pq.read_metadata(tmp_path / "c"), SCHEMA.fields, "none")
    assert caught.value.details == {"table": "people", "version": 7, "file": "c", "column": "x"}


def test_a_file_with_a_name_that_is_not_text_is_named(scan, tmp_path):
    pq.write_table(pa.table({"x": [1]}), tmp_path / "c", store_schema=False)
    data = (tmp_path / "c").read_bytes()
    assert data.count(b"schema") == 1
    (tmp_path / "c").write_bytes(data.replace(b"schema", b"\xffchema"))  # the name of the root

    with pytest.raises(CorruptTable, match=r"'c' of table 'people' \(version 7\) is damaged") as caught:
        checked_schema(DataFile.of(scan, "c"), pq.read_metadata(tmp_path / "c"), SCHEMA.fields, "none")
    assert caught.value.details == {"table": "people", "version": 7, "file": "c"}


def test_a_missing_file_is_named(scan, tmp_path):
    (tmp_path / "b").unlink()
    with pytest.raises(MissingDataFile) as caught:
        file_schemas(scan)
    assert caught.value.details["file"] == "b"
    assert [each is None for each in file_schemas(scan, may_miss=True)] == [False, True, False]


def test_a_file_that_was_missing_is_read_when_it_is_there(scan, tmp_path):
    (tmp_path / "b").rename(tmp_path / "elsewhere")
    assert file_schemas(scan, may_miss=True)[1] is None
    (tmp_path / "elsewhere").rename(tmp_path / "b")
    assert file_schemas(scan)[1] is not None


def test_the_end_of_a_remote_file_is_given_away_once():
    ends, (first, second) = FileEnds(most_bytes=5), (("s3://lake/t", name, 9) for name in "ab")
    ends.keep(first, b"end")
    ends.keep(second, b"too much")
    assert (ends.take(first), ends.take(first), ends.take(second)) == (b"end", b"", b"")
    ends.keep(second, b"again")
    assert ends.take(second) == b"again"
