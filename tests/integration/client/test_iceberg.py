"""``to_iceberg()`` and ``delvec iceberg``: PyIceberg reads the same rows after every kind of statement."""

import json
import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.iceberg_tables import assert_sound, delta_rows, iceberg_rows, iceberg_table, summary

import delvec
from delvec.cli import main

BOTH = pytest.mark.parametrize("format_version", [2, 3])


@pytest.fixture(params=["plain", "parted"])
def table(lake, tmp_path, request):
    parted = ["p"] if request.param == "parted" else []
    made = lake.create_table(tmp_path / "a b%20c", "id long, p string, x double", partition_by=parted)
    made.append([{"id": n, "p": [None, "a b%1", "ä/=", ""][n % 4], "x": n / 3} for n in range(100)])
    return made


@BOTH
def test_rows_are_deltas_after_every_statement(table, format_version):
    def converted():
        done = table.to_iceberg(format_version=format_version)
        assert done["format-version"] == format_version
        assert iceberg_rows(done) == delta_rows(table)
        assert_sound(table)
        return summary(done) | {"version": done["delta-version"]}

    assert converted()["operation"] == "append"
    table.append([{"id": 200, "p": "new", "x": None}])
    assert converted()["operation"] == "append"
    table.delete("id % 7 = 0")
    first = converted()
    assert (first["operation"], first["total-position-deletes"]) == ("delete", 15)
    table.delete("id % 11 = 0")
    second = converted()
    # The deletion vectors grew, so their delete files are replaced.
    assert second["removed-position-deletes"] > 0
    assert second["total-position-deletes"] == 23
    table.update({"x": "-1.0"}, "id % 5 = 0")
    assert converted()["operation"] == "overwrite"
    table.optimize.compact()
    table.optimize.purge()
    done = converted()
    assert (done["total-delete-files"], done["total-position-deletes"]) == (0, 0)
    table.delete("p = 'a b%1'")
    assert converted()["operation"] == "delete"
    table.restore(3)
    assert converted()["operation"] == "overwrite"
    table.overwrite([{"id": 1, "p": "x", "x": 0.5}])
    assert converted()["total-data-files"] == 1
    table.delete()
    assert converted()["total-records"] == 0


@BOTH
def test_files_that_were_copied_with_their_deleted_rows_are_converted_as_others(table, format_version):
    table.append([{"id": n, "p": [None, "a b%1", "ä/=", ""][n % 4], "x": n / 3} for n in range(100, 200)])
    table.delete("id % 7 = 0")
    table.to_iceberg(format_version=format_version)

    assert table.optimize(rewrite="never", max_deleted_ratio=0.5)["numBinsCopied"] > 0

    done = table.to_iceberg(format_version=format_version)
    assert iceberg_rows(done) == delta_rows(table)
    assert_sound(table)
    assert summary(done)["total-position-deletes"] == 29


@BOTH
def test_every_version_is_a_snapshot(table, format_version):
    table.to_iceberg(format_version=format_version)
    table.delete("id = 3")
    table.append([{"id": 300, "p": "q", "x": 1.0}])
    table.delete("id = 300")
    done = table.to_iceberg(format_version=format_version)
    snapshots = iceberg_table(done).metadata.snapshots
    versions = [int(one.summary.additional_properties["delta-version"]) for one in snapshots]
    assert versions == [1, 2, 3, 4]
    for one, version in zip(snapshots, versions, strict=True):
        assert iceberg_rows(done, snapshot_id=one.snapshot_id) == delta_rows(table, version=version)


def test_many_versions_can_be_one_snapshot(table):
    table.to_iceberg()
    table.delete("id = 3")
    table.append([{"id": 300, "p": "q", "x": 1.0}])
    done = table.to_iceberg(squash=True)
    assert len(iceberg_table(done).metadata.snapshots) == 2
    assert iceberg_rows(done) == delta_rows(table)


