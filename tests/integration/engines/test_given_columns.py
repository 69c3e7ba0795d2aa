"""Optional columns of rows: default and identity columns, on each engine."""

import pyarrow as pa
import pytest
from tests.integration.engines.conftest import DataFile
from tests.support.schema_json import field

import delvec

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")

FEATURES = ["appendOnly", "invariants", "allowColumnDefaults", "identityColumns", "generatedColumns"]


def identity(name, start=1, step=1, *, explicit=False, **more):
    numbers = {"delta.identity.start": start, "delta.identity.step": step}
    return field(name, "long", **numbers, **{"delta.identity.allowExplicitInsert": explicit}, **more)


@pytest.fixture
def make(lake, engine, write_table):
    """Create an empty table by hand, as another writer would."""

    def make(*fields, partition_by=()):
        schema = {"type": "struct", "fields": list(fields)}
        folder = write_table("table", schema, [], partition_by=partition_by, features=FEATURES)
        return lake.table(str(folder), engine=engine)

    return make


@pytest.fixture
def handed(engine):
    """Return rows as the engine's own DataFrame, if it has one."""

    def handed(rows):
        return rows if engine == "duckdb" else engine.createDataFrame(rows).repartition(3)

    return handed


def mark(table):
    fields = table.snapshot().table_schema["fields"]
    (found,) = [each["metadata"] for each in fields if "delta.identity.start" in each["metadata"]]
    return found.get("delta.identity.highWaterMark")


def names(*texts):
    return pa.table({"name": list(texts)})


@pytest.mark.gate
def test_an_absent_column_has_its_default_and_a_given_one_what_is_given(make, handed):
    table = make(
        field("id", "long"),
        field("state", "string", CURRENT_DEFAULT="'new'"),
        field("score", "double", CURRENT_DEFAULT="1.5"),
        field("day", "date", CURRENT_DEFAULT="DATE '2024-02-29'"),
        field("none", "string", CURRENT_DEFAULT="NULL"),
        field("label", "string", **{"delta.generationExpression": "concat(state, '!')"}),
    )
    table.append(handed(pa.table({"id": [1]})))
    table.append(handed(pa.table({"id": [2], "STATE": pa.array([None], pa.string()), "score": [9.0]})))
    first, second = sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
    assert (first["state"], first["score"], str(first["day"]), first["none"]) == (
        "new",
        1.5,
        "2024-02-29",
        None,
    )
    assert first["label"] == "new!"
    assert (second["state"], second["score"], second["label"]) == (None, 9.0, None)


def test_a_table_is_made_with_computed_columns(lake, engine, tmp_path, handed):
    schema = (
        "key long GENERATED ALWAYS AS IDENTITY (START WITH 100), name string, state string DEFAULT 'new', "
        "label string GENERATED ALWAYS AS (concat(name, '-', state))"
    )
    table = lake.create_table(tmp_path / "made", schema, engine=engine)
    table.append(handed(names("a")))
    (row,) = table.to_arrow().to_pylist()
    assert row.pop("key") >= 100
    assert row == {"name": "a", "state": "new", "label": "a-new"}


def test_a_default_may_partition(make, handed):
    table = make(
        field("id", "long"), field("country", "string", CURRENT_DEFAULT="'NZ'"), partition_by=["country"]
    )
    table.append(handed(pa.table({"id": [1]})))
    assert table.to_arrow(predicate="country = 'NZ'")["id"].to_pylist() == [1]


@pytest.mark.gate
def test_rows_get_numbers_that_no_other_has(make, handed):
    table = make(identity("key", nullable=False), field("name", "string"))
    table.append(handed(names(*"abcde")))
    table.append(handed(names(*"fgh")))
    keys = table.to_arrow()["key"].to_pylist()
    assert len(set(keys)) == 8
    assert min(keys) >= 1
    assert mark(table) == max(keys)
    later = table.to_arrow(predicate="name >= 'f'")["key"].to_pylist()
    assert min(later) > max(table.to_arrow(version=1)["key"].to_pylist())


def test_numbers_go_down_where_the_step_does(make, handed):
    table = make(identity("key", start=100, step=-10), field("name", "string"))
    table.append(handed(names("a", "b")))
    table.append(handed(names("c")))
    keys = table.to_arrow()["key"].to_pylist()
    assert len(set(keys)) == 3
    assert all(key <= 100 and key % 10 == 0 for key in keys)
    assert mark(table) == min(keys)


