"""``table.conflicts()`` and ``delvec conflicts``."""

import datetime as dt
import json

import pyarrow as pa
import pytest

import delvec
from delvec.cli import main


@pytest.fixture
def lake():
    """With a database that outlives the connection."""
    with delvec.connect() as connection:
        yield connection


@pytest.fixture
def people(lake, tmp_path):
    """A table, to which one commit lost a race and another one was taken past it."""
    people = lake.create_table(str(tmp_path / "people"), "id long")
    people.append(pa.table({"id": range(10)}))
    (url,) = people.files()
    path, read = url.rpartition("/")[2], people.version()
    late = people.transaction("UPDATE", read_version=read, predicate="id = 3")
    late.delete_rows({path: [3]})
    late.mark_read(rows={path: [3]})
    people.delete("id = 3")
    with pytest.raises(delvec.ConcurrentModification):
        late.commit()
    with people.transaction("DELETE", read_version=read, predicate="id = 5") as other:
        other.delete_rows({path: [5]})
    return people


def test_what_lost_and_what_was_saved(people):
    found = people.conflicts()

    (one,) = found["conflicts"]
    assert (one["operation"], one["winning-operation"], one["winning-version"]) == ("UPDATE", "DELETE", 2)
    (hour,) = found["intervals"]
    assert (hour["conflicts"], hour["rebased"], hour["rows-saved"]) == (1, 1, 1)
    assert people.conflicts(since=hour["since"], limit=1)["conflicts"] == [one]
    assert people.conflicts("2999-01-01")["conflicts"] == []
    with pytest.raises(delvec.BadRequest, match="limit"):
        people.conflicts(limit=0)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("id BETWEEN 0 AND 5 - 1", "id BETWEEN 5 AND 2 * 5 - 1"),
        ("id < cast('5' as int)", "id >= -(-5)"),
        ("id < 10 / 2", "id >= 10 div 2"),
        ("day < date '2026-01-01' + interval 5 days", "day >= date_add(date '2026-01-01', 5)"),
    ],
)
def test_bounds_that_are_computed_keep_ranges_apart(lake, tmp_path, ours, theirs):
    """Neither UPDATE reads a row that the other one writes, in either order, and no file of the other's range is read."""
    table = lake.create_table(str(tmp_path / "days"), "id long, day date, n long")
    for first in (0, 5):
        ids = range(first, first + 5)
        days = [dt.date(2026, 1, 1) + dt.timedelta(days=each) for each in ids]
        table.append(pa.table({"id": ids, "day": days, "n": [0] * 5}))
    for mine, other in ((ours, theirs), (theirs, ours)):
        (url,) = table.files(mine)
        path, read = url.rpartition("/")[2], table.version()
        late = table.transaction("UPDATE", read_version=read, predicate=mine)
        late.delete_rows({path: [0]})
        table.update({"n": "n + 1"}, other)
        assert late.commit().result == "rebased"


def test_in_the_shell(people, capsys):
    people.conflicts()  # so that it is written down: a shell is another process
    for arguments in ((), ("--since", "2020-01-01"), ("--limit", "1")):
        with pytest.raises(SystemExit) as ended:
            main(["conflicts", people.location, *arguments])
        assert ended.value.code == 0
        shown = capsys.readouterr().out
        assert "2: DELETE" in shown
        assert "UPDATE" in shown
        assert "rows saved" in shown
    with pytest.raises(SystemExit):
        main(["conflicts", people.location, "--json"])
    assert json.loads(capsys.readouterr().out)["conflicts"][0]["winning-version"] == 2
