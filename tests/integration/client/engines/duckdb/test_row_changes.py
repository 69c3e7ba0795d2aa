"""UPDATE and MERGE on the DuckDB engine: bitmaps of old rows, files of new rows, and copies."""

import datetime as dt
import math
import random
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from urllib.parse import unquote, urlparse

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

import delvec
from delvec_engines.duckdb import DuckDBEngine
from delvec_engines.duckdb import scan as scan_module
from delvec_engines.duckdb import statement_runner as statements_module
from delvec_engines.protocol import WriteTarget
from delvec_engines.row_changes import Clause, RowChange
from delvec_errors import (
    BadRequest,
    ConstraintViolation,
    CorruptTable,
    InvalidPredicate,
    InvalidSchema,
    MultipleMatches,
    SchemaMismatch,
    UnsupportedTable,
)
from delvec_kernel.expressions.expression import parse_expression
from delvec_kernel.schema.types import PrimitiveType, StructField, StructType

SCHEMA = pa.schema(
    {"id": pa.int64(), "name": pa.string(), "size": pa.int32(), "part": pa.string(), "price": pa.float64()}
)
MAPPED = {"delta.columnMapping.mode": "name"}
SHAPES = {
    "plain": {},
    "no vectors": {"properties": {"delta.enableDeletionVectors": "false"}},
    "partitioned": {"partition_by": ["part"]},
    "mapped and partitioned": {"partition_by": ["part_"]},
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    database = tmp_path_factory.mktemp("state") / "delvec.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DELVEC_DATABASE_URL", f"sqlite:///{database}")
        patch.delenv("DELVEC_URL", raising=False)
        with delvec.connect() as connection:
            yield connection


@pytest.fixture(scope="module")
def engine():
    made = DuckDBEngine()
    yield made
    made.close()


def row(number):
    return {
        "id": None if number % 11 == 10 else number,
        "name": None if number % 5 == 4 else f"n{number}",
        "size": number * 10,
        "part": [None, "a/b", "ü"][number % 3],
        "price": [float("nan"), -0.0, number / 7][number % 3],
    }


@pytest.fixture
def make(lake, tmp_path):
    """Create a table of 30 rows in two appends, some of them deleted with or without deletion vectors."""

    def make(shape="plain", name="table"):
        is_mapped = "mapped" in shape
        schema = pa.schema([each.with_name(f"{each.name}_") for each in SCHEMA]) if is_mapped else SCHEMA
        table = lake.create_table(tmp_path / name, schema, **SHAPES[shape])
        if is_mapped:
            table.alter.set_properties(MAPPED)
            for column in SCHEMA.names:
                table.alter.rename_column(f"{column}_", column)
        for start in (0, 15):
            table.append(pa.Table.from_pylist([row(i) for i in range(start, start + 15)], SCHEMA))
        table.delete("size IN (20, 30, 170)")
        return table

    return make


class Statement:
    """Expressions over a table and a source, and their results on the engine."""

    def __init__(self, engine, table, source=None, *, schema=None, feed=False, rules=None):
        self.engine, self.table = engine, table
        self.scan, _ = table.plan()
        self.schema = schema or self.scan.schema
        self.source = None if source is None else engine.merge_source(source)
        self.feed = feed
        self.transaction = table.transaction("MERGE", read_version=self.scan.version)
        self.target = WriteTarget(
            self.scan.location,
            self.schema,
            self.scan.partition_columns,
            {**self.scan.configuration, **(rules or {})},
            "0198c0de-0000-7000-8000-000000000000",
        )

    def parse(self, text, *, boolean=False):
        relations = {"t": self.scan.schema}
        if self.source is not None:
            relations["s"] = self.source.schema
        return parse_expression(text, relations, boolean=boolean)

    def clause(self, match, action, condition=None, values=None):
        condition = None if condition is None else self.parse(condition, boolean=True)
        given = values or {}
        texts = [given.get(name, f"t.{name}") for name in self.schema.names] if values is not None else []
        return Clause(
            match, action, condition, [None if each is None else self.parse(each) for each in texts]
        )

    def run(self, *clauses, on=None):
        on = None if on is None else self.parse(on, boolean=True)
        change = RowChange(clauses, on, self.source, self.feed)
        return self.engine.change_rows(self.scan, change, self.target)

    def update(self, values, condition=None):
        return self.run(self.clause("matched", "update", condition, values))

    def rows(self, files):
        """Return the rows of new files, with partition values from their actions."""
        found = []
        folder = Path(unquote(urlparse(self.scan.location).path))
        logical = {item.physical_name: item.name for item in self.schema.fields}
        for file in files:
            read = pq.ParquetFile(folder / unquote(file.path)).read().to_pylist()
            values = {logical.get(key, key): value for key, value in file.partition_values.items()}
            found += [{logical.get(key, key): value for key, value in each.items()} | values for each in read]
        return found

    def outcome(self, changed):
        """Return the rows of the table after the commit."""
        kept = self.engine.copy_rows(self.scan, changed.row_deletes, self.target)
        return self.rows([*kept, *changed.adds])


