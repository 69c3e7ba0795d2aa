"""Data files that VACUUM has deleted: no conversion publishes a snapshot that needs one, and a check finds those that do."""

from urllib.parse import unquote

import pytest
from tests.support.iceberg_tables import assert_sound, delta_rows, iceberg_rows, iceberg_table

import delvec

BOTH = pytest.mark.parametrize("format_version", [2, 3])
NOW = {"retention_hours": 0, "enforce_retention_duration": False}


@pytest.fixture
def people(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with delvec.connect() as lake:
        table = lake.create_table(tmp_path / "a b%20c", "id long, p string", partition_by=["p"])
        table.append([{"id": n, "p": "é "[n % 2]} for n in range(20)])
        yield table


def versions(converted):
    snapshots = iceberg_table(converted).metadata.snapshots
    return {int(one.summary.additional_properties["delta-version"]): one.snapshot_id for one in snapshots}


@BOTH
def test_versions_between_whose_data_files_are_gone_get_no_snapshot(people, format_version):
    first = people.to_iceberg(format_version=format_version)
    people.append([{"id": 100, "p": "é"}])
    people.optimize.compact()
    people.vacuum(**NOW)
    people.append([{"id": 101, "p": "é"}])

    done = people.to_iceberg(format_version=format_version)

    shown = versions(done)
    assert shown.keys() == {1, people.version()}
    for version, snapshot in shown.items():
        assert iceberg_rows(done, snapshot_id=snapshot) == delta_rows(people, version=version)
    assert first["snapshot-id"] in shown.values()
    assert_sound(people)


@BOTH
def test_versions_between_whose_data_files_remain_get_theirs(people, format_version):
    people.to_iceberg(format_version=format_version)
    people.append([{"id": 100, "p": "é"}])
    added = people.version()
    people.optimize.compact()

    done = people.to_iceberg(format_version=format_version)

    shown = versions(done)
    assert shown.keys() == {1, added, added + 1}
    assert iceberg_rows(done, snapshot_id=shown[added]) == delta_rows(people, version=added)


@BOTH
def test_a_check_looks_up_the_data_files_of_older_snapshots(people, tmp_path, format_version):
    people.to_iceberg(format_version=format_version)
    [path] = people.plan(predicate="p = 'é'")[0].files["path"].to_pylist()
    people.delete("p = 'é'")
    people.to_iceberg(format_version=format_version)
    assert_sound(people)
    (tmp_path / "a b%20c" / unquote(path)).unlink()

    findings = people.check(iceberg=True)["findings"]

    assert [(one["invariant"], one["severity"]) for one in findings] == [("iceberg-history", "warning")]
    assert findings[0]["file"].endswith(unquote(path))
    assert "of version 1 cannot be read" in findings[0]["message"]
