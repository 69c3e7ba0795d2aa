"""Times that are constant expressions."""

import datetime as dt
import os

import pyarrow as pa
import pytest

from delvec.sql.constant_times import parse_constant_time
from delvec_errors import InvalidStatement


@pytest.fixture
def aged(lake, tmp_path):
    """A table whose first version is two days old, and the second one hour."""
    table = lake.create_table(tmp_path / "aged", rows=pa.table({"id": [1]}))
    table.append([{"id": 2}])
    now = dt.datetime.now(dt.UTC)
    for version, age in enumerate((dt.timedelta(days=2), dt.timedelta(hours=1))):
        at = (now - age).timestamp()
        os.utime(tmp_path / "aged" / "_delta_log" / f"{version:020}.json", (at, at))
    return f"delta.`{tmp_path}/aged`"


@pytest.mark.parametrize(
    ("time", "count"),
    [
        ("current_timestamp() - INTERVAL 1 DAY", 1),
        ("current_timestamp() - INTERVAL 90 MINUTES", 1),
        ("(now() - INTERVAL '2' HOURS)", 1),
    ],
)
def test_times_before_now(lake, aged, time, count):
    assert lake.sql(f"SELECT count(*) AS n FROM {aged} TIMESTAMP AS OF {time}")["n"].to_pylist() == [count]


def test_restore_takes_one_too(lake, aged):
    lake.sql(f"RESTORE TABLE {aged} TO TIMESTAMP AS OF current_timestamp() - INTERVAL 1 DAY")
    assert lake.sql(f"SELECT count(*) AS n FROM {aged}")["n"].to_pylist() == [1]
    with pytest.raises(InvalidStatement, match="a time is expected"):
        lake.sql(f"RESTORE TABLE {aged} TO TIMESTAMP AS OF yesterday")


def test_what_is_no_constant_is_refused(lake, aged):
    with pytest.raises(InvalidStatement, match="INTERVAL 1 DAY"):
        lake.sql(f"SELECT * FROM {aged} TIMESTAMP AS OF max(id)")


def test_months_end_with_their_last_day():
    assert parse_constant_time("TIMESTAMP'2026-01-31 10:00:00'") == "2026-01-31 10:00:00"
    assert parse_constant_time("'2026-01-31'") == "2026-01-31"
    year_ago = parse_constant_time("current_date() - INTERVAL 12 MONTHS")
    assert year_ago is not None
    assert dt.datetime.fromisoformat(year_ago).year == dt.datetime.now(dt.UTC).year - 1
    assert parse_constant_time("id + 1") is None


def test_histories_have_times(lake, aged):
    history = lake.sql(f"DESCRIBE HISTORY {aged}")
    assert history.schema.field("timestamp").type == pa.timestamp("ms", "UTC")
    detail = lake.sql(f"DESCRIBE DETAIL {aged}")
    assert {detail.schema.field(name).type for name in ("createdAt", "lastModified")} == {
        pa.timestamp("ms", "UTC")
    }
