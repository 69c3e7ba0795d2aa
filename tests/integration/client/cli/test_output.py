import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from delvec.cli import output, row_output
from delvec_errors import SchemaMismatch

NESTED = pa.table(
    {
        "id": pa.array([1, None], pa.int64()),
        "price": pa.array([Decimal("1.10"), None], pa.decimal128(9, 2)),
        "ratio": pa.array([float("nan"), float("-inf")]),
        "at": pa.array([datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "on": pa.array([date(2024, 1, 2), None]),
        "raw": pa.array([b"\x00\xff", None]),
        "tags": pa.array([["a", None], []], pa.list_(pa.string())),
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
        "keyed": pa.array([[(7, "x")], None], pa.map_(pa.int32(), pa.string())),
        "point": pa.array([{"x": 1}, None], pa.struct([("x", pa.int32())])),
    }
)
AS_JSON = [
    {
        "id": 1,
        "price": "1.10",
        "ratio": "NaN",
        "at": "2024-01-02T03:04:05+00:00",
        "on": "2024-01-02",
        "raw": "AP8=",
        "tags": ["a", None],
        "map": {"k": 1},
        "keyed": {"7": "x"},
        "point": {"x": 1},
    },
    dict.fromkeys(NESTED.column_names) | {"ratio": "-Infinity", "tags": []},
]


def strict(text):
    def refuse(constant):
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


def test_every_type_is_valid_json(capsys):
    row_output.print_rows(NESTED.to_reader())
    assert strict(capsys.readouterr().out) == AS_JSON


def test_no_rows_are_an_empty_array(capsys):
    row_output.print_rows(NESTED.slice(0, 0).to_reader())
    assert strict(capsys.readouterr().out) == []


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.parquet", "a.arrow", "A.CSV"])
def test_files_hold_the_rows(tmp_path, name):
    path = tmp_path / name
    table = NESTED if not name.endswith("CSV") else NESTED.select(["id", "on"])
    assert row_output.writer(path)(table.to_reader(1)) == 2
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    if name == "a.json":
        assert strict(path.read_text()) == AS_JSON
    elif name == "a.jsonl":
        assert [strict(line) for line in path.read_text().splitlines()] == AS_JSON
    else:
        assert pa.table(row_output.open_rows(path, table.schema)).to_pylist()[1]["id"] is None


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_json_that_was_written_is_read_again(tmp_path, name):
    day = date(2024, 2, 29)
    schema = pa.schema(
        {
            "day": pa.date32(),
            "exact": pa.decimal128(38, 20),
            "tags": pa.map_(pa.string(), pa.int32()),
            "items": pa.list_(pa.struct([("by_id", pa.map_(pa.int64(), pa.date32())), ("x", pa.float64())])),
        }
    )
    rows = [
        {
            "day": day,
            "exact": Decimal("123456789.12345678901234567890"),
            "tags": [("a", 1), ("b", None)],
            "items": [{"by_id": [(5, day)], "x": 1.5}, None],
        },
        {"day": None, "exact": Decimal("0.1"), "tags": None, "items": []},
    ]
    table = pa.Table.from_pylist(rows, schema=schema)
    row_output.writer(tmp_path / name)(table.to_reader())
    assert pa.table(row_output.open_rows(tmp_path / name, schema)).to_pylist() == rows
    # Numbers without quotation marks have as many digits.
    path = tmp_path / f"more-{name}"
    path.write_text(f'{{"exact": {rows[0]["exact"]}, "tags": {{}}}}')
    assert pa.table(row_output.open_rows(path, schema)).to_pylist() == [
        {"exact": rows[0]["exact"], "tags": []}
    ]


@pytest.mark.parametrize(
    ("limit", "ids", "read"), [(None, [0, 1, 2, 3], 4), (3, [0, 1, 2], 3), (0, [], 0), (9, [0, 1, 2, 3], 4)]
)
def test_only_what_is_shown_is_read(limit, ids, read):
    made = []

    def batches():
        for number in range(4):
            made.append(number)
            yield pa.record_batch({"id": [number]})

    rows = pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), batches())
    assert row_output.head(rows, limit).read_all()["id"].to_pylist() == ids
    assert len(made) == read


def test_failed_write_leaves_what_was_there(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("before")
    with pytest.raises(SchemaMismatch, match="cannot write these columns as csv"):
        row_output.writer(path)(NESTED.to_reader())
    assert path.read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 1


def test_table_for_people_is_aligned_and_escapes_control_characters(capsys):
    output.print_table(["id", "name"], [(1, "a\x1b[31m\n"), (20, None), (3, "[bold]x[/bold]")], right=["id"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.rstrip() for line in lines] == ["id  name", " 1  a\\x1b[31m\\n", "20", " 3  [bold]x[/bold]"]


def test_wide_rows_are_not_folded_in_a_pipe(capsys):
    output.print_table(["text"], [("x" * 500,)])
    assert "x" * 500 in capsys.readouterr().out


def test_instants_are_utc():
    assert output.instant(1_700_000_000_000) == "2023-11-14 22:13:20"
    assert output.instant(-1) == "1969-12-31 23:59:59"


def test_no_name_in_a_log_steers_the_terminal(capsys):
    name = "a\x1b[2Jb\x9b1mc\x7f\nd"

    output.say(name)
    output.show(name)
    output.print_json({name: name})
    output.print_table([name], [[name]])
    output.print_pairs({name: name})

    out, err = capsys.readouterr()
    lines = [line.encode() for line in (out + err).split("\n")]
    assert not any(control in line for line in lines for control in (b"\x1b", "\x9b".encode(), b"\x7f"))
    assert json.loads(out.split("\n")[1]) == {name: name}
