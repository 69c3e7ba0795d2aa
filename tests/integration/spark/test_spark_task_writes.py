"""Writing tasks of ``format("delvec")``: they retry when storage fails, and all share one current time."""

import datetime as dt
import json
import os
import pickle
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from tests.support.tables import ids

import delvec
from delvec.spark_datasource import sink
from delvec.spark_datasource import write_transaction as begun_write
from delvec.spark_datasource.sink import DelvecWriter
from delvec.spark_datasource.sink_options import WriteRequest
from delvec_engines.spark import task_rows as kept_rows
from delvec_engines.spark.scan import spark_schema
from delvec_engines.spark.task_rows import ReplayableRows
from delvec_kernel.schema.types import schema_from
from delvec_storage import files as storage

pytestmark = [
    pytest.mark.spark,
    pytest.mark.full_on_spark("the gate has the main cases: each starts jobs of Spark"),
]


@pytest.fixture
def lake(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with delvec.connect() as connection:
        yield connection


def batch(*ids):
    return pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64())})


class Job:
    """A write, with the calls that Spark makes."""

    def __init__(self, place):
        request = WriteRequest.of({"path": str(place)}, overwrite=False)
        schema = spark_schema(schema_from(batch().schema))
        self._writer = DelvecWriter(request, schema, overwrite=False)
        self._sent = pickle.dumps(self._writer)

    def task(self, number, batches):
        with pytest.MonkeyPatch.context() as patch:
            context = SimpleNamespace(partitionId=lambda: number, getLocalProperty={}.get)
            patch.setattr(sink.TaskContext, "get", lambda: context)
            return pickle.loads(pickle.dumps(pickle.loads(self._sent).write(iter(batches))))

    def commit(self, *messages):
        pickle.loads(self._sent).commit(messages)


@contextmanager
def failing(times):
    """Make storage fail that many times; yields the list of files for which it did."""
    failed, real = [], storage.stat

    def stat(location, path, **given):
        if path.endswith(".parquet") and len(failed) < times:
            failed.append(path)
            raise delvec.StorageError(f"Cannot look up {path}; try again.")
        return real(location, path, **given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "stat", stat)
        patch.setattr(begun_write, "pause", lambda _error, _attempt: 0.0)
        yield failed


def files_there(place):
    return {file.name for file in Path(place).rglob("*.parquet")}


@pytest.mark.gate
def test_rows_are_written_again_after_storage_failed(lake, tmp_path):
    """With the identity values of the first attempt."""
    place = tmp_path / "people"
    table = lake.create_table(place, "n long generated always as identity, id long")
    job = Job(place)
    with failing(2) as failed:
        written = job.task(0, [batch(1, 2), batch(3)])
    job.commit(written, job.task(1, [batch(4)]))

    assert len(set(failed)) == 2
    assert ids(table) == [1, 2, 3, 4]
    assert len(set(table.to_arrow(["n"])["n"].to_pylist())) == 4
    assert files_there(place) == {Path(file).name for file in table.files()}


def test_if_storage_keeps_failing_spark_may_run_the_task_again(lake, tmp_path):
    place = tmp_path / "people"
    table = lake.create_table(place, "id long")
    job = Job(place)
    with failing(4), pytest.raises(delvec.StorageError):
        job.task(0, [batch(1, 2)])
    # a second attempt of the same task
    job.commit(job.task(0, [batch(1, 2)]))

    assert ids(table) == [1, 2]
    assert files_there(place) == {Path(file).name for file in table.files()}


def test_tasks_with_too_many_rows_to_buffer_are_left_to_spark(lake, tmp_path, monkeypatch):
    monkeypatch.setattr(begun_write, "ReplayableRows", lambda batches: ReplayableRows(batches, limit=20))
    place = tmp_path / "people"
    lake.create_table(place, "id long")
    job = Job(place)
    with failing(1) as failed:
        assert job.task(0, [batch(1, 2)]).adds  # 16 bytes
        assert failed
    with failing(1), pytest.raises(delvec.StorageError):
        job.task(1, [batch(1, 2), batch(3, 4)])