def known(rows):
    """Return rows in a canonical order, with values that compare exactly."""
    return sorted(repr({name: each[name] for name in sorted(each)}) for each in rows)


def files_in(table):
    return sorted(Path(unquote(urlparse(table.location).path)).rglob("*.parquet"))


# --- UPDATE -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_update_writes_changed_rows_and_tells_where_the_old_ones_are(engine, make, shape):
    table = make(shape)
    before = table.to_arrow().to_pylist()
    statement = Statement(engine, table, feed=True)
    changed = statement.update({"size": "t.size + 1", "name": "concat(t.name, '!')"}, "t.size >= 200")

    hit = [each for each in before if each["size"] >= 200]
    new = [each | {"size": each["size"] + 1, "name": each["name"] and each["name"] + "!"} for each in hit]
    assert changed.rows_updated == len(hit) == sum(len(rows) for rows in changed.row_deletes.values())
    assert known(statement.rows(changed.adds)) == known(new)
    rest = [each for each in before if each["size"] < 200]
    assert known(statement.outcome(changed)) == known([*rest, *new])
    told = statement.rows(changed.change_files)
    assert known(told) == known(
        [each | {"_change_type": "update_preimage"} for each in hit]
        + [each | {"_change_type": "update_postimage"} for each in new]
    )


def test_update_keeps_every_other_value_as_it_was(engine, lake, tmp_path):
    kinds = {
        "id": pa.int32(),
        "moment": pa.timestamp("us", "UTC"),
        "local": pa.timestamp("us"),
        "day": pa.date32(),
        "amount": pa.decimal128(38, 10),
        "small": pa.decimal128(4, 2),
        "blob": pa.binary(),
        "flag": pa.bool_(),
        "single": pa.float32(),
        "tiny": pa.int8(),
        "short": pa.int16(),
        "person": pa.struct({"name": pa.string(), "inner": pa.struct({"x": pa.int64(), "y": pa.date32()})}),
        "list": pa.list_(pa.struct({"a": pa.int32()})),
        "map": pa.map_(pa.string(), pa.list_(pa.decimal128(9, 3))),
    }
    full = {
        "moment": dt.datetime(1900, 1, 1, 0, 0, 0, 1, dt.UTC),
        "local": dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001 - that is what it is
        "day": dt.date(1582, 10, 15),
        "amount": Decimal("9999999999999999999999999999.9999999999"),
        "small": Decimal("-99.99"),
        "blob": b"\0\xff",
        "flag": False,
        "single": math.inf,
        "tiny": -128,
        "short": 32767,
        "person": {"name": "é", "inner": {"x": 2**63 - 1, "y": dt.date(9999, 12, 31)}},
        "list": [{"a": 1}, None, {"a": None}],
        "map": [("k", [Decimal("1.500"), None]), ("l", None)],
    }
    empty = full | {"person": {"name": None, "inner": None}, "list": [], "map": [], "blob": b""}
    rows = [{"id": 0}, {"id": 1, **full}, {"id": 2, **empty}, {"id": 3, **full}]
    data = pa.Table.from_pylist(
        [dict.fromkeys(kinds) | each for each in rows], pa.schema(list(kinds.items()))
    )
    table = lake.create_table(tmp_path / "types", data.schema)
    table.append(data)
    table.alter.set_properties(MAPPED)
    table.alter.rename_column("person.name", "Na me")
    table.alter.rename_column("list.element.a", "b")
    table.delete("id = 3")

    statement = Statement(engine, table)
    changed = statement.update({"id": "t.id + 10"})
    with table.transaction("UPDATE", read_version=statement.scan.version) as transaction:
        transaction.delete_rows(changed.row_deletes)
        transaction.add(changed.adds)
    expected = [each | {"id": each["id"] + 10} for each in data.to_pylist()[:3]]
    found = sorted(table.to_arrow().to_pylist(), key=lambda each: each["id"])
    for each in expected:
        if each["person"] is not None:
            each["person"]["Na me"] = each["person"].pop("name")
        if each["list"]:
            each["list"] = [item and {"b": item["a"]} for item in each["list"]]
    assert found == expected


