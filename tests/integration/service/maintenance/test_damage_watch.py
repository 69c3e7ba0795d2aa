"""Health knows what ``check`` knows: files that are gone, failed reads, and errors in the log."""

import re
from dataclasses import replace

import pytest

from delvec_maintenance.checks.findings import Finding
from delvec_service.maintenance import damage_watch
from delvec_service.operations import maintenance as checking

HTML = {"Accept": "text/html"}


def health(table, **parameters):
    answer = table.client.get(f"{table.url}/health", params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


def advice(table, **parameters):
    found = health(table, **parameters)
    return found["score"], [one["action"] for one in found["recommendations"]]


def listed(table):
    (one,) = table.client.get("/v1/health").json()["tables"]
    return one["sample"]["score"], one["sample"]["actions"]


def add_small_files(table, count):
    files = [
        table.write_file(f"small-{number}.parquet", range(number, number + 1)) for number in range(count)
    ]
    assert table.append(*files).status_code == 200


def test_a_missing_data_file_costs_all_points_and_only_a_check_is_advised(filled):
    add_small_files(filled, 20)
    assert advice(filled) == (pytest.approx(62, abs=4), ["OPTIMIZE"])

    (filled.folder / "a.parquet").unlink()

    found = health(filled, files=5)
    assert found["score"] == 0
    (one,) = found["recommendations"]
    assert (one["finding"], one["action"], one["command"]) == (
        "damaged-files",
        "CHECK",
        "delvec check people",
    )
    assert re.search(r"1 error .*'a\.parquet' .*does not exist in storage", one["reason"])
    assert [file["path"] for file in one["files"]] == ["a.parquet"]
    assert listed(filled) == (0, ["CHECK"])


@pytest.mark.parametrize("how", ["gone", "truncated"])
def test_a_damaged_deletion_vector(filled, how):
    assert filled.delete({"a.parquet": [1, 2]}).status_code == 200
    assert advice(filled)[0] > 0
    (vector,) = filled.folder.glob("deletion_vector_*.bin")
    if how == "gone":
        vector.unlink()
    else:
        vector.write_bytes(vector.read_bytes()[:8])

    assert advice(filled) == (0, ["CHECK"])


def test_a_file_that_is_back_is_sound_again(filled):
    path = filled.folder / "a.parquet"
    path.rename(path.with_suffix(".away"))
    assert advice(filled)[0] == 0

    path.with_suffix(".away").rename(path)

    assert advice(filled) == (100, [])
    assert listed(filled) == (100, [])


@pytest.mark.parametrize("how", ["check", "a failed read"])
def test_what_the_sample_misses_is_known_from(filled, monkeypatch, how):
    monkeypatch.setattr(damage_watch, "_SAMPLE", 0)
    (filled.folder / "b.parquet").unlink()
    assert advice(filled)[0] == 100

    if how == "check":
        assert filled.client.get(f"{filled.url}/check").json()["num-errors"] == 1
    else:
        assert advice(filled, file=["b.parquet", "not-live.parquet"])[0] == 0

    assert advice(filled) == (0, ["CHECK"])
    add_small_files(filled, 1)
    assert advice(filled) == (0, ["CHECK"])


def test_errors_of_the_log_stay_until_the_next_check(filled, monkeypatch):
    real, problem = checking.check, Finding("readable-commit", "error", 0, None, "Version 0 cannot be read.")

    def with_problem(*arguments, **named):
        found = real(*arguments, **named)
        return replace(found, findings=[*found.findings, problem])

    with monkeypatch.context() as patch:
        patch.setattr(checking, "check", with_problem)
        assert filled.client.get(f"{filled.url}/check").json()["num-errors"] == 1

    found = health(filled)
    assert (found["score"], found["recommendations"][0]["reason"][-25:]) == (0, "Version 0 cannot be read.")
    add_small_files(filled, 1)
    assert advice(filled) == (0, ["CHECK"])
    assert filled.client.get(f"{filled.url}/check").json()["num-errors"] == 0
    assert advice(filled) == (100, [])


def test_the_page_is_red(filled):
    (filled.folder / "a.parquet").unlink()

    page = filled.client.get("/dashboard/tables/people", headers=HTML).text

    assert re.search(r'class="state broken">.*?class="points">0</span> damaged', page, re.DOTALL)
    assert "delvec check people" in page
    assert "damaged" in filled.client.get("/dashboard/tables", headers=HTML).text


def test_health_of_an_earlier_version_is_of_the_log_alone(filled):
    (filled.folder / "a.parquet").unlink()

    assert advice(filled, version=1) == (100, [])
