"""OPTIMIZE that copies row groups: deleted rows are copied and stay deleted, and writers can be concurrent."""

import json
from pathlib import Path
from urllib.parse import unquote, urlparse

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration.engines.optimized_tables import SCHEMA, filled, rows, some

import delvec
from delvec_engines import copy_jobs, copy_plan

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")


@pytest.fixture
def copied(lake, tmp_path):
    """Four files of 100 rows in partition a, two in b; every 50th row is deleted. DuckDB optimizes."""
    return filled(
        lake, tmp_path / "table", files=4, rows_in_file=100, others_from=1000, deleted="id % 50 = 0"
    )


def live_files(table):
    return table.plan(stats=True)[0].files


def folder(table):
    return Path(unquote(urlparse(table.location).path))


@pytest.fixture(params=["driver", "tasks"])
def copier(request, engine):
    """The engine that copies; Spark's driver and its tasks in turn."""
    if engine == "duckdb":
        if request.param == "tasks":
            pytest.skip("DuckDB has no tasks")
        yield engine
        return
    local, before = request.param == "driver", engine.conf.get("spark.delvec.localExecution.enabled", "true")
    engine.conf.set("spark.delvec.localExecution.enabled", str(local).lower())
    with pytest.MonkeyPatch.context() as patch:
        if not local:
            patch.delattr(copy_jobs.LocalCopier, "footers")
            patch.delattr(copy_jobs.LocalCopier, "copy")
        yield engine
    engine.conf.set("spark.delvec.localExecution.enabled", before)


def test_files_become_one_with_their_deleted_rows(lake, copied, copier):
    before, version, engine = rows(copied), copied.version(), copier

    done = lake.table(copied.location, engine=copier).optimize(rewrite="never")

    assert (done["numRemovedFiles"], done["numAddedFiles"], done["numBinsCopied"]) == (6, 2, 2)
    assert done["numDeletionVectorsRemoved"] == 6
    assert rows(lake.table(copied.location, engine=engine)) == before
    assert rows(copied, version=version) == before
    assert copied.check()["num-errors"] == 0
    # No row changed.
    assert copied.changes(version + 1).num_rows == 0
    files = live_files(copied).sort_by("num_records")
    assert files["num_records"].to_pylist() == [200, 400]
    assert [each["cardinality"] for each in files["deletion_vector"].to_pylist()] == [4, 8]
    assert not any(json.loads(each)["tightBounds"] for each in files["stats"].to_pylist())
    metrics = copied.history(1)[0]["operationMetrics"]
    assert (metrics["numDeletionVectorsAdded"], metrics["numDeletionVectorsRemoved"]) == ("2", "6")
    # Statistics and the files' own bounds still find rows.
    assert len(copied.plan(predicate="id = 1123")[0]) == 1
    assert [row["id"] for row in rows(copied, predicate="id = 1123 OR id = 50")] == [1123]
    # Row groups are the old ones.
    paths = [folder(copied) / unquote(path) for path in files["path"].to_pylist()]
    assert [pq.read_metadata(path).num_row_groups for path in paths] == [2, 4]
    assert copied.optimize(rewrite="never").version is None


def test_deltalake_reads_what_has_no_deletion_vector(lake, tmp_path):
    table = lake.create_table(tmp_path / "t", "id long, text string", engine="duckdb")
    for number in range(3):
        table.append(some(number * 10, 10).select(["id", "text"]))
    assert table.optimize(rewrite="never")["numBinsCopied"] == 1
    assert json.loads(live_files(table)["stats"][0].as_py())["tightBounds"]
    path = folder(table) / live_files(table)["path"][0].as_py()
    assert pq.read_table(path)["id"].to_pylist() == list(range(30))
    if "deletionVectors" not in (table.snapshot().protocol.get("readerFeatures") or ()):
        assert deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_table().num_rows == 30


def test_files_of_deltalake(lake, tmp_path):
    """Without arrays: it names their elements otherwise in the first file of a table than in later ones."""
    for number in range(3):
        part = some(number * 100, 100).select(["id", "text"])
        deltalake.write_deltalake(str(tmp_path / "t"), part, mode="append")
    table = lake.table(tmp_path / "t", engine="duckdb")
    before = rows(table)

    assert table.optimize(rewrite="never")["numBinsCopied"] == 1

    assert rows(table) == before
    found = deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_table().sort_by("id").to_pylist()
    assert [row["id"] for row in found] == [row["id"] for row in before]
    assert table.check()["num-errors"] == 0


