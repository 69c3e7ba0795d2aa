"""A MERGE with several source rows for one target row: which writers refuse it, and the result if they do not."""

import shutil
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import delvec

pytestmark = [
    pytest.mark.jars,
    pytest.mark.spark,
    pytest.mark.full_on_spark(
        "delta-spark takes seconds for each; the gate has both ways of reading and writing, and a race"
    ),
]

ROWS = {(1, 1), (2, 2), (None, 0)}
REFUSED = "refused"
UPDATE, DELETE = "WHEN MATCHED THEN UPDATE SET v = s.v", "WHEN MATCHED THEN DELETE"
INSERT = "WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, s.v)"
TWICE = ((1, 10), (1, 11))


@dataclass(frozen=True)
class Scene:
    """A MERGE into :data:`ROWS`, with columns k and v.

    Attributes:
        source: the source rows.
        clauses: the WHEN clauses.
        left: the resulting rows, or that it is refused.
        on: the join condition.
    """

    source: tuple
    clauses: str
    left: Any
    on: str = "t.k = s.k"

    def sql(self, location):
        rows = " UNION ALL ".join(f"SELECT {_sql(k)} AS k, {_sql(v)} AS v" for k, v in self.source)
        query = rows or "SELECT 1 AS k, 1 AS v WHERE 1 = 0"
        return f"MERGE INTO delta.`{location}` AS t USING ({query}) AS s ON {self.on} {self.clauses}"


SCENES = {
    "one row for each": Scene(
        ((1, 10), (3, 30)), f"{UPDATE} {INSERT}", {(1, 10), (2, 2), (None, 0), (3, 30)}
    ),
    "two update one": Scene(TWICE, UPDATE, REFUSED),
    "two that are equal update one": Scene(((1, 10), (1, 10)), UPDATE, REFUSED),
    "two delete one": Scene(TWICE, DELETE, {(2, 2), (None, 0)}),
    "two delete one, under a condition that is always true": Scene(
        TWICE, "WHEN MATCHED AND TRUE THEN DELETE", REFUSED
    ),
    "two delete one by two clauses": Scene(TWICE, f"WHEN MATCHED AND s.v = 10 THEN DELETE {DELETE}", REFUSED),
    "one updates, the other deletes": Scene(
        TWICE, f"WHEN MATCHED AND s.v = 10 THEN UPDATE SET v = 0 {DELETE}", REFUSED
    ),
    "two match, and one of them deletes": Scene(TWICE, "WHEN MATCHED AND s.v = 10 THEN DELETE", REFUSED),
    "two match, and one of them updates": Scene(
        TWICE, "WHEN MATCHED AND s.v = 11 THEN UPDATE SET v = s.v", REFUSED
    ),
    "two match, and one of them updates, beside inserts": Scene(
        (*TWICE, (3, 30)),
        f"WHEN MATCHED AND s.v = 11 THEN UPDATE SET v = s.v {INSERT}",
        REFUSED,
    ),
    "two match, and none does anything": Scene(TWICE, "WHEN MATCHED AND s.v = 0 THEN DELETE", REFUSED),
    "two match, and only others change": Scene(TWICE, "WHEN NOT MATCHED BY SOURCE THEN DELETE", REFUSED),
    "two match, and only others change, beside inserts": Scene(
        (*TWICE, (3, 30)),
        f"{INSERT} WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = 7",
        REFUSED,
    ),
    "two delete one, two are inserted": Scene(
        (*TWICE, (3, 30), (3, 31)), f"{DELETE} {INSERT}", {(2, 2), (None, 0), (3, 30), (3, 31)}
    ),
    "two delete one, others are updated": Scene(
        TWICE, f"{DELETE} WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = 7", {(2, 7), (None, 7)}
    ),
    "two delete one, others go as well": Scene(
        (*TWICE, (3, 30)),
        f"{DELETE} {INSERT} WHEN NOT MATCHED BY SOURCE AND t.k = 2 THEN DELETE",
        {(None, 0), (3, 30)},
    ),
    "inserts alone": Scene((*TWICE, (3, 30), (3, 31)), INSERT, {*ROWS, (3, 30), (3, 31)}),
    "inserts alone, under a condition": Scene(
        (*TWICE, (3, 30), (3, 31)),
        "WHEN NOT MATCHED AND s.v > 30 THEN INSERT (k, v) VALUES (s.k, s.v)",
        {*ROWS, (3, 31)},
    ),
    "two that match nothing": Scene(((3, 30), (3, 31)), UPDATE, ROWS),
    "the condition that joins leaves one": Scene(
        TWICE, f"{UPDATE} {INSERT}", {(1, 11), (2, 2), (None, 0), (1, 10)}, on="t.k = s.k AND s.v = 11"
    ),
    "NULL equals nothing": Scene(((None, 8), (None, 9)), f"{UPDATE} {INSERT}", {*ROWS, (None, 8), (None, 9)}),
    "NULL is NULL": Scene(((None, 8), (None, 9)), UPDATE, REFUSED, on="t.k <=> s.k"),
    "one row for all": Scene(((5, 50),), UPDATE, {(1, 50), (2, 50), (None, 50)}, on="s.k = 5"),
    "two rows for all": Scene(((5, 50), (6, 60)), UPDATE, REFUSED, on="s.k >= 5"),
    "two rows for all, which go": Scene(((5, 50), (6, 60)), DELETE, set(), on="s.k >= 5"),
    "a source without rows": Scene(
        (),
        f"{UPDATE} WHEN NOT MATCHED BY SOURCE AND t.k > 0 THEN UPDATE SET v = 7",
        {(1, 7), (2, 7), (None, 0)},
    ),
}


@pytest.fixture(scope="module")
def made(lake, tmp_path_factory):
    """A table of the rows, as a template to copy."""
    location = tmp_path_factory.mktemp("made") / "table"
    properties = {"delta.enableChangeDataFeed": "true"}
    table = lake.create_table(str(location), "k int, v int", properties=properties)
    keys, values = zip(*sorted(ROWS, key=repr), strict=True)
    table.append(pa.table({"k": pa.array(keys, pa.int32()), "v": pa.array(values, pa.int32())}))
    return location


@pytest.mark.parametrize("name", SCENES)
def test_several_source_rows_for_one_target_row(lake, delta_spark, made, tmp_path, name):
    scene = SCENES[name]

    def outcome(who, run):
        location = shutil.copytree(made, tmp_path / who)
        refused = _is_refused(run, scene.sql(location))
        table = lake.table(str(location))
        if refused:
            assert table.version() == 1
            return REFUSED, None
        if table.version() == 1:
            return _rows(table.to_arrow()), []
        changes = table.changes(2).select(["k", "v", "_change_type"])
        return _rows(table.to_arrow()), _rows(changes)

    rows, feed = outcome("delta", lambda text: delta_spark.sql(text).collect())
    expected = scene.left if scene.left == REFUSED else _sorted(scene.left)
    assert rows == expected
    for engine in ("duckdb", delta_spark):
        ours, changes = outcome(
            f"delvec-{type(engine).__name__}",
            lambda text, engine=engine: lake.sql(text, engine=engine),
        )
        assert (ours, changes) == (expected, feed), engine


def _is_refused(run, text):
    try:
        run(text)
    except delvec.MultipleMatches:
        return True
    except PySparkException as error:
        if "MULTIPLE_SOURCE_ROW" not in str(error):
            raise
        return True
    return False


def _sql(value):
    return "CAST(NULL AS INT)" if value is None else str(value)


def _rows(table):
    return _sorted(tuple(row.values()) for row in table.to_pylist())


def _sorted(rows):
    return sorted(rows, key=repr)
