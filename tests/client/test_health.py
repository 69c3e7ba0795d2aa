"""``lake.health()`` and ``table.health_samples()``."""

from datetime import UTC, datetime, timedelta

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
