"""Assignments of UPDATE and MERGE, column by column."""

import datetime as dt

import pyarrow as pa
import pytest

from delvec import BadRequest, SchemaMismatch, UnknownColumn, lit
from delvec_commands.dml.assignments import Relations, inserted, updated
from delvec_kernel.schema.types import StructField, StructType

ADDRESS = pa.struct({"city": pa.string(), "geo": pa.struct({"x": pa.int32(), "y": pa.int32()})})
PRESENT = StructType.from_arrow(
    pa.schema({"id": pa.int64(), "t": pa.string(), "address": ADDRESS, "at": pa.timestamp("us", "UTC")})
)
SOURCE = StructType.from_arrow(
    pa.schema({"ID": pa.int32(), "t": pa.string(), "address": ADDRESS, "at": pa.timestamp("us", "UTC")})
)
TABLES = Relations(PRESENT, PRESENT, SOURCE, {"t": "target", "s": "source"})


def with_column(schema, name, kind, **metadata):
    return StructType((*schema.fields, StructField(name, kind, metadata=metadata)))


def texts(values):
    return [None if value is None else value.sql() for value in values]


def test_columns_that_are_not_set_stay():
    found = texts(updated({"T": "upper(target.t)", "at": None}, TABLES, "SET"))
    assert found == ["`t`.`id`", "upper(`t`.`t`)", "`t`.`address`", "NULL"]


def test_fields_that_are_not_set_stay():
    found = texts(updated({"address.geo.x": "source.id", "target.address.city": lit("it's")}, TABLES, "SET"))
    assert "".join(found[2].split()) == (
        "named_struct('city',('it\\'s'),'geo',named_struct('x',(`s`.`ID`),'y',`t`.`address`.`geo`.`y`))"
    )


def test_a_new_row_gets_what_is_given_defaults_and_nulls():
    schema = with_column(PRESENT, "kind", PRESENT.field("t").type, CURRENT_DEFAULT="'usual'")
    schema = with_column(
        schema, "twice", PRESENT.field("id").type, **{"delta.generationExpression": "id * 2"}
    )
    tables = Relations(schema, schema, SOURCE, TABLES.aliases)
    assert texts(inserted({"id": "source.id + 1"}, tables, "INSERT")) == [
        "`s`.`ID` + 1",
        "NULL",
        "NULL",
        "NULL",
        "'usual'",
        None,
    ]
    assert texts(inserted({"id": 1, "kind": "DEFAULT"}, tables, "INSERT"))[4] == "'usual'"
    assert texts(updated({"kind": "default"}, tables, "SET"))[4] == "'usual'"
    assert texts(updated({"id": 1}, tables, "SET"))[5] is None


def test_stars():
    assert texts(updated(None, TABLES, "SET"))[:2] == ["`s`.`ID`", "`s`.`t`"]
    assert texts(inserted(None, TABLES, "INSERT"))[:2] == ["`s`.`ID`", "`s`.`t`"]
    lacking = Relations(PRESENT, PRESENT, SOURCE.select(["ID"]), TABLES.aliases)
    for action in (updated, inserted):
        with pytest.raises(UnknownColumn, match="no column 't'"):
            action(None, lacking, "WHEN")
    assert texts(updated(None, lacking, "WHEN", evolves=True))[:2] == ["`s`.`ID`", "`t`.`t`"]
    assert texts(inserted(None, lacking, "WHEN", evolves=True))[:2] == ["`s`.`ID`", "NULL"]


def test_structs_of_a_star_keep_the_fields_that_the_source_lacks():
    small = StructType.from_arrow(pa.schema({"address": pa.struct({"city": pa.string()})}))
    tables = Relations(PRESENT, PRESENT, small, TABLES.aliases)
    with pytest.raises(SchemaMismatch, match="merge_schema"):
        inserted(None, Relations(PRESENT.select(["address"]), PRESENT, small), "WHEN")
    assert texts(updated(None, tables, "WHEN", evolves=True))[2] == (
        "CASE WHEN `s`.`address` IS NOT NULL OR `t`.`address` IS NOT NULL THEN "
        "named_struct('city', `s`.`address`.`city`, 'geo', `t`.`address`.`geo`) END"
    )
    assert "'geo', NULL" in texts(inserted(None, tables, "WHEN", evolves=True))[2]


def test_a_column_of_nothing_but_nulls_fits_a_struct():
    nothing = StructType.from_arrow(pa.schema({"address": pa.null()}))
    present = PRESENT.select(["address"])
    assert texts(updated(None, Relations(present, present, nothing), "WHEN")) == ["`s`.`address`"]


def test_a_moment_without_a_zone_is_utc_in_a_timestamp_column():
    moment = dt.datetime.fromisoformat("2024-01-02 03:04:05")
    assert "+00:00" in texts(updated({"at": moment}, TABLES, "SET"))[3]


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"nope": 1}, UnknownColumn, "nope"),
        ({"address.nope": 1}, UnknownColumn, "nope"),
        ({"id + 1": 1}, UnknownColumn, "id \\+ 1"),
        ({"two words": 1}, UnknownColumn, "two words"),
        ({3: 1}, BadRequest, "int"),
        ({"address": None, "address.city": "'x'"}, BadRequest, "is part of the other"),
        ({"address": "id"}, SchemaMismatch, "'address' of type struct"),
        ({"at": 1.5}, SchemaMismatch, "double"),
        ("id = 1", BadRequest, "dictionary"),
    ],
)
def test_what_cannot_be_assigned(given, error, match):
    with pytest.raises(error, match=match):
        updated(given, Relations(PRESENT, PRESENT, None, {"t": ""}), "UPDATE SET", ("t",))


def test_identity_columns_are_nobodys_to_set():
    schema = with_column(PRESENT, "number", PRESENT.field("id").type, **{"delta.identity.start": 1})
    tables = Relations(schema, schema, with_column(SOURCE, "number", SOURCE.field("ID").type), TABLES.aliases)
    for action in (updated, inserted):
        with pytest.raises(BadRequest, match="number"):
            action({"number": 1}, tables, "WHEN")
    assert texts(inserted(None, tables, "WHEN"))[-1] is None
    assert texts(updated(None, tables, "WHEN"))[-1] == "`t`.`number`"
    by_default = with_column(
        PRESENT,
        "number",
        PRESENT.field("id").type,
        **{"delta.identity.start": 1, "delta.identity.allowExplicitInsert": True},
    )
    tables = Relations(by_default, by_default, tables.source, TABLES.aliases)
    assert texts(inserted(None, tables, "WHEN"))[-1] == "`s`.`number`"
    assert texts(updated(None, tables, "WHEN"))[-1] == "`t`.`number`"
