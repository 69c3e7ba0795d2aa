"""Constraints are enforced by each engine before the commit."""

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.support.schema_json import field, struct

import delvec

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")

FEATURES = ["appendOnly", "invariants", "checkConstraints", "generatedColumns"]
MIDNIGHT = dt.datetime(2024, 1, 2, 23, 30, tzinfo=dt.UTC)


def generated(name, kind, expression, **more):
    return field(name, kind, **{"delta.generationExpression": expression}, **more)


def characters(text):
    return {"__CHAR_VARCHAR_TYPE_STRING": text}


@pytest.fixture
def make(lake, engine, write_table):
    """Create an empty table by hand, as another writer would, and return it with its folder."""

    def make(*fields, name="table", partition_by=(), features=FEATURES, protocol=None, **constraints):
        properties = {f"delta.constraints.{key}": text for key, text in constraints.items()}
        folder = write_table(
            name,
            struct(*fields),
            [],
            partition_by=partition_by,
            properties=properties,
            features=features,
            protocol=protocol,
        )
        return lake.table(str(folder), engine=engine)

    return make


@pytest.fixture
def handed(engine):
    """Return rows as the engine's own DataFrame, if it has one."""

    def handed(rows):
        return rows if engine == "duckdb" else engine.createDataFrame(rows)

    return handed


def refused(table, rows, match):
    """Check that rows are refused without a commit, with Delta's error."""
    before = table.version()
    with pytest.raises(delvec.ConstraintViolation, match=match) as caught:
        table.append(rows)
    assert caught.value.type == "DeltaInvariantViolationException"
    assert table.version() == before
    return caught.value


def test_rows_in_memory_with_times_that_have_no_zone_are_checked(lake, engine, tmp_path):
    table = lake.create_table(
        tmp_path / "t",
        "id long, n timestamp_ntz",
        properties={"delta.constraints.positive": "id > 0"},
        engine=engine,
    )
    noon = dt.datetime(2024, 3, 31, 12)  # noqa: DTZ001 - what is meant

    table.append(pa.table({"id": [1], "n": pa.array([noon], pa.timestamp("us"))}))
    table.append([{"id": 2, "n": noon}])

    assert {row["n"] for row in table.to_arrow().to_pylist()} == {noon}
    assert table.count() == 2


@pytest.mark.gate
def test_check_constraints(make, handed):
    table = make(field("id", "long"), field("name", "string"), positive="id > 0", named="Name <> 'x'")

    assert table.append(handed(pa.table({"id": [1, 2], "NAME": ["a", "b"]})))["numOutputRows"] == 2

    error = refused(table, handed(pa.table({"id": [3, 0], "name": ["a", "b"]})), "CHECK constraint positive")
    assert error.details["constraint"] == "positive"
    assert error.details["expression"] == "id > 0"
    assert error.details["values"] == {"id": "0"}
    assert "(id > 0)" in error.message
    assert " - id : 0" in error.message
    # NULL violates a constraint, too, as in delta-spark.
    refused(table, handed(pa.table({"id": pa.array([None], pa.int64()), "name": ["a"]})), "id : null")
    refused(table, handed(pa.table({"id": [1]})), "CHECK constraint named .* violated .*\n - name : null")
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2]


def test_invariants(make, handed):
    rule = json.dumps({"expression": {"expression": "x > 3"}})
    inner = field("y", "long", **{"delta.invariants": json.dumps({"expression": {"expression": "s.y < 9"}})})
    table = make(field("x", "integer", **{"delta.invariants": rule}), field("s", struct(inner)))

    table.append(handed(pa.table({"x": pa.array([4], pa.int32()), "s": [{"y": 1}]})))

    refused(table, handed(pa.table({"x": pa.array([3], pa.int32()), "s": [{"y": 1}]})), r"x > 3.*\n - x : 3")
    refused(table, handed(pa.table({"x": pa.array([4], pa.int32()), "s": [{"y": 9}]})), r"s\.y < 9")
    refused(table, handed(pa.table({"s": [{"y": 1}]})), "x : null")


