"""An action whose JSON would take seconds to parse is refused, and never written."""

import json
from functools import partial

import pytest

from delvec_errors import BadRequest, CorruptLog
from delvec_kernel.actions import action_json
from delvec_kernel.actions.action_json import MAX_ACTION_BYTES, LogFile
from delvec_kernel.actions.actions import RemoveFile, Txn
from delvec_kernel.log.commit_file import parse_commit, parse_only, serialize_commit
from delvec_kernel.log.version_checksum import VersionChecksum

WHERE = LogFile("people", 3, "00000000000000000003.json")
TXN = b'{"txn": {"appId": "a", "version": 1}}\n'


@pytest.fixture
def parsed(monkeypatch):
    """Collect the lengths of the texts that are parsed."""
    lengths = []
    parse = action_json._parse
    monkeypatch.setattr(action_json, "_parse", lambda text: lengths.append(len(text)) or parse(text))
    return lengths


def large(spans_lines=False):
    pairs = b", ".join(b'"k%d": "v"' % number for number in range(10))
    padding = b" " * (MAX_ACTION_BYTES + 1)
    end = b"\n" if spans_lines else b""
    return b'{"commitInfo": {' + end + pairs + padding + b"}}\n"


@pytest.mark.parametrize("read", [parse_commit, partial(parse_only, kind=RemoveFile)])
def test_a_large_action_is_refused_unparsed(parsed, read):
    with pytest.raises(
        CorruptLog, match=r"line 2 of 00000000000000000003.json has an action of 67,.*more than the limit"
    ):
        read(TXN + large() + b'{"remove": {"path": "x", "dataChange": true}}\n', WHERE)
    assert max(parsed, default=0) < 1000


def test_one_that_spans_lines_is_refused(parsed):
    with pytest.raises(CorruptLog):
        parse_commit(TXN + large(spans_lines=True), WHERE)
    assert max(parsed) < 1000


def test_a_large_action_is_not_written():
    fits, too_large = (Txn("x" * (MAX_ACTION_BYTES - spare), 1) for spare in (1000, 0))
    assert parse_commit(serialize_commit([fits]), WHERE) == [fits]
    with pytest.raises(BadRequest, match="'txn' action would have 67,"):
        serialize_commit([fits, too_large])


def test_a_large_checksum_counts_as_missing():
    assert VersionChecksum.parse(json.dumps({"x": " " * MAX_ACTION_BYTES}).encode()) is None
