"""Actions: parsing and serialization round-trip; errors name table, version, file and line."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delvec_errors import CorruptLog
from delvec_kernel.actions.action_json import LogFile
from delvec_kernel.actions.actions import (
    AddFile,
    Cdc,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.log.commit_file import parse_commit, serialize_commit

WHERE = LogFile("people", 7, "00000000000000000007.json")
ADD = {"path": "a.parquet", "partitionValues": {}, "size": 1, "modificationTime": 2, "dataChange": True}
DV = Descriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, 6)

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
longs = st.integers(-(2**63), 2**63 - 1)
values = st.dictionaries(names, st.none() | texts, max_size=3)
descriptors = st.builds(
    Descriptor,
    st.sampled_from("upi"),
    texts,
    st.none() | st.integers(0, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
)
actions = st.one_of(
    st.builds(
        AddFile,
        names,
        values,
        longs,
        longs,
        st.booleans(),
        st.none() | texts,
        st.none() | values,
        st.none() | descriptors,
        st.none() | longs,
        st.none() | longs,
        st.none() | texts,
    ),
    st.builds(
        RemoveFile,
        names,
        st.none() | longs,
        st.booleans(),
        st.none() | st.booleans(),
        st.none() | values,
        st.none() | longs,
        st.none() | texts,
        st.none() | values,
        st.none() | descriptors,
    ),
    st.builds(Cdc, names, values, longs, st.none() | values),
    st.builds(Txn, texts, longs, st.none() | longs),
    st.builds(DomainMetadata, texts, texts, st.booleans()),
    st.builds(Protocol, st.integers(1, 3), st.integers(1, 7), st.none() | st.tuples(names), st.none()),
    st.builds(Metadata, texts, texts, st.tuples(names), st.dictionaries(names, texts), st.none() | texts),
    st.builds(CommitInfo, longs, longs, texts, values, user_metadata=st.none() | texts),
)


def parse(*lines):
    return parse_commit("\n".join(lines).encode(), WHERE)


def line(kind, value):
    return json.dumps({kind: value})


@given(st.lists(actions, min_size=1, max_size=5))
def test_round_trip(written):
    assert parse_commit(serialize_commit(written), WHERE) == written


@pytest.mark.parametrize(
    "nothing",
    [None, {}, "", {"storageType": ""}, {"storageType": "", "pathOrInlineDv": "", "sizeInBytes": 0}],
)
def test_an_empty_deletion_vector_is_none(nothing):
    for kind in ("add", "remove"):
        (action,) = parse(line(kind, {**ADD, "deletionVector": nothing}))
        assert action.deletion_vector is None
        assert b"deletionVector" not in serialize_commit([action])


def test_a_remove_of_an_add_carries_its_deletion_vector():
    add = AddFile("a", {"p": "1"}, 5, 6, stats="{}", deletion_vector=DV, base_row_id=3)
    remove = RemoveFile.of(add, 99)
    assert remove.to_json() == {
        "path": "a",
        "deletionTimestamp": 99,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": {"p": "1"},
        "size": 5,
        "stats": "{}",
        "deletionVector": DV.to_json(),
        "baseRowId": 3,
    }


def test_unknown_fields_and_actions_are_ignored():
    (add,) = parse(line("add", {**ADD, "future": {"x": 1}}), line("tomorrow", {"a": 1}), "")
    assert add.path == "a.parquet"


def test_a_commit_with_only_unknown_actions_has_no_effect():
    assert parse(line("tomorrow", {"a": 1})) == []


@pytest.mark.parametrize(
    "data",
    [
        b"%s\n%s",
        b"%s\r\n%s\r\n",
        b"\n\n%s\n   \n\t\n%s\n\n",
        b"\xef\xbb\xbf%s\n%s\n",
        b'{"add":null}\n%s\n{"remove":null,"future":null}\n%s',
    ],
    ids=["no last line end", "CRLF", "blank lines", "byte order mark", "null actions"],
)
def test_any_line_ending_is_accepted(data):
    first, second = line("txn", {"appId": "a", "version": 1}), line("txn", {"appId": "b", "version": 2})
    assert parse_commit(data % (first.encode(), second.encode()), WHERE) == [Txn("a", 1), Txn("b", 2)]


def test_the_last_of_duplicate_fields_wins():
    (txn,) = parse('{"txn":{"appId":"a","version":1,"appId":"b"}}')
    assert txn == Txn("b", 1)
    assert parse('{"txn":{"appId":"a","version":1},"txn":{"appId":"b","version":2}}') == [Txn("b", 2)]


def test_unrepresentable_numbers_in_commit_info_become_null():
    (info,) = parse('{"commitInfo":{"operationMetrics":{"x":1e999,"y":-1e999,"z":1.5}}}')
    assert info.operation_metrics == {"x": None, "y": None, "z": 1.5}


def test_commit_info_keeps_unknown_fields():
    written = {
        "operation": 5,
        "timestamp": "late",
        "operationParameters": [1],
        "userName": "ann",
        "tags": None,
    }
    (info,) = parse(line("commitInfo", written))
    assert (info.operation, info.timestamp, info.operation_parameters) == (None, None, None)
    assert info.extra == {"operation": 5, "timestamp": "late", "operationParameters": [1], "userName": "ann"}


def test_non_numeric_metrics_do_not_invalidate_a_commit():
    (info,) = parse('{"commitInfo":{"operationMetrics":{"x":NaN}}}')
    assert info.operation_metrics == {"x": None}


def test_partition_values_of_other_types_become_strings():
    (add,) = parse(line("add", {**ADD, "partitionValues": {"a": 1, "b": True, "c": None, "d": "x"}}))
    assert add.partition_values == {"a": "1", "b": "true", "c": None, "d": "x"}


@pytest.mark.parametrize("number", ["1.50", "1e400", "-0.0", "1E2", "12345678901234567890"])
def test_numeric_partition_values_become_strings_as_written(number):
    (add,) = parse(line("add", {**ADD, "partitionValues": {"p": "@"}}).replace('"@"', number))
    assert add.partition_values == {"p": number}


def test_indented_json_is_accepted():
    text = json.dumps({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, indent=2)
    assert parse(text + "\n" + text) == [Protocol(1, 2), Protocol(1, 2)]


NO_NUMBERS = ("1e400", "-1e400", "NaN", "Infinity", "-Infinity", "0", "1.5")


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ('{"add":{"path":"b', "is not complete JSON"),
        ("[1]", "in place of an action"),
        ("null", "in place of an action"),
        ('{"add":{},"remove":{}}', "several actions in one JSON object: add, remove"),
        (line("add", {**ADD, "size": 0}).replace('"size": 0', '"size": 1' + "0" * 5000), "not complete JSON"),
        (line("add", {**ADD, "size": 0}).replace('"size": 0', '"size": 1e99'), "not a 64-bit integer"),
        ('{"add":[]}', "not an object"),
        # Python and Jackson would read some of these as null or as a number, which must not lose the action.
        *((f'{{"{kind}":{number}}}', "not an object") for kind in ("add", "remove") for number in NO_NUMBERS),
        (line("add", {**ADD, "partitionValues": {"a": math.nan}}), "not a string"),
        (line("add", {**ADD, "stats": math.inf}), "not a string"),
        (line("add", {**ADD, "deletionVector": -math.inf}), "as its deletion vector"),
        (line("add", {**ADD, "deletionVector": 0}), "as its deletion vector"),
        (line("add", {**ADD, "deletionVector": []}), "as its deletion vector"),
        (line("add", {**ADD, "dataChange": math.nan}), "neither true nor false"),
        (line("add", {**ADD, "path": ""}), "empty path"),
        (line("add", {**ADD, "size": None}), "no 'size'"),
        (line("add", {**ADD, "size": 2**63}), "not a 64-bit integer"),
        (line("add", {**ADD, "size": True}), "not a 64-bit integer"),
        (line("add", {**ADD, "dataChange": "yes"}), "neither true nor false"),
        (line("add", {**ADD, "partitionValues": {"a": []}}), "not a string"),
        (line("add", {**ADD, "deletionVector": 5}), "as its deletion vector"),
        (line("add", {**ADD, "deletionVector": {"storageType": "r"}}), "storage type 'r'"),
        (line("add", {**ADD, "deletionVector": {"storageType": "u"}}), "malformed"),
        (line("protocol", {"minReaderVersion": 1}), "no 'minWriterVersion'"),
        ('{"txn":{"appId":"\\ud800","version":1}}', "is not complete JSON"),
        ("{" * 100_000, "is not complete JSON"),
        ("\xff", "in place of an action"),
    ],
)
def test_errors_name_table_version_file_and_line(bad, problem):
    bad = bad if bad != "\xff" else '"\\u00ff"'
    with pytest.raises(CorruptLog, match=problem) as caught:
        parse(line("add", ADD), bad)
    assert caught.value.details == {"table": "people", "version": 7, "file": WHERE.name, "line": 2}
    assert "people" in caught.value.message
    assert f"line 2 of {WHERE.name}" in caught.value.message


@pytest.mark.parametrize("data", [b"", b"\n\n", b"{}", b"\xef\xbb\xbf"])
def test_a_commit_without_actions_is_corrupt(data):
    with pytest.raises(CorruptLog, match="no action"):
        parse_commit(data, WHERE)


@pytest.mark.parametrize("data", [b"\xff\xfe", b"\x00" * 50, b'{"add": {"path": "\xc3\x28"}}'])
def test_bytes_that_are_not_text_are_corrupt(data):
    with pytest.raises(CorruptLog, match="line 1"):
        parse_commit(data, WHERE)
