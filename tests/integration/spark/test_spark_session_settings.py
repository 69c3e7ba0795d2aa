"""Commands do not depend on the session's ANSI mode and case sensitivity; every file has the columns' field ids."""

from contextlib import contextmanager

import pyarrow as pa
import pytest

import delvec

pytestmark = [
    pytest.mark.spark,
    pytest.mark.full_on_spark("the gate has the main cases: each starts jobs of Spark"),
]

ANSI, CASE = "spark.sql.ansi.enabled", "spark.sql.caseSensitive"
BY_ID = {"delta.columnMapping.mode": "id", "delta.enableChangeDataFeed": "true"}


@contextmanager
def settings(spark, **values):
    names = {"ansi": ANSI, "case": CASE}
    before = {names[key]: spark.conf.get(names[key]) for key in values}
    try:
        for key, value in values.items():
            spark.conf.set(names[key], str(value).lower())
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def people(spark, *ids):
    return spark.createDataFrame(
        pa.table({"ID": list(ids), "name": [f"n{each}" for each in ids], "Part": [each % 2 for each in ids]})
    )


@pytest.mark.parametrize(
    ("ansi", "case"),
    [pytest.param(True, True, id="strict"), pytest.param(False, False, id="loose")],
)
@pytest.mark.full("runs all commands on Spark once more")
def test_commands_do_not_depend_on_the_session(lake, spark, tmp_path, ansi, case):
    """Names match without regard to case, as in every other Delta table."""
    table = lake.create_table(
        tmp_path / "people",
        "Id long, Name string, part long",
        partition_by=["part"],
        properties=BY_ID,
        engine=spark,
    )
    with settings(spark, ansi=ansi, case=case):
        table.append(people(spark, *range(10)))
        table.alter.rename_column("Name", "title")
        assert table.delete("ID = 3 AND PART = 1")["numDeletedRows"] == 1
        assert table.update({"TITLE": "concat(Title, '!')"}, "iD IN (4, 5)")["numUpdatedRows"] == 2
        source = people(spark, 5, 12).withColumnRenamed("name", "TITLE")
        merge = table.merge(source, "target.ID = source.id").when_matched_update({"title": "source.title"})
        done = merge.when_not_matched_insert_all().execute()
        assert (done["numTargetRowsUpdated"], done["numTargetRowsInserted"]) == (1, 1)
        expected = {each: f"n{each}" for each in (0, 1, 2, 4, 5, 6, 7, 8, 9, 12)} | {4: "n4!"}
        frame = table.to_df()
        assert frame.columns == ["Id", "title", "part"]
        assert {row.Id: row.title for row in frame.collect()} == expected
        assert table.to_arrow(["ID"], "PART = 0 AND iD > 6")["Id"].to_pylist() == [8, 12]
        assert {
            row.Id: row.title for row in spark.read.format("delvec").load(str(tmp_path / "people")).collect()
        } == expected
        changes = table.changes_df(start_version=3).groupBy("_change_type").count().collect()
        assert {row["_change_type"]: row["count"] for row in changes} == {
            "delete": 1,
            "update_preimage": 3,
            "update_postimage": 3,
            "insert": 1,
        }
    here = lake.table(str(tmp_path / "people"))
    rows = here.to_arrow()
    assert dict(zip(rows["Id"].to_pylist(), rows["title"].to_pylist(), strict=True)) == expected


@pytest.mark.parametrize("ansi", [True, False], ids=["ansi", "no-ansi"])
def test_values_that_do_not_fit_are_refused_in_both_modes(lake, spark, tmp_path, ansi):
    table = lake.create_table(tmp_path / "numbers", "n int, t string", engine=spark)
    table.append(pa.table({"n": pa.array([1, 2], pa.int32()), "t": ["1", "x"]}))
    version = table.version()
    with settings(spark, ansi=ansi):
        for values in ({"n": "n + 5000000000"}, {"n": "t"}):
            with pytest.raises(delvec.DelvecError):
                table.update(values)
        with pytest.raises(delvec.DelvecError):
            table.append(spark.createDataFrame([(2**40, "x")], "n long, t string"))
    assert table.version() == version
    assert table.to_arrow()["n"].to_pylist() == [1, 2]