@pytest.mark.gate
def test_not_null(make, handed):
    inner = struct(field("a", "long", nullable=False), field("b", "long"))
    table = make(field("id", "long", nullable=False), field("n", inner))
    kind = pa.struct([("a", pa.int64()), ("b", pa.int64())])

    def rows(ids, structs):
        return pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array(structs, kind)})

    table.append(handed(rows([1], [{"a": 1, "b": None}])))

    error = refused(table, handed(rows([None], [{"a": 1}])), "NOT NULL constraint violated for column: id")
    assert error.details["constraint"] == "NOT NULL"
    refused(table, handed(rows([1], [{"a": None}])), r"violated for column: n\.a")
    # As in delta-spark: the fields of a NULL struct are NULL.
    refused(table, handed(rows([1], [None])), r"violated for column: n\.a")


@pytest.mark.gate
def test_lengths_of_texts(make, handed):
    table = make(
        field("c", "string", **characters("char(5)")),
        field("v", "string", **characters("varchar(3)")),
        field("n", struct(field("a", "string")), **characters("struct<a:varchar(2)>")),
        field(
            "l",
            {"type": "array", "elementType": "string", "containsNull": True},
            **characters("array<varchar(2)>"),
        ),
        field(
            "m",
            {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True},
            **characters("map<char(1),varchar(2)>"),
        ),
    )
    kinds = [
        ("c", pa.string()),
        ("v", pa.string()),
        ("n", pa.struct([("a", pa.string())])),
        ("l", pa.list_(pa.string())),
        ("m", pa.map_(pa.string(), pa.string())),
    ]

    def rows(**values):
        return handed(pa.Table.from_pylist([values], pa.schema(kinds)))

    # Characters count, not bytes; nothing is padded, as delta-spark stores it.
    good = {"c": "ab", "v": "é€𝄞", "n": {"a": "xy"}, "l": ["ab", None], "m": [("k", "vv")]}
    table.append(rows(**good))
    table.append(rows())

    assert {**good, "m": [("k", "vv")]} in table.to_arrow().to_pylist()
    error = refused(table, rows(v="abcd"), "column 'v' .* 4 characters .* limitation of 3")
    assert error.details["column"] == "v"
    refused(table, rows(c="abcde "), "'c'")
    refused(table, rows(v="abc "), "'v'")
    refused(table, rows(n={"a": "xyz"}), r"'n\.a'")
    refused(table, rows(l=["a", "abc"]), r"'l\.element'")
    refused(table, rows(m=[("kk", "v")]), r"'m\.key'")
    refused(table, rows(m=[("k", "vvv")]), r"'m\.value'")


def test_a_table_is_made_with_lengths_of_texts(lake, engine, tmp_path):
    table = lake.create_table(tmp_path / "t", "v varchar(3), s struct<x: char(2)>", engine=engine)
    table.append([{"v": "abc", "s": {"x": "ab"}}, {"v": "ééé", "s": None}])
    refused(table, [{"v": "abcd", "s": None}], "exceeds .* limitation of 3")
    refused(table, [{"v": "a", "s": {"x": "abc"}}], "exceeds .* limitation of 2")
    with pytest.raises(delvec.ConstraintViolation, match="limitation of 3"):
        table.update({"v": "concat(v, v)"})
    wrong = struct(field("v", "string", **characters("varchar(3)x")))
    with pytest.raises(delvec.InvalidSchema, match="does not match the schema"):
        lake.create_table(tmp_path / "c", wrong)
    with pytest.raises(delvec.UnsupportedOperation, match="string"):
        table.alter.add_columns("w varchar(3)")
    with pytest.raises(delvec.UnsupportedOperation, match="set_default"):
        table.alter.add_columns("w int DEFAULT 5")
    assert table.version() == 1


@pytest.mark.gate
def test_generated_columns_are_computed_where_absent(make, handed):
    table = make(
        field("id", "long"),
        field("ts", "timestamp"),
        generated("day", "date", "CAST(ts AS DATE)"),
        generated("twice", "long", "ID * 2 -- doubled"),
        partition_by=["day"],
    )

    table.append(
        handed(pa.table({"id": [1, 2], "ts": pa.array([MIDNIGHT, None], pa.timestamp("us", "UTC"))}))
    )

    found = sorted(table.to_arrow().select(["id", "day", "twice"]).to_pylist(), key=lambda row: row["id"])
    assert found == [
        {"id": 1, "day": MIDNIGHT.date(), "twice": 2},
        {"id": 2, "day": None, "twice": 4},
    ]
    assert sorted(table.to_arrow(predicate="day = '2024-01-02'")["id"].to_pylist()) == [1]


