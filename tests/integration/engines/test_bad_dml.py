"""Invalid input of UPDATE, MERGE, DELETE and writes on each engine: a typed error, and an unchanged table."""

import pyarrow as pa
import pytest
from tests.support import bad_input_cases as cases

import delvec_errors as errors

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")

SOURCE = pa.table({"id": pa.array([1, 2, 50], pa.int64()), "name": ["a", "b", "c"], "extra": [1, 2, 3]})
KEYS = "target.id = source.id"


@pytest.fixture
def lake(place):
    with place.connect() as connection:
        yield connection


@pytest.fixture
def people(lake, engine):
    return lake.table("people", engine=engine)


def matched_update(values, condition=None):
    return lambda t: t.merge(SOURCE, KEYS).when_matched_update(values, condition).execute()


def insert(values, condition=None):
    return lambda t: t.merge(SOURCE, KEYS).when_not_matched_insert(values, condition).execute()


def by_source_update(values, condition=None):
    return lambda t: t.merge(SOURCE, KEYS).when_not_matched_by_source_update(values, condition).execute()


UNKNOWN = {
    "delete": lambda t: t.delete("nobody = 1"),
    "delete by keys": lambda t: t.delete(keys=SOURCE, on=["nobody"]),
    "update, condition": lambda t: t.update({"name": "'x'"}, "nobody = 1"),
    "update, column": lambda t: t.update({"nobody": "1"}),
    "update, value": lambda t: t.update({"name": "upper(nobody)"}),
    "merge, on": lambda t: t.merge(SOURCE, "target.id = source.nobody").when_matched_delete().execute(),
    "matched, condition": lambda t: t.merge(SOURCE, KEYS).when_matched_delete("source.nobody = 1").execute(),
    "matched, column": matched_update({"nobody": "1"}),
    "matched, value": matched_update({"name": "source.nobody"}),
    "insert, condition": insert({"id": "id"}, "nobody = 1"),
    "insert, column": insert({"nobody": "1"}),
    "insert, value": insert({"id": "nobody"}),
    "by source, condition": by_source_update({"name": "'x'"}, "nobody = 1"),
    "by source, column": by_source_update({"nobody": "'x'"}),
    "by source, value": by_source_update({"name": "nobody"}),
    "by source, delete": lambda t: (
        t.merge(SOURCE, KEYS).when_not_matched_by_source_delete("nobody = 1").execute()
    ),
    "replace_where": lambda t: t.overwrite(cases.ROWS, replace_where="nobody = 1"),
}


def test_unknown_columns_in_any_clause(place, lake, people):
    for what, command in UNKNOWN.items():
        print(what)  # noqa: T201 - shown where one of them fails
        with cases.refused(place, lake, errors.UnknownColumn, "nobody"):
            command(people)


MISMATCHED = {
    "update, date": (lambda t: t.update({"id": "DATE '2020-01-01'"}), errors.SchemaMismatch),
    "update, text": (lambda t: t.update({"id": "name"}), errors.DelvecError),
    "update, overflow": (lambda t: t.update({"id": "CAST(id AS DOUBLE) * 1e300"}), errors.DelvecError),
    "update, struct": (lambda t: t.update({"id": "named_struct('a', 1)"}), errors.DelvecError),
    "matched": (matched_update({"id": "source.name"}), errors.DelvecError),
    "insert": (insert({"id": "name"}), errors.DelvecError),
    "by source": (by_source_update({"id": "target.name"}), errors.DelvecError),
    "append": (lambda t: t.append(pa.table({"id": ["x"]})), errors.SchemaMismatch),
    "overwrite": (lambda t: t.overwrite(pa.table({"id": ["x"]})), errors.SchemaMismatch),
    "replace_where": (
        lambda t: t.overwrite(pa.table({"id": ["x"]}), replace_where="part = 'a'"),
        errors.SchemaMismatch,
    ),
}


@pytest.mark.parametrize("case", MISMATCHED)
def test_type_mismatches(place, lake, people, case):
    command, kind = MISMATCHED[case]
    with cases.refused(place, lake, kind, "id", exactly=kind is not errors.DelvecError):
        command(people)


CONSTRAINED = {
    "update": lambda t: t.update({"id": "id + 1000"}, "id = 4"),
    "matched": lambda t: (
        t.merge(SOURCE, KEYS).when_matched_update({"id": "target.id + 1000"}, "target.id = 2").execute()
    ),
    "insert": insert({"id": "id + 1000", "name": "name"}),
    "by source": by_source_update({"id": "id + 1000"}, "id = 9"),
    "append": lambda t: t.append(pa.table({"id": [5, 1005]})),
    "overwrite": lambda t: t.overwrite(pa.table({"id": [5, 1005]})),
    "replace_where": lambda t: t.overwrite(
        pa.table({"id": [1005], "part": ["a"]}), replace_where="part = 'a'"
    ),
}


