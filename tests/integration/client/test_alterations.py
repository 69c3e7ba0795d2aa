"""``table.alter``: what a user asks for, and what the table is afterwards, read by others too."""

import json
import threading

import deltalake
import pyarrow as pa
import pytest

import delvec

MAPPED = {"delta.columnMapping.mode": "name"}


def raise_mine(_):
    raise ValueError("mine")


def add_another(alter):
    alter.add_columns("X int")


def add_and(table, then):
    with table.alter.together() as alter:
        alter.add_columns("x int")
        then(alter)


def protocol(table):
    return table.snapshot().protocol


def test_columns_are_added_and_read_as_null(people):
    done = people.alter.add_columns("age int COMMENT 'years', born date")

    assert (done.version, done.operation) == (2, "ADD COLUMNS")
    assert people.schema().names == ["id", "name", "country", "age", "born"]
    assert people.to_arrow()["age"].null_count == 10
    people.append([{"id": 10, "name": "n10", "country": "NZ", "age": 7, "born": None}])
    assert people.to_arrow(predicate="age > 5")["id"].to_pylist() == [10]


def test_columns_keep_their_order_where_they_are_put(people):
    people.alter.add_columns(pa.schema([("a", pa.int32()), ("b", pa.string())]), after="id")
    people.alter.add_columns("c struct<x: int>", first=True)
    people.alter.add_columns("y int", into="c")

    assert people.schema().names == ["c", "id", "a", "b", "name", "country"]
    assert [field.name for field in people.schema().field("c").type] == ["x", "y"]


def test_changes_of_a_block_are_one_version_or_none(people):
    with people.alter.together() as alter:
        alter.set_properties(MAPPED)
        alter.rename_column("name", "full name")
        alter.drop_columns("country")
        alter.comment("people we know")
        assert people.version() == 1

    assert people.version() == 2
    assert people.schema().names == ["id", "full name"]
    assert people.detail()["description"] == "people we know"
    assert [entry["operation"] for entry in people.history(1)] == ["ALTER TABLE"]

    for mistake in (raise_mine, add_another):
        with pytest.raises((ValueError, delvec.InvalidTableChange), match=r"mine|already"):
            add_and(people, mistake)
    with people.alter.together():
        pass
    assert people.version() == 2


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_mapped_table_is_appended_to_and_deleted_from(lake, tmp_path, vectors):
    schema = pa.schema(
        [("id", pa.int64()), ("home", pa.struct([("city", pa.string())])), ("land", pa.string())]
    )
    table = lake.create_table(
        tmp_path / "t", schema, partition_by=["land"], properties={"delta.enableDeletionVectors": vectors}
    )
    rows = [{"id": n, "home": {"city": f"c{n}"}, "land": "NZ" if n < 3 else "DE"} for n in range(6)]
    table.append(rows)
    with table.alter.together() as alter:
        alter.set_properties(MAPPED)
        alter.rename_column("id", "the key")
        alter.rename_column("home.city", "town")
        alter.rename_column("land", "country")
        alter.add_columns("age int")
    table.append([{"the key": 6, "home": {"town": "c6"}, "country": "NZ", "age": 1}])

    assert table.delete("`the key` = 1")["numDeletedRows"] == 1
    assert table.delete("home.town = 'c6'")["numDeletedRows"] == 1
    assert table.delete("country = 'DE' AND `the key` > 3")["numDeletedRows"] == 2

    assert sorted(table.to_arrow()["the key"].to_pylist()) == [0, 2, 3]
    assert table.count("age IS NULL") == 3
    adds = [
        json.loads(line)["add"]
        for path in sorted((tmp_path / "t" / "_delta_log").glob("*.json"))
        for line in path.read_text().splitlines()
        if "add" in json.loads(line)
    ]
    assert {name for add in adds for name in add["partitionValues"]} == {"land"}
    counted = {name for add in adds for name in json.loads(add["stats"])["nullCount"]}
    assert {"id", "home"} <= counted
    assert not counted & {"the key", "age", "country"}
    assert table.check()["findings"] == []


def test_a_widened_column_holds_wider_values(lake, tmp_path):
    table = lake.create_table(tmp_path / "t", pa.schema([("n", pa.int8()), ("d", pa.decimal128(5, 2))]))
    table.append([{"n": 1, "d": None}])
    table.alter.set_properties({"delta.enableTypeWidening": "true"})

    table.alter.change_type("n", "bigint")
    table.alter.change_type("d", "decimal(10, 4)")
    table.append([{"n": 2**40, "d": None}])
    table.delete("n = 1")

    assert table.to_arrow()["n"].to_pylist() == [2**40]
    assert table.schema().field("d").type == pa.decimal128(10, 4)
    with pytest.raises(delvec.InvalidTableChange, match="cannot be changed to"):
        table.alter.change_type("n", "int")


def test_deletion_vectors_are_enabled_on_a_table_without(lake, tmp_path):
    table = lake.create_table(
        tmp_path / "t", pa.schema([("id", pa.int64())]), properties={"delta.enableDeletionVectors": "false"}
    )
    table.append([{"id": n} for n in range(5)])
    assert table.delete("id = 1")["numDeletionVectorsAdded"] == 0

    table.alter.enable_deletion_vectors()

    assert protocol(table)["readerFeatures"] == ["deletionVectors"]
    assert table.delete("id = 2")["numDeletionVectorsAdded"] == 1
    assert table.alter.enable_deletion_vectors() == delvec.alterations.Altered(None, None)


