"""Requests that contradict the table: a specific error, no commit, and no unrecorded files."""

import base64
import json
import os
import time
from datetime import datetime, timedelta

import pytest
from pyroaring import BitMap64

from delvec_kernel.deletion_vectors.deletion_vector import serialize_bitmap


def rows(*indexes):
    return base64.b64encode(serialize_bitmap(BitMap64(indexes))).decode()


def delete(path, *indexes, **more):
    return {"operation": "DELETE", "row-deletes": [{"path": path, "rows": rows(*indexes)}], **more}


def append(table, **change):
    return {"operation": "WRITE", "adds": [{**table.write_file("new.parquet", [1, 2, 3]), **change}]}


def old(table):
    request = append(table)
    long_ago = time.time() - 3700
    os.utime(table.folder / "new.parquet", (long_ago, long_ago))
    return request


def elsewhere(table):
    other = table.folder.parent / "other"
    other.mkdir()
    (other / "x.parquet").write_bytes((table.folder / "a.parquet").read_bytes())
    return delete(str(other / "x.parquet"), 1)


ROW_MAP = "_delvec/row_maps/00000000-0000-4000-8000-000000000000.parquet"


def row_map(path=ROW_MAP, output="new.parquet", rows=1):
    return {
        "files": [{"path": path, "size-in-bytes": 9, "num-rows": rows}],
        "outputs": [{"path": output, "num-rows": 1}],
    }


def sorting(table, **wrong):
    return {**append(table), "data-change": False, "row-map": row_map(**wrong)}


def computed(stats, path="a.parquet", **more):
    told = {"operation": "COMPUTE STATS", "data-change": False, **more}
    return {**told, "statistics": [{"path": path, "stats": stats}]}