def test_constraints_tell_which_row_and_which_constraint(place, lake, people):
    lake.table("people").alter.add_constraint("small", "id < 1000")
    before = place.files()
    for what, command in CONSTRAINED.items():
        with pytest.raises(errors.ConstraintViolation, match=r"(?s)small .id < 1000.*id : 10") as caught:
            command(people)
        details = caught.value.details
        assert (details["constraint"], details["expression"]) == ("small", "id < 1000"), what
        assert int(details["values"]["id"]) >= 1000, what
        cases.check_unchanged(place, before)
    cases.check_works(place, lake)


def test_a_row_without_what_may_not_be_null(place, lake, engine, tmp_path):
    strict = cases.Place(tmp_path / "strict", place.database)
    lake.create_table(strict.folder, cases.REQUIRED).append(cases.ROWS)
    table = lake.table(strict.folder, engine=engine)
    for command in (
        lambda t: t.update({"id": None}, "id = 4"),
        matched_update({"id": "NULL"}),
        insert({"name": "name"}),
    ):
        with cases.refused(strict, lake, errors.ConstraintViolation, "id"):
            command(table)


def test_an_empty_text_is_null_in_a_column_that_partitions(place, lake, engine, tmp_path):
    strict = cases.Place(tmp_path / "strict", place.database)
    lake.create_table(strict.folder, "id long, part string NOT NULL", ["part"]).append(
        [{"id": 1, "part": "a"}]
    )
    table = lake.table(strict.folder, engine=engine)
    for command in (
        lambda: table.append(pa.table({"id": [2], "part": [""]})),
        lambda: table.update({"part": "''"}),
    ):
        with cases.refused(strict, lake, errors.ConstraintViolation, "NOT NULL", "part"):
            command()


TWICE = pa.table({"id": pa.array([1, 2, 2], pa.int64()), "name": ["a", "b", "c"]})


def test_keys_that_the_source_has_twice(place, lake, people):
    for begun in (
        lambda: people.merge(TWICE, KEYS).when_matched_update({"name": "source.name"}),
        lambda: people.merge(TWICE, KEYS).when_matched_delete("source.name <> 'x'"),
        lambda: (
            people.merge(TWICE, KEYS)
            .when_matched_update({"name": "source.name"})
            .when_not_matched_insert({"id": "id"})
        ),
    ):
        with cases.refused(place, lake, errors.MultipleMatches, "source", table="people", version=2):
            begun().execute()


def failing(after):
    """A source that fails after some batches."""

    def batches():
        for number in range(after):
            yield pa.record_batch({"id": pa.array([number], pa.int64()), "name": ["x"], "part": ["a"]})
        raise OSError("the source has gone away")

    return pa.RecordBatchReader.from_batches(cases.ROWS.schema, batches())


BROKEN = {
    "merge": lambda t, data: (
        t.merge(data, KEYS).when_matched_update_all().when_not_matched_insert_all().execute()
    ),
    "delete by keys": lambda t, data: t.delete(keys=data),
    "append": lambda t, data: t.append(data),
    "overwrite": lambda t, data: t.overwrite(data),
    "replace_where": lambda t, data: t.overwrite(data, replace_where="part = 'a'"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_sources_that_fail_in_the_middle(place, lake, people, engine, case):
    with cases.refused(place, lake, errors.BadRequest, "gone away"):
        BROKEN[case](people, failing(3))
    if engine == "duckdb":
        return
    # A query that fails in its tasks.
    broken = engine.range(100).selectExpr(
        "id", "IF(id = 77, raise_error('the source has gone away'), 'x') AS name", "'a' AS part"
    )
    with cases.refused(place, lake, errors.BadRequest, "gone away"):
        BROKEN[case](people, broken)


CHANGES = {
    "append": lambda t: t.append(pa.table({"id": [50], "name": ["x"], "part": ["c"]})),
    "update": lambda t: t.update({"part": "'c'"}, "id = 1"),
    "matched": matched_update({"part": "'c'"}),
    "insert": insert({"id": "id", "part": "'c'"}),
    "overwrite": lambda t: t.overwrite(pa.table({"id": [50], "name": ["x"], "part": ["c"]})),
}


def test_storage_that_cannot_be_written(place, lake, engine, tmp_path):
    parted = cases.Place(tmp_path / "parted", place.database)
    lake.create_table(parted.folder, cases.ROWS.schema, ["part"]).append(cases.ROWS)
    # A file blocks the path of the new partition's folder.
    (parted.folder / "part=c").write_text("in the way")
    for command in CHANGES.values():
        with cases.refused(parted, lake, errors.UnusableFile, "part=c"):
            command(lake.table(parted.folder, engine=engine))
