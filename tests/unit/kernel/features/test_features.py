"""Which tables can be read and written, and how errors name the unsupported features."""

import json

import pytest

from delvec_errors import UnsupportedReaderFeature, UnsupportedWriterFeature
from delvec_kernel.actions.actions import Metadata, Protocol
from delvec_kernel.features.table_features import READABLE, check_readable, check_writable


def metadata(configuration=None, **column):
    inner = {"name": "inner", "type": "long", "nullable": True, "metadata": column}
    nested = {"type": "array", "elementType": {"type": "struct", "fields": [inner]}, "containsNull": True}
    fields = [
        {"name": "id", "type": "long", "nullable": False, "metadata": {}},
        {"name": "deep", "type": nested, "nullable": True, "metadata": {}},
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    return Metadata("m", schema, (), configuration or {})


def table(*features):
    return Protocol(3, 7, tuple(name for name in features if name in READABLE), features)


@pytest.mark.parametrize("version", [1, 2])
def test_legacy_reader_versions_are_readable(version):
    check_readable(Protocol(version, 6), metadata(), "t")


@pytest.mark.parametrize("feature", sorted(READABLE))
def test_known_reader_features_are_readable(feature):
    check_readable(Protocol(3, 7, (feature,), (feature,)), metadata(), "t")


@pytest.mark.parametrize("mode", ["name", "id", "none"])
def test_column_mapping_is_readable(mode):
    check_readable(Protocol(2, 5), metadata({"delta.columnMapping.mode": mode}), "t")


@pytest.mark.parametrize(
    "feature",
    [
        "redirectReaderWriter-preview",
        "adaptiveMetadata-preview",
        "x",
    ],
)
def test_unknown_reader_features_are_refused_by_name(feature):
    with pytest.raises(UnsupportedReaderFeature, match=feature) as caught:
        check_readable(Protocol(3, 7, ("deletionVectors", feature), (feature,)), metadata(), "people")
    assert caught.value.details == {"table": "people", "features": [feature]}


def test_newer_versions_are_refused():
    with pytest.raises(UnsupportedReaderFeature, match="reader version 4"):
        check_readable(Protocol(4, 7), metadata(), "t")
    with pytest.raises(UnsupportedWriterFeature, match="writer version 8"):
        check_writable(Protocol(1, 8), metadata(), "t")
    with pytest.raises(UnsupportedReaderFeature, match="column mapping mode 'hash'"):
        check_readable(Protocol(2, 5), metadata({"delta.columnMapping.mode": "hash"}), "t")


@pytest.mark.parametrize("version", range(1, 7))
def test_legacy_writer_versions_are_writable_while_unsupported_features_are_unused(version):
    check_writable(Protocol(1, version), metadata(), "t")


@pytest.mark.parametrize(
    "feature",
    [
        "appendOnly",
        "deletionVectors",
        "timestampNtz",
        "vacuumProtocolCheck",
        "v2Checkpoint",
        "domainMetadata",
        "inCommitTimestamp",
        "columnMapping",
        "typeWidening",
        "clustering",
        "invariants",
        "checkConstraints",
        "generatedColumns",
        "rowTracking",
        "identityColumns",
        "allowColumnDefaults",
    ],
)
def test_implemented_features_are_writable(feature):
    used = {
        "delta.enableDeletionVectors": "true",
        "delta.columnMapping.mode": "name",
        "delta.constraints.positive": "id > 0",
        "delta.enableRowTracking": "true",
    }
    rules = {"delta.invariants": '{"expression": {"expression": "x > 1"}}', "delta.generationExpression": "1"}
    rules |= {"delta.identity.start": 1, "CURRENT_DEFAULT": "1"}
    check_writable(table(feature), metadata(used, **rules), "t")


IN_USE = {
    "icebergCompatV1": metadata({"delta.enableIcebergCompatV1": "true"}),
    "icebergCompatV2": metadata({"delta.enableIcebergCompatV2": "true"}),
}


@pytest.mark.parametrize("feature", IN_USE)
def test_a_feature_is_refused_when_it_is_in_use(feature):
    used = IN_USE[feature]
    check_writable(table(feature), metadata(), "t")
    with pytest.raises(UnsupportedWriterFeature, match=feature) as caught:
        check_writable(table(feature), used, "people")
    assert caught.value.details == {"table": "people", "features": [feature]}


@pytest.mark.parametrize("feature", ["coordinatedCommits-preview", "collations", "x"])
def test_unsupported_features_that_affect_all_writers_are_refused(feature):
    with pytest.raises(UnsupportedWriterFeature, match=feature):
        check_writable(table(feature), metadata(), "t")


def test_row_tracking_allows_commits_that_keep_row_ids():
    on = metadata({"delta.enableRowTracking": "true"})
    check_writable(table("rowTracking"), on, "t", keeps_row_ids=True)
    check_writable(table("rowTracking"), metadata(), "t", keeps_row_ids=False)
    with pytest.raises(UnsupportedWriterFeature, match=r"delta\.enableRowTracking is true and this change"):
        check_writable(table("rowTracking"), on, "t", keeps_row_ids=False)


def test_errors_list_all_features():
    used = metadata({"delta.enableIcebergCompatV2": "true", "delta.enableIcebergCompatV3": "true"})
    with pytest.raises(UnsupportedWriterFeature) as caught:
        check_writable(table("icebergCompatV2", "icebergCompatV3"), used, "t")
    assert caught.value.details["features"] == ["icebergCompatV2", "icebergCompatV3"]
    assert "delta.enableIcebergCompatV3" in caught.value.message


def test_unreadable_tables_are_not_writable():
    with pytest.raises(UnsupportedReaderFeature):
        check_writable(
            Protocol(3, 7, ("adaptiveMetadata-preview",), ("adaptiveMetadata-preview",)), metadata(), "t"
        )


def test_geospatial_tables_allow_deletes_but_not_inserts():
    check_writable(table("geospatial"), metadata(), "t", writes_rows=False)
    with pytest.raises(UnsupportedWriterFeature, match=r"geospatial \(this change writes rows"):
        check_writable(table("geospatial"), metadata(), "t")


def changed(before, after):
    changes = [{"fromType": before, "toType": after, "tableVersion": 2}]
    return metadata(**{"delta.typeChanges": changes})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("byte", "short"),
        ("short", "long"),
        ("integer", "double"),
        ("float", "double"),
        ("date", "timestamp_ntz"),
        ("integer", "decimal(10,0)"),
        ("long", "decimal(38,18)"),
        ("decimal(10,2)", "decimal(12,4)"),
    ],
)
def test_widened_types_are_readable(before, after):
    check_readable(Protocol(3, 7, ("typeWidening",), ("typeWidening",)), changed(before, after), "t")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("short", "byte"),
        ("long", "double"),
        ("double", "float"),
        ("date", "timestamp"),
        ("integer", "decimal(10,2)"),
        ("decimal(10,2)", "decimal(11,4)"),
        ("decimal(10,2)", "decimal(12,1)"),
        ("double", "decimal(38,2)"),
        ("string", None),
    ],
)
def test_unsupported_type_changes_are_refused_and_name_the_column(before, after):
    with pytest.raises(UnsupportedReaderFeature, match="Column 'inner' of table 't' was changed"):
        check_readable(Protocol(1, 2), changed(before, after), "t")
