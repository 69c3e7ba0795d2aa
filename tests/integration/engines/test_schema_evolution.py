"""Rows with another schema than the table, on each engine: refused, merged, or overwriting the schema."""

import pyarrow as pa
import pytest

import delvec

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")


@pytest.fixture
def people(lake, engine, tmp_path):
    """Create a table of two people."""

    def people(partition_by=(), **properties):
        table = lake.create_table(
            tmp_path / "people",
            "id int, name string, home struct<city: string>",
            partition_by=list(partition_by),
            properties=properties,
            engine=engine,
        )
        table.append(rows([1, 2], ["Ada", "Bob"], [{"city": "Oslo"}, None]))
        return table

    return people


@pytest.fixture
def handed(engine):
    """Return rows as the engine's own DataFrame, if it has one."""

    def handed(table):
        return table if engine == "duckdb" else engine.createDataFrame(table)

    return handed


def rows(ids, names, homes, **more):
    return pa.table({"id": pa.array(ids, pa.int32()), "name": names, "home": homes, **more})


def found(table):
    return sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])


def mapped(table):
    table.alter.set_properties({"delta.columnMapping.mode": "name"})
    return table


@pytest.mark.parametrize("mapping", [False, True])
@pytest.mark.gate
def test_new_columns_come_with_the_rows(people, handed, mapping):
    table = mapped(people()) if mapping else people()
    before = table.version()
    new = rows([3], ["Cyd"], [{"city": "Rome", "zip": "00100"}], age=pa.array([41], pa.int16()))
    done = table.append(handed(new), merge_schema=True)
    assert done.version == before + 1
    assert table.schema().names == ["id", "name", "home", "age"]
    assert found(table) == [
        {"id": 1, "name": "Ada", "home": {"city": "Oslo", "zip": None}, "age": None},
        {"id": 2, "name": "Bob", "home": None, "age": None},
        {"id": 3, "name": "Cyd", "home": {"city": "Rome", "zip": "00100"}, "age": 41},
    ]
    assert table.to_arrow(predicate="age > 40")["id"].to_pylist() == [3]


def test_without_being_asked_no_column_is_added(people, handed):
    table = people()
    before = table.version()
    with pytest.raises(delvec.SchemaMismatch, match="age"):
        table.append(handed(rows([3], ["Cyd"], [None], age=pa.array([41]))))
    assert table.version() == before


def test_columns_may_come_in_any_order_and_case_and_be_absent(people, handed):
    table = people()
    table.append(
        handed(pa.table({"NAME": ["Cyd"], "extra": [1.5], "Id": pa.array([3], pa.int32())})),
        merge_schema=True,
    )
    assert table.schema().names == ["id", "name", "home", "extra"]
    assert found(table)[-1] == {"id": 3, "name": "Cyd", "home": None, "extra": 1.5}


def test_fields_of_structs_in_arrays_and_maps_are_added(lake, engine, tmp_path, handed):
    schema = "id long, list array<struct<a: int>>, map map<string, struct<a: int>>"
    table = lake.create_table(tmp_path / "nested", schema, engine=engine)
    inner = pa.struct([("a", pa.int32()), ("b", pa.string())])
    new = pa.table(
        {
            "id": [1],
            "list": pa.array([[{"a": 1, "b": "x"}]], pa.list_(inner)),
            "map": pa.array([[("k", {"a": 2, "b": "y"})]], pa.map_(pa.string(), inner)),
        }
    )
    table.append(handed(new), merge_schema=True)
    (row,) = table.to_arrow().to_pylist()
    assert (row["list"], row["map"]) == ([{"a": 1, "b": "x"}], [("k", {"a": 2, "b": "y"})])


@pytest.mark.gate
def test_types_are_widened_where_the_table_lets_them(people, handed):
    table = people()
    table.alter.set_properties({"delta.enableTypeWidening": "true"})
    large = pa.table({"id": pa.array([2**40], pa.int64()), "name": ["big"]})
    table.append(handed(large), merge_schema=True)
    assert table.schema().field("id").type == pa.int64()
    assert [row["id"] for row in found(table)] == [1, 2, 2**40]


