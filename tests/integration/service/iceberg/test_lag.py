"""The lag of Iceberg metadata in health, for every kind of conversion."""

import json
import re

import pytest

import delvec
from delvec.cli import main
from delvec_errors import StorageError
from delvec_service.iceberg.conversion import IcebergConversion


@pytest.fixture
def people(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with delvec.connect() as lake:
        table = lake.create_table(tmp_path / "people", "id long")
        table.append([{"id": n} for n in range(20)])
        yield table


def lags(table):
    return {
        one["format-version"]: (one["delta-version"], one["lag-versions"])
        for one in table.health()["iceberg"]
    }


def test_a_table_that_is_not_converted_has_none(people):
    assert people.health()["iceberg"] == []


def test_each_format_version_has_its_own(people):
    people.to_iceberg(format_version=2)
    people.append([{"id": 30}])
    done = people.to_iceberg(format_version=3)
    assert lags(people) == {2: (1, 1), 3: (2, 0)}
    [older, newer] = people.health()["iceberg"]
    assert newer["metadata-location"] == done["metadata-location"]
    assert newer["lag-seconds"] == 0
    assert older["lag-seconds"] < 60
    people.to_iceberg(format_version=2)
    assert lags(people) == {2: (2, 0), 3: (2, 0)}


def test_seconds_are_those_of_the_oldest_version_that_waits(people, tmp_path):
    people.to_iceberg()
    people.append([{"id": 30}])
    people.append([{"id": 31}])
    commit = tmp_path / "people" / "_delta_log" / f"{2:020d}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        if "commitInfo" in line:
            line["commitInfo"]["timestamp"] -= 3_600_000
    commit.write_text("\n".join(map(json.dumps, lines)))
    with delvec.connect() as lake:
        [found] = lake.table(tmp_path / "people").health()["iceberg"]
    assert found["lag-versions"] == 2
    assert 3600 <= found["lag-seconds"] < 3700


def test_a_table_that_asks_for_conversions_and_gets_none_is_behind_by_all(people, monkeypatch):
    def fails(*_, **__):
        raise StorageError("it is down")

    monkeypatch.setattr(IcebergConversion, "convert", fails)
    people.alter.set_properties({"delvec.iceberg.formatVersions": "3"})
    assert lags(people) == {3: (None, 3)}
    assert people.health()["iceberg"][0]["lag-seconds"] < 60


def test_metadata_that_cannot_be_read_are_left_out(people, tmp_path):
    people.to_iceberg(format_version=2)
    people.to_iceberg(format_version=3)
    (tmp_path / "people" / "_iceberg" / "v3" / "metadata" / "v1.metadata.json").write_text("{")
    assert lags(people) == {2: (1, 0)}


def test_the_shell_says_it(people, tmp_path, capsys):
    people.to_iceberg(format_version=3)
    people.append([{"id": 30}])
    with pytest.raises(SystemExit):
        main(["health", str(tmp_path / "people")])
    printed = capsys.readouterr().out
    assert re.search(r"Iceberg format version 3 +version 1, 1 version and \d+ s behind", printed)
