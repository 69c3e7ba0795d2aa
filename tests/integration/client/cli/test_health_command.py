"""``delvec health``: in words for people, as JSON for programs."""

import json
import re

import pyarrow as pa
import pytest

import delvec


@pytest.fixture
def at(tmp_path):
    """The location of a table with twelve small files, of whose rows a tenth are deleted."""
    with delvec.connect() as lake:
        table = lake.create_table(tmp_path / "people", "id long, country string", partition_by=["country"])
        for number in range(12):
            rows = {"id": range(number * 100, number * 100 + 100), "country": ["NZ"] * 100}
            table.append(pa.table(rows))
        table.delete("id % 10 = 0")
    return tmp_path / "people"


def test_what_is_wrong_what_to_do_and_what_it_gains_come_first(run, at):
    lines = run("health", at).out.splitlines()

    assert re.fullmatch(r"people is (fair|poor): [0-9.]+ of 100 points in version 13\.", lines[0])
    plan = "\n".join(lines[: lines.index("", 2)])
    assert "1. Rewrite small files and files with deleted rows\n   12 of 12 files" in plan
    assert re.search(
        r"about \d+ points afterwards; gains [0-9.]+ .*; 11 files fewer; reads and writes ", plan
    )
    assert re.search(r"\n   delvec optimize \S+$", plan)
    rest = "\n".join(lines[lines.index("", 2) :])
    assert re.search(r"\nDeleted rows +120\n", rest)
    assert re.search(r"\nDeleted share +10\.0 %\n", rest)
    assert re.search(r"\nCommits +\d+, 0 of them rebased; 0 conflicts", rest)
    assert not re.search(r"\bnum |-in-bytes|in bytes", rest)  # nothing as the service calls it


def test_a_table_that_needs_nothing(run, tmp_path):
    run("create", tmp_path / "empty", "--schema", "id long")

    out = run("health", tmp_path / "empty").out

    assert out.startswith("empty is good: 100 of 100 points in version 0.\nNothing to do.\n")


def test_files_partitions_and_columns_on_request(run, at):
    out = run("health", at, "--files", "2", "--partitions", "1", "--column", "id").out

    assert len(re.findall(r"\n     country=NZ/\S+: [0-9.]+ \w+, [0-9.]+ points", out)) >= 2
    assert re.search(r"\nPartition +Files +Small files .*\ncountry=NZ +12 +12 ", out)
    assert "A lookup by id opens 1.0 files on average, 1 at most; 0 files without bounds." in out


def test_all_tables_with_what_they_need(run, at, tmp_path):
    run("create", tmp_path / "empty", "--schema", "id long")
    run("health", tmp_path / "empty")
    run("health", at)

    head, first, second = run("health").out.splitlines()

    assert re.fullmatch(
        r"Table +Health +Deleted share +Small files +Files +Size +Bytes saved in reads +Needs", head
    )
    assert re.match(r"people +[0-9.]+ +10\.0 % +12 +12 +[0-9.]+ KiB +.* compaction", first)
    assert re.match(r"empty +100 .* nothing", second)
    (worst, _) = json_of(run("health", "--json"))
    assert worst["sample"]["actions"] == ["OPTIMIZE", "PURGE"]


def test_programs_get_what_the_service_answers(run, at):
    answer = json_of(run("health", at, "--json"))

    with delvec.connect() as lake:
        assert answer.keys() == lake.table(at).health().keys()
    assert [one["action"] for one in answer["recommendations"]] == ["OPTIMIZE", "PURGE"]


def json_of(printed):
    return json.loads(printed.out)