@pytest.mark.gate
def test_files_of_each_engine_and_dml_on_the_copy(lake, engine, tmp_path):
    """Spark's files have dictionaries, page indexes, and metadata of their own."""
    table = lake.create_table(tmp_path / "t", f"{SCHEMA}, at timestamp", engine=engine)
    for number in range(2):
        with_time = some(number * 100, 100).append_column(
            "at", pa.array([number * 10**12] * 100, pa.timestamp("us", "UTC"))
        )
        table.append(with_time)
    table.delete("id in (3, 150)")
    before = rows(table)

    done = lake.table(table.location, engine="duckdb").optimize(rewrite="never")

    assert done["numBinsCopied"] >= 1
    assert rows(table) == before
    assert [row["id"] for row in rows(table, predicate="id in (3, 4, 150, 151)")] == [4, 151]
    table.delete("id in (4, 151)")
    table.update({"text": "'new'"}, "id = 5")
    expected = [
        {**row, "text": "new"} if row["id"] == 5 else row for row in before if row["id"] not in (4, 151)
    ]
    assert rows(table) == expected
    assert table.optimize.purge()["numRemovedFiles"] >= 1
    assert rows(table) == expected
    assert table.check()["num-errors"] == 0


def test_row_groups_that_are_small_are_written_again(lake, copied, engine):
    planned = copied.optimize(dry_run=True)
    assert all("rewritten: the row groups are small" in reason for reason in planned.reasons)
    table = lake.table(copied.location, engine=engine)
    before = rows(table)
    assert table.optimize()["numBinsCopied"] == 0
    assert rows(table) == before
    assert live_files(table)["deletion_vector"].null_count == 2


def test_large_ones_are_copied_unless_told_otherwise(lake, copied, copier, monkeypatch):
    monkeypatch.setattr(copy_plan, "MIN_GROUP_ROWS", 100)
    copied = lake.table(copied.location, engine=copier)
    before = rows(copied)
    planned = copied.optimize(dry_run=True)
    assert all("row groups of 0.0 MiB on average are copied" in reason for reason in planned.reasons)
    assert planned.gain_bytes == 0
    assert planned.sizes[0][0] == planned.sizes[0][1]
    assert "rewritten" not in str(copied.optimize(dry_run=True, rewrite="always"))
    done = copied.optimize("part = 'a'")
    assert (done["numBinsCopied"], done["numBins"]) == (1, 1)
    assert copied.optimize("part = 'b'", rewrite="always")["numBinsCopied"] == 0
    assert rows(copied) == before


@pytest.mark.parametrize(
    ("prepare", "why", "alike"),
    [
        (lambda table: table.delete("id between 301 and 320"), "more than 5.0% of the rows of a file", 3),
        (lambda table: (table.alter.add_columns("more int"), table.append(wider())), "schemas differ", 4),
        (lambda table: table.alter.drop_columns("text"), "columns that the table does not have", 0),
        (
            lambda table: table.alter.set_properties({"delta.enableDeletionVectors": "false"}),
            "no new deletion vectors",
            0,
        ),
        (lambda table: spoil(table, b"\xff"), "footer of a file cannot be copied", 0),
    ],
)
def test_files_that_are_not_alike_stay_or_are_written_again(copied, prepare, why, alike):
    prepare(copied)
    before = None if "footer" in why else rows(copied)
    where = "part = 'a'"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy_plan, "MIN_GROUP_ROWS", 1)
        assert why in copied.optimize(where, dry_run=True).reasons[0]
        if before is None:
            with pytest.raises(delvec.CorruptTable):
                copied.optimize(where)
            with pytest.raises(delvec.CorruptTable):
                copied.optimize(where, rewrite="never")
            return
        version = copied.version()
        done = copied.optimize(where, rewrite="never")
        assert (done["numRemovedFiles"], done["numBinsCopied"]) == (alike, min(alike, 1))
        assert rows(copied) == before
        assert copied.optimize(where, rewrite="never").version is None
        if alike:
            copied.restore(version)
        # Two small files would be left, and put together by the next run.
        assert copied.optimize(where)["numBinsCopied"] == 0
    assert rows(copied) == before
    assert copied.check()["num-errors"] == 0


@pytest.fixture
def mixed(lake, tmp_path, monkeypatch):
    """Make twelve files, of which deltalake wrote those with these numbers."""
    monkeypatch.setattr(copy_plan, "MIN_GROUP_ROWS", 1)

    def make(*odd):
        schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
        deltalake.write_deltalake(str(tmp_path / "t"), schema.empty_table())
        table = lake.table(tmp_path / "t", engine="duckdb")
        for number in range(12):
            part = some(number * 3000, 400 if number in odd else 3000).select(["id", "text"])
            if number in odd:
                deltalake.write_deltalake(str(tmp_path / "t"), part, mode="append")
            else:
                table.append(part)
        return table, live_files(table).sort_by("modification_time")["size"].to_pylist()

    return make


