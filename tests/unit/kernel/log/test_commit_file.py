"""Parsing only one kind of a commit's actions."""

import json

import pytest

from delvec_errors import CorruptLog
from delvec_kernel.actions.action_json import LogFile
from delvec_kernel.actions.actions import CommitInfo, RemoveFile
from delvec_kernel.log.commit_file import parse_commit, parse_only

WHERE = LogFile("people", 3, "00000000000000000003.json")
ADD = b'{"add":{"path":"a.parquet","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}'
REMOVE = b'{"remove":{"path":"b.parquet","deletionTimestamp":7,"dataChange":true}}'
ESCAPED = REMOVE.replace(b"remove", b"\\u0072emov\\u0065")


@pytest.mark.parametrize(
    "lines",
    [
        [ADD, REMOVE, ADD],
        [REMOVE],
        [ADD],
        [ESCAPED, ADD],
        [b"\xef\xbb\xbf" + ADD, REMOVE],
        [b"\xef\xbb\xbf" + REMOVE, ADD],
        [b"", ADD + b"\r", b" ", REMOVE + b"\r", b""],
        [*json.dumps([json.loads(ADD)], indent=1).encode().split(b"\n")[1:-1], REMOVE],
        [ADD, *json.dumps(json.loads(REMOVE), indent=1).encode().split(b"\n")],
        [b'{"remove":', b'{"path":"b.parquet"}}', ADD],
        [b'{"add":null,"remove":{"path":"b.parquet"}}', ADD],
        [ADD.replace(b"a.parquet", b"remove.parquet"), REMOVE],
        [ADD.replace(b'"a.parquet"', b'"a.parquet","stats":"{\\"numRecords\\":3}"'), REMOVE],
        [ADD.replace(b'"a.parquet"', b'"' + b"a" * (5 << 20) + b'"'), REMOVE],
    ],
)
def test_the_removes_equal_those_of_parse_commit(lines):
    data = b"\n".join(lines)
    expected = [action for action in parse_commit(data, WHERE) if isinstance(action, RemoveFile)]
    assert parse_only(data, WHERE, RemoveFile) == expected


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [b""],
        [b"{}"],
        [ADD, ADD[:-20], REMOVE],
        [REMOVE, ADD, REMOVE[:30]],
        [REMOVE, b"\0" * 100],
        [b'{"remove":{"path":""}}'],
        [b'{"remove":[]}', ADD],
        [b"[]", REMOVE],
        [b"[" * 100_000, REMOVE],
        [b'{"add":' * 100_000, REMOVE],
    ],
)
def test_corrupt_commits_are_refused_as_by_parse_commit(lines):
    data = b"\n".join(lines)
    with pytest.raises(CorruptLog) as whole:
        parse_commit(data, WHERE)
    with pytest.raises(CorruptLog) as found:
        parse_only(data, WHERE, RemoveFile)
    assert found.value.message == whole.value.message


def test_adds_are_checked_but_not_read():
    """Replay rejects a malformed add, and VACUUM replays the log, too."""
    assert parse_only(b'{"add":{"path":7}}\n' + REMOVE, WHERE, RemoveFile) == [RemoveFile("b.parquet", 7)]


def test_the_information_of_a_commit_is_read_without_its_files():
    info = b'{"commitInfo":{"operation":"DELETE"}}'
    (found,) = parse_only(b"\n".join([b'{"add":{"path":7}}', REMOVE, info]), WHERE, CommitInfo)
    assert found.operation == "DELETE"
