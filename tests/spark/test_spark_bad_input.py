"""Bad input on Spark: a typed error, one sentence, nothing committed, and session and service stay up."""

import pytest
from tests import bad_input_cases as cases

from delvec.protocol import errors

pytestmark = pytest.mark.spark


@pytest.fixture
def place(tmp_path):
    return cases.make(tmp_path, tmp_path / "records.db")


@pytest.fixture
def lake(place):
    with place.connect() as connection:
        yield connection


@pytest.fixture
def people(lake, spark):
    return lake.table("people", engine=spark)


def read(table):
    return table.to_arrow()


def delete(table):
    return table.delete("id % 2 = 0")


BOTH = pytest.mark.parametrize("command", [read, delete])


def test_predicates(place, lake, people):
    for text, kind, word in cases.PREDICATES.values():
        with cases.refused(place, lake, kind, word, table="people", version=2):
            people.delete(text)


@pytest.mark.parametrize("case", cases.FAILING_PREDICATES)
def test_predicates_that_fail_on_rows(place, lake, people, case):
    text = cases.FAILING_PREDICATES[case]
    with cases.refused(place, lake, errors.InvalidPredicate, text, table="people", version=2):
        people.delete(text)
    with cases.refused(place, lake, errors.InvalidPredicate, text, table="people", version=2):
        people.to_arrow(predicate=text)
    with cases.refused(place, lake, errors.InvalidPredicate, text, table="people", version=2):
        people.count(text)


@pytest.mark.parametrize("case", cases.LOGS)
def test_logs(place, lake, people, case):
    damage, kind, words = cases.LOGS[case]
    damage(place)
    with cases.refused(place, lake, kind, *words, table="people"):
        delete(people)


@pytest.mark.parametrize("case", cases.REFUSED_WRITES)
def test_writes_that_the_table_does_not_allow(place, lake, people, case):
    damage, kind, words = cases.REFUSED_WRITES[case]
    damage(place)
    with cases.refused(place, lake, kind, *words, table="people"):
        delete(people)


@BOTH
@pytest.mark.parametrize("case", cases.VECTORS)
def test_deletion_vectors(place, lake, people, case, command):
    damage, kind = cases.VECTORS[case]
    damage(place)
    path, _ = place.data_file()
    with cases.refused(place, lake, kind, table="people", version=2, file=path):
        command(people)


@BOTH
@pytest.mark.parametrize("case", cases.DATA_FILES)
def test_data_files(place, lake, people, case, command):
    damage, kind = cases.DATA_FILES[case]
    damage(place)
    path, _ = place.data_file()
    with cases.refused(place, lake, kind, table="people", version=2, file=path):
        command(people)


@pytest.mark.parametrize("case", cases.BAD_ROWS)
def test_rows_that_do_not_fit(place, lake, spark, tmp_path, case):
    rows, word = cases.BAD_ROWS[case]
    strict = cases.Place(tmp_path / "strict", place.database)
    table = lake.create_table(strict.folder, cases.REQUIRED, engine=spark)
    with cases.refused(strict, lake, errors.SchemaMismatch, word):
        table.append(spark.createDataFrame(rows))
    with cases.refused(strict, lake, errors.SchemaMismatch, word):
        table.append(rows)
    assert table.version() == 0


def test_odd_file_names(spark, tmp_path):
    place = cases.make_with_odd_names(tmp_path, tmp_path / "records.db")
    with place.connect() as lake:
        table = lake.table("odd", engine=spark)
        live = set(range(3 * len(cases.ODD_NAMES)))
        for remainder in (0, 1):  # the second finds deletion vectors
            assert table.delete(f"id % 3 = {remainder}")["numDeletedRows"] == len(cases.ODD_NAMES)
            live -= {number for number in live if number % 3 == remainder}
            assert set(table.to_arrow()["id"].to_pylist()) == live