def test_generated_columns_are_verified_where_given(make, handed):
    table = make(field("ts", "timestamp"), generated("day", "date", "CAST(ts AS DATE)"), partition_by=["day"])
    kinds = pa.schema([("ts", pa.timestamp("us", "UTC")), ("day", pa.date32())])

    def rows(ts, day):
        return handed(pa.Table.from_pylist([{"ts": ts, "day": day}], kinds))

    table.append(rows(MIDNIGHT, MIDNIGHT.date()))
    table.append(rows(None, None))

    error = refused(table, rows(MIDNIGHT, dt.date(2024, 1, 3)), "Generated Column .*CAST")
    assert error.details["values"]["day"] == "2024-01-03"
    refused(table, rows(MIDNIGHT, None), "day : null")
    refused(table, rows(None, MIDNIGHT.date()), "ts : null")


def test_a_generated_column_may_be_what_a_constraint_is_about(make, handed):
    table = make(field("id", "long"), generated("twice", "long", "id * 2"), small="twice < 10")

    table.append(handed(pa.table({"id": [4]})))

    refused(table, handed(pa.table({"id": [5]})), r"small \(twice < 10\).*\n - twice : 10")


def test_without_the_feature_an_expression_binds_nobody(make, handed):
    table = make(
        field("id", "long"),
        generated("twice", "long", "id * 2"),
        protocol={"minReaderVersion": 1, "minWriterVersion": 2},
    )

    table.append(handed(pa.table({"id": [1]})))
    table.append(handed(pa.table({"id": [1], "twice": [7]})))

    assert sorted(table.to_arrow()["twice"].to_pylist(), key=str) == [7, None]


def test_expressions_see_the_values_that_the_table_will_hold(make, handed):
    table = make(field("price", "decimal(10,2)"), field("n", "long"), some="price >= 0.5 AND n < 3000000000")

    table.append(handed(pa.table({"price": pa.array([1], pa.int64()), "n": pa.array([7], pa.int8())})))

    refused(table, handed(pa.table({"price": pa.array([0], pa.int64()), "n": [7]})), "some")
    with pytest.raises(delvec.SchemaMismatch, match="price"):
        table.append(handed(pa.table({"price": pa.array([Decimal("1.005")]), "n": [1]})))
    assert table.to_arrow().to_pylist() == [{"price": Decimal("1.00"), "n": 7}]


def test_an_empty_text_that_partitions_the_table_is_checked_as_the_null_it_becomes(make, handed):
    """As in delta-spark: generated values are checked in UPDATE and MERGE, but not in appends."""
    table = make(
        field("id", "string"),
        field("x", "long"),
        generated("made", "string", "substring(id, 1, 2)"),
        field("place", "string"),
        partition_by=["made", "place"],
        some="place IS NULL OR place <> 'x'",
    )
    given = {"id": ["", None], "x": [1, 2], "made": ["", None], "place": ["y", "y"]}
    refused(table, handed(pa.table(given)), "Generated Column .*\n - id : \n - made : null")

    table.append(handed(pa.table({"id": ["", "abc"], "x": [3, 4], "place": ["", "y"]})))

    with pytest.raises(delvec.ConstraintViolation, match="Generated Column"):
        table.update({"id": "''"}, "x = 4")
    merge = table.merge(pa.table({"x": [9]}), "t.x = s.x", source_alias="s", target_alias="t")
    with pytest.raises(delvec.ConstraintViolation, match="Generated Column"):
        merge.when_not_matched_insert({"id": "''", "x": "s.x"}).execute()
    table.update({"id": "'def'"}, "x = 4")
    assert sorted(table.to_arrow().to_pylist(), key=str) == [
        {"id": "", "x": 3, "made": None, "place": None},
        {"id": "def", "x": 4, "made": "de", "place": "y"},
    ]


def test_what_is_generated_of_an_empty_partition_is_appended(make, handed):
    table = make(field("p", "string"), generated("g", "string", "p"), field("x", "long"), partition_by=["p"])
    table.append(handed(pa.table({"p": ["", "a"], "x": [1, 2]})))
    assert sorted(table.to_arrow().to_pylist(), key=str) == [
        {"p": "a", "g": "a", "x": 2},
        {"p": None, "g": "", "x": 1},
    ]


