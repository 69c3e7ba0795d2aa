"""The service never accesses files outside its roots, wherever and whenever symlinks are created."""

import itertools
import json
import os
import shutil
import string
import tempfile
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delvec_service.maintenance import checkpoints

SECRET = "SECRET-OUTSIDE"
LOG = "_delta_log"
PLACES = [
    ".",  # the table itself
    "..",  # a directory above it, inside the root
    LOG,
    f"{LOG}/_sidecars",
    "part=1",
    "prefixes",  # of deletion vector files
    f"{LOG}/{1:020}.json",
    f"{LOG}/{2:020}.json",
    f"{LOG}/{2:020}.crc",
    f"{LOG}/_last_checkpoint",
    "part=1/a.parquet",
    "_delvec",
    "_delvec/quarantines",
    "_delvec/quarantined",
    "_delvec/clones",
    "_delvec/row_maps",
    "_iceberg",
    "_iceberg/v2/metadata",
    "_iceberg/v2/deletes",
]
PREFIXES = string.ascii_letters + string.digits
CALLS = ("open", "stat", "link", "mkdir", "unlink", "replace", "scandir", "readlink")
OPERATIONS = (
    *("create", "register", "append", "delete", "checkpoint", "clean-up", "read", "plan", "check"),
    *("vacuum", "quarantine", "quarantines", "undo", "purge", "shallow-clone", "deep-clone", "iceberg"),
    *("iceberg-catalog", "restore", "compact"),
)
NOW = {"retention-hours": 0, "enforce-retention-duration": False}
ROW_MAP = "_delvec/row_maps/00000000-0000-4000-8000-000000000000.parquet"
LONG_AGO = 1_600_000_000
PROPERTIES = {
    "delta.checkpointPolicy": "v2",
    "delta.feature.v2Checkpoint": "supported",
    "delta.randomizeFilePrefixes": "true",
    "delta.randomPrefixLength": "1",
    "delta.logRetentionDuration": "interval 0 seconds",
}


def tree(folder):
    """Everything below a directory: names, kinds, contents and times."""
    found = {}
    for path in sorted(folder.rglob("*")):
        kind = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        found[str(path.relative_to(folder))] = (kind.st_mode, kind.st_mtime_ns, kind.st_ino, content)
    return found


class Lake:
    """A root with a table, and a copy of everything outside, to which symlinks may point."""

    def __init__(self, base, running, create):
        self.root, self.outside = base / "root", base / "outside"
        self.create, self.files = create, itertools.count()
        (self.root / "team").mkdir(parents=True)
        self.running = running(
            roots=(str(self.root),), database_url=f"sqlite:///{base / 's.db'}", log_maintenance=False
        )
        self.client = self.running.__enter__()
        self.table = create(self.client, self.root / "team" / "people", name="people", properties=PROPERTIES)
        self.path = "part%3D1/a.parquet"
        done = self.table.append(self.table.write_file("part=1/a.parquet", range(10)))
        assert done.status_code == 200, done.text
        assert self.client.post(f"{self.table.url}/checkpoint", json={}).status_code == 200
        assert self.table.delete({self.path: [1]}).status_code == 200
        self.put_strays("first.parquet")
        quarantined = self.client.post(f"{self.table.url}/vacuum", json={**NOW, "quarantine": True}).json()
        self.quarantine = quarantined["quarantine"]
        self.put_strays("x.parquet", "part=1/y.parquet", ROW_MAP)
        for operation in ("shallow-clone", "iceberg"):
            answer = self.run(operation)
            assert answer.status_code == 200, answer.text
        shutil.copytree(self.root / "team", self.outside / "team")
        copied = self.outside / "team" / "people"
        for version in (2, 3):
            # The copy goes on: an answer that shows it has read there.
            text = f'{{"commitInfo":{{"operation":"{SECRET}","timestamp":1}}}}\n'
            with (copied / LOG / f"{version:020}.json").open("a") as file:
                file.write(text)
        (copied / LOG / f"{2:020}.crc").write_text("{}")
        (copied / "prefixes").mkdir()
        self.before = tree(self.outside)

    def put_strays(self, *names):
        """Create unreferenced files in the table and the copy, for VACUUM to find."""
        for name in names:
            path = self.root / "team" / "people" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("stray")
            os.utime(path, (LONG_AGO, LONG_AGO))

    def put_link(self, place):
        """Replace a path by a symlink to the copy; the original is moved within the root."""
        folder = self.root / "team" / "people"
        aside = Path(tempfile.mkdtemp(dir=self.root))
        for name in PREFIXES if place == "prefixes" else [place]:
            here = Path(os.path.normpath(folder / name))
            there = self.outside / here.relative_to(self.root)
            there = self.outside / "team" / "people" / "prefixes" if place == "prefixes" else there
            if os.path.lexists(here):
                here.rename(aside / here.name)
            if here.parent.is_dir():
                here.symlink_to(there)

    def run(self, operation):
        """Run one operation; return its response, even an error."""
        client, url = self.client, self.table.url
        match operation:
            case "create":
                where = str(self.root / "team" / f"new{next(self.files)}")
                field = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
                body = {"location": where, "schema": {"type": "struct", "fields": [field]}}
                answer = client.post("/v1/tables", json=body)
            case "register":
                client.delete(url)
                body = {"location": str(self.root / "team" / "people"), "name": "people"}
                answer = client.post("/v1/tables", json=body)
            case "append":
                # As an engine's process with links of its own would: the file is written before the link is there.
                name = f"part=1/{next(self.files)}.parquet"
                add = {"path": name.replace("=", "%3D"), "size": 1, "partitionValues": {}}
                add |= {"modificationTime": 1, "stats": '{"numRecords":1}'}
                answer = self.table.commit(operation="WRITE", adds=[add], read_version=2)
            case "delete":
                answer = self.table.delete({self.path: [next(self.files) % 10]}, read_version=2)
            case "checkpoint" | "clean-up":
                answer = client.post(f"{url}/checkpoint", json={"clean-up": operation == "clean-up"})
            case "read":
                answer = client.get(f"{url}/history")
            case "plan":
                answer = client.post(f"{url}/plan", json={})
            case "check":
                answer = client.get(f"{url}/check")
            case _:
                answer = self.maintain(operation)
        return answer

    def maintain(self, operation):
        """Run one of the operations that look after a table."""
        url, name = self.table.url, f"clone{next(self.files)}"
        method, path, body = {
            "vacuum": ("POST", f"{url}/vacuum", NOW),
            "quarantine": ("POST", f"{url}/vacuum", {**NOW, "quarantine": True}),
            "quarantines": ("GET", f"{url}/quarantines", None),
            "undo": ("POST", f"{url}/quarantines/{self.quarantine}/undo", None),
            "purge": ("POST", f"{url}/quarantines/{self.quarantine}/purge", None),
            "shallow-clone": ("POST", f"{url}/clone", {"name": name}),
            "deep-clone": ("POST", f"{url}/clone", {"name": name, "shallow": False}),
            "iceberg": ("POST", f"{url}/iceberg", {}),
            "iceberg-catalog": ("GET", "/iceberg/v1/namespaces/default/tables/people", None),
            "restore": ("POST", f"{url}/restore", {"version": 1}),
            "compact": ("POST", f"{url}/deletion-vectors/compact", {}),
        }[operation]
        return self.client.request(method, path, json=body)

    def close(self):
        self.running.__exit__(None, None, None)