@BOTH
def test_tags_name_versions_where_asked(table, format_version):
    done = table.to_iceberg(format_version=format_version)
    assert set(iceberg_table(done).refs()) == {"main"}
    table.alter.set_properties({"delvec.iceberg.tagVersions": "true"})
    table.delete("id = 3")
    table.append([{"id": 300, "p": "q", "x": 1.0}])
    done = table.to_iceberg(format_version=format_version)
    found = iceberg_table(done)
    assert set(found.refs()) == {"main", "delta-2", "delta-3", "delta-4"}
    for version in (2, 3, 4):
        snapshot = found.snapshot_by_name(f"delta-{version}").snapshot_id
        assert iceberg_rows(done, snapshot_id=snapshot) == delta_rows(table, version=version)
    assert_sound(table)


def test_nothing_is_written_where_nothing_is_new(table, tmp_path):
    before = table.to_iceberg()
    files = sorted(path.name for path in Path(tmp_path).rglob("_iceberg/**/*") if path.is_file())
    assert table.to_iceberg() == before
    assert sorted(path.name for path in Path(tmp_path).rglob("_iceberg/**/*") if path.is_file()) == files


def test_a_table_without_files_has_no_snapshot(lake, tmp_path):
    table = lake.create_table(tmp_path / "t", "id long")
    done = table.to_iceberg()
    assert (done["delta-version"], done["snapshot-id"]) == (0, None)
    assert iceberg_rows(done) == []


@BOTH
def test_commits_that_are_gone_are_made_up_for(table, tmp_path, lake, format_version):
    table.to_iceberg(format_version=format_version)
    table.delete("id < 20")
    table.append([{"id": 200, "p": "new", "x": None}])
    table.checkpoint()
    for version in range(4):
        (Path(tmp_path) / "a b%20c" / "_delta_log" / f"{version:020d}.json").unlink(missing_ok=True)
    with delvec.connect() as other:
        again = other.table(str(tmp_path / "a b%20c"))
        done = again.to_iceberg(format_version=format_version)
        assert_sound(again)
        assert iceberg_rows(done) == delta_rows(again)


