import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.support.tables import ids

import delvec
from delvec_errors import (
    AppendOnlyTable,
    BadRequest,
    ConcurrentModification,
    DelvecError,
    EngineUnavailable,
    InvalidPredicate,
    SchemaMismatch,
    UnknownColumn,
    VersionNotFound,
)

DELETE_METRICS = {
    "numAddedFiles",
    "numAddedBytes",
    "numRemovedFiles",
    "numRemovedBytes",
    "numDeletionVectorsAdded",
    "numDeletionVectorsRemoved",
    "numDeletionVectorsUpdated",
    "numAddedChangeFiles",
    "numDeletedRows",
    "numCopiedRows",
    "executionTimeMs",
    "scanTimeMs",
    "rewriteTimeMs",
}


def parquet_files(table, tmp_path):
    return sorted(path.name for path in (tmp_path / table.name).rglob("*.parquet"))


def actions(table, tmp_path, version):
    path = tmp_path / table.name / "_delta_log" / f"{version:020}.json"
    return [json.loads(line) for line in path.read_text().splitlines()]


# --- reading


def test_rows_come_back_as_they_went_in(people):
    table = people.to_arrow()
    assert table.sort_by("id").to_pydict()["name"] == [f"n{number}" for number in range(10)]
    assert table.schema.names == ["id", "name", "country"]
    assert people.schema() == table.schema


def test_columns_come_in_the_order_asked_for_in_any_case(people):
    table = people.to_arrow(["NAME", "id", "name"], "id = 3")
    assert table.to_pydict() == {"name": ["n3"], "id": [3]}


def test_predicate_may_use_columns_that_are_not_returned(people):
    assert people.to_arrow(["id"], "name = 'n4'").to_pydict() == {"id": [4]}


def test_rows_may_be_streamed(people):
    people.delete("id = 1")
    reader = people.to_batches(["NAME", "id"], "id < 3")
    assert reader.schema.names == ["name", "id"]
    assert reader.read_all().sort_by("id").to_pydict() == {"name": ["n0", "n2"], "id": [0, 2]}
    assert people.to_batches(version=0).read_all().schema == people.schema()


def test_older_versions_stay_readable(people):
    people.delete("id < 3")
    assert ids(people) == [3, 4, 5, 6, 7, 8, 9]
    assert ids(people, version=1) == list(range(10))
    assert ids(people, version=0) == []
    assert people.count(version=1) == 10
    assert len(people.files(version=0)) == 0


def test_moments_choose_versions(people):
    newest, *_ = people.history()
    at = datetime.fromtimestamp(newest["timestamp"] / 1000, UTC)
    assert ids(people, timestamp=at) == list(range(10))
    assert ids(people, timestamp=at.isoformat()) == list(range(10))
    with pytest.raises(VersionNotFound):
        people.to_arrow(timestamp=at - timedelta(days=1))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"columns": ["nope"]}, UnknownColumn),
        ({"columns": "id"}, BadRequest),
        ({"predicate": "nope = 1"}, UnknownColumn),
        ({"predicate": "id ="}, InvalidPredicate),
        ({"predicate": ""}, InvalidPredicate),
        ({"version": 99}, VersionNotFound),
        ({"version": -1}, BadRequest),
        ({"version": 1, "timestamp": "2024-01-01"}, BadRequest),
        ({"timestamp": "yesterday"}, BadRequest),
    ],
)
def test_impossible_reads_are_explained_in_one_sentence(people, options, error):
    with pytest.raises(error) as caught:
        people.to_arrow(**options)
    assert "\n" not in caught.value.message


def test_count_needs_no_data_files_where_statistics_are_exact(by_country, tmp_path):
    by_country.delete("id = 0")
    for path in (tmp_path / "by_country").rglob("*.parquet"):
        path.unlink()
    assert by_country.count() == 9
    assert by_country.count("country = 'NZ'") == 4


