"""``import_iceberg()``, ``CONVERT TO DELTA iceberg``, ``delvec iceberg import``: an Iceberg table becomes a Delta table."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import deltalake
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import DoubleType, LongType, StringType
from tests.support import iceberg_by_hand as iceberg
from tests.support.checked import assert_sound
from tests.support.iceberg_tables import iceberg_table

import delvec
from delvec.cli import main

MOMENT = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
COLUMNS = {
    "id": pa.array([1, 2, None], pa.int64()),
    "n": pa.array([-3, 4, 5], pa.int32()),
    "d": pa.array(
        [Decimal("-1.10"), None, Decimal("12345678901234567890123456789012345.25")], pa.decimal128(38, 2)
    ),
    "t": pa.array([MOMENT, None, None], pa.timestamp("us", "UTC")),
    "w": pa.array([MOMENT.replace(tzinfo=None), None, None], pa.timestamp("us")),
    "day": pa.array([date(2026, 1, 31)] * 3, pa.date32()),
    "s": pa.array(["x" * 40, "ä", None]),
    "f": pa.array([1.0, float("nan"), None]),
    "g": pa.array([1.0, -0.5, None], pa.float32()),
    "b": pa.array([b"a", None, b"c"]),
    "x": pa.array([b"1234", None, b"5678"], pa.binary(4)),
    "o": pa.array([True, None, False]),
    "st": pa.array([{"a": 1, "l": [{"k": "v"}]}, None, {"a": 7, "l": None}]),
    "m": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
}


def numbers(folder, files=3):
    """Write ``files`` files of ten rows each."""
    table = iceberg.create(folder, pa.schema([("id", pa.int64()), ("name", pa.string())]))
    for file in range(files):
        ids = list(range(10 * file, 10 * file + 10))
        table.append(pa.table({"id": ids, "name": [f"n{each}" for each in ids]}))
    return iceberg.publish(table)


def paths(folder):
    """Return the data files in the order of their least id."""
    found = {
        each["file_path"]: pq.read_table(each["file_path"][len("file://") :])
        for each in iceberg.data_files(folder)
    }
    return sorted(found, key=lambda path: found[path]["id"][0].as_py())


def actions(folder):
    return [json.loads(line) for line in (folder / "_delta_log" / f"{0:020}.json").read_text().splitlines()]


def adds(folder):
    return [action["add"] for action in actions(folder) if "add" in action]


def metadata(folder):
    [found] = [action["metaData"] for action in actions(folder) if "metaData" in action]
    return found


def by_deltalake(folder):
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(folder)))
    return pa.table(query.execute("SELECT * FROM t").read_all())


def test_every_type_and_its_statistics(lake, tmp_path):
    written = iceberg.create(tmp_path / "t", pa.table(COLUMNS).schema)
    written.append(pa.table(COLUMNS))
    folder = iceberg.publish(written)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    table = lake.import_iceberg(folder)

    assert table.version() == 0
    assert table.to_arrow().to_pylist()[0] == iceberg.rows(folder).to_pylist()[0]
    assert [row["st"] for row in table.to_arrow().to_pylist()] == iceberg.rows(folder)["st"].to_pylist()
    assert all(path.read_bytes() == data for path, data in before.items())
    [add] = adds(folder)
    found = json.loads(add["stats"])
    assert (found["numRecords"], found["tightBounds"]) == (3, False)
    assert found["minValues"]["id"] == 1
    assert (found["minValues"]["t"], found["maxValues"]["t"]) == (
        "2026-01-31T12:00:00.123Z",
        "2026-01-31T12:00:00.124Z",
    )
    assert found["minValues"]["s"] == "x" * 16
    assert "f" not in found["minValues"]  # a NaN may be there
    assert '"d":12345678901234567890123456789012345.25' in add["stats"]
    assert found["nullCount"]["id"] == 1
    assert found["nullCount"]["st"] == {"a": 1}
    assert list(table.scan(predicate="id > 2").files()) == []
    assert_sound(folder)


def test_position_deletes_become_deletion_vectors(lake, tmp_path):
    folder = numbers(tmp_path / "t")
    first, second, third = paths(folder)
    iceberg.delete_positions(folder, {first: [0, 9], second: [5]})
    iceberg.delete_positions(folder, {first: [4], third: list(range(10))})

    table, done = lake.run_import_iceberg(folder)

    want = sorted(iceberg.rows(folder)["id"].to_pylist())
    assert len(want) == 16
    assert sorted(table.to_arrow()["id"].to_pylist()) == want
    assert sorted(by_deltalake(folder)["id"].to_pylist()) == want
    assert dict(done) == {"numConvertedFiles": 2, "numDeletionVectorsAdded": 2, "numDeletedRows": 4}
    assert {add["deletionVector"]["cardinality"] for add in adds(folder)} == {3, 1}
    assert all(not add["path"].startswith(("/", "file:")) for add in adds(folder))
    table.delete("id = 1")
    assert sorted(table.to_arrow()["id"].to_pylist()) == [each for each in want if each != 1]
    assert_sound(folder)


def test_deletion_vectors_of_version_3(lake, tmp_path):
    folder = numbers(tmp_path / "t")
    first, _, third = paths(folder)
    iceberg.delete_positions(folder, {first: [0, 9]})
    iceberg.delete_by_vectors(folder, {first: [0, 1, 9], third: [3]})

    table = lake.import_iceberg(folder)

    want = sorted(iceberg.rows(folder)["id"].to_pylist())
    assert len(want) == 26
    assert sorted(table.to_arrow()["id"].to_pylist()) == want
    assert sorted(by_deltalake(folder)["id"].to_pylist()) == want


def test_deletes_are_of_older_rows_only(lake, tmp_path):
    folder = numbers(tmp_path / "t", 1)
    [path] = paths(folder)
    iceberg.delete_positions(folder, {path: [0]})
    found = iceberg.newest_metadata(folder)
    [manifest] = [each for each in iceberg._manifests(found) if each["content"] == 1]
    schema, entries, header = iceberg._read(manifest["manifest_path"])
    for entry in entries:
        entry["sequence_number"] = 0
    kept = {key: value for key, value in header.items() if not key.startswith("avro.")}
    iceberg._write(Path(manifest["manifest_path"][len("file://") :]), schema, entries, kept)
    assert lake.import_iceberg(folder).count() == 10


def test_partition_values(lake, tmp_path):
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("p", pa.string())])
    written = iceberg.create(tmp_path / "t", schema)
    with written.update_spec() as change:
        change.add_identity("day")
        change.add_identity("p")
    values = {
        "id": [1, 2, 3],
        "day": [date(2026, 1, 31), None, date(1969, 12, 31)],
        "p": ["a b%2F/ü=", "x", None],
    }
    written.append(pa.table(values, schema=schema))
    folder = iceberg.publish(written)

    table = lake.import_iceberg(folder)

    assert table.to_arrow().sort_by("id").to_pydict() == values
    assert metadata(folder)["partitionColumns"] == ["day", "p"]
    assert sorted(by_deltalake(folder)["id"].to_pylist()) == [1, 2, 3]
    assert len(list(table.scan(predicate="day = DATE'1969-12-31'").files())) == 1
    assert_sound(folder)


def test_a_partition_value_that_reads_as_null_makes_no_partition(lake, tmp_path):
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    written = iceberg.create(tmp_path / "t", schema)
    with written.update_spec() as change:
        change.add_identity("p")
    written.append(pa.table({"id": [1, 2], "p": ["", "x"]}, schema=schema))
    folder = iceberg.publish(written)
    table = lake.import_iceberg(folder)
    assert metadata(folder)["partitionColumns"] == []
    assert sorted(table.to_arrow()["p"].to_pylist()) == ["", "x"]


def test_columns_that_changed(lake, tmp_path):
    """Columns renamed, dropped, re-added under an old name, and widened: field ids identify them."""
    schema = pa.schema(
        [("id", pa.int32()), ("name", pa.string()), ("x", pa.float32()), ("gone", pa.string())]
    )
    written = iceberg.create(tmp_path / "t", schema)
    written.append(pa.table({"id": [1], "name": ["a"], "x": [1.5], "gone": ["old"]}, schema=schema))
    with written.update_schema() as change:
        change.rename_column("name", "label")
        change.update_column("id", LongType())
        change.update_column("x", DoubleType())
        change.delete_column("gone")
    with written.update_schema() as change:
        change.add_column("gone", StringType())
    written.append(pa.table({"id": [2], "label": ["b"], "x": [2.5], "gone": ["new"]}))
    folder = iceberg.publish(written)

    table = lake.import_iceberg(folder)

    assert table.to_arrow().sort_by("id").to_pydict() == {
        "id": [1, 2],
        "label": ["a", "b"],
        "x": [1.5, 2.5],
        "gone": [None, "new"],
    }
    assert metadata(folder)["configuration"]["delta.columnMapping.mode"] == "id"
    fields = {
        each["name"]: each["metadata"] for each in json.loads(metadata(folder)["schemaString"])["fields"]
    }
    assert fields["id"]["delta.typeChanges"] == [{"fromType": "integer", "toType": "long"}]
    assert [each["delta.columnMapping.id"] for each in fields.values()] == [1, 2, 3, 5]
    table.append(pa.table({"id": [3], "label": ["c"], "x": [0.0], "gone": ["more"]}))
    table.delete("label = 'a'")
    assert table.to_arrow().sort_by("id")["label"].to_pylist() == ["b", "c"]
    assert_sound(folder)


def test_elements_keys_and_values_keep_their_ids(lake, tmp_path):
    """Iceberg's readers for Java find them by id in files that have ids."""
    schema = pa.schema(
        [("id", pa.int64()), ("l", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.list_(pa.int32())))]
    )
    rows = [{"id": 1, "l": [1, None], "m": [("k", [7])]}]
    written = iceberg.create(tmp_path / "t", schema)
    written.append(pa.Table.from_pylist(rows, schema))
    before = {each.name: each.field_type for each in written.schema().fields}

    table = lake.import_iceberg(iceberg.publish(written))
    table.append(pa.Table.from_pylist([{"id": 2, "l": [3], "m": []}], schema))
    table.alter.add_columns("later string")

    after = {each.name: each.field_type for each in iceberg_table(table.to_iceberg()).schema().fields}
    assert after["l"].element_id == before["l"].element_id
    assert (after["m"].key_id, after["m"].value_id) == (before["m"].key_id, before["m"].value_id)
    assert after["m"].value_type.element_id == before["m"].value_type.element_id
    assert table.to_arrow(columns=["id", "l"]).sort_by("id")["l"].to_pylist() == [[1, None], [3]]
    assert_sound(tmp_path / "t")


