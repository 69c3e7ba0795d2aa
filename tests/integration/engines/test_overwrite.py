"""Overwrites on each engine: of all rows, by replaceWhere, and of partitions."""

import json

import pyarrow as pa
import pytest
from tests.support.tables import ids

import delvec

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")

SCHEMA = "country string, id long, amount double"


@pytest.fixture
def sales(lake, engine, tmp_path):
    """Create a table with four rows, in two partitions or unpartitioned."""

    def sales(*partition_by, **properties):
        table = lake.create_table(
            tmp_path / "sales", SCHEMA, partition_by=list(partition_by), properties=properties, engine=engine
        )
        table.append(of("NZ", 1, 2) + of("FR", 3, 4))
        return table

    return sales


@pytest.fixture
def handed(engine):
    """Return rows as the engine's own DataFrame, if it has one."""

    def handed(rows):
        return rows if engine == "duckdb" else engine.createDataFrame(rows, SCHEMA)

    return handed


def of(country, *ids):
    return [{"country": country, "id": number, "amount": float(number)} for number in ids]


def info(table):
    return table.history(1)[0]


@pytest.mark.parametrize("partition_by", [(), ("country",)])
@pytest.mark.gate
def test_all_rows_are_replaced(sales, handed, partition_by):
    table = sales(*partition_by)
    done = table.overwrite(handed(of("NZ", 7)), user_metadata="nightly")
    assert ids(table) == [7]
    assert (done["numOutputRows"], done["numRemovedFiles"]) == (1, 2 if partition_by else 1)
    entry = info(table)
    assert (entry["operation"], entry["userMetadata"]) == ("WRITE", "nightly")
    assert entry["operationParameters"]["mode"] == "Overwrite"
    assert json.loads(entry["operationParameters"]["partitionBy"]) == list(partition_by)
    assert table.to_arrow(version=done.version - 1).num_rows == 4


def test_no_rows_empty_the_table(sales):
    table = sales()
    table.overwrite(pa.table({"id": pa.array([], pa.int64())}))
    assert ids(table) == []


@pytest.mark.parametrize("vectors", ["true", "false"])
@pytest.mark.parametrize("where", ["id >= 2 AND id <= 3", "amount * 2 BETWEEN 4 AND 6"])
def test_rows_of_a_condition_are_replaced_whatever_files_they_are_in(sales, handed, vectors, where):
    table = sales(**{"delta.enableDeletionVectors": vectors})
    done = table.overwrite(handed(of("XX", 2, 3, 3)), replace_where=where)
    assert ids(table) == [1, 2, 3, 3, 4]
    assert set(table.to_arrow(predicate="id = 3")["country"].to_pylist()) == {"XX"}
    assert (done["numOutputRows"], done["numDeletedRows"]) == (3, 2)
    assert done["numCopiedRows"] == (2 if vectors == "false" else 0)
    assert info(table)["operationParameters"]["predicate"] == where


@pytest.mark.gate
def test_whole_partitions_go_without_a_look_at_their_rows(sales, handed):
    table = sales("country")
    done = table.overwrite(handed(of("NZ", 9)), replace_where="country = 'NZ'")
    assert ids(table) == [3, 4, 9]
    assert (done["numRemovedFiles"], done["numDeletedRows"]) == (1, 2)


def test_a_new_row_outside_of_the_condition_is_named_and_nothing_is_committed(sales, handed):
    table = sales()
    before = table.version()
    with pytest.raises(delvec.ConstraintViolation, match="replace_where") as caught:
        table.overwrite(handed(of("NZ", 2, 17)), replace_where="id < 3")
    assert caught.value.details["values"] == {"id": "17"}
    assert (table.version(), ids(table)) == (before, [1, 2, 3, 4])


def test_a_condition_that_matches_nothing_adds_the_rows(sales, handed):
    table = sales()
    table.overwrite(handed(of("NZ", 100)), replace_where="id > 50")
    assert ids(table) == [1, 2, 3, 4, 100]


