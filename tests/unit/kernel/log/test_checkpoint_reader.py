"""Checkpoints of different writers: every layout gives the same files, and corruption gives a specific error."""

import datetime as dt
import io
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delvec_errors import CorruptLog
from delvec_kernel.actions.action_json import LogFile
from delvec_kernel.actions.actions import DomainMetadata, Metadata, Protocol, Sidecar, Txn
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.file_index.file_rows import FILES_SCHEMA, add_from_row
from delvec_kernel.log.checkpoint_reader import read_checkpoint, stats_json

WHERE = LogFile("t", 4, "00000000000000000004.checkpoint.parquet")
TEXT_MAP = pa.map_(pa.string(), pa.string())
STATS = {"numRecords": 3, "minValues": {"id": 1, "s": 'a"\\\n'}, "maxValues": {"id": 9, "s": "z"}}
DV = {"storageType": "u", "pathOrInlineDv": "x" * 20, "offset": 1, "sizeInBytes": 40, "cardinality": 2}
ADD = {"path": "a%20b", "partitionValues": [("p", "1")], "size": 5, "modificationTime": 6, "dataChange": True}
ADD_TYPE = [
    ("path", pa.string()),
    ("partitionValues", TEXT_MAP),
    ("size", pa.int64()),
    ("modificationTime", pa.int64()),
    ("dataChange", pa.bool_()),
]
DV_TYPE = [
    ("storageType", pa.string()),
    ("pathOrInlineDv", pa.string()),
    ("offset", pa.int32()),
    ("sizeInBytes", pa.int32()),
    ("cardinality", pa.int64()),
    ("maxRowIndex", pa.int64()),
]
SIDECAR_TYPE = [("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())]
STATS_TYPE = pa.struct(
    [
        ("numRecords", pa.int64()),
        ("minValues", pa.struct([("id", pa.int64()), ("s", pa.string())])),
        ("maxValues", pa.struct([("id", pa.int64()), ("s", pa.string())])),
    ]
)


def parquet(rows, add_type=ADD_TYPE, **others):
    schema = pa.schema([("add", pa.struct(add_type)), *others.items()])
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema), sink)
    return sink.getvalue()


def adds(data, where=WHERE):
    batches = list(read_checkpoint(data, where).batches)
    assert all(batch.select(FILES_SCHEMA.names).schema == FILES_SCHEMA for batch in batches)
    return [add_from_row(row) for batch in batches for row in batch.to_pylist()]


