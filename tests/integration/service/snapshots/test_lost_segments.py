"""A service whose database loses segments of a table while it works: every response stays correct."""

import pytest
from sqlalchemy import text

from delvec_kernel.file_index.segment import SegmentsLost

REQUESTS = ["plan", "health", "snapshot", "detail", "checkpoint", "delete", "append"]


@pytest.fixture
def damaged(running, create, tmp_path):
    """A table of a service that has just started and read the list of segments, which are gone by now."""
    settings = {"database_url": f"sqlite:///{tmp_path / 'store.db'}"}
    with running(**settings) as client:
        table = create(client, tmp_path / "people")
        files = [
            table.write_file(f"{name}.parquet", range(start, start + 10)) for start, name in enumerate("abc")
        ]
        assert table.append(*files).status_code == 200
        assert client.post(f"{table.url}/plan", json={}).json()["num-files"] == 3
    with running(**settings) as client:
        table.client = client
        assert client.get(f"{table.url}/snapshot").json()["num-files"] == 3
        with client.service.database.write() as session:
            for name in ("segment_blobs", "segment_summaries", "segments"):
                assert session.execute(text(f"DELETE FROM {name}")).rowcount or name == "segment_summaries"
        yield table


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_is_answered_from_the_log(damaged, request_):
    table, client = damaged, damaged.client
    if request_ == "plan":
        answer = client.post(f"{table.url}/plan", json={"predicate": "id >= 11"})
        assert [file["path"] for file in answer.json()["files"]] == ["c.parquet"]
    elif request_ == "delete":
        answer = table.delete({"b.parquet": [0, 1]})
    elif request_ == "append":
        answer = table.append(table.write_file("d.parquet", [100]))
    elif request_ == "checkpoint":
        answer = client.post(f"{table.url}/checkpoint")
    else:
        answer = client.get(f"{table.url}/{request_}")
    assert answer.status_code == 200, answer.text

    left = client.post(f"{table.url}/plan", json={}).json()
    assert left["num-files"] == (4 if request_ == "append" else 3)
    deleted = [file for file in left["files"] if file["deletionVector"]]
    assert len(deleted) == (1 if request_ == "delete" else 0)


def test_what_is_lost_again_and_again_is_answered_at_last(filled):
    service = filled.client.service
    table = service.tables.open(filled.name)
    seen = []

    def work(snapshot):
        seen.append(snapshot)
        if len(seen) < 3:
            raise SegmentsLost
        return snapshot.version

    assert service.loader.reading(table.objects, table.name, work) == 1
    assert len(set(map(id, seen))) == 3
    seen.clear()
    assert service.loader.reading(table.objects, table.name, work, version=0) == 0
