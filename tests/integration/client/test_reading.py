"""Lazy reads in various formats, and facts about files and partitions from the log."""

import json
import shutil
from datetime import date
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import delvec
from delvec_errors import EngineUnavailable, MissingDataFile, UnknownColumn


@pytest.fixture
def numbers(lake, tmp_path):
    """Three files: two whole, one with a deletion vector; NULLs, NaN and large numbers among the values."""
    schema = "id long, big long, ratio double, born date, place struct<city: string, zip: int>"
    table = lake.create_table(tmp_path / "numbers", schema)
    for start in (0, 10, 20):
        table.append(
            [
                {
                    "id": start + at,
                    "big": None if at == 1 else (1 << 60) + start + at,
                    "ratio": float("nan") if at == 2 else at / 2,
                    "born": date(2000, 1, 1 + at),
                    "place": {"city": f"c{at}", "zip": at},
                }
                for at in range(5)
            ]
        )
    table.delete("id in (11, 13)")
    return table


LEFT = [0, 1, 2, 3, 4, 10, 12, 14, 20, 21, 22, 23, 24]


def test_pandas_keeps_every_digit_beside_nulls(numbers):
    frame = numbers.to_pandas(["id", "big"], "id < 3").sort_values("id")
    assert isinstance(frame, pd.DataFrame)
    assert frame["big"].dropna().tolist() == [1 << 60, (1 << 60) + 2]
    assert frame["big"].isna().tolist() == [False, True, False]
    assert numbers.to_pandas(["id"])["id"].dtype == "int64"