def test_files_without_field_ids_go_by_the_name_mapping(lake, tmp_path):
    written = iceberg.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("name", pa.string())]))
    written.append(pa.table({"id": [1], "name": ["a"]}))
    plain = tmp_path / "t" / "plain.parquet"
    pq.write_table(pa.table({"name": ["b"], "id": [2]}), plain)
    written.add_files([f"file://{plain}"])
    folder = iceberg.publish(written)
    table = lake.import_iceberg(folder)
    assert table.to_arrow().sort_by("id").to_pydict() == {"id": [1, 2], "name": ["a", "b"]}
    assert metadata(folder)["configuration"]["delta.columnMapping.mode"] == "name"

    with written.update_schema() as change:
        change.rename_column("name", "label")
    written.append(pa.table({"id": [3], "label": ["c"]}))
    iceberg.publish(written)
    with pytest.raises(delvec.UnsupportedOperation, match=r"plain\.parquet' has no field ids"):
        lake.import_iceberg(folder, tmp_path / "other")


def test_elsewhere_the_log_names_the_files_where_they_are(lake, tmp_path):
    folder = numbers(tmp_path / "a b%20ü")
    iceberg.delete_positions(folder, {paths(folder)[0]: [0]})
    newest = folder / "metadata" / "v2.metadata.json"
    table = lake.import_iceberg(newest, tmp_path / "delta", name="people")
    assert (table.name, table.count()) == ("people", 29)
    assert not (folder / "_delta_log").exists()
    assert all(
        add["path"].startswith(f"file:{tmp_path}/a%20b%2520ü/data/") for add in adds(tmp_path / "delta")
    )
    assert sorted(by_deltalake(tmp_path / "delta")["id"].to_pylist()) == list(range(1, 30))
    table.delete("id = 29")
    assert table.clone(tmp_path / "clone", shallow=True).count() == 28