def test_a_check_of_a_partition_refuses_an_empty_text_as_null(make, handed):
    table = make(field("id", "long"), field("p", "string"), partition_by=["p"], some="p <> 'x'")
    refused(table, handed(pa.table({"id": [1, 2], "p": ["a", ""]})), "some .*\n - p : null")
    table.append(handed(pa.table({"id": [1], "p": ["a"]})))
    with pytest.raises(delvec.ConstraintViolation, match="some"):
        table.update({"p": "''"})
    assert table.to_arrow()["p"].to_pylist() == ["a"]


def test_a_write_without_rows(make):
    """Of nested columns, too."""
    kinds = ("long", {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True})
    table = make(field("id", kinds[0]), field("m", kinds[1]), some="id > 0")
    nothing = pa.table({"id": pa.array([], pa.int64()), "m": pa.array([], pa.map_(pa.string(), pa.int64()))})
    for rows in (nothing, pa.Table.from_batches([], nothing.schema), []):
        table.append(rows)
        table.overwrite(rows, replace_where="id = 1")
    assert table.count() == 0


def test_every_row_is_looked_at(make, handed):
    table = make(field("id", "long"), below="id < 200000")
    table.append(handed(pa.table({"id": range(200_000)})))

    refused(table, handed(pa.table({"id": range(200_001)})), "id : 200000")

    assert table.count() == 200_000


def test_rows_that_are_no_frame(make):
    table = make(
        field("id", "long"), field("n", "short"), generated("twice", "long", "id * 2"), positive="id > 0"
    )

    table.append([{"id": 1, "n": 5}, {"id": 2}])

    refused(table, [{"id": 1}, {"id": -1}], "id : -1")
    refused(table, [{"id": 1, "twice": 3}], "twice : 3")
    with pytest.raises(delvec.SchemaMismatch, match="'n'"):
        table.append([{"id": 1, "n": 1 << 20}])
    found = sorted(table.to_arrow().to_pylist(), key=str)
    assert found == [{"id": 1, "n": 5, "twice": 2}, {"id": 2, "n": None, "twice": 4}]


def test_rows_that_stay_are_not_checked_again(make, lake, engine, write_table, data_file):
    # Another writer may have written such rows before the constraint.
    folder = write_table(
        "old",
        struct(field("id", "long")),
        [data_file(pa.table({"id": [-1, 1, 2]}))],
        properties={"delta.constraints.positive": "id > 0"},
        features=FEATURES,
    )
    table = lake.table(str(folder), engine=engine)

    assert table.delete("id = 2")["numDeletedRows"] == 1
    assert sorted(table.to_arrow()["id"].to_pylist()) == [-1, 1]


@pytest.mark.parametrize(
    "expression",
    ["no_such_function(id) = 1", "missing > 0", "id +", "(SELECT max(id) FROM t) > 0", "id + 1", ""],
)
def test_an_expression_that_cannot_be_evaluated_is_refused_by_name(make, tmp_path, handed, expression):
    table = make(field("id", "long"), rule=expression)

    with pytest.raises(delvec.UnsupportedWriterFeature) as caught:
        table.append(handed(pa.table({"id": [1]})))

    assert expression in caught.value.message
    assert table.version() == 0
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize("expression", ["id +", "no_such_function(id)", "missing"])
def test_a_column_that_cannot_be_computed_is_refused_by_name(make, handed, expression):
    table = make(field("id", "long"), generated("g", "long", expression))
    for rows in ({"id": [1]}, {"id": [1], "g": [1]}):
        with pytest.raises(delvec.UnsupportedWriterFeature) as caught:
            table.append(handed(pa.table(rows)))
        assert expression in caught.value.message
        assert table.version() == 0


def test_an_invariant_that_delta_does_not_describe_is_refused(make, handed):
    table = make(field("id", "long", **{"delta.invariants": "id > 1"}))
    with pytest.raises(delvec.UnsupportedWriterFeature, match=r"'id' has delta\.invariants 'id > 1'"):
        table.append(handed(pa.table({"id": [1]})))
