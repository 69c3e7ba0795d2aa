"""The change data feed of logs of any writer, on each engine: rows, change types and versions."""

import datetime as dt
import json
import os
import pickle
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from tests.support.typed_files import FORMS, annotate, nested, write_form

import delvec
from delvec_commands.change_feed import change_scans
from delvec_commands.change_feed import feed as changes_command
from delvec_kernel.deletion_vectors.deletion_vector import inline
from delvec_kernel.schema.types import PrimitiveType, StructField, StructType, data_type_from_json

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")

SCHEMA = StructType.from_arrow(pa.schema([("id", pa.int64()), ("place", pa.string())]))
WIDER = StructType.from_arrow(pa.schema([("id", pa.int64()), ("place", pa.string()), ("extra", pa.string())]))
FEATURES = ["changeDataFeed", "deletionVectors"]
FEED = ["_change_type", "_commit_version", "_commit_timestamp"]


class Log:
    """Writes versions one by one, one second apart."""

    START = 1_700_000_000

    def __init__(self, folder):
        self.folder = folder
        self.version = -1
        (folder / "_delta_log").mkdir(parents=True)

    def commit(self, *actions, stamp=None):
        self.version += 1
        path = self.folder / "_delta_log" / f"{self.version:020}.json"
        info = {"operation": "TEST"} | ({} if stamp is None else {"inCommitTimestamp": stamp})
        if not any("commitInfo" in action for action in actions):
            actions = ({"commitInfo": info}, *actions)
        path.write_text("".join(json.dumps(action) + "\n" for action in actions))
        os.utime(path, (self.START + self.version,) * 2)

    def file(self, name, ids, *, place="x", **columns):
        """Write a data file; return its entry, for adds and removes."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64()), **columns}), path)
        stats = {"numRecords": len(ids), "minValues": {"id": min(ids)}, "maxValues": {"id": max(ids)}}
        entry = {"path": name, "partitionValues": {"place": place}, "size": path.stat().st_size}
        return entry | {"modificationTime": 1, "stats": json.dumps(stats | {"nullCount": {"id": 0}})}


def metadata(schema=SCHEMA, **properties):
    configuration = {
        "delta.enableChangeDataFeed": "true",
        "delta.enableDeletionVectors": "true",
        **properties,
    }
    return {
        "metaData": {
            "id": "1",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(schema.to_json()),
            "partitionColumns": ["place"],
            "configuration": {name: value for name, value in configuration.items() if value},
        }
    }


def created(folder, *actions, **properties):
    log = Log(folder)
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}
    log.commit({"protocol": protocol | {"writerFeatures": FEATURES}}, metadata(**properties), *actions)
    return log


def vector(*rows):
    return {"deletionVector": inline(BitMap64(rows)).to_json()} if rows else {}


def add(entry, *rows, change=True):
    return {"add": entry | {"dataChange": change} | vector(*rows)}


def remove(entry, *rows, change=True):
    gone = {"dataChange": change, "deletionTimestamp": 1, "extendedFileMetadata": True}
    return {"remove": entry | gone | vector(*rows)}


def short(rows):
    """Rows as (version, kind, id), sorted."""
    return sorted(
        zip(*(rows[name].to_pylist() for name in ("_commit_version", "_change_type", "id")), strict=True)
    )


def moment(version):
    return dt.datetime.fromtimestamp(Log.START + version, dt.UTC).isoformat(sep=" ")


def expected(version, kind, *ids):
    return [(version, kind, each) for each in ids]


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """A table with a version of each kind; returns its folder and its changes."""
    log = created(tmp_path_factory.mktemp("changes") / "table")
    a, b = log.file("a.parquet", range(10)), log.file("b.parquet", range(10, 14), place="y")
    changes = []
    log.commit(add(a), add(b))
    changes += expected(1, "insert", *range(14))
    log.commit(remove(a), add(a, 1, 2), remove(b), add(b, 0))  # first deletion vectors
    changes += expected(2, "delete", 1, 2, 10)
    log.commit(remove(a, 1, 2), add(a, 1, 2, 5))  # a grown deletion vector
    changes += expected(3, "delete", 5)
    log.commit(remove(a, 1, 2, 5), add(a, 2, 7))  # restored and deleted rows
    changes += expected(4, "delete", 7) + expected(4, "insert", 1, 5)
    log.commit(remove(a, 2, 7), add(a))  # a dropped deletion vector
    changes += expected(5, "insert", 2, 7)
    log.commit(remove(b, 0))  # a removed file with a deletion vector
    changes += expected(6, "delete", 11, 12, 13)
    log.commit(add(b, 0, 3))  # the file again, with another deletion vector
    changes += expected(7, "insert", 11, 12)
    c = log.file("c.parquet", [100])
    cdc = log.file("_change_data/cdc.parquet", [1, 100], _change_type=["update_preimage", "update_postimage"])
    log.commit(remove(a), add(a, 1), add(c), {"cdc": cdc | {"dataChange": False}})  # change files win
    changes += [(8, "update_preimage", 1), (8, "update_postimage", 100)]
    d = log.file("d.parquet", [11, 12], place="y")
    log.commit(remove(b, 0, 3, change=False), add(d, change=False))  # OPTIMIZE
    log.commit(metadata(WIDER))
    e = log.file("e.parquet", [200], extra=["new"])
    log.commit(add(e))
    changes += expected(11, "insert", 200)
    merge = {"operation": "MERGE", "operationMetrics": {}}
    merge["operationMetrics"] |= dict.fromkeys(
        ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"), "0"
    )
    f = log.file("f.parquet", [200], extra=["new"])
    log.commit({"commitInfo": merge}, remove(e), add(f))  # a MERGE that changed nothing
    return log.folder, sorted(changes)


@pytest.mark.gate
def test_each_kind_of_change_is_told_once(lake, engine, everything):
    folder, changes = everything
    found = lake.table(str(folder), engine=engine).changes(0)
    assert short(found) == changes
    assert found.column_names == ["id", "place", "extra", *FEED]
    row = found.filter(pa.compute.equal(found["_commit_version"], 11)).to_pylist()
    moment = dt.datetime.fromtimestamp(Log.START + 11, dt.UTC)
    assert row[0]["extra"] == "new"
    assert row[0]["place"] == "x"
    assert row[0]["_commit_timestamp"].astimezone(dt.UTC) == moment
    assert set(found["extra"].to_pylist()) == {"new", None}


def test_a_range_by_versions_or_times_and_columns_and_conditions(lake, engine, everything):
    folder, changes = everything
    table = lake.table(str(folder), engine=engine)
    assert short(table.changes(2, 3)) == [row for row in changes if row[0] in (2, 3)]
    moments = [dt.datetime.fromtimestamp(Log.START + each, dt.UTC) for each in (3.5, 5.5)]
    found = table.changes(start_timestamp=moments[0], end_timestamp=moments[1])
    assert short(found) == [row for row in changes if row[0] in (4, 5)]
    where = "_change_type = 'delete' AND place = 'x' AND _commit_version < 4"
    found = table.changes(0, columns=["_commit_version", "ID"], predicate=where)
    assert found.column_names == ["_commit_version", "id"]
    assert sorted(found["id"].to_pylist()) == [1, 2, 5]
    assert table.changes(8, 8, predicate="_change_type = 'update_postimage'")["id"].to_pylist() == [100]
    assert table.changes(9, 10).num_rows == 0
    assert table.changes(9, 10).column_names == ["id", "place", "extra", *FEED]


@pytest.fixture(scope="module")
def changed_often(tmp_path_factory):
    """Two files whose rows many versions delete and restore; returns the folder and the changes."""
    log = created(tmp_path_factory.mktemp("often") / "table")
    a, b = log.file("a.parquet", range(100)), log.file("b.parquet", range(100, 200), place="y")
    log.commit(add(a), add(b))
    changes = expected(1, "insert", *range(200))
    gone = {"a": set(), "b": set()}
    for version in range(2, 32):
        actions = []
        for name, file, start in (("a", a, 0), ("b", b, 100)):
            if name == "b" and version % 3:
                continue
            went = {version, 60 + version} - gone[name]
            came = {version - 1} & gone[name] if version % 2 else set()
            before, gone[name] = gone[name], (gone[name] | went) - came
            actions += [remove(file, *sorted(before)), add(file, *sorted(gone[name]))]
            changes += expected(version, "delete", *(start + row for row in went))
            changes += expected(version, "insert", *(start + row for row in came))
        log.commit(*actions)
    log.commit(remove(b, *sorted(gone["b"])), add(b))
    changes += expected(32, "insert", *(100 + row for row in gone["b"]))
    return log.folder, sorted(changes)


def test_a_file_that_changed_often_is_read_once(lake, engine, changed_often):
    folder, changes = changed_often
    table = lake.table(str(folder), engine=engine)

    assert short(table.changes(0)) == changes
    plan = changes_command.plan_changes(table._service, table.id, start_version=2)
    assert [sorted(scan.files["path"].to_pylist()) for scan in plan.scans] == [["a.parquet", "b.parquet"]]

    for where, wanted in (
        ("_commit_version > 5 AND id < 50", lambda row: row[0] > 5 and row[2] < 50),
        (
            "place = 'y' AND _change_type = 'insert'",
            lambda row: row[2] >= 100 and row[1] == "insert",
        ),
        (f"_commit_timestamp <= TIMESTAMP '{moment(20)}'", lambda row: row[0] <= 20),
    ):
        assert short(table.changes(0, predicate=where)) == [row for row in changes if wanted(row)], where
    # Even without a column that distinguishes the changes, a row is returned once per change.
    found = table.changes(2, columns=["id"])
    assert sorted(found["id"].to_pylist()) == sorted(id_ for version, _, id_ in changes if version > 1)
    when = {
        (row["_commit_version"], row["_commit_timestamp"].timestamp()) for row in table.changes(2).to_pylist()
    }
    assert when == {(version, Log.START + version) for version in range(2, 33)}


def test_files_of_which_too_many_rows_changed_are_read_for_each_version(
    lake, engine, changed_often, monkeypatch
):
    monkeypatch.setattr(change_scans, "_LOOKED_UP", 50)  # enough for b, too few for a
    folder, changes = changed_often
    table = lake.table(str(folder), engine=engine)
    assert short(table.changes(2, 12)) == [row for row in changes if 2 <= row[0] <= 12]


@pytest.mark.spark
def test_tasks_of_a_stream_read_it_once_too(lake, changed_often):
    from delvec.spark_datasource.input_partitions import cut
    from delvec_engines.spark.file_slices import read_slices

    folder, changes = changed_often
    table = lake.table(str(folder))
    plan = changes_command.plan_changes(table._service, table.id, start_version=2)
    parts = [part for scan in plan.scans for part in cut(scan, ["id", *FEED], 1 << 20)]
    travelled = pickle.loads(pickle.dumps(parts))
    assert sum(len(part.slices) for part in travelled) == 2
    rows = [rows for part in travelled for rows in read_slices(part.read, part.slices)]
    assert short(pa.Table.from_batches(rows)) == [row for row in changes if row[0] > 1]


@pytest.mark.spark
@pytest.mark.full("a frame on Spark; other tests of the gate read frames of changes")
def test_a_data_frame_is_the_same_and_lazy(lake, spark, everything):
    folder, changes = everything
    frame = lake.table(str(folder), engine=spark).changes_df(1, 8, columns=["id", *FEED])
    assert frame.columns == ["id", *FEED]
    found = frame.filter("_commit_version > 3").collect()
    assert sorted((row[2], row[1], row[0]) for row in found) == [row for row in changes if 3 < row[0] < 9]
    assert lake.table(str(folder), engine=spark).changes_df(9, 10).collect() == []


def test_without_spark_there_is_no_data_frame(lake, everything):
    with pytest.raises(delvec.EngineUnavailable, match="lazy DataFrame needs the Spark engine"):
        lake.table(str(everything[0])).changes_df(0)


def test_files_that_cannot_match_are_not_read(lake, tmp_path):
    log = created(tmp_path / "table")
    log.commit(add(log.file("a.parquet", [1])), add(log.file("b.parquet", [2], place="y")))
    log.commit(add(log.file("c.parquet", [30])))
    for name in ("a", "b"):
        (log.folder / f"{name}.parquet").unlink()
    table = lake.table(str(log.folder))
    for where in (
        "id > 10",
        "_commit_version = 2",
        "_commit_timestamp > TIMESTAMP '2023-11-14 22:13:21.5Z'",
        "place > 'z'",
    ):
        assert short(table.changes(1, predicate=where)) in (expected(2, "insert", 30), []), where
    with pytest.raises(delvec.MissingDataFile):
        table.changes(1)


def test_in_commit_timestamps_are_the_times(lake, tmp_path):
    log = created(tmp_path / "table")
    log.commit(add(log.file("a.parquet", [1])), stamp=1_000)
    (found,) = lake.table(str(log.folder)).changes(1).to_pylist()
    assert found["_commit_timestamp"].astimezone(dt.UTC) == dt.datetime.fromtimestamp(1, dt.UTC)


@pytest.mark.parametrize("path", ["../out.parquet", "_change_data/..%2f..%2Fout.parquet"])
def test_change_files_outside_of_the_table_are_refused(lake, tmp_path, path):
    log = created(tmp_path / "table")
    log.commit({"cdc": {"path": path, "partitionValues": {"place": "x"}, "size": 9, "dataChange": False}})
    with pytest.raises(delvec.LocationNotAllowed):
        lake.table(str(log.folder)).changes(1)


def test_ranges_that_are_none(lake, everything):
    table = lake.table(str(everything[0]))
    with pytest.raises(delvec.BadRequest, match="start-version"):
        table.changes()
    with pytest.raises(delvec.BadRequest, match="not both"):
        table.changes(1, start_timestamp="2023-11-14")
    with pytest.raises(delvec.BadRequest, match="before they start"):
        table.changes(3, 2)
    with pytest.raises(delvec.VersionNotFound):
        table.changes(99)
    with pytest.raises(delvec.VersionNotFound):
        table.changes(start_timestamp="2999-01-01")
    with pytest.raises(delvec.VersionNotFound):
        table.changes(1, end_timestamp="1999-01-01")
    assert table.changes(11, 99)["_commit_version"].to_pylist() == [11]
    early = table.changes(start_timestamp="1999-01-01", columns=["id"])
    assert early.num_rows == len(everything[1])
    # Two times between the same two versions are no mistake.
    between = [dt.datetime.fromtimestamp(Log.START + each, dt.UTC) for each in (3.2, 3.4)]
    assert table.changes(start_timestamp=between[0], end_timestamp=between[1]).num_rows == 0
    with pytest.raises(delvec.BadRequest, match="before they start"):
        table.changes(start_timestamp=between[1], end_timestamp=between[0])
    with pytest.raises(delvec.UnknownColumn):
        table.changes(1, columns=["no"])
    with pytest.raises(delvec.InvalidPredicate):
        table.changes(1, predicate="id >")


def test_the_feed_must_be_on_in_the_whole_range(lake, tmp_path):
    off = {"delta.enableChangeDataFeed": ""}
    log = created(tmp_path / "table", **off)
    log.commit(add(log.file("a.parquet", [1])))
    log.commit(metadata())
    log.commit(add(log.file("b.parquet", [2])))
    table = lake.table(str(log.folder))
    with pytest.raises(delvec.ChangeDataNotRecorded) as caught:
        table.changes(1)
    assert caught.value.details["version"] == 1
    assert short(table.changes(2)) == expected(3, "insert", 2)
    log.commit(metadata(**off))
    with pytest.raises(delvec.ChangeDataNotRecorded) as caught:
        table.changes(2)
    assert caught.value.details["version"] == 4
    assert short(table.changes(2, 3)) == expected(3, "insert", 2)


def test_versions_that_other_columns_partition_are_not_read_together(lake, tmp_path):
    """Change files lack the partition columns, which other readers return as NULL."""
    rows = [[{"id": number, "place": place, "extra": "e"}] for number, place in enumerate("abc")]
    properties = {"delta.enableChangeDataFeed": "true"}
    table = lake.create_table(tmp_path / "table", WIDER, partition_by=["place"], properties=properties)
    table.append(rows[0])
    table.overwrite(pa.Table.from_pylist(rows[1]), overwrite_schema=True, partition_by=["extra"])
    table.append(rows[2])
    for start, end in ((1, 2), (1, None), (2, 3), (2, 2)):
        with pytest.raises(delvec.IncompatibleSchemaChange, match="partition"):
            table.changes(start, end)
    read = [table.changes(1, 1, columns=WIDER.names), table.changes(3, columns=WIDER.names)]
    assert [each.to_pylist() for each in read] == [rows[0], rows[2]]


def test_a_removed_file_may_leave_out_partition_values_that_are_null(lake, tmp_path):
    """As delta-spark does, even in a commit with metadata, such as that of a table with an identity column."""
    properties = {"delta.enableChangeDataFeed": "true"}
    table = lake.create_table(tmp_path / "table", WIDER, partition_by=["place"], properties=properties)
    rows = [{"id": number, "place": place, "extra": "e"} for number, place in enumerate((None, "a"))]
    table.append(rows)
    table.delete()
    # The service has its own commits in mind, so that another table gets the other log.
    shutil.copytree(tmp_path / "table", tmp_path / "copy")
    log = tmp_path / "copy" / "_delta_log"
    created, removed = (
        [json.loads(line) for line in (log / f"{version:020}.json").read_text().splitlines()]
        for version in (0, 2)
    )
    for action in removed:
        if "remove" in action:
            values = action["remove"]["partitionValues"]
            action["remove"]["partitionValues"] = {name: value for name, value in values.items() if value}
    assert {} in [action["remove"]["partitionValues"] for action in removed if "remove" in action]
    actions = [*removed, *(action for action in created if "metaData" in action)]
    (log / f"{2:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    read = lake.table(str(log.parent)).changes(2, columns=WIDER.names).to_pylist()
    assert sorted(read, key=lambda row: row["id"]) == rows


def test_a_first_version_may_leave_out_partition_values_that_are_null(lake, tmp_path):
    log = Log(tmp_path / "table")
    entry = log.file("a.parquet", [1])
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}
    file = add(entry | {"partitionValues": {}})
    log.commit({"protocol": protocol | {"writerFeatures": FEATURES}}, metadata(), file)
    read = lake.table(str(log.folder)).changes(0)
    assert (read["id"].to_pylist(), read["place"].to_pylist()) == ([1], [None])


def test_a_schema_that_does_not_fit_is_refused(lake, tmp_path):
    log = created(tmp_path / "table")
    log.commit(add(log.file("a.parquet", [1])))
    text = StructType.from_arrow(pa.schema([("id", pa.string()), ("place", pa.string())]))
    log.commit(metadata(text))
    table = lake.table(str(log.folder))
    with pytest.raises(delvec.IncompatibleSchemaChange) as caught:
        table.changes(1)
    assert caught.value.details["version"] == 1
    assert "Request versions 1 to 1 and 2 to 2 separately" in str(caught.value)
    assert table.changes(2).num_rows == 0


# --- files whose types are not the table's -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ("bytes", "string"),
        ("uint8", "short"),
        ("uint8", "byte"),
        ("int32", "double"),
        ("double", "long"),
        ("date", "timestamp_ntz"),
        ("decimal(9,2) in int32", "decimal(10,3)"),
        ("string", "long"),
    ],
)
def test_files_of_other_types_are_read_exactly_or_refused(lake, engine, tmp_path, form, kind):
    folder = tmp_path / "table"
    log, values = Log(folder), FORMS[form].values
    schema = {"id": PrimitiveType("long"), "v": data_type_from_json(kind)}
    definition = metadata(StructType(tuple(StructField(*each) for each in schema.items())))
    definition["metaData"]["partitionColumns"] = []
    features = [*FEATURES, *(["timestampNtz"] if kind == "timestamp_ntz" else [])]
    reader = [each for each in features if each != "changeDataFeed"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": reader,
        "writerFeatures": features,
    }
    log.commit({"protocol": protocol}, definition)
    file, changes = folder / "a.parquet", folder / "_change_data" / "c.parquet"
    write_form(file, FORMS[form])
    changes.parent.mkdir()
    rows = nested(values).append_column("_change_type", pa.array(["update_postimage"] * len(values)))
    pq.write_table(rows, changes, store_schema=False, use_dictionary=False)
    annotate(changes, FORMS[form].annotation)
    entry = {"path": "a.parquet", "partitionValues": {}, "size": file.stat().st_size, "modificationTime": 1}
    entry["stats"] = json.dumps({"numRecords": len(values)})
    log.commit(add(entry))
    log.commit(remove(entry), add(entry, 0))
    log.commit(remove(entry, 0))
    path = "_change_data/c.parquet"
    change = {"path": path, "partitionValues": {}, "size": changes.stat().st_size, "dataChange": False}
    log.commit({"cdc": change})

    table = lake.table(str(folder), engine=engine)
    expected = FORMS[form].read.get(kind)
    for version, part, name in [
        (1, slice(None), "a.parquet"),
        (2, slice(1), "a.parquet"),
        (3, slice(1, None), "a.parquet"),
        (4, slice(None), path),
    ]:
        if expected is None and (version, form, engine != "duckdb") == (2, "uint8", True):
            # On Spark values are refused, and the only one of this version, 1, is a byte.
            assert table.changes(version, version)["v"].to_pylist() == [1]
        elif expected is None:
            with pytest.raises((delvec.CorruptTable, delvec.UnsupportedTable)) as caught:
                table.changes(version, version)
            assert caught.value.details["file"] == name
        else:
            assert table.changes(version, version).sort_by("id")["v"].to_pylist() == expected[part]