def test_without_roots_metadata_names_only_files_of_its_table(lake, tmp_path):
    """What a stranger's metadata names elsewhere would be copied into the table by the next UPDATE."""
    private = numbers(tmp_path / "private")
    folder = numbers(tmp_path / "t")
    metadata_file = folder / "metadata" / "v1.metadata.json"
    hostile = json.loads(metadata_file.read_text())
    theirs = json.loads((private / "metadata" / "v1.metadata.json").read_text())
    hostile |= {
        name: theirs[name] for name in ("snapshots", "current-snapshot-id", "snapshot-log") if name in theirs
    }
    metadata_file.write_text(json.dumps(hostile))
    for place in (None, tmp_path / "delta"):
        with pytest.raises(delvec.LocationNotAllowed, match="DELVEC_ROOTS"):
            lake.import_iceberg(folder, place)
    assert not (folder / "_delta_log").exists()


def test_one_door_after_the_other(lake, tmp_path, capsys, monkeypatch):
    folder = numbers(tmp_path / "t")
    assert lake.sql(f"CONVERT TO DELTA iceberg.`{folder}`")["numConvertedFiles"] == 3
    assert lake.run_import_iceberg(folder)[1].version is None
    assert lake.table(folder).history()[0]["operation"] == "CONVERT"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(SystemExit) as left:
        main(["--json", "iceberg", "import", str(folder), str(tmp_path / "shell"), "--property", "a=b"])
    assert left.value.code == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["numConvertedFiles"] == 3
    assert metadata(tmp_path / "shell")["configuration"]["a"] == "b"
    with pytest.raises(SystemExit) as left:
        main(["iceberg", "import", str(folder), str(tmp_path / "again"), "--no-statistics"])
    assert "imported 3 files with 0 deleted rows: table 'again'" in capsys.readouterr().err


