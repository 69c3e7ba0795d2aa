"""Invalid input on each engine: a typed error, no commit, and session and service keep working."""

import pytest
from tests.support import bad_input_cases as cases

import delvec_errors as errors

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")


@pytest.fixture
def lake(place):
    with place.connect() as connection:
        yield connection


@pytest.fixture
def people(lake, engine):
    return lake.table("people", engine=engine)


def check_refused(place, engine, command, kind, *words, **where):
    """Check that every operation on a damaged table is refused."""
    with place.connect() as lake, cases.refused(place, lake, kind, *words, table="people", **where):
        command(lake.table(place.folder, engine=engine))


def read(table):
    return table.to_arrow()


def delete(table):
    return table.delete("id % 2 = 0")


def test_predicates(place, lake, people):
    for text, kind, word in cases.PREDICATES.values():
        with cases.refused(place, lake, kind, word, table="people", version=2):
            people.delete(text)
        with cases.refused(place, lake, kind, word, table="people", version=2):
            people.to_arrow(predicate=text)


@pytest.mark.parametrize("case", cases.FAILING_PREDICATES)
def test_predicates_that_fail_on_rows(place, lake, people, case):
    text = cases.FAILING_PREDICATES[case]
    for command in (people.delete, lambda text: people.to_arrow(predicate=text), people.count):
        with cases.refused(place, lake, errors.InvalidPredicate, text, table="people", version=2):
            command(text)
    assert people.version() == 2


@pytest.mark.parametrize("case", cases.LOGS)
def test_logs(place, engine, case):
    damage, kind, words = cases.LOGS[case]
    damage(place)
    for command in (read, delete):
        check_refused(place, engine, command, kind, *words)


@pytest.mark.parametrize("case", cases.REFUSED_WRITES)
def test_writes_that_the_table_does_not_allow(place, engine, case):
    damage, kind, words = cases.REFUSED_WRITES[case]
    damage(place)
    check_refused(place, engine, delete, kind, *words)
    with place.connect() as lake:
        assert lake.table(place.folder, engine=engine).count() == 9


@pytest.mark.parametrize("case", cases.VECTORS)
def test_deletion_vectors(place, engine, case):
    damage, kind = cases.VECTORS[case]
    damage(place)
    path, _ = place.data_file()
    for command in (read, delete):
        check_refused(place, engine, command, kind, version=2, file=path)


@pytest.mark.parametrize("case", cases.DATA_FILES)
def test_data_files(place, engine, case):
    damage, kind = cases.DATA_FILES[case]
    damage(place)
    path, _ = place.data_file()
    for command in (read, delete):
        check_refused(place, engine, command, kind, version=2, file=path)


@pytest.mark.parametrize("case", cases.BAD_ROWS)
def test_rows_that_do_not_fit(place, lake, engine, tmp_path, case):
    rows, word = cases.BAD_ROWS[case]
    strict = cases.Place(tmp_path / "strict", place.database)
    table = lake.create_table(strict.folder, cases.REQUIRED, engine=engine)
    refusal = errors.ConstraintViolation if case == "null in a required column" else errors.SchemaMismatch
    with cases.refused(strict, lake, refusal, word):
        table.append(rows)
    if engine != "duckdb":
        with cases.refused(strict, lake, refusal, word):
            table.append(engine.createDataFrame(rows))
    assert table.version() == 0


@pytest.mark.gate
def test_odd_file_names(engine, tmp_path):
    place = cases.make_with_odd_names(tmp_path, tmp_path / "records.db")
    with place.connect() as lake:
        table = lake.table("odd", engine=engine)
        live = set(range(3 * len(cases.ODD_NAMES)))
        assert set(table.to_arrow()["id"].to_pylist()) == live
        for remainder in (0, 1, 2):  # the second meets deletion vectors, and the third empties every file
            assert table.delete(f"id % 3 = {remainder}")["numDeletedRows"] == len(cases.ODD_NAMES)
            live -= {number for number in live if number % 3 == remainder}
            assert set(table.to_arrow()["id"].to_pylist()) == live
        assert table.files() == []
