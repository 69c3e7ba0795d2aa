"""Expressions over a target and a source: name resolution, and the text for engines."""

import duckdb
import pyarrow as pa
import pytest

from delvec import AmbiguousColumn, InvalidPredicate, UnknownColumn
from delvec_engines.duckdb.dialect import expression_sql
from delvec_kernel.expressions.expression import Expression, parse_expression
from delvec_kernel.schema.types import StructType

_ADDRESS = pa.struct({"City": pa.string(), "a.b": pa.int64()})


def _schema(columns: dict[str, pa.DataType]) -> StructType:
    return StructType.from_arrow(pa.schema(columns))


TARGET = _schema(
    {
        "Id": pa.int64(),
        "name": pa.string(),
        "address": _ADDRESS,
        "a.b c`d": pa.int64(),
        "straße": pa.string(),
    }
)
SOURCE = _schema({"id": pa.int64(), "amount": pa.float64(), "target": _ADDRESS})
ALIASES = {"t": "target", "s": "Source"}


def _parsed(text: str, **options: bool) -> Expression:
    return parse_expression(text, {"t": TARGET, "s": SOURCE}, ALIASES, **options)


@pytest.mark.parametrize(
    ("text", "spark"),
    [
        ("TARGET.id = source.ID", "`t`.`Id` = `s`.`id`"),
        ("Amount + 1", "`s`.`amount` + 1"),
        ("upper(name)", "upper(`t`.`name`)"),
        ("address.CITY", "`t`.`address`.`City`"),
        ("target.address.city", "`t`.`address`.`City`"),
        ("`target`.`address`.`A.B`", "`t`.`address`.`a.b`"),
        ("`a.b c``d` + target.`A.B C``D`", "`t`.`a.b c``d` + `t`.`a.b c``d`"),
        ("STRASSE", None),
        ("`straße`", "`t`.`straße`"),
        # An alias that is also a column name: the alias wins, unless that side lacks the column.
        ("target.id", "`t`.`Id`"),
        ("target.city", "`s`.`target`.`City`"),
        ("source.target.city", "`s`.`target`.`City`"),
        ("my_own_function(name, 'x')", "my_own_function(`t`.`name`, 'x')"),
        (
            "CASE WHEN name IS NULL THEN 1 /* one */ ELSE 2 END",
            "CASE WHEN `t`.`name` IS NULL THEN 1   ELSE 2 END",
        ),
        ("NULL", "NULL"),
        ("'it''s'", "'it''s'"),
    ],
)
def test_columns_are_found_and_the_rest_of_the_text_stays(text: str, spark: str | None) -> None:
    if spark is None:
        with pytest.raises(UnknownColumn):
            _parsed(text)
    else:
        assert _parsed(text).sql().split() == spark.split()


def test_columns_read_are_listed_by_relation() -> None:
    found = _parsed("target.id = source.id AND NAME = 'x'")
    assert found.columns == {"t": {"Id", "name"}, "s": {"id"}}
    assert not found.reads_only("t")
    assert _parsed("name = 'x'").reads_only("t")
    assert _parsed("1").reads_only("s")


def test_duckdb_reads_the_columns_of_relations_even_where_a_column_has_a_relations_name() -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE x AS SELECT 1::BIGINT AS id, {'id': 7::BIGINT} AS t, {'id': 8::BIGINT} AS s")
    con.execute("CREATE TABLE y AS SELECT 2::BIGINT AS id, {'id': 9::BIGINT} AS t")
    inner = pa.struct({"id": pa.int64()})
    columns = {"id": pa.int64(), "t": inner}
    relations = {"t": _schema(columns | {"s": inner}), "s": _schema(columns)}
    for text, value in [
        ("t.id", 1),
        ("s.id", 2),
        ("t.t.id", 7),
        ("t.s.id", 8),
        ("s.t.id", 9),
        ("t.id + s.id", 3),
    ]:
        sql = expression_sql(parse_expression(text, relations))
        assert con.execute(f"SELECT {sql} FROM x AS t, y AS s").fetchall() == [(value,)]


@pytest.mark.parametrize("text", ["id = 1", "ID + 1"])
def test_a_name_on_both_sides_is_ambiguous(text: str) -> None:
    with pytest.raises(
        AmbiguousColumn, match=r"write 'target\.id' or 'source\.id'|write 'target\.ID' or 'source\.ID'"
    ):
        _parsed(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nam = 'x'", "did you mean 'name'"),
        ("source.name = 'x'", "'source' does not have; there are 'id'"),
        ("address.town", "the struct 'address' has no field 'town'"),
        ("name.x", "'name' is not a struct"),
        ("other.id", "uses the column 'other'"),
        ("Zoë", "uses the column 'Zoë'.*If it is a string, put it in quotes: 'Zoë'"),
        ("`O'Hara`", r"put it in quotes: 'O\\'Hara'"),
    ],
)
def test_unknown_columns_are_named(text: str, message: str) -> None:
    with pytest.raises(UnknownColumn, match=message):
        _parsed(text)


def test_using_a_side_without_a_row_is_refused_by_name() -> None:
    with pytest.raises(UnknownColumn, match="'target' has no row"):
        parse_expression("target.id", {"s": _schema({"id": pa.int64()})}, ALIASES)


@pytest.mark.parametrize(
    "text", ["", "id +", "count(name)", "(SELECT 1)", "1; 2", "sum(amount) OVER ()", "*"]
)
def test_non_row_wise_expressions_are_refused(text: str) -> None:
    with pytest.raises(InvalidPredicate):
        _parsed(text)


def test_a_condition_must_be_boolean() -> None:
    assert _parsed("name", boolean=False).kind == "string"
    with pytest.raises(InvalidPredicate, match="not Boolean"):
        _parsed("name", boolean=True)


@pytest.mark.parametrize("text", ["rand() < 0.5", "uuid()", "my_own_function(name)"])
def test_non_deterministic_expressions_are_recognized(text: str) -> None:
    assert not _parsed(text).is_deterministic


def test_duckdb_refuses_what_it_may_read_differently() -> None:
    with pytest.raises(InvalidPredicate, match="my_own_function"):
        expression_sql(_parsed("my_own_function(name)"))
