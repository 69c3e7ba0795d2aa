"""UPDATE and DELETE with deletion vectors and with rewritten files: rows and metrics."""

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest

import delvec

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "name": pa.string(),
        "price": pa.decimal128(9, 2),
        "day": pa.date32(),
        "small": pa.int8(),
        "address": pa.struct({"city": pa.string(), "zip": pa.int32()}),
        "odd.näme`x`": pa.string(),
        "part": pa.string(),
    }
)
ODD = "odd.näme`x`"


def row(number, **changes):
    values = {
        "id": number,
        "name": None if number % 5 == 4 else f"n{number}",
        "price": Decimal(number) / 4,
        "day": dt.date(2024, 1, 1 + number % 28),
        "small": number % 100,
        "address": None if number % 7 == 6 else {"city": f"c{number}", "zip": number},
        ODD: "odd",
        "part": "ab"[number % 2],
    }
    return values | changes


@pytest.fixture
def make(lake, engine, tmp_path):
    """Create a table of 40 rows in two files, or four if it is partitioned."""

    def make(*, vectors=True, partition_by=None, name="table", **properties):
        given = {"delta.enableDeletionVectors": str(vectors).lower()}
        table = lake.create_table(tmp_path / name, SCHEMA, partition_by, given | properties, engine=engine)
        writer = lake.table(str(tmp_path / name))
        for start in (0, 20):
            writer.append(pa.Table.from_pylist([row(i) for i in range(start, start + 20)], SCHEMA))
        return table

    return make


def content(table):
    return {each["id"]: each for each in table.to_arrow().to_pylist()}


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.gate
def test_update_sets_columns_by_expression_value_and_field(make, vectors):
    table = make(vectors=vectors)
    metrics = table.update(
        {
            "NAME": "concat(name, '-', ID)",
            "price": "price * 2",
            "address.city": delvec.lit("x'y"),
            f"`{ODD.replace('`', '``')}`": None,
            "small": "id",
        },
        "id IN (3, 4, 6, 25)",
        user_metadata="note",
    )
    assert metrics["numUpdatedRows"] == 4
    expected = {i: row(i) for i in range(40)}
    for i in (3, 4, 6, 25):
        zipped = None if i % 7 == 6 else i
        name = None if expected[i]["name"] is None else f"n{i}-{i}"
        expected[i] |= {
            "name": name,
            "price": Decimal(i) / 2,
            "address": {"city": "x'y", "zip": zipped},
            ODD: None,
            "small": i,
        }
    assert content(table) == expected
    entry = table.history(1)[0]
    assert (entry["operation"], entry["userMetadata"]) == ("UPDATE", "note")
    assert json.loads(entry["operationParameters"]["predicate"]) == ["(id IN (3, 4, 6, 25))"]
    told = entry["operationMetrics"]
    assert told["numUpdatedRows"] == "4"
    if vectors:
        assert (metrics["numDeletionVectorsAdded"], metrics["numRemovedFiles"]) == (2, 0)
        assert metrics["numCopiedRows"] == 0
    else:
        assert (metrics["numDeletionVectorsAdded"], metrics["numRemovedFiles"]) == (0, 2)
        assert metrics["numCopiedRows"] == 36


def test_update_of_all_rows_and_of_a_partition_column(make):
    table = make(partition_by=["part"])
    assert table.update({"part": "CASE WHEN part = 'a' THEN 'c' END"}, "id < 20")["numUpdatedRows"] == 20
    rows = content(table)
    assert [rows[i]["part"] for i in (0, 1, 20, 21)] == ["c", None, "a", "b"]
    assert table.update({"small": 1})["numUpdatedRows"] == 40
    assert {each["small"] for each in content(table).values()} == {1}
    assert len(content(table)) == 40


def test_values_are_read_as_they_were_and_null_conditions_are_not_true(make):
    table = make()
    swapped = table.update({"name": "address.city", "address.city": "name"}, "name = 'n1' OR name = NULL")
    assert swapped["numUpdatedRows"] == 1
    found = content(table)[1]
    assert (found["name"], found["address"]) == ("c1", {"city": "n1", "zip": 1})


def test_nothing_to_update_commits_nothing(make):
    table = make()
    before = table.version()
    for predicate in ("id = 77", "id < 0", "name = NULL"):
        metrics = table.update({"name": "'x'"}, predicate)
        assert (metrics["numUpdatedRows"], metrics.version) == (0, None)
    assert table.version() == before


def test_python_values_keep_their_types(make):
    table = make()
    table.update(
        {
            "price": Decimal("12.34"),
            "day": dt.date(1999, 12, 31),
            "small": 7,
            "name": delvec.lit("back\\slash '"),
            "address": None,
        },
        "id = 0",
    )
    found = content(table)[0]
    assert found == row(
        0, price=Decimal("12.34"), day=dt.date(1999, 12, 31), small=7, name="back\\slash '", address=None
    )


