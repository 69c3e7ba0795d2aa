"""Characters beyond ASCII are written to the log unescaped, and every reader understands them.

deltalake (with polars, and DuckDB's ``delta``) decodes the JSON escapes of a character from U+20000 wrongly.
"""

import json
import re

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties

from delvec_errors import ConstraintViolation

pytestmark = pytest.mark.full_on_spark(
    "delta-spark takes seconds for each; the gate has both ways of reading and writing, and a race"
)

TEXTS = [
    "plain",
    "é",
    "\u2028line\u2029",
    "\u0085next",
    "\x01\x7f",
    '"\\ue000"',
    "￿",
    "😀",
    "\U00020000",
    "𠜎",
    "\U0010ffff",
]
COLUMN = "𠜎😀"
ESCAPED = re.compile(r"\\u(?!00[01][0-9a-f])[0-9a-fA-F]{4}")
"""Only control characters must be escaped."""


def some_rows(texts=TEXTS, first=0):
    return pa.table(
        {
            "id": pa.array(range(first, first + len(texts)), pa.int64()),
            "part": texts,
            COLUMN: [f"{text}-𠮷" for text in texts],
            "s": [{"𡃁": text} for text in texts],
        }
    )


def escapes(location):
    """Return the escapes in the log, apart from control characters."""
    found = {}
    for file in sorted((location / "_delta_log").rglob("*")):
        if file.suffix in (".json", ".crc") or file.name == "_last_checkpoint":
            text = file.read_text("utf-8")
        elif file.suffix == ".parquet":
            rows = pq.read_table(file, columns=["add.stats", "metaData.schemaString"]).flatten().flatten()
            text = "\n".join(text for column in rows.columns for text in column.drop_null().to_pylist())
        else:
            continue
        if ESCAPED.search(text.replace("\\\\ue000", "")):
            found[file.name] = text
    return found


def with_deltalake(location, where="true"):
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(location)))
    rows = pa.table(query.execute(f"select * from t where {where}").read_all()).to_pylist()
    return sorted(rows, key=lambda row: row["id"])


@pytest.fixture
def table(lake, tmp_path):
    """All characters in partition values, column names, statistics, and every kind of action that can hold them."""
    rows = some_rows()
    table = lake.create_table(
        tmp_path / "table",
        rows.schema,
        partition_by=["part"],
        description="𠜎 😀",
        properties={"owner.😀": "𠜎", "delta.checkpointInterval": "4", "delta.enableChangeDataFeed": "true"},
    )
    table.append(rows, user_metadata="𠜎")
    table.alter.add_constraint("c", f"`{COLUMN}` <> '𠜎'")
    table.append(some_rows([f"{text}!" for text in TEXTS], first=100), txn=("app 𠜎", 1))
    table.delete(f"`{COLUMN}` = '𠜎-𠮷'")
    table.update({f"`{COLUMN}`": "'😀 𠜎'"}, "part = '😀'")
    return table


def test_the_log_holds_characters_unescaped(table, tmp_path):
    table.overwrite(some_rows(["😀"]), replace_where="part = '😀'")
    condition = f"target.`{COLUMN}` = source.`{COLUMN}`"
    table.merge(some_rows(["𠮷 new"]), condition).when_not_matched_insert_all().execute()
    table.alter.set_properties({"owner.𡃁": "😀"})
    table.checkpoint()

    assert escapes(tmp_path / "table") == {}
    names = {file.suffix for file in (tmp_path / "table" / "_delta_log").iterdir()}
    assert {".json", ".crc", ".parquet"} <= names
    assert table.history(1)[0]["operationParameters"]["properties"] == '{"owner.𡃁":"😀"}'


@pytest.mark.parametrize("checkpoint", [False, True])
def test_other_readers_find_every_row_and_skip_none(table, tmp_path, checkpoint):
    if checkpoint:
        table.checkpoint()
    expected = table.to_arrow().sort_by("id").to_pylist()
    location = tmp_path / "table"

    assert len(expected) == 2 * len(TEXTS) - 1
    assert with_deltalake(location) == expected
    for row in expected:
        for name in ("part", COLUMN):
            literal = "'" + row[name].replace("'", "''") + "'"
            condition = f'"{name}" = {literal}'
            same = [each for each in expected if each[name] == row[name]]
            assert with_deltalake(location, condition) == same, condition
            back = table.to_arrow(predicate=f"`{name}` = {literal.replace(chr(92), chr(92) * 2)}")
            assert back.sort_by("id").to_pylist() == same, condition