def test_a_type_that_is_no_wider_one_is_refused(people, handed):
    table = people()
    for other in (pa.array([2**40], pa.int64()), pa.array(["three"])):
        with pytest.raises(delvec.SchemaMismatch, match="id"):
            table.append(handed(pa.table({"id": other})), merge_schema=True)
    assert len(found(table)) == 2


def test_a_new_column_without_a_type_is_refused(people):
    with pytest.raises(delvec.SchemaMismatch, match="age"):
        people().append([{"id": 3, "age": None}], merge_schema=True)


def test_overwriting_may_add_columns_too(people, handed):
    table = people()
    table.overwrite(handed(pa.table({"id": pa.array([9], pa.int32()), "age": [1]})), merge_schema=True)
    assert found(table) == [{"id": 9, "name": None, "home": None, "age": 1}]


@pytest.mark.parametrize("mapping", [False, True])
def test_a_table_gets_other_columns(people, handed, mapping):
    table = mapped(people(["name"])) if mapping else people(["name"])
    new = pa.table({"id": ["x", "y"], "flag": [True, None]})
    table.overwrite(handed(new), overwrite_schema=True, partition_by=[])
    assert found(table) == [{"id": "x", "flag": True}, {"id": "y", "flag": None}]
    assert table.snapshot().partition_columns == []
    table.append(handed(new.slice(1)))
    assert table.count("flag IS NULL") == 2
    first = 2 if mapping else 1
    assert table.schema(version=first).names == ["id", "name", "home"]


def test_the_partition_columns_stay_unless_others_are_named(people, handed):
    table = people(["name"])
    table.overwrite(handed(pa.table({"name": ["Z"], "score": [1.5]})), overwrite_schema=True)
    assert table.snapshot().partition_columns == ["name"]
    with pytest.raises(delvec.SchemaMismatch, match="partition_by"):
        table.overwrite(handed(pa.table({"score": [1.5]})), overwrite_schema=True)


def test_the_same_columns_are_no_change(people, handed):
    table = people()
    table.overwrite(handed(table.to_arrow().slice(0, 1)), overwrite_schema=True)
    assert table.schema().names == ["id", "name", "home"]
    assert table.snapshot().table_schema["fields"][0]["type"] == "integer"


def test_two_writers_that_add_a_column_at_once_both_get_in(people, lake):
    table = people()
    real, calls = table.engine.write, []

    def write(data, target):
        written = real(data, target)
        if not calls:
            calls.append(1)
            lake.table(table.location).append([{"id": 5, "age": 50}], merge_schema=True)
        return written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table.engine, "write", write, raising=False)
        done = table.append(pa.table({"id": pa.array([6], pa.int32()), "age": [60]}), merge_schema=True)
    assert done.retries == 1
    assert [row["age"] for row in found(table)] == [None, None, 50, 60]


def test_a_field_is_set_in_a_struct_that_gets_another(lake, engine, tmp_path):
    """One clause inserts whole rows with a new field, and another assigns an existing field."""
    table = lake.create_table(tmp_path / "t", "id long, s struct<x: int, y: string>", engine=engine)
    table.append([{"id": number, "s": {"x": number, "y": "a"}} for number in (1, 2)])
    source = pa.table({"id": [1, 2], "s": [{"x": 10, "y": "b", "z": 0.5}] * 2})

    merge = table.merge(source, "target.id = source.id", merge_schema=True)
    merge.when_matched_update(
        {"s.x": "target.s.x + 100"}, "target.id = 1"
    ).when_matched_update_all().execute()

    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "s": {"x": 101, "y": "a", "z": None}},
        {"id": 2, "s": {"x": 10, "y": "b", "z": 0.5}},
    ]