TYPES = pa.schema(
    [
        ("id", pa.int64()),
        ("b", pa.int8()),
        ("s", pa.int16()),
        ("i", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("money", pa.decimal128(38, 10)),
        ("small", pa.decimal128(5, 2)),
        ("list", pa.list_(pa.struct([("k", pa.string()), ("v", pa.int32())]))),
        ("map", pa.map_(pa.string(), pa.list_(pa.int64()))),
        ("deep", pa.struct([("a", pa.int32()), ("n", pa.struct([("z", pa.string())]))])),
    ]
)
ROW = {
    "id": 1,
    "b": -1,
    "s": 2,
    "i": 3,
    "f": 1.5,
    "d": -0.0,
    "flag": True,
    "text": "ä" * 40,
    "raw": b"\x00\xff",
    "day": date(2024, 2, 29),
    "at": datetime(2024, 2, 29, 1, 2, 3, 456789, UTC),
    "local": datetime(1969, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001 - it has no zone
    "money": Decimal("-1234567890123456789012345678.0123456789"),
    "small": Decimal("1.50"),
    "list": [{"k": "x", "v": 1}, None],
    "map": [("k", [1, 2])],
    "deep": {"a": 1, "n": {"z": "q"}},
}


@BOTH
@pytest.mark.parametrize("mapping", ["none", "name", "id"])
def test_every_type_with_and_without_column_mapping(lake, tmp_path, mapping, format_version):
    properties = {} if mapping == "none" else {"delta.columnMapping.mode": mapping}
    table = lake.create_table(tmp_path / "t", TYPES, properties=properties)
    # PyIceberg 0.12 reads a null list of structs as an empty one.
    nothing = dict.fromkeys(TYPES.names) | {"id": 2, "list": []}
    table.append(pa.Table.from_pylist([ROW, nothing], TYPES))
    done = table.to_iceberg(format_version=format_version)
    assert_sound(table)
    assert iceberg_rows(done) == delta_rows(table)
    found = iceberg_table(done)
    # Bounds hold the values: a filter on one finds its row.
    for name, literal in (
        ("at", "'2024-02-29T01:02:03.456789+00:00'"),
        ("text", f"'{ROW['text']}'"),
        ("day", "'2024-02-29'"),
        ("i", "3"),
    ):
        assert len(found.scan(row_filter=f"{name} = {literal}").to_arrow()) == 1, name


@pytest.mark.parametrize("mapping", ["name", "id"])
def test_files_have_the_ids_of_elements_keys_and_values(lake, tmp_path, mapping):
    """Where files have ids at all, Iceberg's readers for Java need them all."""
    properties = {"delta.columnMapping.mode": mapping, "delvec.iceberg.formatVersions": "2"}
    table = lake.create_table(tmp_path / "t", TYPES, properties=properties)
    table.append(pa.Table.from_pylist([ROW, {**ROW, "id": 2}], TYPES))
    table.update({"text": "'x'"}, "id = 2")
    done = table.to_iceberg()

    wanted = {field.name: field.field_type for field in iceberg_table(done).schema().fields}
    files = table.scan().files()
    assert len(files) == 2
    for file in files:
        in_file = pq.read_schema(file.removeprefix("file://"))
        of_list, of_map = (in_file.field(TYPES.get_field_index(name)).type for name in ("list", "map"))
        assert number(of_list.value_field) == wanted["list"].element_id
        assert number(of_map.key_field) == wanted["map"].key_id
        assert number(of_map.item_field) == wanted["map"].value_id
        assert number(of_map.item_type.value_field) == wanted["map"].value_type.element_id


def number(field):
    return int(field.metadata[b"PARQUET:field_id"])


@BOTH
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int32(), [1, -5, None]),
        (pa.date32(), [date(2024, 1, 1), date(1960, 1, 1), None]),
        (pa.timestamp("us", "UTC"), [datetime(2024, 1, 1, 0, 0, 0, 7, UTC), None]),
        (pa.decimal128(12, 3), [Decimal("1.500"), Decimal("-2.250"), None]),
        (pa.bool_(), [True, False, None]),
        (pa.float64(), [1.5, float("inf"), None]),
        (pa.string(), ["a b", "%41", "ä", "x/y=z#?", None]),
    ],
    ids=str,
)
def test_partition_values_of_every_type(lake, tmp_path, kind, values, format_version):
    schema = pa.schema([("id", pa.int64()), ("p", kind)])
    table = lake.create_table(tmp_path / "t", schema, partition_by=["p"])
    rows = [{"id": n, "p": values[n % len(values)]} for n in range(20)]
    table.append(pa.Table.from_pylist(rows, schema))
    table.delete("id in (3, 4, 5)")
    done = table.to_iceberg(format_version=format_version)
    assert_sound(table)
    assert iceberg_rows(done) == delta_rows(table)


@BOTH
def test_an_empty_string_of_another_writer_stays_one(lake, tmp_path, format_version):
    made = lake.create_table(tmp_path / "made", "id long, p string", partition_by=["p"])
    made.append([{"id": 1, "p": "a"}, {"id": 2, "p": None}])
    log = tmp_path / "t" / "_delta_log"
    shutil.copytree(tmp_path / "made", tmp_path / "t", ignore=shutil.ignore_patterns("*.crc"))
    for commit in log.glob("*.json"):
        commit.write_text(commit.read_text().replace('"p":"a"', '"p":""'))
    table = lake.table(str(tmp_path / "t"))
    done = table.to_iceberg(format_version=format_version)
    assert_sound(table)
    assert iceberg_rows(done) == delta_rows(table)
    assert {row["id"]: row["p"] for row in iceberg_rows(done)} == {1: "", 2: None}