@contextmanager
def at_call(number, act):
    """Do something right before the call of that number to the file system by the store."""
    calls = itertools.count()
    with mock.patch.multiple(os, **{name: _counted(getattr(os, name), calls, number, act) for name in CALLS}):
        yield


def _counted(real, calls, number, act):
    def call(*args, **named):
        if next(calls) == number:
            act()
        return real(*args, **named)

    return call


@pytest.fixture
def lakes(running, create):
    made = []

    def make():
        base = Path(tempfile.mkdtemp(prefix="delvec-links-"))
        made.append((base, lake := Lake(base, running, create)))
        return lake

    yield make
    for base, lake in made:
        lake.close()
        shutil.rmtree(base)


def check_confined(lake, operations):
    for operation in operations:
        answer = lake.run(operation)
        assert SECRET not in answer.text, operation
        assert answer.status_code != 500, (operation, answer.text)
    after = tree(lake.outside)
    assert after == lake.before


def test_without_a_link_each_of_them_is_done(lakes):
    """Without symlinks, the operations below succeed."""
    lake = lakes()
    answers = {name: lake.run(name) for name in OPERATIONS if name != "append"}
    assert {name: answer.text for name, answer in answers.items() if not answer.is_success} == {}


@pytest.mark.parametrize("place", PLACES)
def test_no_link_leads_out_of_the_roots(lakes, place):
    lake = lakes()
    with mock.patch.object(checkpoints, "_SIDECAR_ACTIONS", 1):
        lake.put_link(place)
        check_confined(lake, OPERATIONS)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    place=st.sampled_from(PLACES),
    operations=st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=4),
    number=st.integers(0, 120),
)
def test_no_link_that_is_put_in_the_middle_leads_out_of_the_roots(lakes, place, operations, number):
    lake = lakes()
    with at_call(number, lambda: lake.put_link(place)):
        check_confined(lake, operations)


def test_a_link_to_another_place_in_the_roots_is_followed(lakes):
    lake = lakes()
    other = lake.root / "large-disk"
    (lake.table.log / "_sidecars").rename(other)
    (lake.table.log / "_sidecars").symlink_to(other)
    assert lake.run("checkpoint").json()["result"] == "written"
    assert lake.run("delete").status_code == 200
    assert len(list(other.iterdir())) > 1
    assert lake.client.get(f"{lake.table.url}/check").json()["findings"] == []


@pytest.mark.parametrize("size", [34, 100_000])
@pytest.mark.parametrize(
    "spelling", ["{}/dv.bin", "file:{}/dv.bin", "file://{}/dv.bin", "{}/%64v.bin", "file:{}/x/../dv.bin"]
)
def test_a_vector_outside_the_roots_is_in_no_plan(lakes, size, spelling):
    """Inlined or not: recipients of the plan would read it."""
    lake = lakes()
    (lake.outside / "dv.bin").write_bytes(b"\x01" + bytes(200))
    vector = {"storageType": "p", "pathOrInlineDv": spelling.format(lake.outside), "offset": 1}
    vector |= {"sizeInBytes": size, "cardinality": 1}
    add = {"path": lake.path, "size": 1, "partitionValues": {}, "modificationTime": 1, "dataChange": True}
    add |= {"stats": '{"numRecords":10}', "deletionVector": vector}
    newest = max(int(file.stem) for file in lake.table.log.glob("*.json"))
    (lake.table.log / f"{newest + 1:020}.json").write_text(f"{json.dumps({'add': add})}\n")

    for body in ({}, {"inline-deletion-vectors": False}):
        answer = lake.client.post(f"{lake.table.url}/plan", json=body)
        assert answer.status_code in (400, 403, 422), answer.text
        assert answer.json()["error"]["type"] in {
            "LocationNotAllowed",
            "CorruptDeletionVector",
            "InvalidLocation",
        }
