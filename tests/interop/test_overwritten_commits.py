"""Commits overwritten by delta-spark are detected: its default LogStore on local disk, at the worst moment.

It checks whether a version exists, writes a temporary file and renames it. Here it checks before Delvec commits and
renames afterwards: its commit is a real one, made on a copy of the table, with the data file that it added.
"""

import shutil

import deltalake
import pyarrow as pa
import pytest
from tests.support.asgi_transport import EmbeddedTransport

from delvec.connection import Connection
from delvec.http.service_client import ServiceClient
from delvec_commands.transaction import Transaction
from delvec_errors import CommitOverwritten
from delvec_service.app import create_app
from delvec_service.config import Settings

pytestmark = [
    pytest.mark.jars,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.full_on_spark(
        "delta-spark takes seconds for each; the gate has both ways of reading and writing, and a race"
    ),
]

SCHEMA = pa.schema([("id", pa.int64())])
SECONDS = 60


def rows(*ids):
    return pa.table({"id": ids}, schema=SCHEMA)


class Renaming:
    """delta-spark between its existence check and its rename."""

    def __init__(self, spark, location, copy, statement):
        shutil.copytree(location, copy)
        before = {path.relative_to(copy) for path in copy.rglob("*")}
        spark.sql(statement.format(table=f"delta.`{copy}`"))
        self.new = sorted({path.relative_to(copy) for path in copy.rglob("*.*")} - before)
        self.version = deltalake.DeltaTable(str(copy)).version()
        self._location, self._copy = location, copy
        assert not self._entry(location).exists()  # the existence check

    def rename(self):
        """Copy its data files, and put its log entry over the existing one."""
        for path in self.new:
            if path.suffix in (".parquet", ".bin") and "_delta_log" not in path.parts:
                shutil.copy(self._copy / path, self._location / path)
        temporary = self._location / "_delta_log" / ".tmp"
        shutil.copy(self._entry(self._copy), temporary)
        temporary.rename(self._entry(self._location))

    def _entry(self, location):
        return location / "_delta_log" / f"{self.version:020}.json"


@pytest.fixture
def service():
    """A separate service with its database in memory."""
    return create_app(Settings.embedded("sqlite://"))


@pytest.fixture
def own_lake(service):
    with Connection(ServiceClient("http://embedded", transport=EmbeddedTransport(service))) as lake:
        yield lake


@pytest.fixture
def look(service):
    """Return a function that makes the service compare its commits with the log, and waits for it."""

    def look():
        assert service.state.service.overwrite_watch.wait(SECONDS)

    return look


def test_an_overwritten_append_is_detected_reported_and_can_be_rerun(
    own_lake, look, delta_spark, agreed, tmp_path
):
    location = tmp_path / "table"
    table = own_lake.create_table(str(location), SCHEMA)
    table.append(rows(1, 2, 3))
    renaming = Renaming(delta_spark, location, tmp_path / "copy", "INSERT INTO {table} VALUES (10)")
    scan, _ = table.plan()
    transaction = Transaction(table._service, table.id, "DELETE", scan.version, predicate="id = 2")
    transaction.delete_rows({scan.files["path"][0].as_py(): [1]})
    assert transaction.commit().version == renaming.version
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 3]

    renaming.rename()

    look()
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3, 10]  # as all readers see it
    assert sorted(row["id"] for row in agreed(location)) == [1, 2, 3, 10]
    (found,) = table.health()["overwritten-commits"]
    assert (found["version"], found["by-operation"]) == (renaming.version, "WRITE")
    assert "Delta-Lake" in found["by-engine"]
    with pytest.raises(CommitOverwritten) as caught:
        transaction.commit()
    assert caught.value.conflict["winning-operation"] == "WRITE"
    assert "Run the command again" in caught.value.message
    assert table.delete("id = 2")["numDeletedRows"] == 1
    assert sorted(row["id"] for row in agreed(location)) == [1, 3, 10]
    checked = table.check()
    assert "own-commit" in {one["invariant"] for one in checked["findings"]}


def test_commits_after_the_overwritten_one_stay(own_lake, look, delta_spark, agreed, tmp_path):
    location = tmp_path / "table"
    table = own_lake.create_table(str(location), SCHEMA)
    table.append(rows(1, 2, 3))
    renaming = Renaming(delta_spark, location, tmp_path / "copy", "INSERT INTO {table} VALUES (10)")
    table.append(rows(20))
    table.append(rows(30))
    table.delete("id = 1")

    renaming.rename()

    look()
    assert sorted(row["id"] for row in agreed(location)) == [2, 3, 10, 30]
    (found,) = table.health()["overwritten-commits"]
    assert found["version"] == renaming.version