def test_numbers_that_only_the_table_gives_are_not_taken(make, handed):
    table = make(identity("key"), field("name", "string"))
    with pytest.raises(delvec.SchemaMismatch, match="IDENTITY"):
        table.append(handed(pa.table({"KEY": [7], "name": ["a"]})))
    assert table.version() == 0


def test_given_numbers_are_taken_where_the_table_lets_them(make, handed):
    table = make(identity("key", explicit=True), field("name", "string"))
    table.append(handed(pa.table({"key": [7], "name": ["given"]})))
    assert mark(table) is None
    table.append(handed(names("a")))
    assert (
        dict(zip(*table.to_arrow().select(["name", "key"]).to_pydict().values(), strict=True))["given"] == 7
    )
    assert mark(table) is not None


def test_rows_are_deleted_and_replaced_on_such_tables(make, handed):
    table = make(identity("key"), field("name", "string"), field("state", "string", CURRENT_DEFAULT="'new'"))
    table.append(handed(names("a", "b")))
    table.delete("name = 'a'")
    assert table.to_arrow()["name"].to_pylist() == ["b"]
    before = mark(table)
    table.overwrite(handed(names("c")))
    (row,) = table.to_arrow().to_pylist()
    assert (row["name"], row["state"]) == ("c", "new")
    assert row["key"] > before


def test_two_writers_never_give_one_number(make, lake, handed):
    table = make(identity("key"), field("name", "string"))
    real, calls = table.engine.write, []

    def write(data, target):
        written = real(data, target)
        if not calls:
            calls.append(1)
            lake.table(table.location).append(names("other"))
        return written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table.engine, "write", write, raising=False)
        done = table.append(names("a", "b"))
    assert done.retries == 1
    assert len(set(table.to_arrow()["key"].to_pylist())) == 3


def test_numbers_go_on_behind_those_that_users_gave(make, handed):
    table = make(identity("key", 1, 10, explicit=True), field("name", "string"))
    table.append(handed(names("first")))
    table.append(handed(pa.table({"key": [1_000_000, 1_000_005, None], "name": ["a", "b", "c"]})))
    table.append(handed(pa.table({"key": [2_000_000], "name": ["gone"]})))
    table.delete("name = 'gone'")
    before = table.version()

    done = table.alter.sync_identity("key")

    assert (done.version, done.operation) == (before + 1, "CHANGE COLUMN")
    assert mark(table) == 1_000_011
    assert table.alter.sync_identity("KEY").version is None
    table.append(handed(names("next")))
    (row,) = table.to_arrow(predicate="name = 'next'").to_pylist()
    assert row["key"] > 1_000_011
    assert row["key"] % 10 == 1


def test_numbers_are_found_in_files_without_statistics_and_with_deletion_vectors(lake, engine, write_table):
    column = identity("k`ey", -1, -1, explicit=True)
    schema = {"type": "struct", "fields": [column, field("name", "string")]}
    rows = pa.table({"k`ey": [-5, -90, -40], "name": ["a", "b", "c"]})
    more = pa.table({"k`ey": [-7, -60], "name": ["d", "e"]})
    files = [
        DataFile(
            rows, stats={"numRecords": 3, "minValues": {"k`ey": -90}, "tightBounds": False}, deleted=[1]
        ),
        DataFile(more),
    ]
    features = [*FEATURES, "deletionVectors"]
    folder = write_table("table", schema, files, features=features)
    table = lake.table(str(folder), engine=engine)

    table.alter.sync_identity("`k``ey`")

    assert mark(table) == -60


def test_a_number_that_is_given_while_others_are_looked_at_is_seen(make, lake):
    table = make(identity("key", explicit=True), field("name", "string"))
    table.append(pa.table({"key": [7], "name": ["a"]}))
    alterations, calls = table.alter, []
    real = alterations._send

    def send(changes, verified, seen):
        if not calls:
            calls.append(1)
            lake.table(table.location).append(pa.table({"key": [70], "name": ["b"]}))
        return real(changes, verified, seen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alterations, "_send", send)
        alterations.sync_identity("key")
    assert mark(table) == 70