def test_buffered_rows_are_replayed_and_read_once():
    read = []

    def coming():
        for number in range(4):
            read.append(number)
            yield batch(number)

    rows = ReplayableRows(coming())
    first = iter(rows)
    assert [next(first)["id"][0].as_py() for _ in range(2)] == [0, 1]
    assert [each["id"][0].as_py() for each in rows] == [0, 1, 2, 3]
    assert [each["id"][0].as_py() for each in rows] == [0, 1, 2, 3]
    assert read == [0, 1, 2, 3]
    assert rows.is_whole
    assert kept_rows.ReplayableRows([batch(*range(10))], limit=8).is_whole  # nothing has been read yet


@pytest.mark.gate
def test_an_input_that_broke_off_is_not_taken_as_complete():
    def coming():
        yield batch(1)
        raise OSError("the stream ended in the middle of a batch")

    rows = ReplayableRows(coming())
    with pytest.raises(OSError, match="in the middle"):
        list(rows)
    assert not rows.is_whole


def test_invalid_rows_are_not_tried_again(lake, tmp_path):
    place = tmp_path / "people"
    table = lake.create_table(place, "id long")
    table.alter.add_constraint("positive", "id > 0")
    seen = []

    def coming():
        for number in (1, 0):
            seen.append(number)
            yield batch(number)

    job = Job(place)
    written = job.task(0, coming())
    assert seen == [1, 0]
    with pytest.raises(delvec.ConstraintViolation, match="positive"):
        job.commit(written)


# --- one time -----------------------------------------------------------------------------------------------


def test_all_rows_of_a_write_share_one_current_time(lake, tmp_path):
    place = tmp_path / "events"
    columns = (
        "id long, at timestamp DEFAULT current_timestamp(), day date DEFAULT current_date(), "
        "seen timestamp DEFAULT now()"
    )
    table = lake.create_table(place, columns)
    before = dt.datetime.now(dt.UTC)

    def slowly(*numbers):
        for number in numbers:
            yield batch(number)
            time.sleep(0.02)

    for _ in range(2):
        job = Job(place)
        job.commit(job.task(0, slowly(1, 2, 3)), job.task(1, slowly(4, 5)))
    found = table.to_arrow().to_pylist()
    times = sorted({row["at"] for row in found})
    assert len(times) == 2
    assert before <= times[0] < times[1] <= dt.datetime.now(dt.UTC)
    assert all(row["seen"] == row["at"] and row["day"] == row["at"].date() for row in found)


def test_batches_of_a_reader_share_one_current_time_on_duckdb(lake, tmp_path):
    table = lake.create_table(tmp_path / "events", "id long, at timestamp DEFAULT current_timestamp()")

    def slowly():
        for number in range(3):
            yield batch(number)
            time.sleep(0.02)

    table.append(pa.RecordBatchReader.from_batches(batch().schema, slowly()))
    assert len(set(table.to_arrow(["at"])["at"].to_pylist())) == 1


# --- Spark --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("faults", "attempts"), [(2, {"attempt 0"}), (5, {"attempt 0", "attempt 1"})], ids=["passing", "longer"]
)
def test_a_stream_survives_failing_storage(spark, tmp_path, faults, attempts):
    """The task retries, and then Spark runs the task again: each row is there once."""
    assert spark is not None  # the fixture has checked that there is a Java
    (tmp_path / "in").mkdir()
    for number in range(2):
        lines = (json.dumps({"id": number * 10 + each}) for each in range(10))
        (tmp_path / "in" / f"{number}.json").write_text("\n".join(lines))
    script = Path(__file__).with_name("faulty_sink.py")
    unwanted = ("SPARK_REMOTE", "DELVEC_URL", "DELVEC_TOKEN", "DELVEC_DATABASE_URL")
    environment = {key: value for key, value in os.environ.items() if key not in unwanted}
    environment |= {"XDG_STATE_HOME": str(tmp_path / "state"), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(faults)],
        capture_output=True,
        text=True,
        timeout=280,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]

    happened = (tmp_path / "faults").read_text().splitlines()
    assert len(happened) == faults
    assert set(happened) == attempts
    with delvec.connect(database_url=f"sqlite:///{tmp_path}/state/delvec/embedded.db") as lake:
        table = lake.table(tmp_path / "people")
        assert ids(table) == list(range(20))
        assert table.version() == 1
        assert files_there(tmp_path / "people") == {Path(file).name for file in table.files()}
