"""Deferred statistics of checkpoints: results equal those of a reader that reads everything at once."""

import datetime as dt
import json
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from delvec_errors import ServiceUnavailable
from delvec_kernel import locations
from delvec_kernel.actions.actions import AddFile, CommitInfo, Metadata, Protocol, RemoveFile
from delvec_kernel.file_index import deferred_statistics, packed_files
from delvec_kernel.file_index.deferred_statistics import DeferredStatistics
from delvec_kernel.log.commit_file import serialize_commit
from delvec_service.scans.plan import plan
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.log_reader import LogReader, StatisticsBacklog
from delvec_service.snapshots.log_replay import replayed
from delvec_service.store.database import Database
from delvec_service.store.objects import ObjectStore
from delvec_service.store.snapshots import SnapshotStore

FILES = 17_000
ROWS = 100
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
TYPES = {
    "id": ("long", pa.int64()),
    "price": ("double", pa.float64()),
    "sum": ("decimal(12,2)", pa.decimal128(12, 2)),
    "land": ("string", pa.string()),
    "at": ("timestamp", pa.timestamp("us", "UTC")),
    "due": ("date", pa.date32()),
}
OF_TEXT = "flag"
"""Of a column without typed statistics."""
PREDICATES = [
    "id BETWEEN 123450 AND 123650",
    "price < 3",
    "sum >= 16998.5",
    "land = 'n16999'",
    "at < TIMESTAMP '2026-01-01 00:03:00Z'",
    "due = DATE '2026-01-02'",
    "id < 500 AND p = '3'",
    None,
    OF_TEXT,
]
SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in {
                **{name: kind for name, (kind, _) in TYPES.items()},
                "flag": "boolean",
                "p": "string",
            }.items()
        ],
    }
)
BOUNDS = pa.struct([(name, kind) for name, (_, kind) in TYPES.items()])
COUNTS = pa.struct([(name, pa.int64()) for name in TYPES])
PARSED = pa.struct(
    [("numRecords", pa.int64()), ("minValues", BOUNDS), ("maxValues", BOUNDS), ("nullCount", COUNTS)]
)


def bounds(number):
    return {
        "id": number * ROWS,
        "price": number / 2,
        "sum": number,
        "land": f"n{number:05d}",
        "at": START + dt.timedelta(minutes=number),
        "due": (START + dt.timedelta(minutes=number)).date(),
    }


def statistics(number):
    values = bounds(number)
    return {
        "numRecords": ROWS,
        "minValues": values,
        "maxValues": values | {"id": values["id"] + ROWS - 1},
        "nullCount": dict.fromkeys(values, 0),
    }