def test_everything_in_a_classic_checkpoint():
    text = [pa.field("x", pa.list_(pa.string())).type, pa.string()]
    data = parquet(
        [
            {
                "protocol": {
                    "minReaderVersion": 3,
                    "minWriterVersion": 7,
                    "readerFeatures": ["deletionVectors"],
                }
            },
            {
                "metaData": {
                    "id": "m",
                    "schemaString": "{}",
                    "partitionColumns": ["p"],
                    "configuration": [("delta.x", "1")],
                    "format": {"provider": "parquet", "options": [("o", "1")]},
                }
            },
            {"add": ADD},
            {"txn": {"appId": "app", "version": 2}},
            {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
            {"sidecar": {"path": "s.parquet", "sizeInBytes": 1, "modificationTime": 2}},
            {"remove": {"path": "gone"}},
        ],
        remove=pa.struct([("path", pa.string())]),
        protocol=pa.struct(
            [("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32()), ("readerFeatures", text[0])]
        ),
        metaData=pa.struct(
            [
                ("id", pa.string()),
                ("schemaString", pa.string()),
                ("partitionColumns", text[0]),
                ("configuration", TEXT_MAP),
                ("format", pa.struct([("provider", pa.string()), ("options", TEXT_MAP)])),
            ]
        ),
        txn=pa.struct([("appId", pa.string()), ("version", pa.int64())]),
        domainMetadata=pa.struct([("domain", text[1]), ("configuration", text[1]), ("removed", pa.bool_())]),
        sidecar=pa.struct([("path", text[1]), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())]),
    )
    part = read_checkpoint(data, WHERE)
    assert part.actions == [
        Protocol(3, 7, ("deletionVectors",)),
        Metadata("m", "{}", ("p",), {"delta.x": "1"}, format_options={"o": "1"}),
        Txn("app", 2),
        DomainMetadata("d", "{}"),
    ]
    assert part.sidecars == [Sidecar("s.parquet", 1, 2)]
    (add,) = adds(data)
    assert (add.path, add.partition_values, add.size, add.modification_time) == ("a%20b", {"p": "1"}, 5, 6)
    assert (add.stats, add.deletion_vector, add.tags) == (None, None, None)


def test_statistics_in_columns_become_json():
    (add,) = adds(
        parquet([{"add": {**ADD, "stats_parsed": STATS}}], [*ADD_TYPE, ("stats_parsed", STATS_TYPE)])
    )
    assert json.loads(add.stats) == STATS
    (batch,) = read_checkpoint(
        parquet([{"add": {**ADD, "stats_parsed": STATS}}], [*ADD_TYPE, ("stats_parsed", STATS_TYPE)]), WHERE
    ).batches
    assert batch.column("num_records").to_pylist() == [3]


def test_json_statistics_win_where_a_file_has_both():
    fields = [*ADD_TYPE, ("stats", pa.string()), ("stats_parsed", STATS_TYPE)]
    rows = [
        {"add": {**ADD, "path": "a", "stats": '{"numRecords":7}', "stats_parsed": STATS}},
        {"add": {**ADD, "path": "b", "stats": None, "stats_parsed": STATS}},
        {"add": {**ADD, "path": "c", "stats": None, "stats_parsed": None}},
    ]
    first, second, third = adds(parquet(rows, fields))
    assert first.stats == '{"numRecords":7}'
    assert json.loads(second.stats) == STATS
    assert third.stats is None


def test_partition_values_in_columns_become_text():
    fields = [item for item in ADD_TYPE if item[0] != "partitionValues"]
    parsed = pa.struct([("p", pa.int32()), ("d", pa.date32()), ("s", pa.string())])
    value = {"p": 5, "d": dt.date(2020, 1, 2), "s": None}
    data = parquet(
        [{"add": {**ADD, "partitionValues_parsed": value}}], [*fields, ("partitionValues_parsed", parsed)]
    )
    assert adds(data)[0].partition_values == {"p": "5", "d": "2020-01-02", "s": None}


def test_partition_values_come_from_either_column():
    fields = [*ADD_TYPE, ("partitionValues_parsed", pa.struct([("p", pa.int32())]))]
    text, typed = [("p", "1")], {"p": 2}
    pairs = [(text, typed), (text, None), (None, typed), (None, {"p": None}), ([], typed), (None, None)]
    rows = [
        {"add": {**ADD, "path": f"f{i}", "partitionValues": one, "partitionValues_parsed": other}}
        for i, (one, other) in enumerate(pairs)
    ]
    found = [add.partition_values for add in adds(parquet(rows, fields))]
    assert found == [{"p": "1"}, {"p": "1"}, {"p": "2"}, {"p": None}, {}, {"p": None}]


def test_deletion_vectors_and_empty_structs():
    fields = [*ADD_TYPE, ("deletionVector", pa.struct(DV_TYPE))]
    empty = {"storageType": "", "pathOrInlineDv": "", "sizeInBytes": 0, "cardinality": 0}
    rows = [
        {"add": {**ADD, "path": f"f{i}", "deletionVector": v}} for i, v in enumerate([DV, None, empty, {}])
    ]
    found = [add.deletion_vector for add in adds(parquet(rows, fields))]
    assert found == [Descriptor.from_json(DV), None, None, None]


@pytest.mark.parametrize(
    "bad",
    [
        {**DV, "storageType": "r"},
        {**DV, "sizeInBytes": -1},
        {**DV, "cardinality": None},
        {**DV, "offset": -1},
        {**DV, "pathOrInlineDv": None},
    ],
)
def test_invalid_deletion_vectors_are_refused(bad):
    fields = [*ADD_TYPE, ("deletionVector", pa.struct(DV_TYPE))]
    with pytest.raises(CorruptLog, match="deletion vector cannot be used"):
        adds(parquet([{"add": {**ADD, "deletionVector": bad}}], fields))


def test_other_string_encodings_are_read():
    fields = [(name, pa.large_string() if kind == pa.string() else kind) for name, kind in ADD_TYPE]
    assert adds(parquet([{"add": {**ADD, "partitionValues": None}}], fields))[0].partition_values == {}


@pytest.mark.parametrize("text", [pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_checkpoints_are_read_however_their_writer_had_them_in_memory(text):
    def in_memory(kind):
        if pa.types.is_struct(kind):
            return pa.struct([field.with_type(in_memory(field.type)) for field in kind])
        if pa.types.is_list(kind):
            return pa.list_(in_memory(kind.value_type))
        if pa.types.is_map(kind):
            return pa.map_(pa.string(), in_memory(kind.item_type))
        return text if pa.types.is_string(kind) else kind

    rows = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}},
        {"add": {**ADD, "deletionVector": DV, "stats_parsed": STATS}},
        {"sidecar": {"path": "s.parquet", "sizeInBytes": 1, "modificationTime": 2}},
    ]
    features = pa.list_(pa.string())
    numbers = [("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())]
    others = {
        "protocol": pa.struct([*numbers, ("readerFeatures", features)]),
        "sidecar": pa.struct(SIDECAR_TYPE),
    }
    fields = [*ADD_TYPE, ("deletionVector", pa.struct(DV_TYPE)), ("stats_parsed", STATS_TYPE)]
    plain = parquet(rows, fields, **others)
    found = parquet(
        rows,
        list(in_memory(pa.struct(fields))),
        **{name: in_memory(kind) for name, kind in others.items()},
    )
    assert found != plain
    expected, part = read_checkpoint(plain, WHERE), read_checkpoint(found, WHERE)
    assert (part.actions, part.sidecars) == (expected.actions, expected.sidecars)
    assert adds(found) == adds(plain)
    assert json.loads(adds(found)[0].stats) == STATS


def test_a_manifest_in_json():
    where = LogFile("t", 4, "00000000000000000004.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json")
    lines = [
        {"checkpointMetadata": {"version": 4}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7}},
        {"add": {**ADD, "partitionValues": {"p": "1"}, "stats": '{"numRecords":1}'}},
        {"remove": {"path": "gone"}},
        {"sidecar": {"path": "s.parquet", "sizeInBytes": 1, "modificationTime": 2}},
    ]
    data = "\n".join(map(json.dumps, lines)).encode()
    assert [add.path for add in adds(data, where)] == ["a%20b"]
    part = read_checkpoint(data, where)
    assert part.sidecars == [Sidecar("s.parquet", 1, 2)]
    assert Protocol(3, 7) in part.actions


@pytest.mark.parametrize("missing", ["size", "modificationTime"])
def test_an_add_that_lacks_a_field_is_refused(missing):
    with pytest.raises(CorruptLog, match=f"without '{missing}'"):
        adds(parquet([{"add": {**ADD, missing: None}}]))


@given(st.data())
def test_a_truncated_checkpoint_is_refused(data):
    whole = parquet([{"add": ADD}])
    length = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(
        CorruptLog, match=r"00000000000000000004\.checkpoint\.parquet is not a readable Parquet"
    ) as caught:
        adds(whole[:length])
    assert caught.value.details == {"table": "t", "version": 4, "file": WHERE.name}


def test_duplicate_columns_are_refused():
    table = pq.read_table(io.BytesIO(parquet([{"add": ADD}])))
    for twice in (
        pa.table([table["add"], table["add"]], ["add", "add"]),
        table.set_column(0, "add", pa.StructArray.from_arrays([pa.array(["a"])] * 2, ["path", "path"])),
    ):
        sink = io.BytesIO()
        pq.write_table(twice, sink)
        with pytest.raises(CorruptLog, match="fields with the same name"):
            adds(sink.getvalue())


def test_adds_without_paths_are_refused():
    with pytest.raises(CorruptLog, match="without 'path'"):
        adds(parquet([{"add": {"x": 1}}], [("x", pa.int64())]))


def test_adds_lacking_only_the_path_are_refused():
    with pytest.raises(CorruptLog, match="without 'path'"):
        adds(parquet([{"add": ADD}, {"add": {**ADD, "path": None}}]))
    sink = io.BytesIO()
    sidecar = pa.struct(
        [("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())]
    )
    rows = [{"path": None, "sizeInBytes": 5, "modificationTime": 6}]
    pq.write_table(pa.table({"sidecar": pa.array(rows, sidecar)}), sink)
    with pytest.raises(CorruptLog, match="without 'path'"):
        read_checkpoint(sink.getvalue(), WHERE)


def test_fields_that_the_file_requires_are_absent_with_their_action():
    """delta-rs writes these; under a null action Arrow then has placeholder values."""
    kinds = [pa.field(name, kind, nullable=False) for name, kind in ADD_TYPE]
    removed = pa.struct([pa.field("path", pa.string(), nullable=False)])
    sidecar = pa.struct([pa.field(name, kind, nullable=False) for name, kind in SIDECAR_TYPE])

    data = parquet([{"remove": {"path": "gone"}}, {"add": ADD}, {}], kinds, remove=removed, sidecar=sidecar)

    assert [add.path for add in adds(data)] == ["a%20b"]


def test_invalid_utf8_is_refused():
    fields = [(name, pa.binary() if name == "path" else kind) for name, kind in ADD_TYPE]
    with pytest.raises(CorruptLog, match="not a readable Parquet"):
        adds(parquet([{"add": {**ADD, "path": b"\xff\xfe"}}], fields))


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "int": st.none() | st.integers(-(2**63), 2**63 - 1),
                "text": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
                "float": st.none() | st.floats(),
                "flag": st.none() | st.booleans(),
                "decimal": st.none() | st.decimals(-999, 999, places=2),
                'in,ner"': st.none() | st.fixed_dictionaries({"x": st.none() | st.integers(0, 9)}),
            }
        ),
        max_size=4,
    )
)
def test_typed_and_json_statistics_agree(rows):
    kinds = {
        "int": pa.int64(),
        "text": pa.string(),
        "float": pa.float64(),
        "flag": pa.bool_(),
        "decimal": pa.decimal128(10, 2),
        'in,ner"': pa.struct([("x", pa.int64())]),
    }
    texts = stats_json(pa.array(rows, pa.struct(list(kinds.items())))).to_pylist()

    def plain(value):
        if isinstance(value, dict):
            return {name: plain(item) for name, item in value.items() if item is not None}
        return value

    def finite(row):
        bad = row["float"] is not None and row["float"] - row["float"] != 0
        return {**row, "float": None} if bad else row

    found = [json.loads(text, parse_float=Decimal) for text in texts]
    for row in found:
        row.update({"float": float(row["float"])} if "float" in row else {})
        row.update({"decimal": Decimal(row["decimal"])} if "decimal" in row else {})
    assert found == [plain(finite(row)) for row in rows]


def test_typed_timestamps_have_a_zone_if_the_column_has_one():
    moment = dt.datetime(2020, 1, 2, 3, 4, 5, 678000)  # noqa: DTZ001 - the point
    array = pa.array(
        [{"a": moment, "b": moment.replace(tzinfo=dt.UTC), "c": None}],
        pa.struct([("a", pa.timestamp("us")), ("b", pa.timestamp("us", "UTC")), ("c", pa.binary())]),
    )
    assert stats_json(array).to_pylist() == [
        '{"a":"2020-01-02 03:04:05.678000","b":"2020-01-02 03:04:05.678000Z"}'
    ]