def test_count_with_a_predicate_counts_live_rows(people):
    people.delete("id < 3")
    assert people.count("id < 5") == 2


def test_files_are_urls_of_files(people, tmp_path):
    (url,) = people.files()
    assert url.startswith(people.location + "/")
    assert [url.rpartition("/")[2]] == parquet_files(people, tmp_path)


def test_dataframe_needs_spark(people):
    with pytest.raises(EngineUnavailable, match=r"engine=spark"):
        people.to_df()


def test_history_is_newest_first(people):
    people.delete("id = 1")
    entries = people.history()
    assert [(entry["version"], entry["operation"]) for entry in entries] == [
        (2, "DELETE"),
        (1, "WRITE"),
        (0, "CREATE TABLE"),
    ]
    assert people.history(1) == entries[:1]
    assert entries[0]["engineInfo"].startswith("delvec-duckdb/")
    with pytest.raises(BadRequest, match="limit"):
        people.history(0)


def test_detail_and_health_speak_deltas_and_our_names(people):
    people.delete("id < 4")
    detail = people.detail()
    assert detail["format"] == "delta"
    assert detail["numFiles"] == 1
    health = people.health()
    assert health["deleted-ratio"] == pytest.approx(0.4)
    assert health["num-deleted-rows"] == 4
    assert people.version() == 2


def test_repr_says_which_table_and_engine(people):
    assert repr(people).startswith(
        f"DeltaTable(name='people', location='{people.location}', engine='delvec-duckdb/"
    )


# --- appending


@pytest.mark.parametrize(
    "convert",
    [
        lambda table: table,
        lambda table: table.to_batches()[0],
        lambda table: table.to_reader(),
        lambda table: table.to_pandas(),
        pl.from_arrow,
        lambda table: table.to_pylist(),
    ],
    ids=["table", "batch", "reader", "pandas", "polars", "dicts"],
)
def test_rows_may_come_in_several_forms(people, convert):
    more = pa.table({"id": [100, 101], "name": ["x", None], "country": ["FR", "FR"]})
    metrics = people.append(convert(more))
    assert metrics.version == 2
    assert metrics["numOutputRows"] == 2
    assert metrics["numFiles"] == 1
    assert people.to_arrow(predicate="id >= 100").sort_by("id").to_pylist() == more.to_pylist()


def test_no_rows_are_no_commit(people):
    metrics = people.append(people.to_arrow().slice(0, 0))
    assert metrics.version is None
    assert set(metrics.values()) == {0}
    assert people.version() == 1


@pytest.mark.parametrize(
    "data",
    [
        pa.table({"id": [1], "surplus": ["x"]}),
        pa.table({"id": ["x"]}),
        pd.DataFrame({"id": ["one"]}),
        "text",
    ],
    ids=["surplus column", "wrong type", "pandas", "no rows at all"],
)
def test_rows_that_do_not_fit_are_refused_and_nothing_is_committed(people, data):
    with pytest.raises(SchemaMismatch):
        people.append(data)
    assert people.version() == 1


def test_appends_at_the_same_time_all_commit(people):
    def append(number):
        return people.append([{"id": 100 + number, "name": "x", "country": "FR"}]).version

    with ThreadPoolExecutor(4) as pool:
        versions = set(pool.map(append, range(12)))
    assert versions == set(range(2, max(versions) + 1))  # those that wait for each other share one
    assert ids(people, predicate="id >= 100") == list(range(100, 112))


# --- deleting


def test_delete_marks_rows_and_writes_no_data_file(people, tmp_path):
    before = parquet_files(people, tmp_path)
    metrics = people.delete("id < 3")
    assert set(metrics) == DELETE_METRICS
    assert (metrics["numDeletedRows"], metrics["numDeletionVectorsAdded"], metrics.version) == (3, 1, 2)
    assert metrics["executionTimeMs"] >= metrics["scanTimeMs"]
    assert parquet_files(people, tmp_path) == before
    assert ids(people) == [3, 4, 5, 6, 7, 8, 9]


