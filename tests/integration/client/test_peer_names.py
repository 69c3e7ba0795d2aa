"""Names and arguments of deltalake and delta-spark: accepted if equivalent, else refused with the right call."""

import datetime as dt
import os

import polars as pl
import pyarrow as pa
import pytest

import delvec
from delvec_commands.filters import of_polars, of_tuples
from delvec_commands.lazy_rows import Rows
from delvec_errors import BadRequest
from delvec_kernel.schema.types import schema_from


@pytest.mark.parametrize(
    "update",
    [
        lambda t: t.update({"name": "'x'"}, "id < 3"),
        lambda t: t.update(updates={"name": "'x'"}, predicate="id < 3"),
        lambda t: t.update(new_values={"name": "x"}, predicate="id < 3"),
        lambda t: t.update("id < 3", {"name": "'x'"}),
        lambda t: t.update(condition="id < 3", set={"name": "'x'"}),
    ],
    ids=["ours", "deltalake", "deltalake's values", "delta-spark", "delta-spark's names"],
)
def test_update_as_others_call_it(people, update):
    assert update(people)["numUpdatedRows"] == 3
    assert people.count("name = 'x'") == 3


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda t: t.update("id = 1"), "takes the values to set first"),
        (lambda t: t.update(), "either set="),
        (lambda t: t.update({"a": "1"}, updates={"a": "1"}), "either set="),
        (lambda t: t.update([("a", "1")]), "a dictionary of SQL by column"),
        (lambda t: t.update({"name": "'x'"}, "id = 1", condition="id = 1"), "not both"),
        (lambda t: t.delete("id = 1", condition="id = 1"), "not both"),
        (lambda t: t.delete([("id", "=", 1)]), "must be SQL text"),
        (lambda t: t.merge([{"id": 1}]), "needs one condition"),
        (lambda t: t.merge([{"id": 1}], "a", predicate="b"), "needs one condition"),
        (lambda t: t.to_arrow(filters="id = 1"), "filters must be a list of tuples"),
        (lambda t: t.to_arrow(filters=[("id", "~", 1)]), "operator of a filter must be one of"),
        (lambda t: t.to_arrow(filters=[("id", "in", "ab")]), "needs a list"),
        (lambda t: t.to_arrow(filters=[("id", "<", None)]), "compares with None"),
        (lambda t: t.to_arrow([("id", "=", 1)]), "give conditions as filters="),
    ],
)
def test_what_contradicts_itself_is_refused_in_words(people, call, said):
    with pytest.raises(BadRequest, match=said):
        call(people)
    assert people.version() == 1


@pytest.mark.parametrize("command", ["delete", "update"])
def test_an_argument_with_another_name(people, command):
    with pytest.raises(TypeError, match=rf"table\.{command}\(\) has no argument 'where': give predicate="):
        getattr(people, command)(where="id = 1")
    with pytest.raises(
        TypeError, match=rf"table\.{command}\(\) has no argument 'predicat'; did you mean 'predicate'\?$"
    ):
        getattr(people, command)(predicat="id = 1")
    assert people.version() == 1


def test_merge_as_others_call_it(people):
    source = pa.table({"id": [1, 100], "name": ["x", "y"], "country": ["AU", "AU"]})
    for number, begun in enumerate(
        (
            people.merge(source, predicate="t.id = s.id", source_alias="s", target_alias="t"),
            people.merge(source, "t.id = s.id", "s", "t"),
            people.merge(source, condition="target.id = source.id"),
        )
    ):
        alias = "s" if number < 2 else "source"
        done = (
            begun.when_matched_update(updates={"name": f"{alias}.name"})
            .when_not_matched_insert(updates={"id": f"{alias}.id", "name": f"{alias}.name"})
            .execute()
        )
        assert done["numTargetRowsUpdated"] + done["numTargetRowsInserted"] == 2
    with pytest.raises(AttributeError, match=r"call when_matched_update_all\(predicate\)"):
        people.merge(source, "true").whenMatchedUpdateAll  # noqa: B018


def test_delete_as_delta_spark_calls_it(people):
    assert people.delete(condition="id < 3")["numDeletedRows"] == 3


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        ([("id", "<", 3)], [0, 1, 2]),
        ([("id", ">=", 3), ("country", "=", "NZ")], [3, 4]),
        ([("id", "in", [1, 7, 99])], [1, 7]),
        ([("id", "not in", (0, 1, 2, 3, 4, 5, 6, 7))], [8, 9]),
        ([("id", "in", [])], []),
        ([[("id", "=", 1)], [("id", "==", 9), ("name", "!=", "x")]], [1, 9]),
        ([("name", "=", None)], []),
        ([("name", "!=", None), ("id", ">", 8)], [9]),
        ([], list(range(10))),
    ],
)
def test_filters_of_pyarrow_and_deltalake(people, filters, ids):
    assert sorted(people.to_arrow(filters=filters)["id"].to_pylist()) == ids
    assert sorted(people.to_pandas(["id"], filters=filters)["id"]) == ids
    assert sorted(people.to_pyarrow_table(columns=["id"], filters=filters)["id"].to_pylist()) == ids
    expected = [each for each in ids if each > 1]
    assert sorted(people.to_arrow(predicate="id > 1", filters=filters)["id"].to_pylist()) == expected


def test_filters_are_values_and_never_sql():
    assert of_tuples([("a`b", "=", "x' OR '1'='1")]) == "(`a``b` = 'x\\' OR \\'1\\'=\\'1')"
    with pytest.raises(BadRequest):
        of_tuples([("a", "=", object())])


