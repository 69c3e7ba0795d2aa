"""Skipping segments first keeps the same files as evaluating each file."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.segments_in_memory import SegmentsInMemory, laid_out

from delvec_errors import CorruptLog
from delvec_kernel.data_skipping import file_selection
from delvec_kernel.data_skipping.file_selection import page_of, select_files
from delvec_kernel.data_skipping.truth import prune
from delvec_kernel.expressions.predicate import parse
from delvec_kernel.file_index.column_bounds import known_columns, summarized
from delvec_kernel.file_index.packed_files import FileChange
from delvec_kernel.file_index.segment import SegmentsLost, rows_of
from delvec_kernel.schema.types import StructType
from delvec_kernel.statistics.bounds import Bounds


def _schema(**types):
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
    return StructType.from_json(json.dumps({"type": "struct", "fields": fields}))


SCHEMA = _schema(
    i="long",
    s="string",
    x="double",
    m="decimal(10,2)",
    d="date",
    t="timestamp",
    b="boolean",
    p="integer",
    q="string",
)
PARTITIONED = ["P", "q"]

VALUES = {
    "i": [-(2**63), -1, 0, 1, 7, 2**63 - 1],
    "s": ["", "a", "ab", "b\x00c", "b\U0010ffff", "é" * 70, "z" * 64 + "\U0010ffffq", "zz"],
    "x": [-1.5, 0.0, 2.0, 1e300],
    "m": [-1.25, 0.01, 99999999.99],
    "d": ["1500-01-01", "1970-01-01", "2024-02-29", "9999-12-31"],
    "t": ["1969-12-31T23:59:59.999Z", "2024-01-01T00:00:00.000Z"],
}
LITERALS = {
    "i": ["-1", "0", "7", "8"],
    "s": ["''", "'ab'", "'b'", "'z'", "'éé'"],
    "x": ["0", "1.5", "2e0"],
    "m": ["0.01", "100"],
    "d": ["DATE'1970-01-01'", "DATE'2024-03-01'"],
    "t": ["TIMESTAMP'2024-01-01 00:00:00Z'"],
    "p": ["1", "2"],
    "q": ["'u'", "'v'"],
}


@st.composite
def _file(draw):
    """Partition values and statistics of a file, possibly inconsistent: both methods read the same text."""
    part = [
        ("p", draw(st.sampled_from([None, "1", "2", "3"]))),
        ("q", draw(st.sampled_from([None, "u", "v"]))),
    ]
    if draw(st.booleans()):
        part.reverse()
    rows = draw(st.sampled_from([0, 1, 5]))
    document = {"numRecords": rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for name, values in VALUES.items():
        ends = sorted(draw(st.lists(st.sampled_from(range(len(values))), min_size=2, max_size=2)))
        for side, end in zip(("minValues", "maxValues"), ends, strict=True):
            if draw(st.integers(0, 4)):
                document[side][name] = values[end]
        nulls = draw(st.sampled_from([None, 0, 1, rows]))
        if nulls is not None:
            document["nullCount"][name] = nulls
    text = draw(st.sampled_from([json.dumps(document)] * 6 + [None, "", "[]", '{"minValues": 3}']))
    return part, text, draw(st.sampled_from([rows, rows, None]))


@st.composite
def _predicate(draw):
    leaves = []
    for name, literals in LITERALS.items():
        one, other = draw(st.tuples(st.sampled_from(literals), st.sampled_from(literals)))
        operator = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"]))
        leaves += [f"{name} {operator} {one}", f"{name} IN ({one}, {other})", f"{name} IS NULL"]
        leaves += [
            f"{name} BETWEEN {one} AND {other}",
            f"{name} IS NOT NULL",
            f"NOT ({name} {operator} {one})",
        ]
    leaves += [
        "s LIKE 'a%'",
        "s LIKE 'zz'",
        "b",
        "NOT b",
        "b IS NULL",
        "1 = 2",
        "true",
        "substr(s, 1, 1) = 'a'",
    ]
    leaves += ["(i > 0) IS NOT TRUE", "i = p", "i < p"]
    terms = draw(st.lists(st.sampled_from(leaves), min_size=1, max_size=4))
    joined = terms[0]
    for term in terms[1:]:
        joined = f"({joined}) {draw(st.sampled_from(['AND', 'OR']))} {term}"
    return joined


def _table(files):
    return pa.table(
        {
            "partition_values": pa.array([part for part, _, _ in files], pa.map_(pa.string(), pa.string())),
            "stats": pa.array([text for _, text, _ in files], pa.string()),
            "num_records": pa.array([rows for _, _, rows in files], pa.int64()),
        }
    )


def _selected(live, predicate, schema=SCHEMA, partitioned=PARTITIONED):
    """Return whether all rows match, by path of the selected files."""
    found = {}
    for each in select_files(live, predicate, schema, partitioned):
        (batch,) = rows_of([each.chosen], ["path"])
        assert each.num_rows == batch.num_rows > 0
        found |= dict(zip(batch["path"].to_pylist(), each.matches_all.tolist(), strict=True))
    return found


def _pruned(files, predicate):
    pruned = prune(files, predicate, SCHEMA, PARTITIONED)
    verdicts = zip(pruned.may_match.to_pylist(), pruned.matches_all.to_pylist(), strict=True)
    return {f"f{number}": every for number, (may, every) in enumerate(verdicts) if may}


CASES = given(
    files=st.lists(_file(), max_size=12),
    texts=st.lists(_predicate(), min_size=1, max_size=5),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    data=st.data(),
)


@settings(max_examples=25, deadline=None)
@CASES
def test_segment_level_skipping_keeps_the_same_files(files, texts, sizes, data):
    _compare_levels(files, texts, sizes, data)


@pytest.mark.long("thousands of random tables")
@pytest.mark.timeout(1800)
@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@CASES
def test_segment_level_skipping_keeps_the_same_files_many_times(files, texts, sizes, data):
    _compare_levels(files, texts, sizes, data)


def _compare_levels(files, texts, sizes, data):
    table = _table(files)
    live = laid_out(table, sizes)
    store = SegmentsInMemory()
    for text in texts:
        predicate = parse(text, SCHEMA)
        expected = _pruned(table, predicate)
        # First without summaries, then with them, then from the store with nothing in memory.
        assert _selected(live, predicate) == expected
        assert _selected(live, predicate) == expected
        restored = store.restore(store.save(live), live.counts)
        assert _selected(restored, predicate) == expected
        assert _selected(restored, predicate) == expected
    gone = data.draw(st.sets(st.sampled_from(range(len(files))))) if files else set()
    fewer = live.apply({f"f{number}": FileChange(removed={None}) for number in gone})
    for text in texts:
        predicate = parse(text, SCHEMA)
        kept = {path: every for path, every in _pruned(table, predicate).items() if int(path[1:]) not in gone}
        assert _selected(fewer, predicate) == kept


def _numbered(count, width=10):
    stats = [
        json.dumps(
            {
                "numRecords": 1,
                "minValues": {"i": n * width},
                "maxValues": {"i": n * width + 9},
                "nullCount": {"i": 0},
            }
        )
        for n in range(count)
    ]
    return _table([([("p", str(n % 3)), ("q", None)], text, 1) for n, text in enumerate(stats)])


def test_a_selective_plan_reads_only_the_segments_that_can_match():
    live = laid_out(_numbered(100), [10])
    predicate = parse("i = 555", SCHEMA)
    assert _selected(live, predicate) == {"f55": False}
    store = SegmentsInMemory()
    restored = store.restore(store.save(live), live.counts)
    fetched = []
    plain, optional = store.blobs, store.optional_blobs
    store.blobs = lambda ids, name: fetched.append((name, len(ids))) or plain(ids, name)
    store.optional_blobs = lambda ids, name: fetched.append((name[:6], len(ids))) or optional(ids, name)
    assert _selected(restored, predicate) == {"f55": False}
    assert fetched == [("bounds", 1), ("files", 1)]


def test_bounds_are_parsed_once(monkeypatch):
    live = laid_out(_numbered(20), [4])
    predicate = parse("i = 55 OR i = 11", SCHEMA)
    assert _selected(live, predicate) == {"f5": False, "f1": False}
    monkeypatch.setattr("delvec_kernel.file_index.column_bounds.parsed_bounds", None)
    assert _selected(live, predicate) == {"f5": False, "f1": False}
    after = live.apply({"f5": FileChange(removed={None})})
    assert _selected(after, predicate) == {"f1": False}


def test_bounds_are_cached_by_physical_column_and_type():
    live = laid_out(_numbered(20), [4])
    assert _selected(live, parse("i = 55", SCHEMA)) == {"f5": False}
    mapped = _schema(i="double")
    assert _selected(live, parse("i = 55.5", mapped), mapped, []) == dict.fromkeys(
        ["f0", "f1", "f2", "f3", "f4", "f5"], False
    )
    (renamed,) = StructType.from_json(
        json.dumps(
            {
                "type": "struct",
                "fields": [
                    {
                        "name": "i",
                        "type": "long",
                        "nullable": True,
                        "metadata": {"delta.columnMapping.physicalName": "c-1"},
                    }
                ],
            }
        )
    ).fields
    schema = StructType((renamed,))
    assert len(_selected(live, parse("i = 55", schema), schema, [])) == 20
    keys = {
        known_columns([("i",)], each, partitioned)[0].key
        for each, partitioned in [(SCHEMA, []), (SCHEMA, ["i"]), (mapped, []), (schema, [])]
    }
    assert len(keys) == 4


def test_invalid_partition_values_are_refused_only_for_live_files():
    table = _table([([("p", value), ("q", None)], None, 1) for value in ("1", "x", "2")])
    live = laid_out(table, [3])
    with pytest.raises(CorruptLog, match="'x'"):
        select_files(live, parse("p = 1", SCHEMA), SCHEMA, PARTITIONED)
    # One dead row of three causes a rewrite, one of twelve does not.
    many = laid_out(pa.concat_tables([table, *[_table([([("p", "1"), ("q", None)], None, 1)])] * 9]), [12])
    after = many.apply({"f1": FileChange(removed={None})})
    assert len(after.members[0].dead) == 1
    assert len(_selected(after, parse("p = 1", SCHEMA))) == 10


def _page(selected, offset, limit):
    taken, order = page_of(selected, offset, limit)
    paths = [
        path
        for batch in rows_of([each.chosen for each in taken], ["path"])
        for path in batch["path"].to_pylist()
    ]
    every = [each for one in taken for each in one.matches_all.tolist()]
    assert all(one.num_rows for one in taken)
    return [(paths[place], every[place]) for place in order]


@pytest.mark.parametrize("text", [None, "p = 1 OR i BETWEEN 20 AND 95"])
@pytest.mark.parametrize("alike", [False, True], ids=["", "hashes that are alike"])
def test_pages_have_a_stable_order_for_any_layout_of_segments(monkeypatch, text, alike):
    real = file_selection._hashes
    if alike:
        monkeypatch.setattr(file_selection, "_hashes", lambda selected: real(selected) % np.uint64(3))
    predicate = text and parse(text, SCHEMA)
    orders = []
    for sizes in ([7, 4], [3], [40]):
        live = laid_out(_numbered(30), sizes).apply({"f5": FileChange(removed={None})})
        selected = select_files(live, predicate, SCHEMA, PARTITIONED)
        whole = _page(selected, 0, None)
        assert dict(whole) == _selected(live, predicate)
        assert len(whole) == len(dict(whole)) == (29 if text is None else 15)
        for limit in (1, 4, 13, 29, 40):
            pages = [_page(selected, offset, limit) for offset in range(0, len(whole), limit)]
            assert [one for page in pages for one in page] == whole
        assert _page(selected, 3, None) == whole[3:]
        assert _page(selected, len(whole), 5) == _page(selected, len(whole) + 1, None) == []
        orders.append(whole)
    assert orders[0] == orders[1] == orders[2]


def test_lost_segments_raise():
    live = laid_out(_numbered(20), [4])
    store = SegmentsInMemory()
    restored = store.restore(store.save(live), live.counts)
    del store.records[live.members[2].segment.id]
    with pytest.raises(SegmentsLost):
        _selected(restored, parse("p = 1", SCHEMA))


@pytest.mark.parametrize("values", [VALUES["s"], ["a\x00b", "a\x00c"], ["x" * 65, "x" * 64 + "\U0010ffffa"]])
def test_string_summaries_are_short_and_contain_all_values(values):
    mask = np.zeros(len(values), np.bool_)
    found = summarized(Bounds(pa.array(values), pa.array(values), mask, mask))
    assert found.low is not None
    assert found.low <= min(values)
    assert found.high is None or found.high >= max(values)
    for bound in (found.low, found.high or ""):
        assert "\x00" not in bound
        assert len(bound) <= 65


def _generated():
    fields = [
        {"name": "ts", "type": "timestamp_ntz", "nullable": True, "metadata": {}},
        {
            "name": "day",
            "type": "date",
            "nullable": True,
            "metadata": {"delta.generationExpression": "CAST(ts AS DATE)"},
        },
    ]
    return StructType.from_json(json.dumps({"type": "struct", "fields": fields}))


def _daily(*days_and_stats):
    return pa.table(
        {
            "partition_values": pa.array(
                [[("day", day)] for day, _ in days_and_stats], pa.map_(pa.string(), pa.string())
            ),
            "stats": pa.array([text and json.dumps(text) for _, text in days_and_stats], pa.string()),
            "num_records": pa.array([1] * len(days_and_stats), pa.int64()),
        }
    )


def test_files_are_skipped_by_the_column_that_a_partition_column_is_generated_from():
    live = laid_out(_daily(*((f"2024-03-{day:02}", None) for day in range(1, 31)), (None, None)), [7])
    for text, days in [
        ("ts = '2024-03-05 10:00:00'", [5]),
        ("ts >= '2024-03-28 00:00:00'", [28, 29, 30]),
        ("ts < '2024-03-02 00:00:00'", [1]),
        ("cast(ts as date) = date '2024-03-09'", [9]),
        ("ts between '2024-03-05 23:59:59' and '2024-03-06 00:00:00'", [5, 6]),
        ("not (ts < '2024-03-30 00:00:00')", [30]),
        ("ts = '2024-03-05 10:00:00' or day = '2024-03-09'", [5, 9]),
    ]:
        # A file with a null day may contain anything.
        expected = {*(f"f{day - 1}" for day in days), "f30"}
        assert _selected(live, parse(text, _generated()), _generated(), ["day"]).keys() == expected, text


def test_statistics_and_a_generated_partition_column_skip_together():
    early = {"minValues": {"ts": "2024-03-05T01:00:00.000"}, "maxValues": {"ts": "2024-03-05T02:00:00.000"}}
    live = laid_out(_daily(("2024-03-05", early), ("2024-03-05", None), ("2024-03-06", None)), [3])
    predicate = parse("ts > '2024-03-05 12:00:00'", _generated())
    assert _selected(live, predicate, _generated(), ["day"]) == {"f1": False, "f2": False}


def test_invalid_partition_values_imply_no_bounds():
    live = laid_out(_daily(("no day", None), ("2024-03-06", None)), [2])
    predicate = parse("ts > '2024-03-05 12:00:00'", _generated())
    assert _selected(live, predicate, _generated(), ["day"]) == {"f0": False, "f1": False}
