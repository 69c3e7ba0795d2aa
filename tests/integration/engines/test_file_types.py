"""Files whose types are not the table's: each engine reads the table's values, or names file and column before it commits."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.typed_files import FORMS, annotate, schema_in

from delvec_engines.spark import choosing_engine
from delvec_errors import CorruptTable

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int8())])


def write(path, numbers, form, ids):
    rows = pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array(numbers, FORMS[form].values.type)})
    pq.write_table(rows, path, store_schema=False)
    annotate(path, FORMS[form].annotation)


@pytest.fixture
def make_table(lake, engine, write_table, data_file, tmp_path):
    """Return a function that makes a table of a proper file, and one of a form."""

    def make(numbers, form):
        (tmp_path / "t").mkdir()
        pq.write_table(pa.Table.from_pydict({"id": [1], "v": [1]}, SCHEMA), tmp_path / "t" / "a.parquet")
        write(tmp_path / "t" / "b.parquet", numbers, form, range(2, 2 + len(numbers)))
        files = [data_file(None, name=name) for name in ("a.parquet", "b.parquet")]
        return lake.table(write_table("t", SCHEMA, files), engine=engine)

    return make


def works_on(table):
    return {
        "read": table.to_arrow,
        "read with a predicate": lambda: table.to_arrow(predicate="v = 1"),
        "DELETE": lambda: table.delete("v = 7"),
        "UPDATE": lambda: table.update(set={"id": "id + 1"}, predicate="id >= 2"),
        "MERGE": lambda: (
            table.merge(
                pa.table({"id": [3], "v": pa.array([9], pa.int8())}),
                "t.v = n.v",
                source_alias="n",
                target_alias="t",
            )
            .when_not_matched_insert_all()
            .execute()
        ),
        "OPTIMIZE": lambda: table.optimize(rewrite="always"),
    }


def test_a_number_that_the_column_cannot_hold_is_refused_by_name(make_table):
    """Spark's reader would take 133 in an unsigned byte for -123."""
    table = make_table([2, 133], "uint8")
    for name, work in works_on(table).items():
        with pytest.raises(CorruptTable, match=r"'v': it has int32 \(unsigned, 8 bits\).*hold 133") as caught:
            work()
        assert caught.value.details["file"] == "b.parquet", name
        assert caught.value.details["column"] == "v"
    assert table.version() == 0


@pytest.mark.full_on_spark("the form of the test above; tests/interop/test_file_types.py reads all forms")
def test_numbers_that_the_column_holds_are_read_and_rewritten_as_its_type(make_table, tmp_path):
    table = make_table([2, 100], "uint8")
    assert table.count("v > 1") == 2
    table.update(set={"v": "v + 1"}, predicate="v = 100")
    table.optimize(rewrite="always")
    assert sorted(row["v"] for row in table.to_arrow().to_pylist()) == [1, 2, 101]
    newest = max((tmp_path / "t").glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    assert str(schema_in(newest)[1]) == "int32 (integer, 8 bits)"


@pytest.mark.full_on_spark("the file is refused before a job starts")
def test_a_file_of_another_type_is_refused_by_name(make_table):
    table = make_table([2, 5], "date")
    for name, work in works_on(table).items():
        with pytest.raises(CorruptTable, match=r"'v': it has int32 \(date\), and the table byte") as caught:
            work()
        assert caught.value.details["file"] == "b.parquet", name
    assert table.version() == 0


def test_text_without_annotation_is_changed_in_the_driver_of_spark(
    lake, spark_driver, write_table, data_file, tmp_path, caplog
):
    caplog.set_level("INFO", choosing_engine.__name__)
    (tmp_path / "t").mkdir()
    rows = pa.table({"id": [1, 2, 3], "s": [b"a\xc3\xa9", b"b", None]})
    pq.write_table(rows, tmp_path / "t" / "a.parquet", store_schema=False)
    schema = pa.schema([("id", pa.int64()), ("s", pa.string())])
    folder = write_table("t", schema, [data_file(None, name="a.parquet")])
    table = lake.table(folder, engine=spark_driver)
    table.update(set={"s": "upper(s)"}, predicate="s = 'a\N{LATIN SMALL LETTER E WITH ACUTE}'")
    assert "UPDATE of table 't' (version 0) ran in the driver" in caplog.text
    expected = [(1, "A\N{LATIN CAPITAL LETTER E WITH ACUTE}"), (2, "b"), (3, None)]
    assert sorted(map(tuple, table.to_df().collect())) == expected