CASES = {
    "from the future": (lambda _: delete("a.parquet", 1, **{"read-version": 9}), 400, "VersionFromFuture"),
    "unknown file": (lambda _: delete("nowhere.parquet", 1), 400, "FileNotInSnapshot"),
    "unknown whole file": (
        lambda _: {"operation": "DELETE", "removes": [{"path": "nowhere.parquet"}]},
        400,
        "FileNotInSnapshot",
    ),
    "a file of another table": (elsewhere, 400, "FileNotInTable"),
    "out of the table": (lambda _: delete("../other/x.parquet", 1), 400, "FileNotInTable"),
    "new file elsewhere": (lambda t: append(t, path="../x.parquet"), 400, "FileNotInTable"),
    "new file absolute": (lambda t: append(t, path="file:///x.parquet"), 400, "FileNotInTable"),
    "new file missing": (lambda t: append(t, path="y.parquet"), 400, "FileNotInStorage"),
    "size lies": (lambda t: append(t, size=7), 400, "FileSizeMismatch"),
    "written long ago": (old, 400, "FileTooOld"),
    "live already": (lambda t: append(t, path="a.parquet"), 400, "DuplicateFile"),
    "a file twice": (
        lambda _: {
            "operation": "DELETE",
            "removes": [{"path": "a.parquet"}],
            "row-deletes": [{"path": "./a.parquet", "rows": rows(1)}],
        },
        400,
        "DuplicateFile",
    ),
    "a row beyond": (lambda _: delete("a.parquet", 10), 400, "RowIndexOutOfRange"),
    "a row far beyond": (lambda _: delete("a.parquet", 2**62), 400, "RowIndexOutOfRange"),
    "no bitmap": (
        lambda _: {
            "operation": "DELETE",
            "row-deletes": [{"path": "a.parquet", "rows": base64.b64encode(b"x" * 40).decode()}],
        },
        400,
        "InvalidBitmap",
    ),
    "no bitmap of what was read": (
        lambda _: delete(
            "a.parquet", 1, reads={"rows": [{"path": "b.parquet", "rows": base64.b64encode(b"x").decode()}]}
        ),
        400,
        "InvalidBitmap",
    ),
    "rows and a vector": (
        lambda _: {
            "operation": "DELETE",
            "row-deletes": [
                {
                    "path": "a.parquet",
                    "rows": rows(1),
                    "deletion-vector": {
                        "storageType": "u",
                        "pathOrInlineDv": "x",
                        "offset": 1,
                        "sizeInBytes": 1,
                        "cardinality": 1,
                    },
                }
            ],
        },
        400,
        "BadRequest",
    ),
    "deleted rows of a file that nobody tells of": (
        lambda t: {
            **append(t),
            "operation": "OPTIMIZE",
            "data-change": False,
            "added-deletes": [{"path": "new.parquet", "rows": rows(1)}],
        },
        400,
        "InvalidCommit",
    ),
    "deleted rows of a copy that is new data": (
        lambda t: {
            **append(t),
            "removes": [{"path": "a.parquet"}],
            "rewritten": [{"path": "new.parquet", "runs": []}],
            "added-deletes": [{"path": "new.parquet", "rows": rows(1)}],
        },
        400,
        "InvalidCommit",
    ),
    "deleted rows of a copy that it does not have": (
        lambda t: {
            **append(t),
            "operation": "OPTIMIZE",
            "data-change": False,
            "removes": [{"path": "a.parquet"}],
            "rewritten": [{"path": "new.parquet", "runs": []}],
            "added-deletes": [{"path": "new.parquet", "rows": rows(3)}],
        },
        400,
        "RowIndexOutOfRange",
    ),
    "runs of no output": (
        lambda _: {
            "operation": "OPTIMIZE",
            "removes": [{"path": "a.parquet"}],
            "rewritten": [{"path": "o.parquet", "runs": []}],
        },
        400,
        "InvalidCommit",
    ),
    "runs of no source": (
        lambda t: {
            **append(t),
            "rewritten": [
                {
                    "path": "new.parquet",
                    "runs": [{"source": "a.parquet", "first-rank": 0, "count": 1, "first-output-row": 0}],
                }
            ],
        },
        400,
        "InvalidCommit",
    ),
    "a row map of a change": (lambda t: {**append(t), "row-map": row_map()}, 400, "InvalidCommit"),
    "a row map elsewhere": (lambda t: sorting(t, path="_delta_log/x.parquet"), 400, "InvalidCommit"),
    "a row map outside": (lambda t: sorting(t, path="../_delvec/row_maps/x.parquet"), 400, "InvalidCommit"),
    "a row map of other files": (lambda t: sorting(t, output="other.parquet"), 400, "InvalidCommit"),
    "a row map of other rows": (lambda t: sorting(t, rows=2), 400, "InvalidCommit"),
    "a row map of no rows": (lambda t: sorting(t, rows=0), 400, "BadRequest"),
    "a large row map": (lambda t: sorting(t, rows=2**24 + 1), 400, "BadRequest"),
    "no statistics": (lambda t: append(t, stats=None), 400, "InvalidCommit"),
    "no such partition": (lambda t: append(t, partitionValues={"id": "1"}), 400, "InvalidCommit"),
    "statistics of other rows": (lambda _: computed('{"numRecords": 9}'), 400, "InvalidCommit"),
    "statistics without rows": (lambda _: computed('{"minValues": {"id": 0}}'), 400, "InvalidCommit"),
    "statistics that are none": (lambda _: computed("[]"), 400, "InvalidCommit"),
    "statistics with a change of data": (
        lambda _: computed('{"numRecords": 10}', **{"data-change": True}),
        400,
        "InvalidCommit",
    ),
    "statistics of a file elsewhere": (
        lambda _: computed('{"numRecords": 10}', "../other/x.parquet"),
        400,
        "FileNotInTable",
    ),
    "no operation": (lambda _: delete("a.parquet", 1, operation=" "), 400, "InvalidCommit"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("raced", [False, True], ids=["", "raced"])
def test_a_request_that_contradicts_its_table_is_refused(filled, error, case, raced):
    """With and without commits since the read version."""
    build, status, kind = CASES[case]
    if raced:
        assert filled.delete({"b.parquet": [4]}).status_code == 200
    body = {"read-version": 1, **build(filled)}
    before = sorted(filled.folder.rglob("*.bin"))
    version = filled.version()

    answer = filled.client.post(f"{filled.url}/commits", json=body)

    assert answer.status_code == status, answer.text
    assert error(answer)["type"] == kind
    assert error(answer)["retryable"] is False
    assert filled.version() == version
    assert sorted(filled.folder.rglob("*.bin")) == before
    assert filled.delete({"a.parquet": [3]}).json()["version"] == version + 1


def test_new_statistics_of_a_live_file_are_taken_and_those_of_a_file_that_is_gone_are_left_out(filled):
    told = '{"numRecords": 10, "minValues": {"id": 0}, "maxValues": {"id": 9}, "nullCount": {"id": 0}}'
    assert filled.delete({}, removes=["b.parquet"], read_version=1).status_code == 200
    body = {"read-version": 1, **computed(told)}
    body["statistics"].append({"path": "b.parquet", "stats": '{"numRecords": 5}'})

    answer = filled.client.post(f"{filled.url}/commits", json=body)

    assert answer.status_code == 200, answer.text
    actions = filled.client.get(f"{filled.url}/commits/{answer.json()['version']}").json()["actions"]
    adds = [action["add"] for action in actions if "add" in action]
    assert [(add["path"], json.loads(add["stats"])) for add in adds] == [("a.parquet", json.loads(told))]


def test_the_age_of_new_files_is_a_setting(running, create, tmp_path):
    with running(max_file_age_seconds=7200) as client:
        table = create(client, tmp_path / "people")

        answer = client.post(f"{table.url}/commits", json={"read-version": 0, **old(table)})

    assert answer.status_code == 200, answer.text


def test_a_file_that_is_too_old_names_both_clocks(filled, error, monkeypatch):
    """If the service's clock is ahead, new files look old; the error shows both clocks."""
    add = filled.write_file("new.parquet", [1])
    clock = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: clock() + 2 * 3600 * 10**9)
    found = error(filled.append(add))
    monkeypatch.undo()

    assert found["type"] == "FileTooOld"
    storage, here = (
        datetime.fromisoformat(found["details"][f"{who}_time"]) for who in ("storage", "service")
    )
    assert timedelta(hours=2) <= here - storage < timedelta(hours=2, minutes=5)
    for moment in (storage, here):
        assert moment.isoformat(timespec="milliseconds") in found["message"]
    assert "storage's clock" in found["message"]
