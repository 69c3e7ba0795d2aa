"""What Delvec has for the tests of others, used as they would use it."""

import subprocess
import sys

import pytest

import delvec
from delvec.testing import assert_rows, delvec_lake, delvec_remote, delvec_service, table_of  # noqa: F401

ROWS = [{"id": 1, "country": "NZ"}, {"id": 2, "country": None}]


def test_a_lake_with_tables_from_literals(delvec_lake):  # noqa: F811
    people = table_of(delvec_lake, "people", ROWS, "id long, country string")
    assert_rows(people, reversed(ROWS))
    people.delete("id = 1")
    assert_rows(people, ROWS[1:])
    assert_rows(people, [{"id": 1}, {"id": 2}], version=0, columns=["id"])
    with pytest.raises(AssertionError, match="other rows"):
        assert_rows(people, ROWS)


def test_a_table_has_the_columns_of_its_rows_and_may_be_empty(delvec_lake):  # noqa: F811
    assert_rows(table_of(delvec_lake, "people", ROWS, partition_by=["country"]), ROWS)
    assert_rows(table_of(delvec_lake, "nobody", [], "id long"), [])


def test_a_service_and_its_events(delvec_remote, delvec_service):  # noqa: F811
    people = table_of(delvec_remote, "people", ROWS, "id long, country string")
    people.delete("id = 1")
    with delvec.connect(delvec_service) as lake:
        assert_rows(lake.table("people"), ROWS[1:])
        following = lake.events("people", types=["delvec.commit"], follow=True)
        operations = [next(following)["data"]["operation"] for _ in range(2)]
    assert operations == ["CREATE TABLE AS SELECT", "DELETE"]


@pytest.mark.full("starts pytest in a process of its own")
def test_the_fixtures_are_a_plugin(tmp_path):
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["delvec.testing"]\n')
    (tmp_path / "test_mine.py").write_text(
        "from delvec.testing import table_of\n\n"
        "def test_mine(delvec_lake):\n"
        "    assert table_of(delvec_lake, 'a', [{'id': 1}]).delete('id = 1').version == 1\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:schemathesis",
        "-p",
        "no:cacheprovider",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
