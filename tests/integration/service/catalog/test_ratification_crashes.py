"""A service that dies, or whose storage fails, at any step of ratification: no commit is lost or doubled."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.support.catalog_client import ManagedTable
from tests.support.in_process_service import running_service

from delvec_service.commits import fault_points

ROOT = Path(__file__).parents[4]
PUBLISHED = frozenset({"after-put", "before-close", "before-answer"})
"""Points that are reached once the version exists."""
STATES = ("the same database", "another database", "overtaken")
KILLED = """
import json, sys
from tests.support.in_process_service import running_service

settings, url, body = json.load(sys.stdin)
with running_service(**settings) as client:
    client.post(url, json=body)
"""


def test_every_point_is_known():
    assert fault_points.RATIFICATION > PUBLISHED


def settings(folder, database="store"):
    (folder / "lake").mkdir(exist_ok=True)
    lake = str(folder / "lake")
    return {"database_url": f"sqlite:///{folder / database}.db", "roots": [lake], "warehouse": lake}


@contextmanager
def another_database(folder, table):
    """Yield the table as a service knows it that has lost its database, and where the location is registered again."""
    with running_service(**settings(folder, "another")) as client:
        made = client.post("/v1/tables", json={"location": table.location, "name": f"sales.{table.name}"})
        assert made.status_code < 300, made.text
        found = ManagedTable(client, table.name)
        found.uuid, found.folder, found.location = table.uuid, table.folder, table.location
        yield found


def log(table):
    """Return the actions of each version, as they are in storage."""
    entries = sorted((Path(table.folder) / "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in entry.read_text().splitlines()] for entry in entries]


def rows(table):
    adds = [action["add"] for version in log(table) for action in version if "add" in action]
    return sorted(
        id_ for add in adds for id_ in pq.read_table(Path(table.folder) / add["path"])["id"].to_pylist()
    )


def killed(folder, table, body, point):
    """Have another process of the service ratify a commit, and die at a point."""
    process = subprocess.run(
        [sys.executable, "-c", KILLED],
        input=json.dumps([settings(folder), table.url, body]),
        check=False,
        cwd=ROOT,
        env={**os.environ, "DELVEC_FAULT_POINTS": f"{point}:kill"},
        capture_output=True,
        text=True,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr


def asked_again(table, body, actions, *, is_lost):
    """Send a request again as clients do: a lost race is followed by the same commit as the next version."""
    answer = table.update(body)
    if is_lost:
        assert answer.json()["error"]["type"] == "CommitVersionConflictException", answer.text
        answer = table.update(table.staged(actions, txnId="ours"))
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("point", sorted(fault_points.RATIFICATION))
def test_a_service_killed_at_any_point_loses_and_doubles_nothing(tmp_path, point, state):
    with running_service(**settings(tmp_path)) as client:
        people = ManagedTable(client, "people").create()
        people.commit([people.file([1, 2])])
        actions = [people.file([3])]
        body = people.staged(actions, txnId="ours")
        killed(tmp_path, people, body, point)
        assert len(log(people)) == (3 if point in PUBLISHED else 2)

        others = [4] if state == "overtaken" else []
        if others:
            people.commit([people.file(others)])
        if state == "another database":
            with another_database(tmp_path, people) as anew:
                asked_again(anew, body, actions, is_lost=False)
                assert anew.update(body).status_code == 200
        else:
            asked_again(people, body, actions, is_lost=bool(others) and point not in PUBLISHED)
        assert rows(people) == [1, 2, 3, *others]
        ids = [version[0]["commitInfo"]["txnId"] for version in log(people)]
        assert ids.count("ours") == 1
        assert people.version() == len(ids) - 1


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("begin:error*1", "InternalServerErrorException"),
        ("after-read:error*1", "InternalServerErrorException"),
        ("after-checks:error*1", "InternalServerErrorException"),
        ("before-put:error*2", None),
        ("before-put:error*4", "InternalServerErrorException"),
        ("after-put:lost*1", None),
        ("after-put:lost*4", "CommitStateUnknownException"),
        ("before-close:error*1", None),
        ("before-answer:lost*1", "CommitStateUnknownException"),
    ],
)
def test_a_fault_at_any_point_is_settled_by_the_same_request(people, fault, kind):
    body = people.staged([people.file([3])], txnId="ours")
    with fault_points.armed(fault):
        answer = people.update(body)
        assert fault_points.passed(fault.partition(":")[0]) > 0
    assert answer.status_code == 200 if kind is None else answer.json()["error"]["type"] == kind, answer.text
    assert answer.status_code >= 500 or kind is None
    assert people.version() == (0 if kind == "InternalServerErrorException" else 1)
    assert people.update(body).status_code == 200
    assert rows(people) == [3]
    assert people.version() == 1
