"""``…/additions``: the files that versions added, in reproducible steps."""

import base64
import io
import json

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from delvec_contract.plans import AdditionsResponse
from delvec_kernel.deletion_vectors.deletion_vector import deserialize_bitmap
from delvec_service.api import additions_routes

ARROW = {"Accept": "application/vnd.apache.arrow.stream"}


def ask(table, **request):
    headers = request.pop("headers", {})
    body = {key.replace("_", "-"): value for key, value in request.items()}
    return table.client.post(f"{table.url}/additions", json=body, headers=headers)


def step(table, **request):
    answer = ask(table, **request)
    assert answer.status_code == 200, answer.text
    return answer.json()


def paths(answer):
    return [file["path"] for file in answer["files"]]


def position(version, index=0, *, snapshot=False):
    return {"version": version, "index": index, "snapshot": snapshot}


def add(table, *names, **request):
    answer = table.append(*(table.write_file(name, [1, 2, 3]) for name in names), **request)
    assert answer.status_code == 200, answer.text


def remove(table, *names, **request):
    request = {"operation": "DELETE", "predicate": "id = 1", **request}
    answer = table.commit(removes=[{"path": name} for name in names], **request)
    assert answer.status_code == 200, answer.text


@pytest.fixture
def grown(table):
    """Versions 1 to 4 add one, two, three and one file."""
    for names in (["a1"], ["b1", "b2"], ["c1", "c2", "c3"], ["d1"]):
        add(table, *(f"{name}.parquet" for name in names))
    return table


def read_on(table, start, **request):
    """Return what each step has, from a position to the end."""
    found = []
    while True:
        answer = step(table, start=start, **request)
        if answer["end"] == start:
            return found
        found.append([path.removesuffix(".parquet") for path in paths(answer)])
        again = step(table, start=start, end=answer["end"])
        assert (paths(again), again["end"]) == (paths(answer), answer["end"])
        told = step(table, start=start, list_files=False, **request)
        assert (told["end"], told["num-found"], told["files"]) == (answer["end"], len(found[-1]), [])
        start = answer["end"]


@pytest.mark.parametrize(
    ("limits", "steps"),
    [
        ({}, [["a1", "b1", "b2", "c1", "c2", "c3", "d1"]]),
        ({"max_files": 2}, [["a1", "b1"], ["b2", "c1"], ["c2", "c3"], ["d1"]]),
        ({"max_files": 3}, [["a1", "b1", "b2"], ["c1", "c2", "c3"], ["d1"]]),
        ({"max_bytes": 1}, [["a1"], ["b1"], ["b2"], ["c1"], ["c2"], ["c3"], ["d1"]]),
        ({"max_files": 5, "max_bytes": 1 << 30}, [["a1", "b1", "b2", "c1", "c2"], ["c3", "d1"]]),
    ],
)
def test_files_come_in_the_order_of_the_commits_and_in_steps_that_can_be_done_again(grown, limits, steps):
    assert read_on(grown, position(0), **limits) == steps


def test_a_step_in_json_has_no_more_files_than_memory_is_for(grown, monkeypatch):
    monkeypatch.setattr(additions_routes, "MAX_JSON_FILES", 3)
    assert read_on(grown, position(0)) == [["a1", "b1", "b2"], ["c1", "c2", "c3"], ["d1"]]
    assert read_on(grown, position(0), max_files=4) == [["a1", "b1", "b2"], ["c1", "c2", "c3"], ["d1"]]
    with pa.ipc.open_stream(ask(grown, start=position(0), headers=ARROW).content) as stream:
        assert stream.read_all().num_rows == 7


def test_bytes_are_taken_until_the_limit_is_passed(grown):
    sizes = {file["path"]: file["size"] for file in step(grown, start=position(0))["files"]}
    three = sum(sizes[f"{name}.parquet"] for name in ("a1", "b1", "b2"))

    assert len(step(grown, start=position(0), max_bytes=three)["files"]) == 3
    assert len(step(grown, start=position(0), max_bytes=three + 1)["files"]) == 4


def test_without_a_start_the_newest_version_comes_whole_in_an_order_that_does_not_change(grown):
    remove(grown, "b1.parquet")
    whole = step(grown)
    assert whole["start"] == position(5, snapshot=True)
    assert whole["end"] == position(6)
    assert whole["snapshot-timestamp"] > 0
    expected = [path.removesuffix(".parquet") for path in paths(whole)]
    assert sorted(expected) == ["a1", "b2", "c1", "c2", "c3", "d1"]
    times = [file["modificationTime"] for file in whole["files"]]
    assert times == sorted(times)

    add(grown, "e1.parquet", "e2.parquet")  # does not come between the files that are read already
    steps = read_on(grown, whole["start"], max_files=4)
    assert steps == [expected[:4], [*expected[4:], "e1", "e2"]]
    part = step(grown, start=position(5, 2, snapshot=True), end=position(5, 5, snapshot=True))
    assert paths(part) == [f"{name}.parquet" for name in expected[2:5]]