def test_values_are_assigned_as_ansi_does(engine, make):
    table = make()
    statement = Statement(engine, table)
    texts = {
        "t.size / 7": 30 // 7,
        "-1.7": -1,
        "CAST(2.5 AS DECIMAL(3, 1))": 2,
        "CAST(-2.7 AS DOUBLE)": -2,
        "' 12 '": 12,
        "true": 1,
        "NULL": None,
        "CAST(7 AS BIGINT)": 7,
    }
    for text, value in texts.items():
        changed = statement.update({"size": text.replace("t.size", "30")}, "t.id = 1")
        assert statement.rows(changed.adds)[0]["size"] == value, text
    for text in ("3000000000", "'5.7'", "''", "CAST('NaN' AS DOUBLE)", "t.price * 1e300", "'x'"):
        before = files_in(table)
        with pytest.raises(SchemaMismatch, match="'size'") as found:
            statement.update({"size": text}, "t.id = 6" if "price" not in text else "t.id = 5")
        assert found.value.details["column"] == "size"
        assert files_in(table) == before


def test_doubles_become_decimals_and_texts_become_values_as_in_spark(engine, lake, tmp_path):
    schema = "id long, amount decimal(10, 2), ratio double, day date, at timestamp"
    table = lake.create_table(tmp_path / "values", schema)
    table.append([{"id": 1}])
    statement = Statement(engine, table)
    texts = {
        # The binary values of these are slightly below their decimal digits.
        ("amount", "CAST(1.005 AS DOUBLE)"): Decimal("1.01"),
        ("amount", "CAST(CAST(-1.005 AS DOUBLE) AS DECIMAL(10, 2))"): Decimal("-1.01"),
        ("amount", "CAST(0.145 AS FLOAT)"): Decimal("0.14"),
        ("amount", "' 1.5e1 '"): Decimal("15.00"),
        ("ratio", "' 1.5e1 '"): 15.0,
        ("day", "'2020-1-2 10:00'"): dt.date(2020, 1, 2),
        ("at", "'2020-01-02 10:00:00+02:00'"): dt.datetime(2020, 1, 2, 8, tzinfo=dt.UTC),
    }
    for (column, text), value in texts.items():
        assert statement.rows(statement.update({column: text}).adds)[0][column] == value, text
    for column, texts in {
        "amount": ["'1_000'", "CAST('NaN' AS DOUBLE)"],
        "ratio": ["'1_000'"],
        "day": ["'infinity'", "'epoch'", "'2020/01/02'", "'2020-01-01 (BC)'"],
        "at": ["'infinity'", "'epoch'", "'2020/01/02'"],
    }.items():
        for text in texts:
            with pytest.raises(SchemaMismatch, match=f"'{column}'"):
                statement.update({column: text})


def test_structs_are_assigned_by_name_and_nothing_is_lost(engine, lake, tmp_path):
    kind = pa.struct({"a": pa.int8(), "b": pa.list_(pa.int32())})
    table = lake.create_table(tmp_path / "structs", pa.schema({"id": pa.int32(), "st": kind}))
    table.append([{"id": 1, "st": {"a": 1, "b": [1]}}])
    source = pa.table(
        {
            "id": [1],
            "wide": pa.array(
                [{"B": [5, None], "A": 7}], pa.struct({"B": pa.list_(pa.int64()), "A": pa.int64()})
            ),
            "big": pa.array(
                [{"a": 1000, "b": None}], pa.struct({"a": pa.int64(), "b": pa.list_(pa.int32())})
            ),
            "other": pa.array([{"a": 1, "c": 2}], pa.struct({"a": pa.int8(), "c": pa.int8()})),
        }
    )
    statement = Statement(engine, table, source)

    def run(value):
        clause = statement.clause("matched", "update", None, {"st": value})
        return statement.rows(statement.run(clause, on="t.id = s.id").adds)

    assert run("s.wide") == [{"id": 1, "st": {"a": 7, "b": [5, None]}}]
    assert run("NULL") == [{"id": 1, "st": None}]
    with pytest.raises(SchemaMismatch, match=r"st\.a"):
        run("s.big")
    with pytest.raises(SchemaMismatch, match="'st' has a field 'c' that the table does not have"):
        run("s.other")