def test_second_delete_adds_to_the_first(people):
    people.delete("id < 3")
    metrics = people.delete("id < 5")
    assert metrics["numDeletedRows"] == 2
    assert metrics["numDeletionVectorsUpdated"] == 1
    assert ids(people) == [5, 6, 7, 8, 9]


def test_delete_of_nothing_commits_nothing(people):
    for predicate in ("id = 5 AND name = 'n4'", "id > 1000", "false"):
        metrics = people.delete(predicate)
        assert metrics.version is None
        assert set(metrics) == DELETE_METRICS
        assert metrics["numDeletedRows"] == 0
    people.delete("id < 3")
    assert people.delete("id < 3").version is None
    assert people.version() == 2


def test_rows_where_the_predicate_is_null_stay(people):
    people.append([{"id": None, "name": "x", "country": "FR"}])
    people.delete("id >= 0")
    assert people.to_arrow().to_pydict() == {"id": [None], "name": ["x"], "country": ["FR"]}


def test_delete_of_everything_removes_the_files(people):
    people.delete("id = 0")
    metrics = people.delete()
    assert metrics["numDeletedRows"] == 9
    assert metrics["numRemovedFiles"] == 1
    assert (people.count(), people.files()) == (0, [])


def test_delete_of_all_rows_by_predicate_removes_the_file(people):
    metrics = people.delete("id >= 0")
    assert metrics["numDeletedRows"] == 10
    assert metrics["numRemovedFiles"] == 1
    assert people.files() == []


def test_whole_partitions_are_removed_without_reading_them(by_country, tmp_path):
    for path in (tmp_path / "by_country").rglob("country=NZ/*.parquet"):
        path.unlink()
    metrics = by_country.delete("country = 'NZ'")
    assert (metrics["numRemovedFiles"], metrics["numDeletedRows"]) == (1, 5)
    assert ids(by_country) == [5, 6, 7, 8, 9]


def test_delete_is_recorded_with_its_predicate(people, tmp_path):
    people.delete("id < 3")
    (info,) = (action["commitInfo"] for action in actions(people, tmp_path, 2) if "commitInfo" in action)
    assert info["operation"] == "DELETE"
    assert json.loads(info["operationParameters"]["predicate"]) == ["(id < 3)"]
    assert info["operationMetrics"]["numDeletedRows"] == "3"
    assert info["readVersion"] == 1


def test_table_without_deletion_vectors_is_rewritten(lake, tmp_path):
    table = lake.create_table(
        tmp_path / "plain", "id long, name string", properties={"delta.enableDeletionVectors": "false"}
    )
    table.append([{"id": number, "name": "x"} for number in range(10)])
    metrics = table.delete("id < 3")
    assert metrics["numDeletedRows"] == 3
    assert metrics["numCopiedRows"] == 7
    assert (metrics["numRemovedFiles"], metrics["numAddedFiles"]) == (1, 1)
    assert metrics["numDeletionVectorsAdded"] == 0
    assert ids(table) == [3, 4, 5, 6, 7, 8, 9]
    assert not list((tmp_path / "plain").glob("*.bin"))


def test_rewriting_whole_and_partly_matching_files_counts_every_row(lake, tmp_path):
    table = lake.create_table(
        tmp_path / "plain",
        "id long, part string",
        partition_by=["part"],
        properties={"delta.enableDeletionVectors": "false"},
    )
    table.append([{"id": number, "part": "ab"[number % 2]} for number in range(10)])
    metrics = table.delete("part = 'a' OR id < 4")
    assert metrics["numDeletedRows"] == 7
    assert ids(table) == [5, 7, 9]