def refused(table, error, match, change):
    before = table.version()
    with pytest.raises(error, match=match):
        change(table)
    assert table.version() == before
    assert len(content(table)) == 40


REFUSED = [
    ({"nam": "'x'"}, None, delvec.UnknownColumn, "name"),
    ({"name": "nam"}, None, delvec.UnknownColumn, "column 'name'.*did you mean 'name'"),
    ({"address.town": "'x'"}, None, delvec.UnknownColumn, "town"),
    ({"name": "'x'"}, "nam = 'x'", delvec.UnknownColumn, "name"),
    (
        {"address": "named_struct('city', 'x', 'zip', 1)", "address.city": "'x'"},
        None,
        delvec.BadRequest,
        "part of",
    ),
    ({"name": "'x'", "NAME": "'y'"}, None, delvec.BadRequest, "twice"),
    ({}, None, delvec.BadRequest, "at least one"),
    ({"name": "count(*)"}, None, delvec.InvalidPredicate, "aggregate"),
    ({"name": "(SELECT 1)"}, None, delvec.InvalidPredicate, "subquery"),
    ({"name": "upper("}, None, delvec.InvalidPredicate, "column 'name'"),
    ({"name": [1]}, None, delvec.BadRequest, "list"),
    ({"address": "5"}, None, delvec.SchemaMismatch, "struct"),
    ({"day": "true"}, None, delvec.SchemaMismatch, "date"),
    ({"name": "'x'"}, "rand() < 0.5", delvec.InvalidPredicate, "rand"),
    ({"name": "'x'"}, "name", delvec.InvalidPredicate, "Boolean"),
]


def test_what_cannot_be_is_refused_before_anything_is_read(make):
    table = make()
    for change, predicate, error, match in REFUSED:
        with pytest.raises(error, match=match):
            table.update(change, predicate)
    assert table.version() == 2


def test_a_value_that_does_not_fit_or_fails_for_a_row_changes_nothing(make):
    table = make()
    refused(
        table,
        delvec.DelvecError,
        "small|overflow|range|int",
        lambda table: table.update({"small": "id * 100"}),
    )
    refused(
        table,
        delvec.DelvecError,
        "n1|cast|convert|number",
        lambda table: table.update({"small": "name"}, "id = 1"),
    )
    refused(
        table, delvec.DelvecError, "zero", lambda table: table.update({"price": "1 / (id - 5)"}, "id < 10")
    )


def test_constraints_hold_for_updated_rows(make, lake):
    table = make()
    lake.table(table.location).alter.add_constraint("cheap", "price < 1000")
    refused(
        table, delvec.ConstraintViolation, "cheap", lambda table: table.update({"price": "5000"}, "id = 3")
    )


@pytest.mark.parametrize("share", ["0.5", "1", None])
def test_a_file_that_loses_more_than_the_stated_share_is_written_again(make, share):
    table = make(**({} if share is None else {"delvec.rewriteThreshold": share}))
    metrics = table.delete("id < 12 OR id = 30")
    rewritten = share == "0.5"
    assert (metrics["numRemovedFiles"], metrics["numAddedFiles"]) == (rewritten, rewritten)
    assert metrics["numDeletionVectorsAdded"] == 2 - rewritten
    assert (metrics["numDeletedRows"], metrics["numCopiedRows"]) == (13, 8 if rewritten else 0)
    assert sorted(content(table)) == [i for i in range(12, 40) if i != 30]


def test_nearly_all_rows_of_a_file_are_rewritten_by_default(make):
    table = make()
    assert table.update({"name": "'x'"}, "id < 19")["numRemovedFiles"] == 1
    assert [content(table)[i]["name"] for i in (18, 19)] == ["x", None]


def test_a_wrong_threshold_is_refused(make):
    table = make(**{"delvec.rewriteThreshold": "half"})
    refused(table, delvec.BadRequest, "rewriteThreshold", lambda table: table.delete("id = 1"))


@pytest.mark.parametrize("vectors", [True, False])
def test_dry_runs_tell_what_the_command_then_does(make, vectors):
    table = make(vectors=vectors)
    before = table.version()
    foreseen = [
        table.delete("id < 19 OR id = 30", dry_run=True),
        table.update({"name": "'x'"}, "id < 19 OR id = 30", dry_run=True),
    ]
    assert table.version() == before
    assert [each.version for each in foreseen] == [None, None]
    for each, metric in zip(foreseen, ("numDeletedRows", "numUpdatedRows"), strict=True):
        assert each[metric] == 20
        assert sorted((file.rows, file.live_rows, file.means) for file in each.files) == [
            (1, 20, "vector" if vectors else "rewrite"),
            (19, 20, "rewrite"),
        ]
    assert "dry run" in str(foreseen[0])
    assert [file.means for file in table.delete(dry_run=True).files] == ["removal"] * 2
    done = table.delete("id < 19 OR id = 30")
    assert done["numDeletedRows"] == foreseen[0]["numDeletedRows"]
    assert done["numRemovedFiles"] == foreseen[0]["numRemovedFiles"]
    assert done["numDeletionVectorsAdded"] == foreseen[0]["numDeletionVectorsAdded"]


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.gate
def test_delete_by_keys(make, vectors):
    table = make(vectors=vectors)
    keys = pa.table(
        {"id": pa.array([1, 3, 3, None, 39, 1000], pa.int32()), "name": ["n1", "x", "n3", None, None, "n0"]}
    )
    assert table.delete(keys=keys, on="id", dry_run=True)["numDeletedRows"] == 3
    metrics = table.delete("id < 30", keys=keys, on=["ID"])
    assert metrics["numDeletedRows"] == 2
    assert sorted(content(table)) == [i for i in range(40) if i not in (1, 3)]
    # NULL never matches: row 39 has no name either.
    assert table.delete(keys=keys)["numDeletedRows"] == 0
    assert table.delete(keys=[{"id": 5}])["numDeletedRows"] == 1
    assert table.history(1)[0]["operation"] == "DELETE"


