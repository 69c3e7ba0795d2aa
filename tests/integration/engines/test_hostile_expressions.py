"""Hostile SQL in table metadata: engines only evaluate allowed expressions."""

import json

import pyarrow as pa
import pytest
from tests.support.expression_cases import HOSTILE
from tests.support.schema_json import field

import delvec

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")

FEATURES = ["appendOnly", "invariants", "checkConstraints", "generatedColumns", "allowColumnDefaults"]
ATTACK = "java_method('java.lang.System', 'setProperty', 'delvec.attacked', 'yes')"
SOME = [
    ATTACK,
    "(TABLE secret)",
    "(FROM text.`/etc/passwd` |> LIMIT 1)",
    f"concat('a', {ATTACK})",
    f"'a' -- \\\n || {ATTACK}",
    "'${env:PATH}'",
    "to_json(struct(ALL *))",
    "transform(array(1), array -> array < secret > true)[0]",
]


@pytest.fixture
def make(lake, engine, write_table, data_file):
    """Write a table by hand with one row and one rule; parametrized by the kind of rule."""

    def make(kind, text, name="table"):
        metadata = {
            "default": {"CURRENT_DEFAULT": text},
            "generated": {"delta.generationExpression": text},
            "invariant": {"delta.invariants": json.dumps({"expression": {"expression": f"{text} = ''"}})},
        }.get(kind, {})
        folder = write_table(
            name,
            {"type": "struct", "fields": [field("id", "long"), field("s", "string", **metadata)]},
            [data_file(pa.table({"id": [1, 2], "s": ["x", "y"]}))],
            properties={"delta.constraints.rule": f"{text} = ''"} if kind == "constraint" else {},
            features=FEATURES,
        )
        return lake.table(str(folder), engine=engine)

    return make


def attacked(engine):
    if engine == "duckdb" or not hasattr(engine, "_jvm"):
        return None
    return engine._jvm.java.lang.System.getProperty("delvec.attacked")


@pytest.mark.parametrize("kind", ["default", "generated", "constraint", "invariant"])
def test_an_append_is_refused_by_name_and_nothing_is_evaluated(make, engine, tmp_path, kind):
    for number, text in enumerate(SOME):
        table = make(kind, text, f"table{number}")
        files = sorted(tmp_path.rglob("*.parquet"))
        rows = pa.table({"id": [3]})
        with pytest.raises(delvec.ExpressionNotAllowed) as caught:
            table.append(rows if engine == "duckdb" else engine.createDataFrame(rows))
        assert {"default": "'s' has the default", "generated": "'s' has the generation"}.get(
            kind, "The constraint"
        ) in caught.value.message
        assert text in caught.value.details["expression"]
        assert table.version() == 0
        assert sorted(tmp_path.rglob("*.parquet")) == files
    assert attacked(engine) is None


@pytest.mark.parametrize("kind", ["default", "generated", "constraint", "invariant"])
def test_the_table_is_read_and_rows_are_deleted(make, kind):
    table = make(kind, ATTACK)
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2]
    assert table.delete("id = 2")["numDeletedRows"] == 1
    assert table.to_arrow()["id"].to_pylist() == [1]


def test_a_default_that_is_not_needed_refuses_nothing(make, engine):
    table = make("default", ATTACK)
    rows = pa.table({"id": [3], "s": ["z"]})
    table.append(rows if engine == "duckdb" else engine.createDataFrame(rows))
    assert table.update({"s": "'w'"}, "id = 1")["numUpdatedRows"] == 1
    assert sorted(table.to_arrow()["s"].to_pylist()) == ["w", "y", "z"]
    with pytest.raises(delvec.ExpressionNotAllowed, match="'s' has the default"):
        table.update({"s": "DEFAULT"}, "id = 1")
    with pytest.raises(delvec.ExpressionNotAllowed, match="'s' has the default"):
        table.merge(
            rows, "source.id = target.id + 100", source_alias="source", target_alias="target"
        ).when_not_matched_insert({"id": "source.id"}).execute()
    assert attacked(engine) is None