def test_a_table_without_snapshots_is_empty(lake, tmp_path):
    folder = iceberg.publish(iceberg.create(tmp_path / "t", pa.schema([("id", pa.int64())])))
    assert lake.import_iceberg(folder).count() == 0


@pytest.mark.parametrize(
    ("kind", "name"),
    [(pa.time64("us"), "time"), (pa.uuid(), "uuid"), (pa.list_(pa.time64("us")), "time")],
)
def test_types_that_delta_does_not_have_are_refused_by_column(lake, tmp_path, kind, name):
    folder = iceberg.publish(iceberg.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("odd", kind)])))
    with pytest.raises(delvec.UnsupportedOperation, match=rf"column 'odd.*' has type {name}"):
        lake.import_iceberg(folder)
    assert not (folder / "_delta_log").exists()


def test_equality_deletes_are_refused(lake, tmp_path):
    folder = numbers(tmp_path / "t")
    iceberg.delete_equal(folder)
    with pytest.raises(delvec.UnsupportedOperation, match="equality deletes") as caught:
        lake.import_iceberg(folder)
    assert caught.value.details["feature"] == "equality-deletes"


def test_defaults_of_older_rows_are_refused(lake, tmp_path):
    folder = numbers(tmp_path / "t")
    found = iceberg.newest_metadata(folder)
    for schema in found["schemas"]:
        schema["fields"][1]["initial-default"] = "?"
    iceberg.write_metadata(folder, found)
    with pytest.raises(delvec.UnsupportedOperation, match="column 'name' has a default"):
        lake.import_iceberg(folder)


def _cut(path):
    path.write_bytes(path.read_bytes()[:-40])


def damaged(kind, folder):
    """Damage one file of a table, of format version 3, whose first file has a deletion vector."""
    puffin = next(folder.glob("data/*.puffin"))
    first = Path(paths(folder)[0][len("file://") :])
    # Not by its name: the identifier of an older snapshot may begin as the newest one's does.
    listed = Path(iceberg.newest_metadata(folder)["snapshots"][-1]["manifest-list"].removeprefix("file://"))
    match kind:
        case "puffin is gone":
            puffin.unlink()
        case "bitmap":
            puffin.write_bytes(puffin.read_bytes()[:20] + b"\xff" + puffin.read_bytes()[21:])
        case "data file is gone":
            first.unlink()
        case "data file grew":
            first.write_bytes(first.read_bytes() + b"x")
        case "manifest list is cut":
            _cut(listed)
        case "manifest list is gone":
            listed.unlink()
        case "metadata is no JSON":
            (folder / "metadata" / "v3.metadata.json").write_text("{")
        case "metadata of another kind":
            (folder / "metadata" / "v3.metadata.json").write_text('{"format-version": 2}')
        case "deep metadata":
            (folder / "metadata" / "v3.metadata.json").write_text("[" * 100_000)