def test_append_only_table_keeps_its_rows(lake, tmp_path):
    table = lake.create_table(tmp_path / "log", "id long", properties={"delta.appendOnly": "true"})
    table.append([{"id": 1}])
    with pytest.raises(AppendOnlyTable):
        table.delete("id = 1")
    with pytest.raises(AppendOnlyTable):
        table.delete()
    assert table.count() == 1


@pytest.fixture
def rewritten(lake, people, tmp_path):
    """A table without deletion vectors, where two DELETEs on one file conflict."""
    table = lake.create_table(
        tmp_path / "rewritten", people.schema(), properties={"delta.enableDeletionVectors": False}
    )
    table.append(people.to_arrow())
    return table


def overtaken(table, monkeypatch, *predicates):
    """Another writer deletes between scan and commit of the next commands, once per predicate."""
    copy_rows, others = table.engine.copy_rows, list(predicates)

    def lose(scan, gone, target):
        found = copy_rows(scan, gone, target)
        if others:
            with monkeypatch.context() as patch:
                patch.setattr(table.engine, "copy_rows", copy_rows)
                table.delete(others.pop(0))
        return found

    monkeypatch.setattr(table.engine, "copy_rows", lose)


def test_loser_of_a_race_learns_who_won(rewritten, monkeypatch):
    overtaken(rewritten, monkeypatch, "id = 9")
    with pytest.raises(ConcurrentModification) as caught:
        rewritten.delete("id = 1", retries=0)
    assert caught.value.conflict["winning-version"] == 2
    assert caught.value.conflict["winning-operation"] == "DELETE"
    assert caught.value.conflict["files"]
    assert ids(rewritten) == list(range(9))
    assert rewritten.delete("id = 1")["numDeletedRows"] == 1


def test_loser_of_a_race_runs_again_by_itself(rewritten, monkeypatch):
    overtaken(rewritten, monkeypatch, "id = 9", "id = 8")
    metrics = rewritten.delete("id IN (1, 8)")
    assert (metrics["numDeletedRows"], metrics.version, metrics.retries) == (1, 4, 2)
    assert "retries=2" in repr(metrics)
    assert ids(rewritten) == [0, 2, 3, 4, 5, 6, 7]


def test_running_again_ends(rewritten, monkeypatch):
    overtaken(rewritten, monkeypatch, "id = 9", "id = 8", "id = 7")
    with pytest.raises(ConcurrentModification):
        rewritten.delete("id = 1", retries=2)
    assert ids(rewritten) == list(range(7))


def test_how_often_to_run_again_is_said_for_a_connection(rewritten, monkeypatch, tmp_path):
    with delvec.connect(database_url=f"sqlite:///{tmp_path / 'other.db'}", retries=0) as lake:
        table = lake.table(rewritten.location)
        overtaken(table, monkeypatch, "id = 9", "id = 8")
        with pytest.raises(ConcurrentModification):
            table.delete("id = 1")
        assert table.delete("id = 1", retries=1).retries == 1
    with pytest.raises(BadRequest, match="retries"):
        delvec.connect(database_url="sqlite://", retries=-1)
    with pytest.raises(BadRequest, match="retries"):
        rewritten.delete("id = 1", retries=-1)


def test_a_delete_of_everything_takes_what_was_added_meanwhile(people, monkeypatch):
    plan, appended = people.plan, []

    def late(*arguments, **options):
        found = plan(*arguments, **options)
        if not appended:
            appended.append(people.append([{"id": 100, "name": "late", "country": "FI"}]))
        return found

    monkeypatch.setattr(people, "plan", late)
    metrics = people.delete()
    assert metrics.retries == 1
    assert people.count() == 0


@pytest.mark.parametrize("predicate", ["id =", "nope = 1", "count(*) > 1", "id IN (SELECT 1)", ""])
def test_impossible_deletes_commit_nothing(people, predicate):
    with pytest.raises(DelvecError) as caught:
        people.delete(predicate)
    assert isinstance(caught.value, InvalidPredicate | UnknownColumn)
    assert people.version() == 1
