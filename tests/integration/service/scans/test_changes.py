"""``…/changes`` over HTTP: how much one answer tells; what it tells is in `tests/integration/engines/test_changes.py`."""

import pyarrow as pa
import pytest

from delvec_service.api import changes_routes

ARROW = {"Accept": "application/vnd.apache.arrow.stream"}


@pytest.fixture
def fed(client, create, tmp_path):
    """A table whose versions 1 to 3 add two files each, with a change feed."""
    fed = create(client, tmp_path / "fed", properties={"delta.enableChangeDataFeed": "true"})
    for version in range(1, 4):
        appended = fed.append(
            *(fed.write_file(f"{version}-{number}.parquet", [version]) for number in (1, 2))
        )
        assert appended.json()["version"] == version
    return fed


def ask(table, headers=None, **versions):
    return table.client.post(f"{table.url}/changes", json=versions, headers=headers or {})


def test_an_answer_has_no_more_files_than_memory_is_for(fed, error, monkeypatch):
    monkeypatch.setattr(changes_routes, "_MAX_FILES", 4)
    monkeypatch.setattr(changes_routes, "MAX_JSON_FILES", 1)

    refused = error(ask(fed, ARROW, **{"start-version": 1}))
    assert (refused["type"], refused["code"]) == ("ReadLimitExceeded", "READ_LIMIT_EXCEEDED")
    assert "changed more than 4 files" in refused["message"]
    assert "Read versions 1 to 2 first, then those from 3 on" in refused["message"]
    with pa.ipc.open_stream(ask(fed, ARROW, **{"start-version": 1, "end-version": 2}).content) as stream:
        assert stream.read_all().num_rows == 4

    refused = error(ask(fed, **{"start-version": 3}))
    assert "changed more than 1 file," in refused["message"]
    assert "Read them in your own process" in refused["message"]