def test_what_fails_only_for_deleted_rows_is_no_failure(engine, lake, tmp_path):
    table = lake.create_table(tmp_path / "texts", pa.schema({"id": pa.int32(), "text": pa.string()}))
    table.append([{"id": number, "text": "x" if number == 3 else str(number)} for number in range(10)])
    live = Statement(engine, table)
    with pytest.raises(InvalidPredicate, match=r"'CAST\(t.text AS INT\) > 7'.* failed on rows"):
        live.update({"id": "t.id + 1"}, "CAST(t.text AS INT) > 7")
    table.delete("id = 3")
    statement = Statement(engine, table, [{"id": 8}, {"id": 9}])
    before = files_in(table)
    changed = statement.update({"id": "t.id + 1"}, "CAST(t.text AS INT) > 7")
    assert sorted(each["id"] for each in statement.rows(changed.adds)) == [9, 10]
    clause = statement.clause("matched", "delete")
    changed = statement.run(clause, on="CAST(t.text AS INT) = s.id")
    assert changed.rows_deleted == 2
    # The first attempt's files are removed: only the rows of the successful one remain.
    assert len(files_in(table)) == len(before) + 1


def test_new_rows_are_checked_and_nothing_is_left_behind(engine, lake, tmp_path):
    generated = {"delta.generationExpression": "id * 2"}
    limited = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}
    schema = StructType(
        (
            StructField("id", PrimitiveType("long"), nullable=False),
            StructField("double", PrimitiveType("long"), metadata=generated),
            StructField("name", PrimitiveType("string"), metadata=limited),
        )
    )
    table = lake.create_table(
        tmp_path / "checked", pa.schema({"id": "int64", "double": "int64", "name": "string"})
    )
    table.append([{"id": number, "double": number * 2, "name": "abc"} for number in range(1, 9)])
    statement = Statement(engine, table, schema=schema, rules={"delta.constraints.positive": "id > 0"})
    changed = statement.update({"id": "t.id + 100", "double": None}, "t.id < 3")
    assert statement.rows(changed.adds) == [
        {"id": 101, "double": 202, "name": "abc"},
        {"id": 102, "double": 204, "name": "abc"},
    ]
    before = files_in(table)
    for values in ({"id": "0 - t.id", "double": None}, {"double": "1"}, {"name": "'abcd'"}, {"id": "NULL"}):
        with pytest.raises(ConstraintViolation):
            statement.update(values)
        assert files_in(table) == before


# --- MERGE --------------------------------------------------------------------------------------------------


def changed_row(old, source):
    """Return the result of the test's clauses for one row; None if it is deleted."""
    own = [each for each in source if each["key"] is not None and each["key"] == old["id"]]
    if own:
        kind, text = own[0]["kind"], own[0]["text"]
        return {
            "update": old | {"name": text, "size": old["size"] + 1},
            "delete": None,
            "move": old | {"part": text},
            "ignore": old,
        }[kind]
    if old["size"] > 250:
        return None
    return old | {"size": -old["size"]} if old["size"] < 50 else old


