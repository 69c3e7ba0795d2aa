"""The body of a commit: its changes, in the form that they have on the wire."""

import base64
import json
from dataclasses import replace

import pytest
from pyroaring import BitMap64

from delvec_contract.codec import as_json, canonical_json, from_json
from delvec_contract.commits import CommitRequest
from delvec_errors import DuplicateFile, InvalidBitmap
from delvec_kernel.actions.actions import AddFile, Cdc, Txn
from delvec_kernel.alter_table.change_types import AdvanceIdentity
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, serialize_bitmap
from delvec_kernel.transaction.transaction_changes import (
    Changes,
    FileStatistics,
    MappedOutput,
    Reads,
    RowMap,
    RowMapFile,
    RowRun,
)

VECTOR = Descriptor("u", "x", 1, 2, 3)
EVERYTHING = Changes(
    "MERGE",
    7,
    "key",
    "an engine",
    adds=[AddFile("new", {"p": None}, 1, 2, stats="{}", tags={"t": "v"}, clustering_provider="c")],
    removes=["old", "older"],
    row_deletes={"a": BitMap64([1, 5]), "b": BitMap64(), "c": BitMap64(range(100_000))},
    written_vectors={"b": VECTOR},
    added_deletes={"new": BitMap64([3])},
    predicate="id = 1",
    parameters={"mode": "Append"},
    metrics={"scanTimeMs": 1},
    reads=Reads(whole_table=True, files=["read"], rows={"d": BitMap64([9])}),
    data_change=False,
    change_files=[Cdc("_change_data/c", {}, 1)],
    rewritten={"new": [RowRun("old", 0, 1, 0)]},
    row_map=RowMap([RowMapFile("m", 1, 2)], [MappedOutput("new", 2)]),
    statistics={"live": FileStatistics("live", "{}", VECTOR)},
    keeps_row_ids=True,
    table_changes=[AdvanceIdentity(column="id", high_water_mark=5)],
    app_transaction=Txn("app", 1),
    user_metadata="why",
    read_mark="mark",
)


def rows(*indexes):
    return base64.b64encode(serialize_bitmap(BitMap64(indexes))).decode()


def read(**body):
    return from_json(Changes, json.dumps({"operation": "DELETE", "read-version": 1, **body}))


def test_what_is_written_is_read_again():
    sent = json.loads(as_json(EVERYTHING, exclude_none=True))
    assert from_json(Changes, json.dumps(sent)) == EVERYTHING
    # Nothing is left out: every field of the wire differs from its default.
    assert sent.keys() == {name.replace("_", "-") for name in CommitRequest.model_fields}
    defaults = json.loads(as_json(Changes("", 0, "", "")))
    assert [name for name, value in sent.items() if defaults[name] == value] == []


def test_rows_are_base64_and_vectors_are_descriptors():
    sent = json.loads(as_json(EVERYTHING, exclude_none=True))
    assert sent["row-deletes"][0] == {"path": "a", "rows": rows(1, 5)}
    assert sent["row-deletes"][1] == {"path": "b", "deletion-vector": json.loads(as_json(VECTOR))}
    assert sent["removes"] == [{"path": "old"}, {"path": "older"}]


@pytest.mark.parametrize(
    "name", ["row_deletes", "added_deletes", "reads", "adds", "removes", "written_vectors"]
)
def test_changes_without_a_part_are_another_request(name):
    other = replace(EVERYTHING, **{name: None if name == "reads" else type(getattr(EVERYTHING, name))()})
    assert canonical_json(other) != canonical_json(EVERYTHING)


def test_rows_tell_requests_apart():
    one, other = (replace(EVERYTHING, row_deletes={"a": BitMap64(each)}) for each in ([1, 5], [1, 6]))
    assert canonical_json(one) != canonical_json(other)


@pytest.mark.parametrize(
    "body",
    [
        {"row-deletes": [{"path": "a", "rows": rows(1)}, {"path": "a", "rows": rows(2)}]},
        {
            "row-deletes": [
                {"path": "a", "rows": rows(1)},
                {"path": "a", "deletion-vector": json.loads(as_json(VECTOR))},
            ]
        },
        {"reads": {"rows": [{"path": "a", "rows": rows(1)}, {"path": "a", "rows": rows(2)}]}},
        {"rewritten": [{"path": "a", "runs": []}, {"path": "a", "runs": []}]},
        {"added-deletes": [{"path": "a", "rows": rows(1)}, {"path": "a", "rows": rows(2)}]},
        {"statistics": [{"path": "a", "stats": "{}"}, {"path": "a", "stats": "{}"}]},
    ],
    ids=str,
)
def test_a_file_that_is_named_twice_is_refused(body):
    """A map of files would keep one of them, and lose the other's rows."""
    with pytest.raises(DuplicateFile, match="'a' is named twice"):
        read(**body)


@pytest.mark.parametrize("junk", [b"", b"x" * 40])
def test_rows_that_are_no_bitmap_are_refused(junk):
    with pytest.raises(InvalidBitmap, match="rows of file 'a'"):
        read(**{"row-deletes": [{"path": "a", "rows": base64.b64encode(junk).decode()}]})