@pytest.mark.parametrize(
    "kind",
    [
        "puffin is gone",
        "bitmap",
        "data file is gone",
        "data file grew",
        "manifest list is cut",
        "manifest list is gone",
        "metadata is no JSON",
        "metadata of another kind",
        "deep metadata",
    ],
)
def test_damaged_tables_are_refused_whole(lake, tmp_path, kind):
    folder = numbers(tmp_path / "t")
    iceberg.delete_by_vectors(folder, {paths(folder)[0]: [1, 2]})
    damaged(kind, folder)
    with pytest.raises(delvec.InvalidTableChange, match="cannot be imported"):
        lake.import_iceberg(folder)
    assert not (folder / "_delta_log").exists()
    assert not list(folder.glob("deletion_vector_*"))


@pytest.mark.parametrize(
    "changes",
    [
        {"timestamp-ms": 10**30},
        {"timestamp-ms": -1},
        {"timestamp-ms": float("inf")},
        {"last-column-id": 2**31},
        {"last-column-id": -1},
    ],
)
def test_numbers_that_no_log_can_have_are_refused(lake, tmp_path, changes):
    """Before, the table was written, and nobody could read its log."""
    folder = numbers(tmp_path / "t", files=1)
    found = iceberg.newest_metadata(folder)
    for snapshot in found["snapshots"]:
        snapshot |= {name: value for name, value in changes.items() if name in snapshot}
    found |= {name: value for name, value in changes.items() if name in found}
    iceberg.write_metadata(folder, found)
    path = folder / "metadata" / "v2.metadata.json"
    path.write_text(path.read_text().replace("Infinity", "1e999"))
    with pytest.raises(
        delvec.InvalidTableChange, match=f"damaged .*{next(iter(changes))}|damaged .*infinity"
    ):
        lake.import_iceberg(folder)
    assert not (folder / "_delta_log").exists()


def test_a_manifest_that_is_listed_again_is_read_once(lake, tmp_path):
    folder = numbers(tmp_path / "t", files=1)
    [listed] = (folder / "metadata").glob("snap-*.avro")
    schema, manifests, header = iceberg._read(f"file://{listed}")
    kept = {name: value for name, value in header.items() if not name.startswith("avro.")}
    iceberg._write(listed, schema, manifests * 20_000, kept)
    with pytest.raises(delvec.InvalidTableChange, match="19999 manifests twice"):
        lake.import_iceberg(folder)


@pytest.mark.parametrize("which", ["snap-*.avro", "*-m0.avro"])
def test_a_manifest_of_records_without_fields_is_refused(lake, tmp_path, which):
    folder = numbers(tmp_path / "t", files=1)
    [path] = (folder / "metadata").glob(which)
    iceberg._write(path, {"type": "string"}, ["a"], {})
    with pytest.raises(delvec.InvalidTableChange, match="cannot be read as Avro"):
        lake.import_iceberg(folder)


def test_a_column_id_that_is_no_number_is_refused(lake, tmp_path):
    folder = numbers(tmp_path / "t", files=1)
    newest = max((folder / "metadata").glob("v*.metadata.json"))
    found = json.loads(newest.read_text())
    found["schemas"][0]["fields"][0]["id"] = "first"
    newest.write_text(json.dumps(found))
    with pytest.raises(delvec.InvalidTableChange, match="is damaged"):
        lake.import_iceberg(folder)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"record_count": 7}, "marks 2 rows, not 7"),
        ({"content_size_in_bytes": 1 << 40}, "is invalid"),
        ({"content_offset": -4}, "is invalid"),
        ({"referenced_data_file": None}, "is invalid"),
    ],
)
def test_deletion_vectors_that_their_manifest_lies_about(lake, tmp_path, changes, problem):
    folder = numbers(tmp_path / "t")
    iceberg.delete_by_vectors(folder, {paths(folder)[0]: [1, 2]}, **changes)
    with pytest.raises(delvec.InvalidTableChange, match=problem):
        lake.import_iceberg(folder)


