"""Readable protocols on each engine: writer-only features do not affect readers."""

import pyarrow as pa
import pytest

import delvec

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")

ROWS = pa.table({"id": [1, 2], "t": ["a", None]})


def column(name, kind, **metadata):
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


@pytest.fixture
def open_table(write_table, data_file, lake, engine):
    """``open_table(name, protocol)`` writes a table of that protocol and opens it."""

    def make(name, protocol, schema=ROWS.schema, **options):
        folder = write_table(name, schema, [data_file(ROWS)], protocol=protocol, **options)
        return lake.table(str(folder), engine=engine)

    return make


@pytest.mark.gate
def test_every_pair_of_versions(open_table):
    for reader in (1, 2, 3):
        for writer in range(1, 9):
            protocol = {"minReaderVersion": reader, "minWriterVersion": writer}
            if reader == 3:
                protocol["readerFeatures"] = []
            if writer >= 7:
                protocol["writerFeatures"] = []
            table = open_table(f"v{reader}_{writer}", protocol)
            # Reads are slow on Spark, and do not depend on the protocol.
            found = table.to_arrow() if reader == writer else None
            assert found is None or found.equals(ROWS)
            assert len(table.files()) == 1
    for reader in (4, 99, 2**31 - 1):
        with pytest.raises(delvec.UnsupportedReaderFeature, match=f"reader version {reader}"):
            open_table(f"future{reader}", {"minReaderVersion": reader, "minWriterVersion": 7}).to_arrow()


WRITER_ONLY = [
    "appendOnly",
    "invariants",
    "checkConstraints",
    "changeDataFeed",
    "generatedColumns",
    "identityColumns",
    "allowColumnDefaults",
    "rowTracking",
    "domainMetadata",
    "clustering",
    "icebergCompatV1",
    "icebergCompatV2",
    "icebergCompatV3",
    "checkpointProtection",
    "inCommitTimestamp",
    "materializePartitionColumns",
    "coordinatedCommits-preview",
    "aFeatureOfNextYear",
]


def test_features_that_bind_writers_are_no_matter_in_reading(open_table):
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["vacuumProtocolCheck", "v2Checkpoint"],
        "writerFeatures": [*WRITER_ONLY, "vacuumProtocolCheck", "v2Checkpoint"],
    }
    schema = {
        "type": "struct",
        "fields": [
            column("id", "long", **{"delta.identity.start": 1, "delta.identity.step": 1}),
            column(
                "t",
                "string",
                **{"delta.generationExpression": "CAST(id AS STRING)", "CURRENT_DEFAULT": "'x'"},
            ),
        ],
    }
    properties = {
        "delta.appendOnly": "true",
        "delta.constraints.positive": "id > 0",
        "delta.enableChangeDataFeed": "true",
        "delta.enableRowTracking": "true",
        "delta.enableIcebergCompatV2": "true",
        "delta.requireCheckpointProtectionBeforeVersion": "7",
    }
    assert open_table("bound", protocol, schema, properties=properties).to_arrow().equals(ROWS)


@pytest.mark.parametrize(
    ("feature", "words"),
    [
        ("adaptiveMetadata-preview", "cannot read yet: adaptiveMetadata-preview"),
        ("catalogManaged", "managed by a catalog"),
        ("aFeatureOfNextYear", "aFeatureOfNextYear"),
    ],
)
def test_features_that_readers_must_know_are_refused_by_name(open_table, feature, words):
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": [feature],
        "writerFeatures": [feature],
    }
    with pytest.raises(delvec.UnsupportedReaderFeature, match=words) as caught:
        open_table("unknown", protocol).to_arrow()
    assert caught.value.details["features"] == [feature]


@pytest.mark.parametrize("kind", ["geometry", "geography()", "interval year"])
def test_types_that_are_not_known_are_refused_by_name(open_table, kind):
    schema = {"type": "struct", "fields": [column("id", "long"), column("t", kind)]}
    with pytest.raises(delvec.UnsupportedTable, match=f"column 't': type '{kind.partition('(')[0]}"):
        open_table("unknown", {"minReaderVersion": 1, "minWriterVersion": 2}, schema).to_arrow()