def merged(before, source):
    """Return the result of the test's clauses for all rows: of the table and of the change feed."""
    after, feed = [], []
    for old in before:
        new = changed_row(old, source)
        told = [
            old | {"_change_type": "update_preimage"},
            (new or old) | {"_change_type": "update_postimage"},
        ]
        own = {each["key"]: each["kind"] for each in source}.get(old["id"]) if old["id"] is not None else None
        if new is None:
            feed.append(old | {"_change_type": "delete"})
            continue
        after.append(new)
        # An update to the same values counts as an update.
        feed += told if own in {"update", "move"} or (own is None and old["size"] < 50) else []
    there = {old["id"] for old in before} - {None}
    for each in source:
        if each["key"] not in there and each["kind"] != "ignore":
            size = 1 if each["kind"] == "update" else 2
            new = {"id": each["key"], "name": each["text"], "size": size, "part": "ü", "price": None}
            after.append(new)
            feed.append(new | {"_change_type": "insert"})
    return after, feed


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("shape", SHAPES)
def test_merge_is_what_its_clauses_say(engine, make, monkeypatch, shape, seed):
    table = make(shape)
    # Several statements and several batches: rows of the source may match in any of them.
    monkeypatch.setattr(scan_module, "_MAX_FILES", 2)
    monkeypatch.setattr(statements_module, "_BATCH_ROWS", 3)
    choice = random.Random(f"{shape} {seed}")
    keys = [None, None, *choice.sample(range(40), 20)]
    kinds = ["update", "delete", "move", "ignore"]
    source = [
        {"key": key, "kind": choice.choice(kinds), "text": choice.choice([None, "a/b", "z"])} for key in keys
    ]
    before = table.to_arrow().to_pylist()
    statement = Statement(engine, table, pa.Table.from_pylist(source), feed=True)
    new = {"id": "s.key", "name": "s.text", "part": "'ü'", "price": "NULL"}
    changed = statement.run(
        statement.clause("matched", "update", "s.kind = 'update'", {"name": "s.text", "size": "t.size + 1"}),
        statement.clause("matched", "delete", "s.kind = 'delete'"),
        statement.clause("not-matched", "insert", "s.kind = 'update'", new | {"size": "1"}),
        statement.clause("matched", "update", "s.kind = 'move'", {"part": "s.text"}),
        statement.clause("not-matched", "insert", "s.kind <> 'ignore'", new | {"size": "2"}),
        statement.clause("not-matched-by-source", "delete", "t.size > 250"),
        statement.clause("not-matched-by-source", "update", "t.size < 50", {"size": "- t.size"}),
        on="t.id = s.key",
    )
    after, feed = merged(before, source)
    assert known(statement.outcome(changed)) == known(after)
    assert known(statement.rows(changed.change_files)) == known(feed)
    told = [each["_change_type"] for each in feed]
    assert (changed.rows_updated, changed.rows_deleted, changed.rows_inserted) == (
        told.count("update_postimage"),
        told.count("delete"),
        told.count("insert"),
    )
    assert changed.source_rows == len(source)
    live = {each["id"] for each in before}
    matching = len([key for key in keys if key is not None and key in live])
    assert sum(len(rows) for rows in changed.matched.values()) == matching


@pytest.mark.parametrize("actions", ["insert", "by-source", "update"])
def test_merge_with_clauses_of_one_kind(engine, make, actions):
    table = make()
    before = table.to_arrow().to_pylist()
    keys = [1, 4, 4, 100, None] if actions == "insert" else [1, 4, 100, None]
    statement = Statement(engine, table, pa.table({"id": keys}))
    values = {"id": "s.id", "name": "'new'", "size": "0", "part": "NULL", "price": "NULL"}
    if actions == "insert":
        changed = statement.run(statement.clause("not-matched", "insert", None, values), on="t.id = s.id")
        assert sorted(str(each["id"]) for each in statement.rows(changed.adds)) == ["100", "None"]
        assert not changed.row_deletes
        assert sum(len(rows) for rows in changed.matched.values()) == 2
    elif actions == "by-source":
        clause = statement.clause("not-matched-by-source", "delete")
        changed = statement.run(clause, on="t.id = s.id")
        assert changed.rows_deleted == len(before) - 2
        assert not changed.matched
    else:
        clause = statement.clause("matched", "update", "t.id < 4", values)
        changed = statement.run(clause, on="t.id = s.id")
        assert (changed.rows_updated, changed.matched) == (1, {})


def test_null_never_matches_but_null_safely(engine, make):
    statement = Statement(engine, make(), pa.table({"id": pa.array([None], pa.int64())}))
    clause = statement.clause("matched", "delete")
    assert statement.run(clause, on="t.id = s.id").rows_deleted == 0
    assert statement.run(clause, on="t.id <=> s.id").rows_deleted == 2


def test_nan_matches_nan(engine, make):
    table = make()
    statement = Statement(engine, table, pa.table({"price": [math.nan]}))
    count = sum(math.isnan(each) for each in table.to_arrow()["price"].to_pylist())
    assert statement.run(statement.clause("matched", "delete"), on="t.price = s.price").rows_deleted == count