@BOTH
def test_columns_come_go_and_change_their_names(lake, tmp_path, format_version):
    table = lake.create_table(
        tmp_path / "t", "id long, a string, b int", properties={"delta.columnMapping.mode": "name"}
    )
    table.append([{"id": 1, "a": "x", "b": 7}])
    table.to_iceberg(format_version=format_version)
    table.alter.rename_column("a", "c")
    table.alter.drop_columns(["b"])
    table.alter.add_columns("a long")
    table.append([{"id": 2, "c": "y", "a": 9}])
    done = table.to_iceberg(format_version=format_version)
    assert_sound(table)
    assert iceberg_rows(done) == delta_rows(table)
    snapshots = iceberg_table(done).metadata.snapshots
    assert iceberg_rows(done, snapshot_id=snapshots[0].snapshot_id) == [{"id": 1, "a": "x", "b": 7}]


@BOTH
def test_a_wider_type_is_promoted(lake, tmp_path, format_version):
    table = lake.create_table(
        tmp_path / "t", "id int, m decimal(5,2)", properties={"delta.enableTypeWidening": "true"}
    )
    table.append([{"id": 1, "m": Decimal("1.50")}])
    table.to_iceberg(format_version=format_version)
    table.alter.change_type("id", "long")
    table.append([{"id": 2**40, "m": Decimal("2.50")}])
    done = table.to_iceberg(format_version=format_version)
    assert_sound(table)
    assert iceberg_rows(done) == delta_rows(table)


def test_what_iceberg_has_not_is_refused_by_name(lake, tmp_path):
    table = lake.create_table(
        tmp_path / "t",
        "id long, day date, other timestamp_ntz",
        properties={"delta.enableTypeWidening": "true"},
    )
    table.alter.change_type("day", "timestamp_ntz")
    with pytest.raises(
        delvec.IcebergUnsupported, match=r"'day' was widened from date to timestamp_ntz"
    ) as caught:
        table.to_iceberg()
    assert caught.value.details["column"] == "day"
    assert not (tmp_path / "t" / "_iceberg").exists()


def test_another_iceberg_table_is_left_alone(people, tmp_path):
    folder = tmp_path / "people" / "_iceberg" / "v2" / "metadata"
    folder.mkdir(parents=True)
    foreign = {
        "format-version": 2,
        "location": "/elsewhere",
        "schemas": [],
        "partition-specs": [],
        "snapshots": [],
        "last-sequence-number": 0,
        "properties": {},
    }
    (folder / "v1.metadata.json").write_text(json.dumps(foreign))
    with pytest.raises(delvec.IcebergUnsupported, match="was not converted from a Delta table"):
        people.to_iceberg()
    assert [path.name for path in folder.iterdir()] == ["v1.metadata.json"]


def test_a_damaged_vector_publishes_nothing(people, tmp_path):
    people.delete("id < 3")
    (vector,) = (tmp_path / "people").rglob("deletion_vector_*.bin")
    data = bytearray(vector.read_bytes())
    data[-1] ^= 1
    vector.unlink()
    vector.write_bytes(data)
    for format_version in (2, 3):
        with pytest.raises(delvec.CorruptDeletionVector):
            people.to_iceberg(format_version=format_version)
    assert not list((tmp_path / "people" / "_iceberg").rglob("*.metadata.json"))


def test_the_command(people, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["iceberg", "convert", str(tmp_path / "people"), "--format-version", "3", "--json"])
    assert ended.value.code in (0, None)
    done = json.loads(capsys.readouterr().out)
    assert done["delta-version"] == 1
    assert iceberg_rows(done) == delta_rows(people)
    with pytest.raises(SystemExit):
        main(["iceberg", "convert", str(tmp_path / "people")])
    assert capsys.readouterr().out.strip().endswith("/_iceberg/v2/metadata/v1.metadata.json")
