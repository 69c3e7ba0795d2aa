"""The rows that a predicate selects, on files of other writers."""

import pyarrow as pa
from pyroaring import BitMap64
from tests.support.scanned_table import PEOPLE, Table, people


def test_find_rows_gives_physical_indexes_of_rows_for_which_the_predicate_is_true(engine, location):
    schema = pa.schema([("id", pa.int64()), ("age", pa.int64())])
    table = Table(location, schema)
    ages = pa.array([None, 17, 18, None, 5] * 1000)
    a = table.add("a.parquet", pa.table({"id": range(5000), "age": ages}))
    table.add("b.parquet", pa.table({"id": range(5000, 5001), "age": [30]}))
    found = engine.find_rows(table.scan(), table.where("age < 18"))
    assert found == {a: BitMap64([row for row in range(5000) if row % 5 in (1, 4)])}
    kept = engine.find_rows(table.scan(), table.where("NOT (age < 18)"))
    assert len(kept[a]) == 1000


def test_find_rows_over_many_files(engine, local):
    table = Table(local, PEOPLE, partition_by=[])
    paths = [
        table.add(f"{number}.parquet", people(number * 100, number * 100 + 100)) for number in range(300)
    ]
    found = engine.find_rows(table.scan(), table.where("id % 1000 = 999"))
    assert found == {paths[number]: BitMap64([99]) for number in range(9, 300, 10)}
