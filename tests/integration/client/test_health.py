"""``lake.health()`` and ``table.health_samples()``."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import delvec


def test_all_tables_by_what_they_need(lake, people, tmp_path):
    lake.create_table(tmp_path / "empty", "id long")
    people.delete("id < 4")
    people.health()  # so that there is a sample of this very version
    found = lake.health("deleted-ratio", min_deleted_ratio=0.01)
    assert [one["name"] for one in found] == ["people"]
    assert found[0]["sample"]["version"] == people.version()
    assert {one["name"] for one in lake.health()} == {"people", "empty"}
    assert len(lake.health(limit=1)) == 1
    with pytest.raises(delvec.BadRequest, match="order-by"):
        lake.health("age")


def test_samples_since_a_time(people):
    people.health()
    people.delete("id = 1")
    people.health()
    versions = [one["version"] for one in people.health_samples(since=datetime.now(UTC) - timedelta(hours=1))]
    assert versions[0] == people.version()
    assert versions == sorted(versions, reverse=True)
    assert people.health_samples(since="2999-01-01") == []
    assert len(people.health_samples(limit=1)) == 1


def test_overlap_of_a_clustered_table_falls_when_it_is_sorted(lake, tmp_path):
    properties = {"delta.targetFileSize": "20000"}
    table = lake.create_table(tmp_path / "sorted", "id long, x long", cluster_by=["x"], properties=properties)
    for start in range(20):
        table.append(
            pa.table(
                {
                    "id": range(start * 1000, start * 1000 + 1000),
                    "x": [n * 7919 % 20_000 for n in range(1000)],
                }
            )
        )
    health = table.health(columns=["ID"], files=3)
    by_x, by_id = health["overlaps"]
    assert (by_x["column"], by_x["average-depth"], by_x["max-depth"]) == ("x", 20.0, 20)
    assert (by_id["column"], by_id["average-depth"], len(by_x["files"])) == ("id", 1.0, 3)
    (advice,) = [one for one in health["recommendations"] if one["finding"] == "overlapping-files"]
    assert (advice["action"], advice["command"]) == ("OPTIMIZE", "delvec optimize sorted")
    assert advice["points"] > 10
    table.optimize()
    after = table.health()
    assert after["overlaps"][0]["average-depth"] < 3
    assert "overlapping-files" not in [one["finding"] for one in after["recommendations"]]
    with pytest.raises(delvec.UnknownColumn):
        table.health(columns=["nothing"])
