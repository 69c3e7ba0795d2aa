import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from delvec_kernel.file_index.file_rows import TEXT_MAP, num_records_from_stats
from delvec_kernel.log.typed_columns import TypedPartitionValues, TypedStatistics
from delvec_kernel.schema.types import StructType


def schema(**kinds):
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    return StructType.from_json({"type": "struct", "fields": fields})


def parsed(texts, **kinds):
    stats = pa.array(texts, pa.string())
    found = TypedStatistics(schema(**kinds), [], {}).parse(stats, num_records_from_stats(stats))
    return found.to_pylist()


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        ("byte", 7, 7),
        ("byte", 700, None),
        ("long", 9223372036854775807, 9223372036854775807),
        ("long", 1.5, None),
        ("double", 0.1, 0.1),
        ("double", "NaN", None),
        ("decimal(38,2)", 1.25, Decimal("1.25")),
        ("decimal(3,1)", 1.25, None),
        ("string", 'q"\\\n', 'q"\\\n'),
        ("date", "2020-02-29", date(2020, 2, 29)),
        ("date", "+12000-01-01", None),
        ("date", "2020-02-30", None),
        ("timestamp", "2020-01-01T01:00:00.5+01:00", datetime(2020, 1, 1, 0, 0, 0, 500_000, UTC)),
        ("timestamp", "2020-01-01T01:00:00", None),
        ("timestamp_ntz", "2020-01-01T01:00:00.000", datetime.fromisoformat("2020-01-01T01:00")),
    ],
)
def test_a_bound_is_exact_or_unknown(kind, written, value):
    (found,) = parsed([json.dumps({"numRecords": 3, "maxValues": {"c": written}})], c=kind)
    assert found["numRecords"] == 3
    assert (found["maxValues"] or {}).get("c") == value


def test_invalid_documents_do_not_affect_their_neighbours():
    good = json.dumps({"numRecords": 1, "minValues": {"c": 1}, "tightBounds": False})
    texts = [good, None, "", "junk", good + good, '{"numRecords": 1', good.replace(" ", "\n"), "[]", good]
    found = parsed(texts, c="long")
    readable = [row for row in found if row and row["minValues"] == {"c": 1}]
    assert len(readable) == 3
    assert all(row["tightBounds"] is False for row in readable)
    assert [found[index] for index in (1, 2, 3, 7)] == [None] * 4
    assert found[4]["minValues"] is None


def test_types_without_order_have_null_counts_only():
    kind = TypedStatistics(schema(raw="binary", ok="boolean", id="long"), [], {}).type
    assert [field.name for field in kind.field("minValues").type] == ["id"]
    assert [field.name for field in kind.field("nullCount").type] == ["raw", "ok", "id"]


def partitioned(kind, *texts):
    values = pa.array([[("p", text)] for text in texts], TEXT_MAP)
    found = TypedPartitionValues(schema(p=kind), ["p"]).parse(values)
    return None if found is None else [row["p"] for row in found.to_pylist()]


def test_inexact_partition_values_omit_the_column():
    assert partitioned("date", "2020-01-01", "", None) == [date(2020, 1, 1), None, None]
    assert partitioned("integer", "1", "x") is None
    assert partitioned("binary", "x") is None
    assert partitioned("timestamp", "2020-01-01 00:00:00") is None
    assert partitioned("timestamp", "2020-01-01T00:00:00Z", None) == [datetime(2020, 1, 1, tzinfo=UTC), None]
