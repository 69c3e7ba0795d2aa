"""Deletes of too many rows for the driver: executors write the deletion vectors."""

import pyarrow as pa
import pytest
from tests.integration.large import table as large_table

from delvec_engines.spark import SparkEngine, vector_tasks

pytestmark = [
    pytest.mark.spark,
    pytest.mark.full_on_spark("the gate has the main cases: each starts jobs of Spark"),
]


@pytest.fixture(params=[0, 1 << 20], ids=["all are written", "few are sent"])
def budget(request, monkeypatch):
    monkeypatch.setattr(vector_tasks, "SENT_BYTES", request.param)
    monkeypatch.setattr(vector_tasks, "_FILE_BYTES", 128)  # several tasks
    return request.param


def test_a_large_delete_removes_the_right_rows(budget, lake, spark, tmp_path):
    """Files with a deletion vector that lose all, nearly all, some, or no rows."""
    people = lake.create_table(tmp_path / "people", "id long")
    for start in range(0, 6000, 1000):
        people.append(pa.table({"id": range(start, start + 1000)}))
    people.delete("id % 7 = 3 AND id < 3000")
    table = lake.table(tmp_path / "people", engine=SparkEngine(spark, max_rows_for_bitmaps=0))
    before = len(list(people_vectors(tmp_path)))

    done = table.delete("id % 3 = 0 AND id < 4000 OR id BETWEEN 4000 AND 4999 OR id BETWEEN 5001 AND 5020")

    first = {id_ for id_ in range(3000) if id_ % 7 == 3}
    gone = first | {id_ for id_ in range(4000) if id_ % 3 == 0} | {*range(4000, 5000), *range(5001, 5021)}
    assert sorted(people.to_arrow()["id"].to_pylist()) == sorted(set(range(6000)) - gone)
    assert (done["numDeletedRows"], done["numRemovedFiles"]) == (len(gone - first), 1)
    assert done.version == 8
    written = len(list(people_vectors(tmp_path))) - before
    assert written == 1 if budget else 1 < written <= 5  # written by the service, or by tasks
    assert not people.check()["num-errors"]


@pytest.mark.full("many rows on Spark")
def test_row_indexes_of_a_large_delete_do_not_reach_the_driver(lake, spark, tmp_path, monkeypatch):
    """The deletion vectors take a megabyte; only each vector's place comes back."""
    monkeypatch.setattr(vector_tasks, "SENT_BYTES", 1 << 16)
    kind, taken = type(spark.range(1)), []
    collect = kind.toArrow
    monkeypatch.setattr(kind, "toArrow", lambda frame: taken.append(collect(frame)) or taken[-1])
    location = large_table.make(tmp_path / "people", files=20, rows=400_000)
    table = lake.table(location, engine=SparkEngine(spark, max_rows_for_bitmaps=0))

    done = table.delete("k = 3")

    assert done["numDeletedRows"] == 20 * 400_000 - lake.table(location).count()
    assert done["numDeletionVectorsAdded"] == 20
    assert sum(file.stat().st_size for file in people_vectors(tmp_path)) > 900_000
    assert 0 < sum(table.nbytes for table in taken) < 20 * 100


def people_vectors(folder):
    return (folder / "people").rglob("deletion_vector_*.bin")
