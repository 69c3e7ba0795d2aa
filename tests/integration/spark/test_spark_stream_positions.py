"""What a checkpoint of ``readStream.format("delvec")`` holds, and how long a query can resume from it; without Spark, as
in test_spark_stream_steps.
"""

import json
from pathlib import Path

import pytest
from tests.integration.spark.test_spark_stream_steps import SCHEMA, Job, log_file, people

import delvec
from delvec.spark_datasource import stream_source as stream_module


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "people")


@pytest.fixture
def job(folder):
    """``job(**options)`` creates a query on the table in ``folder``."""
    return lambda **options: Job(folder, says_start=stream_module.limits is not None, **options)


def test_the_position_moves_past_versions_that_add_nothing(lake, folder, job, monkeypatch):
    """Otherwise log clean-up would overtake the query's position."""
    table = lake.create_table(folder, SCHEMA, engine="duckdb")
    table.append(people(0, 10))
    query = job(ignoreDeletes="true")
    assert len(query.run()) == 10
    table.delete("id < 3")
    table.alter.comment("smaller")
    # Once when a query starts, so that a nightly one keeps up.
    query.start()
    assert query.plan()
    assert query.read() == []
    assert query.last["version"] == 4
    assert not query.plan()
    # And periodically in a long-running one.
    table.delete("id < 4")
    assert not query.plan()
    monkeypatch.setattr(stream_module, "_BEHIND_SECONDS", 0.0)
    assert query.plan()
    assert query.read() == []
    assert query.last["version"] == 5
    for _ in range(3):
        assert not query.plan()
    table.append(people(20, 2))
    assert query.ids() == [20, 21]


def test_a_query_that_only_saw_deletes_survives_log_clean_up(lake, folder, job):
    table = lake.create_table(folder, SCHEMA, engine="duckdb")
    table.append(people(0, 10))
    current, behind = job(ignoreDeletes="true"), job(ignoreDeletes="true")
    for query in (current, behind):
        assert len(query.run()) == 10
    table.delete("id = 0")
    table.delete("id = 1")
    assert current.run() == []
    forget(table, folder, before=3)
    table.append(people(20, 2))

    assert current.ids() == [20, 21]
    with pytest.raises(delvec.VersionNotFound, match=r"(?s)version 2.*failOnDataLoss"):
        behind.run()


def forget(table, folder, *, before):
    """Delete the commits before a checkpoint, as log clean-up does later."""
    table.checkpoint()
    for version in range(before):
        log_file(folder, version).unlink()
        for other in log_file(folder, version).parent.glob(f"{version:020}.*"):
            other.unlink()


@pytest.mark.parametrize("feed", [False, True], ids=["rows", "changes"])
def test_lost_versions_are_skipped_if_the_stream_allows_it(lake, folder, job, feed):
    properties = {"delta.enableChangeDataFeed": "true"}
    table = lake.create_table(folder, SCHEMA, properties=properties, engine="duckdb")
    table.append(people(0, 10))
    options = {"readChangeFeed": "true"} if feed else {}
    query = job(**options)
    assert len(query.run()) == 10
    for number in range(1, 5):
        table.append(people(number * 10, 2))
    forget(table, folder, before=5)

    with pytest.raises(delvec.VersionNotFound, match="failOnDataLoss"):
        query.run()
    query.options = {**options, "failOnDataLoss": "false"}
    assert query.ids() == [40, 41]
    table.append(people(50, 2))
    assert query.ids() == [50, 51]


@pytest.mark.parametrize("feed", [False, True], ids=["rows", "changes"])
@pytest.mark.parametrize("lost", [2, 3, 4])
def test_a_planned_batch_that_is_lost_is_skipped(lake, folder, job, feed, lost):
    properties = {"delta.enableChangeDataFeed": "true"}
    table = lake.create_table(folder, SCHEMA, properties=properties, engine="duckdb")
    table.append(people(0, 10))
    query = job(**({"readChangeFeed": "true"} if feed else {}), failOnDataLoss="false")
    query.run()
    table.append(people(10, 2))
    query.start()
    assert query.plan()
    for number in range(2, 5):
        table.append(people(number * 10, 2))
    forget(table, folder, before=lost + 1)

    assert query.ids() == [
        place for number in range(4 if feed else lost, 5) for place in (number * 10, number * 10 + 1)
    ]


def test_options_of_an_existing_checkpoint_cannot_change(lake, folder, job):
    """Appended rows and the change feed are two different streams: neither resumes from the other's checkpoint."""
    properties = {"delta.enableChangeDataFeed": "true"}
    table = lake.create_table(folder, SCHEMA, properties=properties, engine="duckdb")
    table.append(people(0, 3))
    rows, changes = job(), job(readChangeFeed="true")
    for query, other in ((rows, {"readChangeFeed": "true"}), (changes, {})):
        query.run()
        made_with = str("readChangeFeed" in query.options).lower()
        options, query.options = query.options, other
        table.append(people(10, 1))
        with pytest.raises(delvec.BadRequest, match=f"readChangeFeed={made_with}.*new checkpoint"):
            query.run()
        query.options = options
        assert len(query.run()) == 1
        # Older checkpoints do not record it.
        told = {name: value for name, value in query.last.items() if name != "readChangeFeed"}
        query.ends[-1] = json.dumps(told)
        table.append(people(20, 1))
        assert len(query.run()) == 1


def overwrite(table, folder):
    table.overwrite(people(900, 2))


def add_column(table, folder):
    table.alter.add_columns("age int")


def rename_column(table, folder):
    table.alter.set_properties({"delta.columnMapping.mode": "name"})
    table.alter.rename_column("name", "called")


def clean_up(table, folder):
    table.append(people(900, 2))
    forget(table, folder, before=table.version())


def lose_files(table, folder):
    for path in Path(folder).glob("*.parquet"):
        path.unlink()


@pytest.mark.parametrize("is_first", [True, False], ids=["first batch", "later batch"])
@pytest.mark.parametrize(
    ("change", "error"),
    [
        (overwrite, None),
        (add_column, None),
        (rename_column, delvec.IncompatibleSchemaChange),
        (clean_up, delvec.VersionNotFound),
        (lose_files, delvec.MissingDataFile),
    ],
)
def test_the_table_changes_between_plan_and_commit(lake, folder, job, change, error, is_first):
    """The query dies in between: restarted, it reads the same rows, or the error says that they are lost."""
    table = lake.create_table(folder, SCHEMA, engine="duckdb")
    table.append(people(0, 10))
    query = job(skipChangeCommits="true")
    if not is_first:
        assert len(query.run()) == 10
        table.append(people(10, 5))
    query.start()
    assert query.plan()
    change(table, folder)

    if error is not None:
        for _ in range(2):
            with pytest.raises(error):
                query.start()
        assert query.committed == len(query.ends) - 1
        return
    query.start()
    assert sorted(row["id"] for row in query.batches[len(query.ends) - 1]) == list(
        range(10) if is_first else range(10, 15)
    )
    assert query.run() == []
    newest = people(800, 2)
    table.append(newest)
    assert query.ids() == [800, 801]