def test_deletion_vectors_come_along(grown):
    assert grown.delete({"c1.parquet": [1, 2]}).status_code == 200

    whole = step(grown)
    (file,) = [file for file in whole["files"] if file["path"] == "c1.parquet"]
    assert deserialize_bitmap(base64.b64decode(file["deletedRows"])) == BitMap64([1, 2])

    answer = ask(grown, headers=ARROW)
    files = pa.ipc.open_stream(io.BytesIO(answer.content)).read_all()
    described = AdditionsResponse.model_validate_json(files.schema.metadata[b"delvec"])
    assert (described.num_files, files.num_rows, described.end.version) == (7, 7, 6)
    assert files["path"].to_pylist() == paths(whole)


def test_where_a_stream_begins(grown, error):
    assert step(grown, starting_version=3)["start"] == position(3)
    assert paths(step(grown, starting_version=4)) == ["d1.parquet"]
    latest = step(grown, starting_version="latest")
    assert (latest["start"], latest["end"], latest["files"]) == (position(5), position(5), [])
    early = step(grown, starting_timestamp="1971-01-01")
    assert early["start"] == position(0)
    for bad in ({"starting_version": 5}, {"starting_timestamp": "2200-01-01"}):
        assert error(ask(grown, **bad))["type"] == "VersionNotFound"
    for bad in (
        {"starting_version": -1},
        {"starting_version": "first"},
        {"starting_version": 1, "start": position(1)},
        {"starting_timestamp": "yesterday"},
        {"start": {"version": -1}},
        {"start": position(9), "end": position(2), "max_files": -1},
    ):
        assert error(ask(grown, **bad))["type"] == "BadRequest", bad


def test_versions_that_take_rows_away_are_named(grown, error):
    remove(grown, "b1.parquet")
    add(grown, "e1.parquet")

    first = step(grown, start=position(3))
    assert (paths(first)[-1], first["end"]) == ("d1.parquet", position(5))  # what comes before is given first
    refused = error(ask(grown, start=first["end"]))
    assert refused["type"] == "SourceRowsChanged"
    assert refused["details"] == {"table": grown.name, "version": 5, "file": "b1.parquet"}
    assert "ignoreDeletes" in refused["message"]
    for option in ("ignore_deletes", "skip_change_commits"):
        assert paths(step(grown, start=first["end"], **{option: True})) == ["e1.parquet"]


def test_rows_deleted_by_vector_are_deletes(grown, error):
    assert grown.delete({"a1.parquet": [0]}).status_code == 200
    assert grown.delete({"a1.parquet": [1]}).status_code == 200

    assert "ignoreDeletes" in error(ask(grown, start=position(5)))["message"]
    passed = step(grown, start=position(5), ignore_deletes=True)
    assert (passed["files"], passed["end"], passed["num-found"]) == ([], position(7), 0)


def test_versions_that_change_rows_are_only_passed_whole(grown, error):
    new = grown.write_file("new.parquet", [1, 2])
    remove(grown, "a1.parquet", operation="UPDATE", adds=[new])
    add(grown, "e1.parquet")

    for options in ({}, {"ignore_deletes": True}):
        refused = error(ask(grown, start=position(5), **options))
        assert refused["type"] == "SourceRowsChanged"
        assert "skipChangeCommits" in refused["message"]
    assert paths(step(grown, start=position(5), skip_change_commits=True)) == ["e1.parquet"]


def write_commit(table, version, *actions):
    """Write a commit as another writer would."""
    text = "".join(json.dumps(action) + "\n" for action in actions)
    (table.log / f"{version:020}.json").write_text(text)


def as_added(table, version, **changes):
    return [{"add": action["add"] | changes} for action in table.actions(version) if "add" in action]