@pytest.mark.parametrize("kind", ["generated", "constraint", "invariant"])
@pytest.mark.gate
def test_rows_are_not_changed_under_a_rule_that_is_not_evaluated(make, engine, kind):
    table = make(kind, ATTACK)
    with pytest.raises(delvec.ExpressionNotAllowed):
        table.update({"id": "id + 1"}, "id = 1")
    assert table.version() == 0
    assert attacked(engine) is None


def test_tables_are_not_defined_with_what_is_not_on_the_list(lake, tmp_path):
    for number, text in enumerate([*HOSTILE[:40], "(TABLE secret)", "EXISTS (FROM x |> LIMIT 1)"]):
        for metadata in ({"CURRENT_DEFAULT": text}, {"delta.generationExpression": text}):
            schema = {"type": "struct", "fields": [field("id", "long"), field("s", "string", **metadata)]}
            with pytest.raises(delvec.DelvecError) as caught:
                lake.create_table(str(tmp_path / f"t{number}"), schema)
            assert caught.value.type in ("InvalidSchema", "ExpressionNotAllowed"), text
            assert "'s'" in caught.value.message
            assert not (tmp_path / f"t{number}").exists()
        with pytest.raises(delvec.DelvecError):
            lake.create_table(
                str(tmp_path / f"t{number}"),
                "id long, s string",
                properties={"delta.constraints.c": f"{text} = ''"},
            )
    table = lake.create_table(str(tmp_path / "plain"), "id long, s string")
    for text in HOSTILE[:40]:
        with pytest.raises(delvec.DelvecError):
            table.alter.add_constraint("c", f"{text} = ''")
        with pytest.raises(delvec.DelvecError):
            table.alter.set_default("s", text)
    assert table.version() == 0


STATEMENTS = [
    "UPDATE {t} SET s = {call}",
    "DELETE FROM {t} WHERE s = {call}",
    "MERGE INTO {t} USING {t} AS o ON {t}.id = o.id WHEN MATCHED THEN UPDATE SET s = {call}",
    "MERGE INTO {t} USING {t} AS o ON {t}.id = {call} WHEN MATCHED THEN DELETE",
    "INSERT INTO {t} SELECT 1, {call}",
    "SELECT {call}",
]


def test_statements_call_functions_of_the_session_only_by_name(lake, engine, tmp_path):
    name = f"of_{tmp_path.name}"
    table = lake.create_table(str(tmp_path / "people"), "id long, s string", name=name)
    table.append(pa.table({"id": [1, 2], "s": ["x", "y"]}))
    for statement in STATEMENTS:
        for call in (ATTACK, "(TABLE secret)", "no_such_udf(s)"):
            with pytest.raises(delvec.DelvecError) as caught:
                lake.sql(statement.format(call=call, t=name), engine=engine)
            assert engine == "duckdb" or caught.value.type in (
                "InvalidStatement",
                "InvalidPredicate",
                "TableNotFound",
            ), call
    assert table.version() == 1
    assert attacked(engine) is None


def test_a_function_of_the_users_session_is_called(lake, engine, tmp_path):
    name = f"of_{tmp_path.name}"
    if engine == "duckdb":
        pytest.skip("DuckDB calls what is translated")
    engine.udf.register("delvec_shout", lambda text: text + "!", "string")
    lake.create_table(str(tmp_path / "people"), "id long, s string", name=name).append(
        pa.table({"id": [1, 2], "s": ["x", "y"]})
    )
    table = lake.table(name, engine=engine)
    table.update({"s": "delvec_shout(s)"}, "id = 1")
    lake.sql(f"UPDATE {name} SET s = delvec_shout(s) WHERE id = 2", engine=engine, functions=["delvec_shout"])
    rows = lake.sql(
        f"SELECT delvec_shout(s) AS s FROM {name} ORDER BY 1", engine=engine, functions=["delvec_shout"]
    )
    assert [row.s for row in rows.collect()] == ["x!!", "y!!"]
