"""With roots, no engine or task opens a file outside them, whatever the log or the plan contains."""

import contextlib
import json
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

import delvec
from delvec_errors import CorruptTable, InvalidLocation, LocationNotAllowed
from delvec_kernel.deletion_vectors.deletion_vector import FILE_VERSION, encode, frame
from delvec_storage.roots import Roots

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")

SECRET = 424242
SPELLINGS = ("file://{}", "file:{}", "{}", "file://localhost{}", "FILE://{}")


class Lake:
    """A root with a table whose log is hostile, and files outside."""

    def __init__(self, folder):
        self.root, self.outside = folder / "root", folder / "outside é"
        self.table = self.root / "people"
        self.table.mkdir(parents=True)
        self.outside.mkdir()
        self.database = f"sqlite:///{folder / 'own.db'}"
        with delvec.connect(database_url=self.database) as lake:
            properties = {"delta.enableChangeDataFeed": "true"}
            lake.create_table(self.table, "id long", properties=properties).append(
                [{"id": n} for n in range(3)]
            )
        self.version = 1

    def commit(self, *actions):
        self.version += 1
        lines = [{"commitInfo": {"operation": "TEST", "timestamp": 1}}, *actions]
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (self.table / "_delta_log" / f"{self.version:020}.json").write_text(text)

    def file(self, folder, name="secret.parquet"):
        folder.mkdir(exist_ok=True)
        pq.write_table(pa.table({"id": [SECRET]}), folder / name)
        return folder / name

    def vector(self, folder, size=1):
        """Write a deletion vector of the first row, padded with ``size`` others."""
        payload = encode(BitMap64([0, *(1000 + 3 * n for n in range(size - 1))]))
        folder.mkdir(exist_ok=True)
        (folder / "dv.bin").write_bytes(FILE_VERSION + frame(payload))
        where = {"storageType": "p", "pathOrInlineDv": f"file://{quote(str(folder / 'dv.bin'))}"}
        return where | {"offset": 1, "sizeInBytes": len(payload), "cardinality": size}


def add(path, size=400, **others):
    found = {"path": path, "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": True}
    return {"add": found | {"stats": '{"numRecords":1}'} | others}


def cdc(path, size=400):
    return {"cdc": {"path": path, "partitionValues": {}, "size": size, "dataChange": False}}


def remove(path, size=400):
    found = {"path": path, "partitionValues": {}, "size": size, "deletionTimestamp": 1, "dataChange": True}
    return {"remove": found | {"extendedFileMetadata": True}}


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path)


@contextlib.contextmanager
def connected(lake, who):
    """A connection with roots: its service checks plans, or only its engines do, as beside a service that is not to be trusted."""
    with delvec.connect(
        database_url=lake.database, roots=[lake.root] if who == "service" else ["/", "s3://not-ours"]
    ) as connection:
        if who == "engine":
            connection._service.roots = Roots([str(lake.root)])
        yield connection


def read_all(connection, lake, engine):
    """Yield every operation that reads rows."""
    table = connection.table(lake.table, engine=engine)
    yield table.to_arrow
    yield lambda: table.to_arrow(predicate="id > 0")
    yield lambda: table.changes(lake.version).to_arrow()
    yield lambda: table.delete(f"id >= {SECRET} AND id + 1 > 0")
    yield lambda: table.update({"id": "id + 1"})
    yield lambda: table.merge([{"id": 1}], "target.id = source.id").when_matched_delete().execute()
    if engine is None:
        yield lambda: table.to_duckdb().fetchall()
        yield lambda: connection.sql(f"SELECT sum(id) FROM delta.`{lake.table}`")


REFUSALS = (LocationNotAllowed, CorruptTable, InvalidLocation)


def check_refused(lake, engine, who, reads=read_all):
    before = sorted(lake.root.rglob("*"))
    with connected(lake, who) as connection:
        for read in reads(connection, lake, engine):
            with pytest.raises(REFUSALS) as caught:
                read()
            assert str(SECRET) not in caught.value.message
    assert [path for path in sorted(lake.root.rglob("*.parquet")) if path not in before] == []


