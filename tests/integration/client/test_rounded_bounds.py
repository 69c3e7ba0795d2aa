"""Tables whose writers round bounds: no row is missed, and none is found twice."""

import json
from decimal import Decimal

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from tests.support.iceberg_tables import iceberg_table

LARGE = Decimal("123456789012345678.91")
"""deltalake states 123456789012345660 as the least and as the greatest value of a file with this one."""
NEXT = LARGE + 1
ROUNDED = 9007199254740993
"""The first integer that is not a double."""


@pytest.fixture
def amounts(lake, tmp_path):
    rows = pa.table(
        {
            "amount": pa.array([LARGE, NEXT, Decimal("5.00")], pa.decimal128(20, 2)),
            "name": ["large", "next", "small"],
        }
    )
    for place in range(3):
        deltalake.write_deltalake(tmp_path / "amounts", rows.slice(place, 1), mode="append")
    return lake.table(tmp_path / "amounts")


def content(table):
    return {row["name"]: row["amount"] for row in table.to_arrow().to_pylist()}


def key(*values):
    return pa.table({"amount": pa.array(values, pa.decimal128(20, 2))})


def merge(table):
    source = pa.table({"amount": key(LARGE)["amount"], "name": ["merged"]})
    done = table.merge(source, "target.amount = source.amount")
    done.when_matched_update_all().when_not_matched_insert_all().execute()


COMMANDS = {
    "DELETE": (
        lambda table: table.delete(f"amount = {LARGE}"),
        {"next": NEXT, "small": Decimal("5.00")},
    ),
    "DELETE by keys": (
        lambda table: table.delete(keys=key(LARGE, NEXT)),
        {"small": Decimal("5.00")},
    ),
    "UPDATE": (
        lambda table: table.update({"name": "'updated'"}, f"amount = {LARGE}"),
        {"updated": LARGE, "next": NEXT, "small": Decimal("5.00")},
    ),
    "MERGE": (merge, {"merged": LARGE, "next": NEXT, "small": Decimal("5.00")}),
    "replace_where": (
        lambda table: table.overwrite(
            pa.table({"amount": key(LARGE)["amount"], "name": ["replaced"]}),
            replace_where=f"amount >= {LARGE}",
        ),
        {"replaced": LARGE, "small": Decimal("5.00")},
    ),
}


@pytest.mark.parametrize("has_checkpoint", [False, True])
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_find_decimals_that_deltalake_has_rounded(amounts, tmp_path, command, has_checkpoint):
    if has_checkpoint:
        deltalake.DeltaTable(tmp_path / "amounts").create_checkpoint()
    run, expected = COMMANDS[command]
    run(amounts)
    assert content(amounts) == expected
    assert amounts.to_arrow().num_rows == len(expected)


def test_filters_find_decimals_that_deltalake_has_rounded_and_skip_the_rest(amounts):
    for value, name in ((LARGE, "large"), (NEXT, "next")):
        assert amounts.to_arrow(predicate=f"amount = {value}")["name"].to_pylist() == [name]
    assert len(amounts.plan(predicate="amount = 5.00")[0]) == 1
    assert len(amounts.plan(predicate="amount > 123456789012346000")[0]) == 0


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_decimals_are_found_whose_bounds_deltalake_cuts_to_64_bits(lake, tmp_path, has_checkpoint):
    # deltalake states -2**63 and 2**63 - 1 of a column without fraction whose values lie beyond.
    numbers = [Decimal("-9e30"), Decimal("-1e19"), Decimal(5), Decimal("1e19"), Decimal("9e30")]
    rows = pa.table({"number": pa.array(numbers, pa.decimal128(38, 0))})
    deltalake.write_deltalake(tmp_path / "t", rows)
    if has_checkpoint:
        deltalake.DeltaTable(tmp_path / "t").create_checkpoint()
    table = lake.table(tmp_path / "t")
    for number in numbers:
        assert table.count(f"number = {number:f}") == 1
    assert [table.count(where) for where in (f"number < {-(2**64)}", f"number > {2**64}")] == [1, 1]
    found = lake.sql(f"SELECT min(number) AS low, max(number) AS high FROM '{tmp_path / 't'}'")
    assert found.to_pylist() == [{"low": numbers[0], "high": numbers[-1]}]
    table.delete(f"number < {-(2**64)}")
    assert numbers[0] not in table.to_arrow()["number"].to_pylist()


def test_a_file_compacted_from_exact_and_rounded_bounds_keeps_all_rows(amounts):
    amounts.append(pa.table({"amount": key(Decimal("123456789012345677.77"))["amount"], "name": ["ours"]}))
    amounts.optimize.compact()
    assert len(amounts.plan()[0]) == 1
    for value in (LARGE, NEXT, Decimal("123456789012345677.77"), Decimal("5.00")):
        assert amounts.to_arrow(predicate=f"amount = {value}").num_rows == 1


def test_iceberg_readers_find_decimals_that_deltalake_has_rounded(amounts):
    converted = amounts.to_iceberg()
    for value, name in ((LARGE, "large"), (NEXT, "next"), (Decimal("5.00"), "small")):
        found = iceberg_table(converted).scan(row_filter=EqualTo("amount", value)).to_arrow()
        assert found["name"].to_pylist() == [name]


@pytest.fixture
def numbers(lake, tmp_path):
    """A table of a program whose JSON numbers are doubles."""
    deltalake.write_deltalake(tmp_path / "numbers", pa.table({"n": [1, ROUNDED]}))
    log = tmp_path / "numbers" / "_delta_log" / "00000000000000000000.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["stats"] = action["add"]["stats"].replace(str(ROUNDED), str(int(float(ROUNDED))))
            assert str(ROUNDED - 1) in action["add"]["stats"]
    log.write_text("\n".join(map(json.dumps, actions)))
    return lake.table(tmp_path / "numbers")


def test_the_maximum_is_read_where_its_statistics_may_be_rounded(lake, numbers, tmp_path):
    assert numbers.snapshot(ranges=["n"]).column_ranges == {}
    answer = lake.sql(f"SELECT min(n) AS low, max(n) AS high FROM delta.`{tmp_path / 'numbers'}`")
    assert answer.to_pylist() == [{"low": 1, "high": ROUNDED}]


def test_rounded_integers_are_found(numbers):
    assert numbers.to_arrow(predicate=f"n = {ROUNDED}").num_rows == 1
    numbers.delete(f"n = {ROUNDED}")
    assert numbers.to_arrow()["n"].to_pylist() == [1]