def test_files_of_two_programs_become_files_of_each(lake, mixed, engine):
    """Two bins, each with one file of another program: the others are copied, and these two are put together."""
    made, sizes = mixed(2, 8)
    table = lake.table(made.location, engine=engine)
    before, half = rows(table), max(sum(sizes[:6]), sum(sizes[6:])) + 10

    planned = table.optimize(target_size=half, dry_run=True)
    assert sorted(map(len, planned.bins)) == [2, 5, 5]
    assert all("are copied" in reason for reason in planned.reasons)
    done = table.optimize(target_size=half)

    assert (done["numRemovedFiles"], done["numAddedFiles"]) == (12, 3)
    assert (done["numBins"], done["numBinsCopied"], done["totalFilesSkipped"]) == (3, 3, 0)
    assert rows(table) == before
    assert table.check()["num-errors"] == 0
    assert table.optimize(target_size=half).version is None


def test_an_odd_file_alone_stays(mixed):
    table, sizes = mixed(2)
    before, size, seen = rows(table), sum(sizes) + 10, []

    done = table.optimize(target_size=size, progress=lambda *each: seen.append(each))

    assert (done["numRemovedFiles"], done["numBinsCopied"], done["totalFilesSkipped"]) == (11, 1, 1)
    assert rows(table) == before
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]
    assert table.optimize(target_size=size).version is None


def test_a_file_with_many_deleted_rows_is_written_again_and_the_others_copied(lake, tmp_path, monkeypatch):
    monkeypatch.setattr(copy_plan, "MIN_GROUP_ROWS", 1)
    table = lake.create_table(tmp_path / "t", "id long, text string", engine="duckdb")
    for number in range(8):
        table.append(some(number * 3000, 3000).select(["id", "text"]))
    table.delete("id between 6000 and 6999 or id = 1")
    before, size = rows(table), sum(live_files(table)["size"].to_pylist()) + 10

    planned = table.optimize(target_size=size, dry_run=True)
    assert sorted(map(len, planned.bins)) == [1, 7]
    done = table.optimize(target_size=size)

    assert (done["numRemovedFiles"], done["numAddedFiles"], done["numBinsCopied"]) == (8, 2, 1)
    assert rows(table) == before
    assert sorted(live_files(table)["num_records"].to_pylist()) == [2000, 21000]
    assert table.optimize(target_size=size).version is None
    assert table.check()["num-errors"] == 0


def footers_read(monkeypatch):
    """Note the paths of the files whose footers are read."""
    real, paths = copy_jobs.read_footers, []

    def read(*arguments, **named):
        found = real(*arguments, **named)
        paths.extend(each.path for each in found)
        return found

    monkeypatch.setattr(copy_jobs, "read_footers", read)
    return paths


@pytest.mark.parametrize("rewrite", ["auto", "never"])
def test_footers_are_read_once(copied, monkeypatch, rewrite):
    monkeypatch.setattr(copy_plan, "MIN_GROUP_ROWS", 1)
    paths = live_files(copied)["path"].to_pylist()
    read = footers_read(monkeypatch)
    assert copied.optimize(rewrite=rewrite)["numBinsCopied"] == 2
    assert sorted(read) == sorted(paths)


def wider():
    return some(400, 5).append_column("more", pa.array(range(5), pa.int32()))


def spoil(table, byte):
    """Corrupt the footer of a file."""
    paths = table.plan(predicate="part = 'a'")[0].files["path"].to_pylist()
    path = folder(table) / unquote(paths[0])
    content = bytearray(path.read_bytes())
    content[-9 - 20 : -9] = byte * 20
    path.write_bytes(content)


def test_a_table_with_row_ids_is_written_again(lake, tmp_path):
    table = lake.create_table(
        tmp_path / "t", "id long", properties={"delta.enableRowTracking": "true"}, engine="duckdb"
    )
    for number in range(2):
        table.append(pa.table({"id": range(number * 4, number * 4 + 4)}))
    assert "tracks rows" in table.optimize(dry_run=True).reasons[0]
    assert table.optimize(rewrite="never").version is None
    assert table.optimize()["numRemovedFiles"] == 2


def test_a_file_that_lies_is_written_again_when_that_shows(copied, monkeypatch):
    """The footer says that a column has other pages than there are; DuckDB may read it nevertheless."""
    real = copy_jobs.read_footers

    def lying(*arguments, **named):
        found = real(*arguments, **named)
        found[0].footer.row_groups[0].chunks[0].num_values += 1
        return found

    before = rows(copied)
    monkeypatch.setattr(copy_jobs, "read_footers", lying)
    with pytest.raises(delvec.CorruptTable, match="lacks values"):
        copied.optimize("part = 'a'", rewrite="never")
    monkeypatch.setattr(copy_plan, "MIN_GROUP_ROWS", 1)
    done = copied.optimize("part = 'a'")
    assert (done["numBins"], done["numBinsCopied"]) == (1, 0)
    assert rows(copied) == before
    assert copied.check()["num-errors"] == 0


