"""Display and completion in notebooks, and pickling."""

import copy
import json
import pickle
from datetime import UTC, datetime

import pandas as pd
import pytest

import delvec
from delvec.http.service_client import ServiceClient


@pytest.fixture
def odd(lake, tmp_path):
    table = lake.create_table(tmp_path / "odd", "`<b>x</b>` long", properties={"owner": "<script>"})
    table.append([{"<b>x</b>": 1}], user_metadata="<script>")
    return table


def test_what_notebooks_show_is_escaped(lake, odd):
    for shown in (odd, lake, odd.history(), odd.delete()):
        html = shown._repr_html_()
        assert html.startswith("<table>")
        assert "<b>x" not in html
        assert "<script" not in html
    assert "&lt;b&gt;x" in odd._repr_html_()
    assert "/odd" in lake._repr_html_()


def test_a_table_that_is_gone_and_a_closed_connection_show_themselves(lake, people):
    lake.close()
    assert people.location in people._repr_html_()
    assert "closed" in lake._repr_html_()


def test_metrics_are_short_and_all_there(people):
    done = people.delete("id = 3")
    assert repr(done).startswith("Metrics({'num")
    assert "numCopiedRows" not in repr(done)
    assert "numCopiedRows" not in done._repr_html_()
    assert dict(done)["numCopiedRows"] == 0
    assert done["numDeletedRows"] == 1


def test_history_is_a_list_and_a_frame(people):
    people.delete("id = 3")
    history = people.history()
    assert [entry["operation"] for entry in history] == ["DELETE", "WRITE", "CREATE TABLE"]
    assert isinstance(history, list)
    json.dumps(history)
    frame = history.to_pandas()
    assert list(frame["version"]) == [2, 1, 0]
    assert frame["timestamp"].iloc[0] == pd.Timestamp(history[0]["timestamp"], unit="ms", tz="UTC")
    rows = history.to_arrow().to_pylist()
    assert isinstance(rows[0]["timestamp"], datetime)
    assert rows[0]["timestamp"].astimezone(UTC).timestamp() == pytest.approx(history[0]["timestamp"] / 1000)
    assert dict(rows[0]["operationMetrics"])["numDeletedRows"] == "1"
    assert people.history(1).to_arrow().num_rows == 1


def test_head_reads_the_first_rows(people):
    assert people.head().shape == (5, 3)
    assert list(people.head(2, ["id"]).columns) == ["id"]
    assert people.head(100).shape == (10, 3)
    assert people.head(0).shape == (0, 3)
    assert people.scan(predicate="id > 7").head(5).shape == (2, 3)
    with pytest.raises(delvec.BadRequest, match="0 or more"):
        people.head(-1)


def test_the_schema_is_printed_one_column_per_line(lake, tmp_path, capsys):
    table = lake.create_table(
        tmp_path / "t",
        "id long NOT NULL, tags array<string>, place struct<city:string, zip:int> COMMENT 'home'",
    )
    table.print_schema()
    assert capsys.readouterr().out.splitlines() == [
        "id     bigint NOT NULL",
        "tags   array<string>",
        "place  struct<city:string,zip:int>  -- home",
    ]


def test_completion_offers_public_names_only(lake, people):
    for each in (lake, people, delvec):
        names = dir(each)
        assert names
        assert [name for name in names if name.startswith("_") and not name.startswith("__")] == []
    assert {"append", "delete", "name", "location", "engine"} <= set(dir(people))
    assert "replace_with" not in dir(people)
    assert set(delvec.__all__) <= set(dir(delvec))
    assert "importlib" not in dir(delvec)


def test_remote_handles_are_pickled_and_embedded_ones_say_why_not(lake, people):
    remote = delvec.connect("http://127.0.0.1:9", token="secret", timeout=7.0, retries=2)
    again = pickle.loads(pickle.dumps(remote))
    assert (again.url, again._retries) == (remote.url, 2)
    assert again._service._http.headers["Authorization"] == "Bearer secret"
    assert "secret" not in repr(again)
    for each in (lake, people):
        with pytest.raises(TypeError, match="delvec serve"):
            pickle.dumps(each)
    handle = copy.copy(people)
    handle._service = ServiceClient("http://127.0.0.1:9")
    other = pickle.loads(pickle.dumps(handle))
    assert (other.id, other.name, other.location) == (people.id, people.name, people.location)
    assert other.engine.name == people.engine.name
