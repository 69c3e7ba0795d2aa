"""A commit that delta-spark replaces is found: what its default LogStore does on local disk, at the worst moment.

It looks whether a version is there, writes a temporary file and renames it. Here it looks before Delvec commits and
renames after: its commit is a real one, made on a copy of the table, with the data file that it added.
"""

import shutil

import deltalake
import pyarrow as pa
import pytest

from delvec.connection import Connection
from delvec.http.embedded import EmbeddedTransport
from delvec.http.service_client import ServiceClient
from delvec.transaction import Transaction
from delvec_kernel.errors import CommitOverwritten
from delvec_service.app import create_app
from delvec_service.config import Settings

pytestmark = [pytest.mark.jars, pytest.mark.spark, pytest.mark.timeout(900)]

SCHEMA = pa.schema([("id", pa.int64())])
SECONDS = 60


def rows(*ids):
    return pa.table({"id": ids}, schema=SCHEMA)


class Renaming:
    """delta-spark between its look at a version and its rename to it."""

    def __init__(self, spark, location, copy, statement):
        shutil.copytree(location, copy)
        before = {path.relative_to(copy) for path in copy.rglob("*")}
        spark.sql(statement.format(table=f"delta.`{copy}`"))
        self.new = sorted({path.relative_to(copy) for path in copy.rglob("*.*")} - before)
        self.version = deltalake.DeltaTable(str(copy)).version()
        self._location, self._copy = location, copy
        assert not self._entry(location).exists()  # the look

    def rename(self):
        """Put its files there, and its log entry over whatever is there now."""
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
    """A service that nobody else uses, with its database in memory."""
    return create_app(Settings.embedded("sqlite://"))


@pytest.fixture
def own_lake(service):
    with Connection(ServiceClient("http://embedded", transport=EmbeddedTransport(service))) as lake:
        yield lake


@pytest.fixture
def look(service):
    """Have the service compare its commits with the log now, and wait until it has."""

    def look():
        assert service.state.service.overwrite_watch.wait(SECONDS)

    return look


def test_a_replaced_append_is_found_told_of_and_can_be_run_again(
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
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3, 10]  # what all readers see
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


def test_commits_after_the_one_that_was_replaced_stay(own_lake, look, delta_spark, agreed, tmp_path):
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