def everything(other):
    other.delete("id in (2, 132, 1001)")
    other.delete("id = 4")
    other.update({"text": "'new'"}, "id in (5, 155)")
    merge = other.merge(some(150, 300), "target.id = source.id").when_matched_update({"text": "'m'"})
    merge.when_not_matched_insert_all().execute()
    other.append(some(3000, 3))
    other.delete("part = 'b'")


@pytest.mark.parametrize(
    "change",
    [
        lambda other: other.delete("id in (1, 132, 1001)"),
        lambda other: other.delete("id < 1000"),
        everything,
    ],
)
def test_neither_side_of_a_race_fails(copied, lake, change):
    other = lake.table(copied.location, engine="duckdb")
    real, found = copy_plan.CopyPlan.copy, {}

    def copy(*arguments):
        written = real(*arguments)
        if not found:
            found["rows"] = None
            change(other)
            found["rows"] = rows(other)
        return written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy_plan.CopyPlan, "copy", copy)
        done = copied.optimize(rewrite="never")

    assert rows(copied) == found["rows"]
    assert done.retries == 0
    assert copied.check()["num-errors"] == 0


def test_an_optimize_that_wins_lets_row_changes_pass(copied, lake):
    other = lake.table(copied.location, engine="duckdb")
    real, calls = other.engine.find_rows, []

    def find_rows(*arguments):
        found = real(*arguments)
        if not calls:
            calls.append(1)
            assert copied.optimize(rewrite="never")["numBinsCopied"] == 2
            copied.delete("id in (7, 1102)")
        return found

    expected = [row for row in rows(copied) if row["id"] not in (1, 2, 7, 399, 1001, 1102)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(other.engine, "find_rows", find_rows, raising=False)
        done = other.delete("id in (1, 2, 7, 399, 1001)")
    assert rows(copied) == expected
    assert (done["numDeletedRows"], done.retries) == (4, 0)
    assert copied.check()["num-errors"] == 0


def test_what_is_no_choice(copied):
    with pytest.raises(delvec.BadRequest, match="'auto', 'always' or 'never'"):
        copied.optimize(rewrite="sometimes")


def test_errors_of_copies_name_the_file(lake, copied, copier):
    spoil(copied, b"\xff")
    with pytest.raises(delvec.CorruptTable, match="parquet' cannot be copied"):
        lake.table(copied.location, engine=copier).optimize("part = 'a'", rewrite="never")


def test_versions_before_are_restored(copied):
    before, version = rows(copied), copied.version()
    copied.optimize(rewrite="never")
    copied.delete("id = 1")
    copied.restore(version)
    assert rows(copied) == before
    assert copied.check()["num-errors"] == 0


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
@pytest.mark.full("random histories; the gate has tables of cases")
def test_copies_among_row_changes_keep_the_rows_of_a_model(tmp_path_factory, random):
    """Some of the row changes run between a copy and its commit."""
    with delvec.connect() as lake:
        table = lake.create_table(
            tmp_path_factory.mktemp("random") / "t",
            "id long, text string",
            properties={"delta.enableDeletionVectors": "true"},
        )
        other, model, first = lake.table(table.location), {}, 0

        def change():
            nonlocal first
            what = random.choice(["append", "append", "delete", "update", "whole"])
            if what == "append":
                count = random.randint(1, 60)
                new = {number: f"t{number}" for number in range(first, first + count)}
                other.append(pa.table({"id": list(new), "text": list(new.values())}))
                model.update(new)
                first += count
            elif model and what == "update":
                some_ids = random.sample(sorted(model), min(len(model), random.randint(1, 5)))
                other.update({"text": "concat(text, '!')"}, f"id in ({', '.join(map(str, some_ids))})")
                model.update({each: f"{model[each]}!" for each in some_ids})
            elif model:
                most = 40 if what == "whole" else 4
                start = random.choice(sorted(model))
                other.delete(f"id between {start} and {start + most}")
                for each in range(start, start + most + 1):
                    model.pop(each, None)

        def copy_and_change(*arguments):
            written = real(*arguments)
            for _ in range(random.randint(0, 2)):
                change()
            return written

        real = copy_plan.CopyPlan.copy
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(copy_plan.CopyPlan, "copy", copy_and_change)
            for _ in range(14):
                if random.random() < 0.4:
                    done = table.optimize(rewrite="never", max_deleted_ratio=random.choice([0.05, 0.5, 1.0]))
                    assert done.retries == 0
                else:
                    change()
                found = table.to_arrow()
                assert dict(zip(found["id"].to_pylist(), found["text"].to_pylist(), strict=True)) == model
                assert found.num_rows == len(model)
        assert table.check()["num-errors"] == 0
        table.optimize.purge()
        assert table.count() == len(model)