def spelled(value):
    if isinstance(value, dt.datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat()


def text(number):
    return json.dumps(statistics(number), default=spelled)


NUMBERS = list(range(FILES))
TEXTS = pa.array([text(number) for number in NUMBERS])
TYPED = pa.array([statistics(n) for n in NUMBERS], PARSED)
ORDER = np.random.default_rng(3).permutation(FILES)
"""Of the rows in the checkpoint: segments take their rows from all over it."""


def path(number):
    return f"p={number % 7}/f{number:05d}"


def without(values, rows):
    mask = np.zeros(len(values), np.bool_)
    mask[rows] = True
    return pc.if_else(pa.array(mask), pa.scalar(None, values.type), values)


class Log:
    """A log with a checkpoint at version 1 and the commits 0 and 2."""

    def __init__(self, folder):
        self.folder = folder
        self.log = folder / "_delta_log"
        self.log.mkdir(parents=True)
        self.store = ObjectStore(locations.canonical(str(folder)))
        self.metadata = Metadata(str(uuid.uuid4()), SCHEMA, ("p",))

    def commit(self, version, *actions):
        (self.log / f"{version:020d}.json").write_bytes(serialize_commit(actions))

    @property
    def checkpoint(self):
        return self.log / f"{1:020d}.checkpoint.parquet"

    def write(self, stats=TEXTS, parsed=TYPED, groups=4_000, parts=1, **options):
        adds = {
            "path": pa.array([path(n) for n in NUMBERS]),
            "partitionValues": pa.array(
                [[("p", str(n % 7))] for n in NUMBERS], pa.map_(pa.string(), pa.string())
            ),
            "size": pa.array(NUMBERS, pa.int64()),
            "modificationTime": pa.array(NUMBERS, pa.int64()),
            "dataChange": pa.repeat(pa.scalar(value=False), FILES),
        }
        adds |= {} if stats is None else {"stats": stats}
        adds |= {} if parsed is None else {"stats_parsed": parsed}
        add = pa.StructArray.from_arrays(list(adds.values()), list(adds)).take(pa.array(ORDER))
        protocol = pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])
        metadata = pa.struct(
            [("id", pa.string()), ("schemaString", pa.string()), ("partitionColumns", pa.list_(pa.string()))]
        )
        schema = pa.schema([("add", add.type), ("protocol", protocol), ("metaData", metadata)])
        rest = {
            "protocol": {"minReaderVersion": 1, "minWriterVersion": 2},
            "metaData": {"id": self.metadata.id, "schemaString": SCHEMA, "partitionColumns": ["p"]},
        }
        options = {"use_deprecated_int96_timestamps": True, "row_group_size": groups} | options
        size = -(-FILES // parts)
        for part in range(parts):
            some = add.slice(part * size, size)
            empty = {name: pa.nulls(len(some), schema.field(name).type) for name in ("protocol", "metaData")}
            tables = [pa.table({"add": some, **empty}, schema)]
            if part == 0:
                rows = [{"add": None, **rest}]
                # In the middle, so that rows and files are not counted alike.
                tables = [
                    tables[0].slice(0, 7),
                    pa.Table.from_pylist(rows, schema),
                    tables[0].slice(7),
                ]
            name = f"{1:020d}.checkpoint.{part + 1:010d}.{parts:010d}.parquet"
            target = self.checkpoint if parts == 1 else self.log / name
            pq.write_table(pa.concat_tables(tables), target, **options)
        self.commit(1, CommitInfo(operation="CHECKPOINTED"))
        self.commit(
            2,
            RemoveFile(path(11), 1, True),
            RemoveFile(path(12), 1, True),
            AddFile("p=3/new", {"p": "3"}, 1, 1, stats=text(FILES)),
        )
        return self

    def move_into_sidecars(self):
        """Put the files of the checkpoint into two sidecars of a V2 checkpoint."""
        whole = pq.read_table(self.checkpoint)
        adds = whole.filter(pc.is_valid(whole["add"])).select(["add"])
        (self.log / "_sidecars").mkdir()
        sidecars = []
        for number, some in enumerate((adds.slice(0, FILES // 2), adds.slice(FILES // 2))):
            target = self.log / "_sidecars" / f"{number}.parquet"
            pq.write_table(some, target, row_group_size=4_000, use_deprecated_int96_timestamps=True)
            sidecars.append(
                {"path": target.name, "sizeInBytes": target.stat().st_size, "modificationTime": 1}
            )
        features = {"readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]}
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
        metadata = next(row for row in whole["metaData"].drop_null().to_pylist())
        rows = [{"checkpointMetadata": {"version": 1}}, {"protocol": protocol}, {"metaData": metadata}]
        rows += [{"sidecar": each} for each in sidecars]
        names = ("checkpointMetadata", "protocol", "metaData", "sidecar")
        table = pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
        pq.write_table(table, self.checkpoint)
        return self

    def write_commits(self):
        """Write a commit that says what the checkpoint says."""
        adds = [
            AddFile(path(n), {"p": str(n % 7)}, n, n, stats=stats)
            for n, stats in zip(NUMBERS, TEXTS.to_pylist(), strict=True)
        ]
        self.commit(0, Protocol(1, 2), self.metadata, *adds)

    def read(self, backlog=None):
        reader = LogReader(self.store, "t", "check", backlog)
        return replayed(reader, reader.list_recent()).snapshot


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path / "table")


@pytest.fixture
def backlog():
    found = StatisticsBacklog(delay=3600)
    yield found
    found.close()


def files(snapshot):
    return snapshot.live.table.sort_by("path").combine_chunks()


def planned(snapshot, predicate, **options):
    found = plan(snapshot, "t", predicate=predicate, **options).files
    return found.sort_by("path").combine_chunks()


def lacking(snapshot):
    return sum(segment.lacks_statistics for segment in snapshot.live.segments)


def deferred_of(snapshot):
    return next(s.source for s in snapshot.live.segments if isinstance(s.source, DeferredStatistics))


def check_equal(log, backlog, deferred_segments=None):
    """Ask everything before and after the statistics are read, and compare it with a reader that reads them at once."""
    eager, snapshot = log.read(), log.read(backlog)
    assert lacking(eager) == 0
    if deferred_segments is None:
        assert lacking(snapshot) >= 2
    else:
        assert lacking(snapshot) == deferred_segments
    expected = {predicate: planned(eager, predicate) for predicate in PREDICATES}
    assert 0 < len(expected[PREDICATES[0]]) < 10
    for predicate, found in expected.items():
        if predicate == OF_TEXT and deferred_segments is None:
            assert lacking(snapshot), "a plan has read what it does not need"
        assert planned(snapshot, predicate) == found, predicate
    assert snapshot.live.counts == eager.live.counts
    assert planned(log.read(backlog), PREDICATES[0], stats=True) == planned(eager, PREDICATES[0], stats=True)
    assert backlog.wait(60)
    assert lacking(snapshot) == 0
    for predicate, found in expected.items():
        assert planned(snapshot, predicate) == found, predicate
    assert files(snapshot) == files(eager)


def test_both_forms_of_statistics(log, backlog):
    check_equal(log.write(), backlog)


def test_typed_statistics_alone(log, backlog):
    check_equal(log.write(stats=None), backlog)


def test_one_row_group(log, backlog):
    check_equal(log.write(groups=1_000_000), backlog)


def test_several_parts(log, backlog, monkeypatch):
    monkeypatch.setattr("delvec_kernel.log.checkpoint_reader._MIN_DEFERRED_ROWS", 100)
    check_equal(log.write(parts=3), backlog)


def test_sidecars(log, backlog, monkeypatch):
    monkeypatch.setattr("delvec_kernel.log.checkpoint_reader._MIN_DEFERRED_ROWS", 100)
    check_equal(log.write().move_into_sidecars(), backlog)


def test_text_alone_is_read_at_once(log, backlog):
    check_equal(log.write(parsed=None), backlog, 0)


def test_footers_that_do_not_count_nulls(log, backlog):
    check_equal(log.write(write_statistics=False), backlog, 0)


def test_a_few_files_are_read_at_once(log, backlog, monkeypatch):
    monkeypatch.setattr("delvec_kernel.log.checkpoint_reader._MIN_DEFERRED_ROWS", FILES * 2)
    check_equal(log.write(), backlog, 0)


@pytest.mark.parametrize("has_text", [True, False])
def test_files_without_typed_statistics(log, backlog, has_text):
    """Their row groups are read at once."""
    some = ORDER[6_000:6_003]
    log.write(stats=TEXTS if has_text else without(TEXTS, some), parsed=without(TYPED, some))
    check_equal(log, backlog)


def test_text_that_some_files_lack(log, backlog):
    check_equal(log.write(stats=without(TEXTS, ORDER[6_000:6_003])), backlog)


def test_a_number_of_records_that_cannot_be(log, backlog):
    broken = pa.StructArray.from_arrays(
        [pa.repeat(pa.scalar(-1), FILES), *TYPED.flatten()[1:]], fields=list(PARSED)
    )
    snapshot = log.write(parsed=broken).read(backlog)
    assert lacking(snapshot)
    assert snapshot.live.counts.num_rows is None
    assert len(planned(snapshot, PREDICATES[0])) == len(planned(log.read(), PREDICATES[0]))


def test_a_column_of_another_type_than_the_schema_is_read_as_text(log, backlog):
    """As after type widening from integer to long."""
    narrow = pa.struct([field if field.name != "id" else field.with_type(pa.int32()) for field in BOUNDS])
    sides = [
        pa.StructArray.from_arrays(
            [child.cast(field.type) for child, field in zip(side.flatten(), narrow, strict=True)],
            fields=list(narrow),
        )
        for side in (TYPED.field("minValues"), TYPED.field("maxValues"))
    ]
    counted, _, _, nulls = TYPED.flatten()
    names = ["numRecords", "minValues", "maxValues", "nullCount"]
    log.write(parsed=pa.StructArray.from_arrays([counted, *sides, nulls], names))
    eager, snapshot = log.read(), log.read(backlog)
    assert planned(snapshot, PREDICATES[0]) == planned(eager, PREDICATES[0])
    assert planned(snapshot, "price < 3") == planned(eager, "price < 3")


def test_a_single_file_has_its_statistics(log, backlog):
    snapshot = log.write().read(backlog)
    found = snapshot.live.find(path(4711))
    assert found.stats == TEXTS[4711].as_py()


def test_segments_that_lose_many_files(log, backlog):
    gone = [n for n in NUMBERS if n % 7 < 2]
    log.write().commit(3, *(RemoveFile(path(n), 1, True) for n in gone if n not in (11, 12)))
    eager, snapshot = log.read(), log.read(backlog)
    assert files(snapshot) == files(eager)
    assert snapshot.live.counts == eager.live.counts


def test_the_checkpoint_may_be_deleted_meanwhile(log, backlog):
    log.write()
    expected, snapshot = files(log.read()), log.read(backlog)
    log.checkpoint.unlink()
    assert len(planned(snapshot, PREDICATES[0])) == 3
    assert backlog.wait(60)
    assert files(snapshot) == expected


def test_the_file_is_let_go_once_all_is_read(log, backlog):
    snapshot = log.write().read(backlog)
    source = deferred_of(snapshot)
    assert backlog.wait(60)
    assert not any(segment.source is source for segment in snapshot.live.segments)
    assert source.complete()


def test_a_table_in_memory_of_an_object_store(backlog, tmp_path):
    log = Log(tmp_path / "table").write()
    store = ObjectStore(f"memory:///delvec/{uuid.uuid4()}")
    for file in sorted(log.log.iterdir()):
        store.put(f"_delta_log/{file.name}", file.read_bytes())
    log.store = store
    check_equal(log, backlog)


def test_text_that_cannot_be_read_is_found_out_later(log):
    """The checkpoint is passed over then, as it is where all of it is read at once."""
    log.write()
    log.write_commits()
    expected = files(log.read())
    letters = bytearray(b"".join(each.as_buffer().to_pybytes() for each in TEXTS))
    letters[100] = 0xFF
    buffers = TEXTS.buffers()
    broken = pa.Array.from_buffers(pa.string(), FILES, [None, buffers[1], pa.py_buffer(bytes(letters))])
    log.write(stats=broken)
    loader = SnapshotLoader()
    assert lacking(loader.load(log.store, "t"))
    assert len(loader.reading(log.store, "t", lambda found: planned(found, PREDICATES[0]))) == 3
    found = loader.reading(log.store, "t", files)
    assert found == expected
    assert lacking(loader.load(log.store, "t")) == 0
    loader.close()


def test_what_is_saved_is_whole(log, tmp_path):
    expected = files(log.write().read())
    database = Database(f"sqlite:///{tmp_path / 'store.db'}")
    database.migrate()
    loader = SnapshotLoader(store=SnapshotStore(database))
    assert len(planned(loader.load(log.store, "t"), PREDICATES[0])) == 3
    assert loader.flush()
    loader.close()
    again = SnapshotLoader(store=SnapshotStore(database))
    snapshot = again.load(log.store, "t")
    assert all(segment.source is again.store.segments for segment in snapshot.live.segments)
    assert files(snapshot) == expected
    again.close()
    database.close()


def test_old_versions_are_read_to_the_end_too(log):
    log.write()
    loader = SnapshotLoader()
    snapshot = loader.load(log.store, "t", version=1)
    assert lacking(snapshot)
    assert loader.flush()
    assert lacking(snapshot) == 0
    loader.close()


def test_when_much_waits_a_checkpoint_is_read_at_once(log, backlog):
    log.write()
    snapshots = [log.read(backlog) for _ in range(9)]
    assert lacking(snapshots[7])
    assert not lacking(snapshots[8])


@pytest.mark.parametrize("window", [2_000, 524_288])
def test_rows_that_wait_for_the_rest_of_their_segment_are_compressed(log, backlog, monkeypatch, window):
    """Of a large table they would take gigabytes."""
    monkeypatch.setattr(packed_files, "_BARE_WINDOW", window)
    monkeypatch.setattr(packed_files, "_WINDOW", min(window, 3_000))
    monkeypatch.setattr(packed_files, "_WINDOWS", 3)
    monkeypatch.setattr(packed_files, "SEGMENT_ROWS", 900)
    monkeypatch.setattr(deferred_statistics, "_AT_ONCE", 1_500)
    monkeypatch.setattr(deferred_statistics, "_LOOSE_BYTES", 0)
    check_equal(log.write(), backlog)


def test_statistics_are_saved_while_they_are_read(log, tmp_path, monkeypatch):
    """Those of a large table are never in memory together."""
    monkeypatch.setattr(packed_files, "SEGMENT_ROWS", 500)
    expected = files(log.write().read())
    database = Database(f"sqlite:///{tmp_path / 'store.db'}")
    database.migrate()
    store, held = SnapshotStore(database), []
    loader = SnapshotLoader(store=store)
    add_segments = store.add_segments

    def add(location, segments, stopping):
        live = loader.known(location).live
        held.append(sum(each.blob("stats") is not None for each in live.segments))
        add_segments(location, segments, stopping)

    monkeypatch.setattr(store, "add_segments", add)
    snapshot = loader.load(log.store, "t")
    assert loader.flush()
    assert len(held) >= 4
    assert max(held) < len(snapshot.live.segments) / 2
    assert all(each.source is store.segments for each in snapshot.live.segments)
    assert sum(each.nbytes for each in snapshot.live.segments) == 0
    assert files(snapshot) == expected
    loader.close()
    again = SnapshotLoader(store=SnapshotStore(database))
    assert files(again.load(log.store, "t")) == expected
    again.close()
    database.close()


def test_a_database_that_fails_meanwhile_does_not_leave_statistics_unread(log, tmp_path, monkeypatch):
    expected = files(log.write().read())
    database = Database(f"sqlite:///{tmp_path / 'store.db'}")
    database.migrate()
    store = SnapshotStore(database)

    def fail(*_):
        raise ServiceUnavailable("The service's database does not answer.")

    monkeypatch.setattr(store, "add_segments", fail)
    loader = SnapshotLoader(store=store)
    snapshot = loader.load(log.store, "t")
    assert loader.flush()
    assert lacking(snapshot) == 0
    assert files(snapshot) == expected
    loader.close()
    database.close()


def test_statistics_of_a_table_that_is_too_large_for_the_database_are_read_but_not_saved(
    log, tmp_path, backlog, monkeypatch
):
    """Its checkpoint would stay open, in the room of the tables after it, and each of its commits would be slower."""
    monkeypatch.setattr(packed_files, "SEGMENT_ROWS", 500)
    expected = files(log.write().read())
    bare = sum(segment.nbytes for segment in log.read(backlog).live.segments)
    database = Database(f"sqlite:///{tmp_path / 'store.db'}")
    database.migrate()
    loader = SnapshotLoader(store=SnapshotStore(database), max_stored_bytes=bare * 6 // 5)
    snapshot = loader.load(log.store, "t")
    assert loader.flush()
    assert loader.store.head(log.store.location) is None
    assert lacking(snapshot) == 0
    assert files(snapshot) == expected
    loader.close()
    database.close()