@pytest.mark.parametrize(("batch", "copies"), [(1, 3), (1 << 17, 3000)])
def test_several_source_rows_for_one_row(engine, make, monkeypatch, batch, copies):
    monkeypatch.setattr(statements_module, "_BATCH_ROWS", batch)
    table = make()
    keys = [1, 4, 4, *[5] * copies]
    source = pa.table({"id": keys, "flag": [n in {0, 1} for n in range(len(keys))]})
    statement = Statement(engine, table, source, feed=True)
    before = files_in(table)
    update = statement.clause("matched", "update", None, {"name": "'x'"})
    with pytest.raises(MultipleMatches, match=r"id = [45] of table") as found:
        statement.run(update, on="t.id = s.id")
    assert found.value.details["keys"]["id"] in {"4", "5"}
    assert files_in(table) == before
    # The clause's condition does not make the match unique, but the join condition may.
    once = statement.clause("matched", "update", "s.flag", {"name": "'x'"})
    with pytest.raises(MultipleMatches):
        statement.run(once, on="t.id = s.id")
    assert statement.run(once, on="t.id = s.id AND t.id < 5 AND s.flag").rows_updated == 2
    with pytest.raises(MultipleMatches):
        statement.run(statement.clause("matched", "delete", "t.id > 4"), on="t.id = s.id")
    # Rows that are only deleted may match several times, and are reported once.
    values = {"id": "s.id", "name": "'new'", "size": "0", "part": "NULL", "price": "NULL"}
    for more in ([], [statement.clause("not-matched", "insert", None, values)]):
        changed = statement.run(statement.clause("matched", "delete"), *more, on="t.id = s.id")
        assert changed.rows_deleted == 3
        assert len(statement.rows(changed.change_files)) == 3
        assert sum(len(rows) for rows in changed.row_deletes.values()) == 3


def test_merge_into_columns_that_are_new(engine, make):
    table = make()
    scan, _ = table.plan()
    schema = StructType((*scan.schema.fields, StructField("more", PrimitiveType("string"))))
    statement = Statement(
        engine, table, pa.table({"id": [1, 99], "more": ["m", "o"]}), schema=schema, feed=True
    )
    values = dict.fromkeys(schema.names, "NULL") | {"id": "s.id", "more": "s.more"}
    changed = statement.run(
        statement.clause("matched", "update", None, {"more": "s.more"}),
        statement.clause("not-matched", "insert", None, values),
        on="t.id = s.id",
    )
    assert [(each["id"], each["more"]) for each in statement.rows(changed.adds)] == [(1, "m"), (99, "o")]
    old = next(each for each in statement.rows(changed.change_files) if "pre" in each["_change_type"])
    assert (old["id"], old["more"]) == (1, None)


def test_an_expression_that_duckdb_does_not_know_is_refused_by_name(engine, make):
    statement = Statement(engine, make())
    with pytest.raises(InvalidPredicate, match="soundex"):
        statement.update({"name": "soundex(t.name)"})
    with pytest.raises(InvalidPredicate, match="decimal"):
        statement.update({"price": "CAST(t.size AS DECIMAL(9, 2)) / CAST(3 AS DECIMAL(9, 2))"})


def test_early_days_are_not_compared_in_the_calendar_of_spark_2(engine, lake, tmp_path):
    table = lake.create_table(tmp_path / "days", pa.schema({"id": pa.int32(), "day": pa.date32()}))
    table.append([{"id": 1, "day": dt.date(2000, 1, 1)}])
    (file,) = files_in(table)
    read = pq.read_table(file)
    pq.write_table(read.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}), file)
    statement = Statement(engine, table, pa.table({"day": [dt.date(2000, 1, 1)]}))
    clause = statement.clause("matched", "delete")
    assert statement.run(clause, on="t.day = s.day").rows_deleted == 1
    statement = Statement(engine, table, pa.table({"day": [dt.date(1500, 1, 1)]}))
    with pytest.raises(UnsupportedTable, match="Spark 2"):
        statement.run(clause, on="t.day = s.day")


# --- the source ---------------------------------------------------------------------------------------------


def test_a_source_is_whatever_holds_rows(engine, lake, make, tmp_path):
    rows = [{"id": 1, "text": "x"}, {"id": 2, "text": None}]
    arrow = pa.Table.from_pylist(rows)
    other = lake.create_table(tmp_path / "other", arrow.schema)
    other.append(arrow)
    connection = duckdb.connect()
    held = [
        rows,
        arrow,
        pd.DataFrame(rows),
        pl.DataFrame(rows),
        connection.from_arrow(arrow),
        other,
        arrow.to_batches()[0],
    ]
    table = make()
    for data in [*held, arrow.to_reader()]:
        statement = Statement(engine, table, data)
        assert statement.source.schema.names == ["id", "text"]
        assert statement.source.is_repeatable == (
            data in held if isinstance(data, list) else any(data is each for each in held)
        )
        for _ in range(1 + statement.source.is_repeatable):
            changed = statement.run(statement.clause("matched", "delete"), on="t.id = s.id")
            assert (changed.rows_deleted, changed.source_rows) == (1, 2)