def removed(path, **fields):
    return {"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True, **fields}}


def test_files_that_were_only_arranged_another_way_add_nothing(grown):
    grown.write_file("big.parquet", [1])
    (add_action,) = as_added(grown, 1, path="big.parquet", dataChange=False)
    write_commit(grown, 5, removed("b1.parquet", dataChange=False), add_action)

    answer = step(grown, start=position(4))
    assert (paths(answer), answer["end"]) == (["d1.parquet"], position(6))


def test_a_file_that_gets_rows_back_changes_rows(grown, error):
    assert grown.delete({"a1.parquet": [0]}).status_code == 200
    vector = grown.action(5, "add")["deletionVector"]
    write_commit(grown, 6, removed("a1.parquet", deletionVector=vector), *as_added(grown, 1))

    refused = error(ask(grown, start=position(6), ignore_deletes=True))
    assert (refused["type"], refused["details"]["version"]) == ("SourceRowsChanged", 6)


def test_a_restore_may_bring_rows_back_though_more_are_gone(grown, error):
    assert grown.delete({"a1.parquet": [0]}).status_code == 200
    before = grown.action(5, "add")["deletionVector"]
    other = {**before, "pathOrInlineDv": before["pathOrInlineDv"][::-1], "cardinality": 2}
    (now,) = as_added(grown, 1, deletionVector=other)
    write_commit(
        grown, 6, {"commitInfo": {"operation": "RESTORE"}}, removed("a1.parquet", deletionVector=before), now
    )

    refused = error(ask(grown, start=position(6), ignore_deletes=True))
    assert (refused["type"], refused["details"]["version"]) == ("SourceRowsChanged", 6)


def alter(table, *changes):
    answer = table.client.post(f"{table.url}/alter", json={"changes": list(changes)})
    assert answer.status_code == 200, answer.text


def read_with(table, version=None):
    found = table.client.get(f"{table.url}/snapshot", params={"version": version} if version else {}).json()
    return {name: found[name] for name in ("version", "schema", "partition-columns", "configuration")}


def test_a_column_that_is_added_ends_a_stream_once(grown, error):
    before = read_with(grown)
    add_column = {"change": "add-columns", "columns": [{"column": "more", "type": "string"}]}
    alter(grown, add_column)
    add(grown, "e1.parquet")

    first = step(grown, start=position(4), read_with=before)
    assert (paths(first), first["end"]) == (["d1.parquet"], position(5))
    refused = error(ask(grown, start=position(5), read_with=before))
    assert refused["type"] == "StreamSchemaChanged"
    assert refused["details"]["version"] == 5
    anew = step(grown, start=position(5), read_with=read_with(grown), check_start=True)
    assert paths(anew) == ["e1.parquet"]
    assert len(step(grown, start=position(0), read_with=read_with(grown), check_start=True)["files"]) == 8


def test_another_table_at_the_same_place_is_not_read_on(grown, error):
    known = grown.client.get(f"{grown.url}/snapshot").json()["metadata-id"]
    assert paths(step(grown, start=position(4), metadata_id=known)) == ["d1.parquet"]
    assert error(ask(grown, start=position(4), metadata_id="another"))["type"] == "SourceRowsChanged"


def test_a_log_that_was_cleaned_up_or_replaced_is_told(grown, error):
    assert grown.client.post(f"{grown.url}/checkpoint", json={}).status_code == 200
    for version in range(3):
        (grown.log / f"{version:020}.json").unlink()
    grown.client.service.loader.discard(f"file://{grown.folder}")

    gone = error(ask(grown, start=position(1)))
    assert (gone["type"], gone["details"]["earliest"]) == ("VersionNotFound", 3)
    assert len(step(grown, start=position(3))["files"]) == 4
    future = error(ask(grown, start=position(9)))
    assert (future["type"], future["details"]["latest"]) == ("VersionNotFound", 4)


def test_a_stream_can_be_held_to_a_version(grown):
    assert paths(step(grown, start=position(1), last_version=2)) == ["a1.parquet", "b1.parquet", "b2.parquet"]
    whole = step(grown, last_version=1)
    assert (paths(whole), whole["end"]) == (["a1.parquet"], position(2))


def test_the_feed_takes_versions_whole(client, tmp_path, create, error):
    properties = {"delta.enableChangeDataFeed": "true"}
    table = create(client, tmp_path / "fed", properties=properties)
    for names in (["a1"], ["b1", "b2"], ["c1"]):
        add(table, *(f"{name}.parquet" for name in names))
    remove(table, "a1.parquet")

    ends = [
        step(table, start=position(0), change_feed=True, max_files=n)["end"]["version"] for n in range(1, 6)
    ]
    assert ends == [2, 3, 3, 4, 5]
    answer = step(table, change_feed=True)
    assert (len(answer["files"]), answer["end"]) == (3, position(5))
    alter(table, {"change": "unset-properties", "names": ["delta.enableChangeDataFeed"], "if-exists": True})
    assert step(table, start=position(4), change_feed=True)["end"] == position(5)
    assert error(ask(table, start=position(5), change_feed=True))["type"] == "ChangeDataNotRecorded"