@pytest.mark.parametrize("who", ["service", "engine"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_data_file_outside(lake, who, spelling):
    lake.commit(add(spelling.format(quote(str(lake.file(lake.outside))))))
    check_refused(lake, None, who)


@pytest.mark.parametrize("who", ["service", "engine"])
@pytest.mark.parametrize("kind", [cdc, remove])
def test_a_change_file_or_a_removed_file_outside(lake, who, kind):
    lake.commit(kind(f"file://{quote(str(lake.file(lake.outside)))}"))

    def reads(connection, lake, engine):
        yield lambda: connection.table(lake.table, engine=engine).changes(lake.version).to_arrow()

    check_refused(lake, None, who, reads)


@pytest.mark.parametrize("who", ["service", "engine"])
@pytest.mark.parametrize("size", [1, 300_000])
def test_a_deletion_vector_outside(lake, who, size):
    path = lake.file(lake.table, "own.parquet").name
    lake.commit(add(path, stats='{"numRecords":1000000}', deletionVector=lake.vector(lake.outside, size)))
    check_refused(lake, None, who)


def test_a_link_to_a_file_outside(lake):
    (lake.table / "linked.parquet").symlink_to(lake.file(lake.outside))
    lake.commit(add("linked.parquet"))
    check_refused(lake, None, "engine")


@pytest.mark.parametrize("who", ["service", "engine"])
def test_another_bucket(lake, who):
    lake.commit(add("s3://not-ours/secret.parquet"))
    check_refused(lake, None, who)


@pytest.mark.spark
@pytest.mark.gate
def test_files_outside_on_spark(lake, spark):
    outside = quote(str(lake.file(lake.outside)))
    (lake.table / "linked.parquet").symlink_to(lake.outside / "secret.parquet")
    own = lake.file(lake.table, "own.parquet").name
    hostile = (
        add(f"file://{outside}"),
        add("linked.parquet"),
        add(own, stats='{"numRecords":1000000}', deletionVector=lake.vector(lake.outside, 300_000)),
    )
    lake.commit()
    log = lake.table / "_delta_log" / f"{lake.version:020}.json"
    for action in hostile:
        lake.version -= 1
        log.unlink()
        lake.commit(action)
        for who in ("service", "engine"):
            if who == "service" and action is hostile[1]:
                continue  # a link is found where the file is opened
            with connected(lake, who) as connection, pytest.raises((LocationNotAllowed, CorruptTable)):
                connection.table(lake.table, engine=spark).to_arrow()


def test_tasks_check_what_they_open(lake):
    """For a plan that was tampered with, or a symlink created since."""
    pytest.importorskip("pyspark")
    from delvec_engines.spark.dv_filter import VectorSource
    from delvec_engines.spark.file_slices import FileSlice, TableRead, read_slices
    from delvec_kernel.schema.types import StructType

    roots = Roots([str(lake.root)])
    schema = StructType.from_arrow(pa.schema([("id", pa.int64())]))
    location = f"file://{lake.table}"
    read = TableRead(location, "people", 1, schema, frozenset(), "none", marked_only=False, roots=roots)
    outside = f"file://{quote(str(lake.file(lake.outside)))}"
    (lake.table / "linked.parquet").symlink_to(lake.outside / "secret.parquet")
    own = lake.file(lake.table, "own.parquet").name
    vector = lake.vector(lake.outside)
    for path, descriptor in ((outside, None), ("linked.parquet", None), (own, vector)):
        with pytest.raises((LocationNotAllowed, CorruptTable), match=r"outside|symbolic link"):
            list(read_slices(read, [FileSlice(path, 0, None, {}, descriptor, None)]))
    with pytest.raises(RuntimeError, match="LocationNotAllowed"):
        VectorSource(location, "people", 1, {1: (own, vector, None)}, roots).deleted_rows(1)


@pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
@pytest.mark.parametrize("who", ["service", "engine"])
def test_a_shallow_clone_of_a_table_in_the_roots(lake, engine, who, request):
    """Files and large deletion vectors with absolute paths are read if they are in a root."""
    engine = request.getfixturevalue("spark") if engine == "spark" else None
    source = lake.root / "source"
    pq_path = source / "a.parquet"
    source.mkdir()
    pq.write_table(pa.table({"id": range(1_000_000)}), pq_path)
    vector = lake.vector(source, 300_000)
    assert vector["sizeInBytes"] > 1 << 16
    path = f"file://{quote(str(pq_path))}"
    lake.commit(
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors"],
                "writerFeatures": ["deletionVectors", "changeDataFeed"],
            }
        },
        add(path, pq_path.stat().st_size, stats='{"numRecords":1000000}', deletionVector=vector),
    )
    with connected(lake, who) as connection:
        table = connection.table(lake.table, engine=engine)
        assert table.to_arrow().num_rows == 3 + 700_000
        assert table.delete("id = 1001 OR id = 2")["numDeletedRows"] == 3
        assert table.to_arrow(predicate="id < 10").num_rows == 10