def test_rows_beyond_a_file_are_refused(lake, tmp_path):
    folder = numbers(tmp_path / "t")
    iceberg.delete_positions(folder, {paths(folder)[0]: [3, 10]})
    with pytest.raises(delvec.InvalidTableChange, match=r"row 10 of .* which only has 10 rows"):
        lake.import_iceberg(folder)


def test_files_outside_the_roots_are_refused(tmp_path):
    folder = numbers(tmp_path / "inside")
    outside = tmp_path / "outside.parquet"
    written = iceberg.create(tmp_path / "roots" / "t", pa.schema([("id", pa.int64())]))
    pq.write_table(pa.table({"id": [1]}), outside)
    written.add_files([f"file://{outside}"])
    there = iceberg.publish(written)
    with delvec.connect(tmp_path / "roots", roots=[tmp_path / "roots"]) as lake:
        with pytest.raises(delvec.LocationNotAllowed, match=r"outside\.parquet is outside the roots"):
            lake.import_iceberg(there)
        with pytest.raises(delvec.LocationNotAllowed):
            lake.import_iceberg(folder, tmp_path / "roots" / "other")
        (there / "metadata" / "version-hint.text").write_text("1/../../../inside/metadata/v1")
        with pytest.raises(delvec.BadRequest, match="which is not a version"):
            lake.import_iceberg(there)


def test_the_newest_metadata_is_read(lake, tmp_path):
    folder = numbers(tmp_path / "t")
    iceberg.delete_positions(folder, {paths(folder)[0]: [0]})
    (folder / "metadata" / "version-hint.text").write_text("1")  # a writer died before it wrote 2
    assert lake.import_iceberg(folder).count() == 29
    (folder / "metadata" / "version-hint.text").write_text("7")
    with pytest.raises(delvec.BadRequest, match=r"metadata/v7\.metadata\.json does not exist"):
        lake.import_iceberg(folder, tmp_path / "other")
    (folder / "metadata" / "version-hint.text").unlink()
    with pytest.raises(delvec.BadRequest, match="only the table's catalog knows"):
        lake.import_iceberg(folder, tmp_path / "other")


def test_a_manifest_of_another_schema_is_refused(lake, tmp_path):
    folder = numbers(tmp_path / "t")
    listed = iceberg._current(iceberg.newest_metadata(folder))["manifest-list"][len("file://") :]
    schema = {"type": "record", "name": "r", "fields": [{"name": "manifest_path", "type": "string"}]}
    with Path(listed).open("wb") as file:
        fastavro.writer(file, schema, [{"manifest_path": str(folder / "metadata" / "v1.metadata.json")}])
    with pytest.raises(delvec.InvalidTableChange, match="cannot be read as Avro"):
        lake.import_iceberg(folder)


def test_tables_of_format_version_1(lake, tmp_path):
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    written = iceberg.create(tmp_path / "t", schema, properties={"format-version": "1"})
    written.append(pa.table({"id": [1, 2], "p": ["a", "b"]}, schema=schema))
    written.append(pa.table({"id": [3], "p": [None]}, schema=schema))
    folder = iceberg.publish(written)
    assert iceberg.newest_metadata(folder)["format-version"] == 1
    assert lake.import_iceberg(folder).to_arrow().sort_by("id").to_pydict() == {
        "id": [1, 2, 3],
        "p": ["a", "b", None],
    }


def test_what_delvec_publishes_comes_back(lake, tmp_path):
    table = lake.create_table(
        tmp_path / "t", pa.schema([("id", pa.int64()), ("day", pa.date32())]), partition_by=["day"]
    )
    table.append(pa.table({"id": [1, 2, 3], "day": [date(2026, 1, 31), date(2026, 1, 31), None]}))
    table.delete("id = 2")
    for version in (2, 3):
        published = table.to_iceberg(format_version=version)
        location = (
            published["metadata-location"] if isinstance(published, dict) else published.metadata_location
        )
        source, back = location[len("file://") :], tmp_path / f"back{version}"
        with pytest.raises(delvec.LocationNotAllowed, match="DELVEC_ROOTS"):
            lake.import_iceberg(source, back)  # the data files are above the directory of the metadata
        with delvec.connect(database_url="sqlite://", roots=[tmp_path]) as named:
            found = named.import_iceberg(source, back).to_arrow().sort_by("id")
        assert found.to_pydict() == {"id": [1, 3], "day": [date(2026, 1, 31), None]}