@pytest.mark.parametrize(
    "name", ["toDF", "load_as_version", "restoreToVersion", "file_uris", "forPath", "metadata"]
)
def test_names_of_others_say_what_to_call(people, name):
    with pytest.raises(AttributeError, match=r"call |Delvec does not support this yet"):
        getattr(people, name)
    assert not hasattr(people, name)


def test_write_deltalake_says_what_to_call():
    with pytest.raises(AttributeError, match="append"):
        delvec.write_deltalake  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        delvec.nonsense  # noqa: B018


def test_only_what_means_the_same_is_taken_from_polars():
    schema = schema_from(
        pa.schema([("id", pa.int64()), ("s", pa.string()), ("d", pa.date32()), ("x", pa.float32())])
    )
    column = pl.col("id")
    cases = [
        (column > 3, "`id` > 3"),
        ((column == 3) & (pl.col("s") == "it's"), "`id` = 3 AND `s` = 'it\\'s'"),
        (pl.col("d") >= dt.date(2024, 1, 1), "`d` >= CAST('2024-01-01' AS DATE)"),
        (pl.col("s").is_not_null() & pl.col("id").is_null(), "`s` IS NOT NULL AND `id` IS NULL"),
        ((column > 3) & (pl.col("x") > 0.1), "`id` > 3"),
        (pl.col("x") > 1, None),
        ((column > 3) | (column < 1), None),
        (column + 1 > 3, None),
        (pl.col("s") > 3, None),
        (pl.lit(3) > column, None),
        (column.map_elements(bool, return_dtype=pl.Boolean), None),
    ]
    for expression, condition in cases:
        assert of_polars(expression, schema) == condition


def test_a_lazyframe_reads_what_the_query_needs(lake, tmp_path, monkeypatch):
    table = lake.create_table(tmp_path / "t", "id long, name string, x double")
    for start in (0, 100):
        table.append([{"id": start + each, "name": f"n{each}", "x": each / 2} for each in range(10)])
    table.delete("id in (3, 104)")
    frame = table.to_lazyframe()
    table.append([{"id": 1000, "name": "later", "x": 0.0}])  # the version is pinned

    read = []
    real = Rows.to_batches

    def to_batches(self):
        read.append((self.schema.names, len(self.files())))
        return real(self)

    monkeypatch.setattr(Rows, "to_batches", to_batches)
    assert frame.collect().height == 18
    assert frame.select(pl.len()).collect().item() == 18
    assert frame.filter(pl.col("id") >= 100).select(pl.col("x").sum()).collect().item() == 20.5
    assert read[-1] == (["id", "x"], 1)
    assert frame.filter(pl.col("x") > 4.1).select("id").collect().to_series().sort().to_list() == [9, 109]
    assert frame.filter(pl.col("id") > 5).head(2).collect().height == 2
    assert frame.head(3).collect().height == 3
    assert frame.group_by("name").agg(pl.len().alias("n")).filter(pl.col("n") == 1).collect().height == 2
    assert frame.join(frame, on="id").collect().height == 18
    assert table.to_lazyframe(version=1).select(pl.len()).collect().item() == 10


@pytest.mark.parametrize("name", ["executeCompaction", "executeZOrderBy", "where"])
def test_the_builder_of_optimize_says_what_to_call(people, name):
    with pytest.raises(AttributeError, match=r"call table\.optimize"):
        getattr(people.optimize, name)


def test_maintenance_as_deltalake_calls_it(by_country, tmp_path):
    people = by_country
    filters = [("country", "=", "AU")]
    for command in (people.optimize, people.optimize.compact):
        ours = command("country = 'AU'", dry_run=True)
        assert command(partition_filters=filters, dry_run=True).bins == ours.bins
        assert command(partition_filters=filters, max_spill_size=2**28, dry_run=True).bins == ours.bins
    ours = people.optimize.z_order(["id"], "country = 'AU'", dry_run=True)
    assert people.optimize.z_order(["id"], filters, dry_run=True).bins == ours.bins
    assert people.optimize.z_order(["id"], partition_filters=filters, dry_run=True).bins == ours.bins
    stray = tmp_path / "by_country" / "stray.parquet"
    stray.touch()
    os.utime(stray, (0, 0))
    assert people.vacuum(dry_run=True, full=True)["files"] == ["stray.parquet"]
    assert people.vacuum(dry_run=True, full=False)["files"] == []  # it lists nothing


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda t: t.optimize.compact(min_commit_interval=60), TypeError, "give commit_bytes="),
        (lambda t: t.optimize.compact(max_concurrent_tasks=2), TypeError, "give max_memory="),
        (lambda t: t.optimize.z_order(["id"], writer_properties=None), TypeError, "give target_size="),
        (lambda t: t.optimize(nonsense=1), TypeError, r"table.optimize\(\) has no argument 'nonsense'$"),
        (lambda t: t.optimize(max_memory=2**28, max_spill_size=2**28), BadRequest, "not both"),
        (
            lambda t: t.optimize(partition_filters="country = 'AU'"),
            BadRequest,
            "filters must be a list of tuples",
        ),
        (lambda t: t.vacuum(commit_properties=None), TypeError, "has no argument 'commit_properties'"),
        (lambda t: t.vacuum(full=True, mode="lite"), BadRequest, "full=True is mode='full'"),
    ],
)
def test_arguments_of_maintenance_that_are_called_otherwise_here(people, call, error, said):
    with pytest.raises(error, match=said):
        call(people)
    assert people.version() == 1