def test_delete_by_keys_that_cannot_be(make):
    table = make()
    keys = pa.table({"id": [1], "other": [2]})
    refused(table, delvec.UnknownColumn, "other", lambda table: table.delete(keys=keys))
    refused(table, delvec.UnknownColumn, "nope", lambda table: table.delete(keys=keys, on=["nope"]))
    refused(table, delvec.BadRequest, "keys", lambda table: table.delete("id = 1", on=["id"]))


@pytest.mark.gate
def test_an_update_runs_again_where_others_changed_its_rows(make, lake, monkeypatch):
    table = make()
    other, change_rows = lake.table(table.location), table.engine.change_rows

    def overtaken(scan, change, target):
        found = change_rows(scan, change, target)
        monkeypatch.setattr(table.engine, "change_rows", change_rows)
        other.update({"small": "small + 1"}, "id = 3")
        return found

    monkeypatch.setattr(table.engine, "change_rows", overtaken)
    metrics = table.update({"small": "small * 10"}, "id = 3")
    assert metrics.retries == 1
    assert content(table)[3]["small"] == 40


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.gate
def test_each_command_feeds_the_changes(make, vectors):
    table = make(vectors=vectors, **{"delta.enableChangeDataFeed": "true"})
    first = table.update({"name": "'x'"}, "id < 19 AND id > 0").version  # most of a file: written again
    table.delete("id = 30 OR id = 31")
    table.delete(keys=[{"id": 5}, {"id": 32}])
    last = (
        table.merge([{"id": 7}, {"id": 100}], "target.id = source.id")
        .when_matched_delete()
        .when_not_matched_insert({"id": "id"})
    )
    last = last.execute().version
    found = [
        (each["_commit_version"] - first, each["_change_type"], each["id"])
        for each in table.changes(first, last).to_pylist()
    ]
    updated = [(0, f"update_{image}image", i) for i in range(1, 19) for image in ("pre", "post")]
    deleted = [(1, "delete", 30), (1, "delete", 31), (2, "delete", 5), (2, "delete", 32)]
    assert sorted(found) == sorted([*updated, *deleted, (3, "delete", 7), (3, "insert", 100)])


def test_a_double_beyond_the_greatest_float_is_infinite(lake, engine, tmp_path):
    table = lake.create_table(tmp_path / "floats", "d double, f float", engine=engine)
    table.append([{"d": value, "f": None} for value in (1e300, -1e300, 0.1, None, float("nan"))])
    table.update({"f": "d"}, "CAST(d AS FLOAT) <> 0 OR d IS NULL")
    found = {repr(row["d"]): repr(row["f"]) for row in table.to_arrow().to_pylist()}
    assert found == {
        "1e+300": "inf",
        "-1e+300": "-inf",
        "0.1": "0.10000000149011612",
        "None": "None",
        "nan": "nan",
    }


def test_decimals_are_rounded_where_spark_has_no_room_for_their_digits(lake, engine, tmp_path):
    table = lake.create_table(
        tmp_path / "decimals", "id int, wide decimal(38,18), small decimal(10,2), n long", engine=engine
    )
    price, more = Decimal("1.000000000000000005"), Decimal("0.000000000000000004")
    rows = [(1, price, Decimal("0.29")), (2, more, Decimal("4.35")), (3, None, Decimal("-0.57"))]
    table.append([{"id": i, "wide": wide, "small": small, "n": None} for i, wide, small in rows])

    # The product is rounded to 6 decimal places, so this one is 0.
    assert table.delete("wide * wide > 0 AND id = 2", dry_run=True)["numDeletedRows"] == 0
    table.update({"wide": "wide + 1", "n": "small DIV 0.01"})

    found = {row["id"]: (row["wide"], row["n"]) for row in table.to_arrow().to_pylist()}
    assert found == {
        1: (Decimal("2.000000000000000010"), 29),
        2: (Decimal("1.000000000000000000"), 435),
        3: (None, -57),
    }