def test_pandas_takes_the_types_asked_for(numbers):
    frame = numbers.to_pandas(["id"], types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    assert frame["id"].dtype == "Int64"


def test_polars(numbers):
    frame = numbers.to_polars(["id", "born"], "id = 2")
    assert isinstance(frame, pl.DataFrame)
    assert frame.rows() == [(2, date(2000, 1, 3))]


def test_duckdb_reads_live_rows_lazily(numbers):
    rows = numbers.to_duckdb()
    assert sorted(number for (number,) in rows.select("id").fetchall()) == LEFT
    # Again, with filters that DuckDB would answer from the files' statistics.
    assert sorted(rows.filter("ratio > 100").select("id").fetchall()) == [(2,), (12,), (22,)]
    assert rows.filter("place.zip = 4 AND id > 10").order("id").select("id").fetchall() == [(14,), (24,)]


def test_duckdb_joins_several_tables_and_versions_on_one_connection(numbers, by_country):
    with duckdb.connect() as mine:
        by_country.delete("id = 0")
        numbers.to_duckdb(mine).create_view("now")
        numbers.to_duckdb(mine, version=3).create_view("then_")
        by_country.to_duckdb(mine).create_view("people")
        gone = mine.sql("SELECT id FROM then_ EXCEPT SELECT id FROM now ORDER BY id").fetchall()
        assert gone == [(11,), (13,)]
        joined = "SELECT id, name, country FROM now JOIN people USING (id) WHERE id < 3 ORDER BY id"
        assert mine.sql(joined).fetchall() == [(1, "n1", "NZ"), (2, "n2", "NZ")]


def test_duckdb_takes_columns_and_a_predicate(numbers):
    assert numbers.to_duckdb(columns=["BORN", "id"], predicate="id = 12").fetchall() == [
        (date(2000, 1, 3), 12)
    ]
    assert numbers.to_duckdb(columns=["ID"]).columns == ["id"]
    empty = numbers.to_duckdb(version=0)
    assert empty.columns == ["id", "big", "ratio", "born", "place"]
    assert empty.fetchall() == []


def test_duckdb_relation_stays_at_its_version(numbers):
    rows = numbers.to_duckdb(columns=["id"])
    numbers.delete()
    assert sorted(number for (number,) in rows.fetchall()) == LEFT


@pytest.mark.parametrize("number", [0, 1])
def test_duckdb_is_not_left_to_find_out_that_a_file_is_missing(lake, tmp_path, number):
    table = lake.create_table(tmp_path / "t", "id long")
    table.append([{"id": 1}])
    table.append([{"id": 2}])
    path = table.plan()[0].files["path"].to_pylist()[number]
    (tmp_path / "t" / path).unlink()
    with pytest.raises(MissingDataFile, match=path):
        table.to_duckdb()


def test_scan_is_read_later_at_the_version_of_its_making(numbers):
    rows = numbers.scan(["born", "ID"], "id >= 10 AND id < 20")
    numbers.delete("id = 10")
    assert rows.version == 4
    assert rows.schema == pa.schema([("born", pa.date32()), ("id", pa.int64())])
    assert sorted(rows.to_arrow()["id"].to_pylist()) == [10, 12, 14]
    assert sorted(rows.to_batches().read_all()["id"].to_pylist()) == [10, 12, 14]
    assert sorted(rows.to_pandas()["id"]) == [10, 12, 14]
    assert sorted(rows.to_polars()["id"]) == [10, 12, 14]
    assert min(rows.to_duckdb().fetchall()) == (date(2000, 1, 1), 10)
    assert rows.count() == 3
    assert len(rows.files()) == 1
    assert "version=4" in repr(rows)


def test_scan_is_an_arrow_stream_for_others(numbers, lake, tmp_path):
    rows = numbers.scan(["id"], "id < 3")
    assert sorted(pl.DataFrame(rows)["id"]) == [0, 1, 2]
    assert sorted(pa.table(rows)["id"].to_pylist()) == [0, 1, 2]
    copy = lake.create_table(tmp_path / "copy", "id long")
    copy.append(rows)
    assert copy.count() == 3


def test_scan_says_at_once_what_is_wrong(numbers):
    with pytest.raises(UnknownColumn):
        numbers.scan(["nope"])
    with pytest.raises(UnknownColumn):
        numbers.scan(predicate="nope = 1")
    with pytest.raises(EngineUnavailable, match="engine=spark"):
        numbers.scan().to_df()


def test_files_may_be_asked_for_by_predicate(numbers):
    assert len(numbers.files()) == 3
    assert len(numbers.files("id >= 20")) == 1
    assert len(numbers.files(version=1)) == 1


def test_all_rows_are_counted_without_opening_or_listing_files(lake, numbers):
    for file in numbers.files():
        Path(file.removeprefix("file://")).unlink()

    assert numbers.count() == len(LEFT)
    assert numbers.count(version=3) == 15
    name = f"delta.`{numbers.location}`"
    counted = lake.sql(f"SELECT count(*) FROM {name}")
    assert (counted.column_names, counted.to_pydict()) == (["count(1)"], {"count(1)": [len(LEFT)]})
    assert lake.sql(f"SELECT count(*) AS n FROM {name} VERSION AS OF 3").to_pydict() == {"n": [15]}
    assert numbers.snapshot().num_rows == len(LEFT)


def test_rows_of_files_without_statistics_are_counted_in_the_files(lake, numbers):
    log = Path(numbers.location.removeprefix("file://")) / "_delta_log"
    commit = log / f"{1:020}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        action.get("add", {}).pop("stats", None)
    commit.write_text("\n".join(map(json.dumps, actions)))
    copy = shutil.copytree(log.parent, log.parent.with_name("copy"))
    other = lake.table(copy)

    assert other.snapshot().num_rows is None
    assert other.count() == len(LEFT)
    assert lake.sql(f"SELECT count(*) AS n FROM delta.`{copy}`").to_pydict() == {"n": [len(LEFT)]}
    assert other.count(version=0) == 0


RANGES = "SELECT min(id), max(id) AS top, min(born), max(big), count(*) FROM {}"


@pytest.fixture
def ranges(lake, tmp_path):
    """Two files without deletion vectors; one with nothing but NULL in a column."""
    schema = "id integer, big long, born date, year integer, word string, p integer"
    table = lake.create_table(tmp_path / "ranges", schema, partition_by=["p"])
    for start, big in ((5, None), (1, (1 << 60) + 1)):
        rows = [
            {"id": start + at, "big": big, "born": date(2000, 1, start + at), "year": at, "word": "w", "p": 1}
            for at in range(3)
        ]
        table.append(rows)
    return table


def _unread(table):
    for file in table.files():
        Path(file.removeprefix("file://")).write_bytes(b"")


def _by_duckdb(lake, table, query):
    """Return DuckDB's result for the rows, with the same names and types."""
    return lake.sql(query.format(f"delta.`{table.location}`") + " WHERE id IS NOT NULL OR id IS NULL")


@pytest.mark.parametrize(
    "query",
    [RANGES, "SELECT max(year), min(year), min(big), count(*) n FROM {}", "SELECT MIN(id) FROM {} AS t"],
)
def test_the_range_of_a_column_is_told_without_reading_files(lake, ranges, query):
    expected = _by_duckdb(lake, ranges, query)
    _unread(ranges)
    found = lake.sql(query.format(f"delta.`{ranges.location}`"))
    assert found.to_pydict() == expected.to_pydict()
    assert found.schema.types == expected.schema.types


def test_the_range_in_an_empty_table_is_null(lake, tmp_path):
    table = lake.create_table(tmp_path / "empty", "id integer")
    assert lake.sql(f"SELECT min(id) a, count(*) n FROM delta.`{table.location}`").to_pylist() == [
        {"a": None, "n": 0}
    ]


def test_ranges_of_older_versions(lake, ranges):
    _unread(ranges)
    query = f"SELECT min(id) a, max(id) z FROM delta.`{ranges.location}` VERSION AS OF 1"
    assert lake.sql(query).to_pylist() == [{"a": 5, "z": 7}]
    told = ranges.snapshot(1, ranges=["id", "word"]).column_ranges
    assert told.keys() == {"id"}
    assert (told["id"].min, told["id"].max) == (5, 7)
    with pytest.raises(UnknownColumn):
        ranges.snapshot(ranges=["nope"])


@pytest.mark.parametrize("column", ["word", "p"])
def test_ranges_that_statistics_do_not_tell_are_read(lake, ranges, column):
    query = f"SELECT min({column}) a, max(id) z FROM {{}}"
    expected = _by_duckdb(lake, ranges, query)
    assert lake.sql(query.format(f"delta.`{ranges.location}`")).to_pydict() == expected.to_pydict()
    _unread(ranges)
    with pytest.raises(delvec.DelvecError):
        lake.sql(query.format(f"delta.`{ranges.location}`"))


def test_ranges_of_files_with_deletion_vectors_are_read(lake, ranges):
    ranges.delete("id IN (1, 7)")
    assert ranges.snapshot(ranges=["id"]).column_ranges == {}
    query = f"SELECT min(id) a, max(id) z FROM delta.`{ranges.location}`"
    assert lake.sql(query).to_pylist() == [{"a": 2, "z": 6}]


@pytest.mark.parametrize(
    "query", ["SELECT min(nope) FROM {}", "SELECT min(t.id) a FROM {} t", "SELECT max(id) + 1 a FROM {}",
              "SELECT min(id) FILTER (id > 2) a FROM {}", "SELECT min(id, 2) a FROM {}", "SELECT DISTINCT max(id) a FROM {}",
              "SELECT max(id) a, min(id) a FROM {}", "SELECT max(DISTINCT id) a FROM {}", "SELECT max(id) OVER () a FROM {}"],
)  # fmt: skip
def test_other_ranges_are_the_engines(lake, ranges, query):
    def outcome(condition):
        try:
            return lake.sql(
                query.format(f"delta.`{ranges.location}`").replace(" t", " AS t") + condition
            ).to_pydict()
        except delvec.DelvecError as error:
            return type(error)

    assert outcome("") == outcome(" WHERE 1 = 1")


@pytest.mark.parametrize(
    "rest",
    [
        "WHERE id > 2", "LIMIT 0", "GROUP BY id > 2", "HAVING count(*) > 100", "AS t(a, b, c, d, e)", "CROSS JOIN one",
        "QUALIFY row_number() OVER () > 1", "UNION ALL SELECT 7", "TABLESAMPLE (2 ROWS)",
    ],
)  # fmt: skip
def test_other_counts_are_the_engines(lake, numbers, rest):
    """Each gives DuckDB's result for the same query over the same rows."""
    lake.create_table(f"{numbers.location}-one", "n long").append([{"n": 1}, {"n": 2}])
    mine = duckdb.connect()
    numbers.to_duckdb(mine).create_view("numbers")
    lake.table(f"{numbers.location}-one").to_duckdb(mine).create_view("one")
    query = f"SELECT count(*) AS n FROM numbers {rest}"

    spelt = query.replace(
        "FROM numbers", f"FROM delta.`{numbers.location}`" + ("" if "AS t" in rest else " numbers")
    )
    spelt = spelt.replace("JOIN one", f"JOIN delta.`{numbers.location}-one`")
    found = lake.sql(spelt).to_pydict()["n"]

    assert sorted(found) == sorted(row[0] for row in mine.sql(query.replace("(2 ROWS)", "2 ROWS")).fetchall())


def test_partitions_are_counted_from_the_log(by_country):
    by_country.delete("id = 3")
    germany, zealand = by_country.partitions()
    assert germany["values"] == {"country": "DE"}
    assert (germany["numFiles"], germany["numRows"]) == (1, 5)
    assert germany["sizeInBytes"] > 0
    assert (zealand["values"], zealand["numRows"]) == ({"country": "NZ"}, 4)
    assert [each["values"]["country"] for each in by_country.partitions("country > 'E'")] == ["NZ"]
    assert by_country.partitions(version=0) == []


def test_partitions_have_typed_values_and_null_last(lake, tmp_path):
    schema = "id long, day date, n int"
    table = lake.create_table(tmp_path / "days", schema, partition_by=["n", "day"])
    rows = [(1, date(2024, 1, 1), 10), (2, None, 9), (3, date(2024, 1, 1), 10), (4, date(2023, 1, 1), 10)]
    table.append([dict(zip(("id", "day", "n"), row, strict=True)) for row in rows])
    found = [(each["values"]["n"], each["values"]["day"], each["numRows"]) for each in table.partitions()]
    assert found == [(9, None, 1), (10, date(2023, 1, 1), 1), (10, date(2024, 1, 1), 2)]


def test_a_table_without_partitions_is_one(people):
    assert [(each["values"], each["numRows"]) for each in people.partitions()] == [({}, 10)]
    people.delete()
    assert people.partitions() == []


def test_a_missing_package_is_said(people, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(EngineUnavailable, match="pip install polars"):
        people.to_polars()
    assert issubclass(EngineUnavailable, delvec.DelvecError)