def test_polars_and_duckdb_find_every_row(lake, tmp_path):
    rows = some_rows()
    location = tmp_path / "table"
    properties = {"delta.enableDeletionVectors": "false"}
    lake.create_table(location, rows.schema, partition_by=["part"], properties=properties).append(rows)

    frame = pl.scan_delta(str(location))
    for row in rows.to_pylist():
        found = frame.filter(pl.col(COLUMN) == row[COLUMN], pl.col("part") == row["part"]).collect()
        assert found.select("id", "part", COLUMN).to_dicts() == [{k: row[k] for k in ("id", "part", COLUMN)}]
    dataset = deltalake.DeltaTable(str(location)).to_pyarrow_dataset()
    con = duckdb.connect()
    con.register("t", dataset)
    for row in rows.to_pylist():
        assert con.execute(f'select id from t where "{COLUMN}" = ?', [row[COLUMN]]).fetchall() == [
            (row["id"],)
        ]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_compaction_of_deltalakes_keeps_every_value(lake, tmp_path, checkpoint):
    rows = some_rows()
    location = tmp_path / "table"
    properties = {"delta.enableDeletionVectors": "false"}
    table = lake.create_table(location, rows.schema, partition_by=["part"], properties=properties)
    for number in range(2):
        table.append(rows.set_column(0, "id", pa.array([2 * i + number for i in range(len(TEXTS))])))
    if checkpoint:
        table.checkpoint()
    expected = table.to_arrow().sort_by("id").to_pylist()

    deltalake.DeltaTable(str(location)).optimize.compact()

    assert table.detail()["numFiles"] == len(TEXTS)
    assert table.to_arrow().sort_by("id").to_pylist() == expected
    assert with_deltalake(location) == expected


def test_a_constraint_is_enforced(table):
    bad = some_rows(["x"]).set_column(2, COLUMN, pa.array(["𠜎"]))

    with pytest.raises(ConstraintViolation, match="𠜎"):
        table.append(bad)


def test_escapes_of_another_writer_are_read_and_rewritten_without(lake, tmp_path):
    """Python's json module, for example, and earlier versions of Delvec."""
    rows = some_rows().drop_columns(["s"])
    location = tmp_path / "table"
    table = lake.create_table(location, rows.schema, partition_by=["part"])
    table.append(rows)
    log = location / "_delta_log"
    for file in log.glob("*.json"):
        actions = [json.loads(line) for line in file.read_text("utf-8").split("\n") if line]
        for action in actions:
            if "add" in action:
                action["add"]["stats"] = json.dumps(json.loads(action["add"]["stats"]))
        file.write_text("".join(json.dumps(action) + "\n" for action in actions))
    for file in log.glob("*.crc"):
        file.unlink()
    assert escapes(location)
    lake.drop_table(table.location)

    table = lake.table(location)
    assert table.to_arrow().sort_by("id").to_pylist() == rows.to_pylist()
    for row in rows.to_pylist():
        literal = row["part"].replace("\\", "\\\\")
        assert table.to_arrow(predicate=f"part = '{literal}'").to_pylist() == [row]
    table.delete("id = 3")
    table.checkpoint()

    kept = {name: text for name, text in escapes(location).items() if not name.endswith(("0.json", "1.json"))}
    assert kept == {}


def test_escapes_in_statistics_of_new_files_are_removed(lake, tmp_path):
    """From an engine that sends JSON made by Python's json module."""
    table = lake.create_table(tmp_path / "table", "id long, name string")
    path = tmp_path / "table" / "f.parquet"
    pq.write_table(pa.table({"id": [1], "name": ["𠜎"]}), path)
    stats = {
        "numRecords": 1,
        "minValues": {"name": "𠜎"},
        "maxValues": {"name": "𠜎"},
        "nullCount": {"name": 0},
    }
    add = {"path": path.name, "size": path.stat().st_size, "modification_time": 1, "stats": json.dumps(stats)}

    with table.transaction("WRITE") as transaction:
        transaction.add([add])

    assert escapes(tmp_path / "table") == {}
    assert with_deltalake(tmp_path / "table", "name = '𠜎'") == [{"id": 1, "name": "𠜎"}]


def test_deltalakes_commits_are_read(lake, tmp_path):
    rows = some_rows()
    location = tmp_path / "table"
    properties = CommitProperties(custom_metadata={"𠜎": "😀"})
    deltalake.write_deltalake(str(location), rows, partition_by=["part"], commit_properties=properties)

    table = lake.table(location)

    assert table.to_arrow().sort_by("id").to_pylist() == rows.to_pylist()
    for row in rows.to_pylist():
        literal = row[COLUMN].replace("\\", "\\\\")
        assert table.to_arrow(predicate=f"`{COLUMN}` = '{literal}'").to_pylist() == [row]
    assert table.delete("part = '𠜎'")["numDeletedRows"] == 1
    pl.DataFrame(some_rows(["𠜎"])).write_delta(str(location), mode="append")
    assert table.to_arrow(predicate="part = '𠜎'").num_rows == 1


@pytest.mark.jars
@pytest.mark.spark
def test_every_reader_agrees(table, agreed, tmp_path):
    table.checkpoint()

    assert len(agreed(tmp_path / "table")) == 2 * len(TEXTS) - 1