def test_a_constraint_holds_for_the_rows_that_are_there_and_for_new_ones(people):
    with pytest.raises(delvec.ConstraintViolation, match="1 row of table 'people'") as caught:
        people.alter.add_constraint("known", "name <> 'n3'")
    assert caught.value.details["count"] == 1

    people.delete("id = 3")
    people.alter.add_constraint("known", "name <> 'n3'")

    with pytest.raises(delvec.ConstraintViolation, match="known"):
        people.append([{"id": 3, "name": "n3", "country": "NZ"}])
    people.alter.drop_constraint("known")
    people.append([{"id": 3, "name": "n3", "country": "NZ"}])


def test_not_null_is_set_where_every_row_has_a_value(people):
    people.append([{"id": 10, "name": None, "country": "NZ"}])
    with pytest.raises(delvec.ConstraintViolation, match="satisfy name IS NOT NULL"):
        people.alter.set_not_null("name")

    people.delete("name IS NULL")
    people.alter.set_not_null("name")

    assert not people.schema().field("name").nullable
    with pytest.raises(delvec.DelvecError):
        people.append([{"id": 11, "name": None, "country": "NZ"}])
    people.alter.drop_not_null("name")
    people.append([{"id": 11, "name": None, "country": "NZ"}])


def test_a_row_that_comes_while_a_constraint_is_added_is_looked_at_too(people, monkeypatch):
    count = people.count
    came = threading.Event()

    def then_a_row_comes(*arguments, **named):
        found = count(*arguments, **named)
        if not came.is_set():
            came.set()
            people.append([{"id": 3, "name": "bad", "country": "NZ"}])
        return found

    monkeypatch.setattr(people, "count", then_a_row_comes)

    with pytest.raises(delvec.ConstraintViolation, match="1 row of table 'people'"):
        people.alter.add_constraint("good", "name <> 'bad'")

    assert people.history(1)[0]["operation"] == "WRITE"


def test_clustering_properties_comments_and_features(people):
    people.alter.cluster_by(["id", "name"])
    people.alter.set_properties({"delta.appendOnly": "true", "team": "red"})
    people.alter.unset_properties("delta.appendOnly")
    people.alter.comment_column("name", "who it is")
    people.alter.move_column("name", first=True)
    people.alter.add_feature("v2Checkpoint")
    people.alter.upgrade_protocol(1, 4)

    assert people.detail()["clusteringColumns"] == ["id", "name"]
    snapshot = people.snapshot()
    assert snapshot.configuration["team"] == "red"
    assert "delta.appendOnly" not in snapshot.configuration
    assert snapshot.table_schema["fields"][0]["metadata"] == {"comment": "who it is"}
    assert "v2Checkpoint" in protocol(people)["readerFeatures"]
    assert {"clustering", "domainMetadata", "changeDataFeed"} <= set(protocol(people)["writerFeatures"])
    people.append([{"id": 10, "name": "n10", "country": "NZ"}])
    people.delete("id = 10")
    assert people.check()["findings"] == []


def test_deltalake_reads_what_was_changed(people, tmp_path):
    people.alter.add_columns("age int")
    people.alter.set_properties({"team": "red"})
    people.delete("id = 3")

    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(tmp_path / "people")))
    rows = pa.table(query.execute("select id, age from t order by id").read_all()).to_pylist()

    assert rows == [{"id": n, "age": None} for n in range(10) if n != 3]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda alter: alter.add_columns("x spam"), delvec.InvalidSchema),
        (lambda alter: alter.rename_column("name", "n"), delvec.InvalidTableChange),
        (lambda alter: alter.rename_column("spam", "n"), delvec.BadRequest),
        (lambda alter: alter.set_properties({"delta.spam": "1"}), delvec.InvalidTableChange),
        (lambda alter: alter.set_properties({}), delvec.BadRequest),
        (lambda alter: alter.add_constraint("c", "id +"), delvec.InvalidPredicate),
        (lambda alter: alter.drop_constraint("c"), delvec.InvalidTableChange),
        (lambda alter: alter.move_column("id"), delvec.BadRequest),
        (lambda alter: alter.add_feature("spam"), delvec.InvalidTableChange),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(people, change, error):
    with pytest.raises(error):
        change(people.alter)

    assert people.version() == 1


def test_rows_that_leave_a_column_out_get_its_default_from_now_on(people):
    before = people.to_arrow().num_rows
    people.alter.set_default("name", "concat('no', 'body')")
    people.append([{"id": 91}])
    people.alter.drop_default("name")
    people.append([{"id": 92}])

    rows = {row["id"]: row["name"] for row in people.to_arrow().to_pylist()}
    assert (rows[91], rows[92]) == ("nobody", None)
    assert len(rows) == before + 2
    with pytest.raises(delvec.InvalidSchema, match="which may only read columns of the table"):
        people.alter.set_default("name", "id")


@pytest.mark.parametrize("column", ["`a.b`", "`s.t`.`x.y`", "`q``r`"])
def test_a_table_is_sorted_by_columns_of_any_name(lake, tmp_path, column):
    rows = pa.table({"a.b": range(10), "q`r": range(10), "s.t": [{"x.y": number} for number in range(10)]})
    table = lake.create_table(
        tmp_path / "odd", rows.schema, cluster_by=[column], properties={"delta.columnMapping.mode": "name"}
    )
    for _ in range(2):
        table.append(rows)
    assert table.detail()["clusteringColumns"] == [column]
    assert table.optimize().version == 3
    assert table.to_arrow(predicate=f"{column} = 3").num_rows == 2