@pytest.mark.gate
def test_only_the_partitions_of_the_new_rows_are_replaced(sales, handed):
    table = sales("country")
    done = table.overwrite(handed(of("NZ", 9) + of("DE", 8)), partition_overwrite="dynamic")
    assert ids(table) == [3, 4, 8, 9]
    assert done["numRemovedFiles"] == 1


def test_a_table_without_partitions_is_one_partition(sales, handed):
    table = sales()
    table.overwrite(handed(of("NZ", 9)), partition_overwrite="dynamic")
    assert ids(table) == [9]


def test_partitions_of_days_and_nulls_are_replaced(lake, engine, tmp_path):
    table = lake.create_table(tmp_path / "days", "day date, id long", ["day"], engine=engine)
    rows = pa.table({"day": pa.array([19000, 19001, None], pa.int32()).cast(pa.date32()), "id": [1, 2, 3]})
    table.append(rows)
    table.overwrite(rows.slice(1).set_column(1, "id", [[20, 30]]), partition_overwrite="dynamic")
    assert ids(table) == [1, 20, 30]


def test_a_write_of_an_application_is_done_once(sales):
    table = sales()
    first = table.overwrite(of("NZ", 5), txn=("nightly", 3))
    again = table.overwrite(of("NZ", 6), txn=("nightly", 3))
    assert (again.already_applied, again.version) == (True, None)
    assert (ids(table), table.version()) == ([5], first.version)


def test_a_table_that_only_grows_refuses(sales):
    table = sales(**{"delta.appendOnly": "true"})
    with pytest.raises(delvec.AppendOnlyTable):
        table.overwrite(of("NZ", 5))
    assert ids(table) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "options",
    [
        {"replace_where": "id = 1", "partition_overwrite": "dynamic"},
        {"replace_where": "id = 1", "overwrite_schema": True},
        {"partition_overwrite": "dynamic", "overwrite_schema": True},
        {"partition_by": ["country"]},
        {"partition_overwrite": "sometimes"},
    ],
)
def test_options_that_contradict_each_other(sales, options):
    table = sales()
    with pytest.raises(delvec.BadRequest):
        table.overwrite(of("NZ", 1), **options)
    assert ids(table) == [1, 2, 3, 4]


def test_another_columns_rows_do_not_fit(sales):
    table = sales()
    with pytest.raises(delvec.SchemaMismatch, match="age"):
        table.overwrite([{"id": 1, "age": 3}])
    assert ids(table) == [1, 2, 3, 4]


def test_rows_that_came_meanwhile_are_replaced_by_the_next_try(sales, lake, engine):
    table = sales()
    real = table.engine.write
    calls = []

    def write(data, target):
        written = real(data, target)
        if not calls:
            calls.append(1)
            lake.table(table.location).append(of("NZ", 50))
        return written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table.engine, "write", write, raising=False)
        done = table.overwrite(of("NZ", 9))
    assert ids(table) == [9]
    assert done.retries == 1


@pytest.mark.parametrize("vectors", ["true", "false"])
@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda other: other.delete("id = 20"), [1]),
        (lambda other: other.update({"amount": "-1"}, "id = 20"), [1, 20]),
        (lambda other: other.delete("id < 20"), [1, 20]),
    ],
)
def test_rows_that_stay_are_not_brought_back(lake, engine, tmp_path, vectors, change, left):
    """Rows copied by replace_where may be deleted, updated or copied concurrently."""
    properties = {"delta.enableDeletionVectors": vectors}
    table = lake.create_table(tmp_path / "sales", SCHEMA, properties=properties, engine=engine)
    table.append(of("NZ", *range(1, 21)))
    real = table.engine.copy_rows

    def copy_rows(scan, gone, target):
        written = real(scan, gone, target)
        patch.setattr(table.engine, "copy_rows", real)
        change(lake.table(table.location))
        return written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table.engine, "copy_rows", copy_rows)
        done = table.overwrite(of("NZ", 1), replace_where="id < 20")
    assert (ids(table), done.retries) == (left, 1)