def test_a_table_is_read_as_it_was_when_it_was_taken(engine, lake, make, tmp_path):
    other = lake.create_table(tmp_path / "other", pa.schema({"id": pa.int64()}))
    other.append([{"id": 1}])
    statement = Statement(engine, make(), other)
    other.append([{"id": 4}])
    assert statement.run(statement.clause("matched", "delete"), on="t.id = s.id").source_rows == 1


def test_sources_that_cannot_be(engine, make):
    with pytest.raises(InvalidSchema, match="twice"):
        engine.merge_source(pa.table({"id": [1], "ID": [2]}))
    with pytest.raises(InvalidSchema):
        engine.merge_source(duckdb.connect().sql("SELECT 1 AS a, 2 AS a"))
    with pytest.raises(SchemaMismatch):
        engine.merge_source("people")
    with pytest.raises(InvalidSchema):
        engine.merge_source(pa.table({"id": pa.array([1], pa.duration("s"))}))


def test_a_source_that_fails_in_the_middle_changes_nothing(engine, make):
    def batches():
        yield pa.record_batch({"id": [1]})
        raise OSError("the line went dead")

    table = make()
    reader = pa.RecordBatchReader.from_batches(pa.schema({"id": pa.int64()}), batches())
    statement = Statement(engine, table, reader)
    before = files_in(table)
    with pytest.raises(BadRequest, match="the line went dead"):
        statement.run(statement.clause("matched", "update", None, {"size": "0"}), on="t.id = s.id")
    assert files_in(table) == before


# --- copies -------------------------------------------------------------------------------------------------


def test_copies_are_the_live_rows_that_stay(engine, make):
    table = make()
    statement = Statement(engine, table)
    gone = {path: BitMap64([0, 2, 14]) for path in statement.scan.files["path"].to_pylist()[:1]}
    kept = statement.rows(engine.copy_rows(statement.scan, gone, statement.target))
    expected = [row(i) for i in range(30) if i * 10 not in (20, 30, 170)]
    lost = [row(start + place) for start in (0, 15) for place in (0, 2, 14)]
    assert 24 <= len(kept) <= 25
    assert set(known(kept)) <= set(known(expected))
    assert set(known(expected)) - set(known(kept)) <= set(known(lost))


def test_copies_are_refused_where_rows_are_missing(engine, make):
    table = make()
    statement = Statement(engine, table)
    files = statement.scan.files
    place = files.schema.get_field_index("num_records")
    more = pa.array([count + 1 for count in files["num_records"].to_pylist()], pa.int64())
    wrong = replace(statement.scan, files=files.set_column(place, "num_records", more))
    before = files_in(table)
    with pytest.raises(CorruptTable, match="statistics"):
        engine.copy_rows(wrong, {}, statement.target)
    assert files_in(table) == before
    unknown = pa.nulls(len(files), pa.int64())
    without = replace(statement.scan, files=files.set_column(place, "num_records", unknown))
    assert len(statement.rows(engine.copy_rows(without, {}, statement.target))) == 27


def test_a_row_is_changed_where_it_is_in_any_of_many_files(engine, lake, tmp_path):
    table = lake.create_table(tmp_path / "many", pa.schema({"id": pa.int64(), "part": pa.int32()}), ["part"])
    table.append(pa.table({"id": range(600), "part": pa.array([n % 300 for n in range(600)], pa.int32())}))
    statement = Statement(engine, table, pa.table({"id": [0, 299, 599, 1000]}))
    changed = statement.run(
        statement.clause("matched", "update", None, {"part": "t.part + 1"}),
        statement.clause("not-matched", "insert", None, {"id": "s.id", "part": "NULL"}),
        on="t.id = s.id",
    )
    new = sorted((each["id"], each["part"]) for each in statement.rows(changed.adds))
    assert new == [(0, "1"), (299, "300"), (599, "300"), (1000, None)]
    assert len(changed.row_deletes) == 2
