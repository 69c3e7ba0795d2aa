"""Table changes without I/O: their effect on metadata, protocol and domains."""

import itertools
import json

import pytest
from pydantic import TypeAdapter

from delvec_kernel.actions.actions import Metadata, Protocol
from delvec_kernel.alter_table.alteration import altered
from delvec_kernel.errors import BadRequest, InvalidSchema, InvalidTableChange, UnknownColumn
from delvec_kernel.features.protocol_upgrade import supported
from delvec_kernel.schema.column_paths import parse_path, path_text
from delvec_kernel.schema.types import StructType
from delvec_kernel.wire import TableChange

CHANGES = TypeAdapter(list[TableChange])
NEW = Protocol(3, 7, ("deletionVectors",), ("appendOnly", "invariants", "deletionVectors"))
MAPPED = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "0"}


def field(name, kind="long", *, nullable=True, **metadata):
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def struct(*fields):
    return {"type": "struct", "fields": list(fields)}


PEOPLE = struct(
    field("id", nullable=False),
    field("name", "string"),
    field("home", struct(field("city", "string"), field("zip", "integer"))),
    field("tags", {"type": "array", "elementType": "integer", "containsNull": True}),
    field("country", "string"),
)


class Table:
    """A version of a table, updated by changes."""

    def __init__(
        self, schema=PEOPLE, *, protocol=NEW, configuration=None, partitioned=("country",), domains=None
    ):
        self.metadata = Metadata(
            id="the-id",
            schema_string=json.dumps(schema),
            partition_columns=tuple(partitioned),
            configuration=dict(configuration or {}),
        )
        self.protocol = protocol
        self.domains = dict(domains or {})

    @property
    def fields(self):
        return json.loads(self.metadata.schema_string)["fields"]

    @property
    def names(self):
        return [each["name"] for each in self.fields]

    def field(self, *path):
        fields = self.fields
        for name in path:
            (found,) = [each for each in fields if each["name"] == name]
            fields = found["type"].get("fields") if isinstance(found["type"], dict) else None
        return found

    def alter(self, *changes, counter=None):
        """Apply changes and become the new version."""
        numbers = counter or itertools.count(1)
        made = altered(
            CHANGES.validate_python(list(changes)),
            metadata=self.metadata,
            protocol=self.protocol,
            domains=self.domains,
            schema=StructType.from_json(self.metadata.schema_string),
            new_name=lambda: f"col-{next(numbers)}",
        )
        self.metadata = made.metadata or self.metadata
        self.protocol = made.protocol or self.protocol
        self.domains |= {each.domain: each for each in made.domains}
        return made


def add(column, kind="long", **more):
    return {"change": "add-columns", "columns": [{"column": column, "type": kind, **more}]}


def change(column, **what):
    return {"change": "change-column", "column": column, **what}


def put(**properties):
    return {
        "change": "set-properties",
        "properties": {f"delta.{k.replace('__', '.')}": v for k, v in properties.items()},
    }


MAP = put(columnMapping__mode="name")


# --- paths ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts", "shown"),
    [
        ("a", ("a",), "a"),
        ("a.b.c", ("a", "b", "c"), "a.b.c"),
        ("`a.b`.c", ("a.b", "c"), "`a.b`.c"),
        ("`a``b`", ("a`b",), "`a``b`"),
        ("tags.element", ("tags", "element"), "tags.element"),
    ],
)
def test_paths_are_dot_separated_names(text, parts, shown):
    assert parse_path(text) == parts
    assert path_text(parts) == shown


@pytest.mark.parametrize("text", [".", "a.", "a..b", "`a", "`a`b", ""])
def test_invalid_paths_are_refused(text):
    with pytest.raises(InvalidTableChange, match="not a column path"):
        parse_path(text)


# --- adding columns -------------------------------------------------------------------------------------------


def test_columns_are_added_at_the_end_first_after_and_in_structs():
    table = Table()

    made = table.alter(
        {
            "change": "add-columns",
            "columns": [
                {"column": "last", "type": "string", "comment": "the last"},
                {"column": "first", "type": "decimal(10,2)", "first": True},
                {"column": "middle", "type": "date", "after": "ID"},
                {"column": "home.street", "type": "string", "after": "city"},
            ],
        }
    )

    assert table.names == ["first", "id", "middle", "name", "home", "tags", "country", "last"]
    assert [each["name"] for each in table.field("home")["type"]["fields"]] == ["city", "street", "zip"]
    assert table.field("last") == field("last", "string", comment="the last")
    assert made.protocol is None
    assert made.operation == "ADD COLUMNS"
    assert json.loads(made.parameters["columns"]) == [
        {"column": {"name": "last", "type": "string", "nullable": True, "metadata": {"comment": "the last"}}},
        {
            "column": {"name": "first", "type": "decimal(10,2)", "nullable": True, "metadata": {}},
            "position": "FIRST",
        },
        {
            "column": {"name": "middle", "type": "date", "nullable": True, "metadata": {}},
            "position": "AFTER ID",
        },
        {
            "column": {"name": "home.street", "type": "string", "nullable": True, "metadata": {}},
            "position": "AFTER city",
        },
    ]


@pytest.mark.parametrize(
    ("column", "error", "message"),
    [
        (add("ID"), InvalidTableChange, "already"),
        (add("x", nullable=False), InvalidTableChange, "NOT NULL"),
        (add("x", struct(field("y", nullable=False))), InvalidTableChange, "NOT NULL"),
        (add("tags.x"), InvalidTableChange, "not a struct"),
        (add("tags.x.y"), UnknownColumn, "element"),
        (add("name.x"), InvalidTableChange, "not a struct"),
        (add("x", after="nothing"), UnknownColumn, "nothing"),
        (add("x", "spam"), InvalidSchema, "spam"),
        (add("x", "void"), InvalidTableChange, "void"),
        (add("x", "variant"), InvalidTableChange, "variant"),
        (add("`a b`"), InvalidSchema, "column mapping"),
        (add("_metadata"), InvalidSchema, "reserved"),
        (add("x", "timestamp_ntz"), InvalidTableChange, "timestampNtz"),
        (add("x", struct(field("y", **{"delta.identity.start": 1}))), InvalidTableChange, "metadata"),
    ],
)
def test_invalid_new_columns_are_refused(column, error, message):
    with pytest.raises(error, match=message):
        Table().alter(column)


def test_adding_a_timestamp_ntz_column_adds_its_feature():
    table = Table(protocol=Protocol(1, 2))

    table.alter({"change": "add-feature", "feature": "timestampNtz"}, add("at", "timestamp_ntz"))

    assert table.protocol == Protocol(3, 7, ("timestampNtz",), ("appendOnly", "invariants", "timestampNtz"))


# --- column mapping -------------------------------------------------------------------------------------------


def test_mapping_an_existing_table_keeps_its_names_as_physical_ones_and_numbers_every_field():
    table = Table(protocol=Protocol(1, 2))

    table.alter(MAP)

    assert table.metadata.configuration == {
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": "7",
    }
    assert table.protocol == Protocol(2, 7, None, ("appendOnly", "invariants", "columnMapping"))
    assert table.field("home", "zip")["metadata"] == {
        "delta.columnMapping.id": 5,
        "delta.columnMapping.physicalName": "zip",
    }
    assert table.field("country")["metadata"]["delta.columnMapping.id"] == 7


def test_columns_that_are_added_together_get_ids_in_the_order_of_the_schema():
    table = Table()
    table.alter(MAP)

    table.alter(
        {
            "change": "add-columns",
            "columns": [
                {"column": "z", "type": "long"},
                {"column": "y", "type": struct(field("x")), "first": True},
                {"column": "y.w", "type": "long", "first": True},
            ],
        }
    )

    paths = [("y",), ("y", "w"), ("y", "x"), ("z",)]
    assert [table.field(*path)["metadata"]["delta.columnMapping.id"] for path in paths] == [8, 9, 10, 11]


def test_renaming_keeps_the_physical_name_and_ids_are_never_reused():
    table = Table()
    table.alter(MAP)

    renamed = table.alter({"change": "rename-column", "column": "home.zip", "to": "post code"})
    table.alter({"change": "rename-column", "column": "country", "to": "land"})
    dropped = table.alter({"change": "drop-columns", "columns": ["name", "home.city"]})
    table.alter(add("name", "string"))

    assert renamed.operation == "RENAME COLUMN"
    assert renamed.parameters == {"oldColumnPath": "home.zip", "newColumnPath": "home.post code"}
    assert table.field("home", "post code")["metadata"]["delta.columnMapping.physicalName"] == "zip"
    assert table.metadata.partition_columns == ("land",)
    assert (dropped.operation, json.loads(dropped.parameters["columns"])) == (
        "DROP COLUMNS",
        ["name", "home.city"],
    )
    assert table.names == ["id", "home", "tags", "land", "name"]
    assert table.field("name")["metadata"] == {
        "delta.columnMapping.id": 8,
        "delta.columnMapping.physicalName": "col-1",
    }
    assert table.metadata.configuration["delta.columnMapping.maxColumnId"] == "8"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([{"change": "rename-column", "column": "name", "to": "n"}], "delta.columnMapping.mode=name"),
        ([{"change": "drop-columns", "columns": ["name"]}], "delta.columnMapping.mode=name"),
        ([MAP, {"change": "rename-column", "column": "name", "to": "ID"}], "already"),
        ([MAP, {"change": "drop-columns", "columns": ["country"]}], "partition column"),
        ([MAP, {"change": "drop-columns", "columns": ["home.city", "home.zip"]}], "only one left"),
        ([MAP, {"change": "drop-columns", "columns": ["id", "name", "home", "tags"]}], "only one left"),
        ([MAP, put(columnMapping__mode="none")], "from name to none"),
        ([MAP, {"change": "unset-properties", "names": ["delta.columnMapping.mode"]}], "from name to none"),
    ],
)
def test_changes_that_would_contradict_the_files_are_refused(changes, message):
    with pytest.raises(InvalidTableChange, match=message):
        Table().alter(*changes)


def test_a_column_that_a_constraint_or_a_generated_column_reads_is_neither_renamed_nor_dropped_nor_widened():
    table = Table(
        struct(
            field("id", "integer"),
            field("home", struct(field("zip", "integer"), field("city", "string"))),
            field("half", "integer", **{"delta.generationExpression": "id / 2"}),
        ),
        partitioned=(),
        configuration={"delta.constraints.near": "home.zip < 1000", "delta.enableTypeWidening": "true"},
    )
    table.alter(MAP)

    for column, reader in [("home.zip", "'near'"), ("home", "'near'"), ("id", "'half'")]:
        with pytest.raises(InvalidTableChange, match=reader):
            table.alter({"change": "rename-column", "column": column, "to": "other"})
        with pytest.raises(InvalidTableChange, match=reader):
            table.alter({"change": "drop-columns", "columns": [column]})
    with pytest.raises(InvalidTableChange, match="near"):
        table.alter(change("home.zip", type="long"))
    table.alter({"change": "rename-column", "column": "home.city", "to": "town"})


def test_stats_columns_follow_renames_and_drops():
    table = Table(configuration={"delta.dataSkippingStatsColumns": "id,home.zip,name"})
    table.alter(MAP)

    table.alter({"change": "rename-column", "column": "home", "to": "a.b"})
    table.alter({"change": "drop-columns", "columns": ["name"]})

    assert table.metadata.configuration["delta.dataSkippingStatsColumns"] == "id,`a.b`.zip"


# --- changing columns -----------------------------------------------------------------------------------------


def test_a_property_is_true_with_blanks_around_it():
    table = Table(configuration={"delta.enableTypeWidening": " True "})
    table.alter(change("home.zip", type="long"))
    assert table.field("home", "zip")["type"] == "long"


def test_type_widening_is_recorded_in_the_column_metadata():
    table = Table(protocol=Protocol(1, 2))
    table.alter(put(enableTypeWidening="true"))
    assert table.protocol == Protocol(3, 7, ("typeWidening",), ("appendOnly", "invariants", "typeWidening"))

    first = table.alter(change("home.zip", type="long"), change("tags.element", type="decimal(10,0)"))
    table.alter(change("home.zip", type="decimal(20,0)"))

    assert table.field("home", "zip")["type"] == "decimal(20,0)"
    assert table.field("home", "zip")["metadata"]["delta.typeChanges"] == [
        {"fromType": "integer", "toType": "long"},
        {"fromType": "long", "toType": "decimal(20,0)"},
    ]
    assert table.field("tags")["type"]["elementType"] == "decimal(10,0)"
    assert table.field("tags")["metadata"]["delta.typeChanges"] == [
        {"fromType": "integer", "toType": "decimal(10,0)", "fieldPath": "element"}
    ]
    assert first.operation == "CHANGE COLUMNS"


WIDER = {
    "byte": ["short", "integer", "long", "double", "decimal(10,0)", "decimal(12,2)"],
    "short": ["integer", "long", "double", "decimal(10,0)"],
    "integer": ["long", "double", "decimal(10,0)", "decimal(38,28)"],
    "long": ["decimal(20,0)", "decimal(22,2)"],
    "float": ["double"],
    "date": ["timestamp_ntz"],
    "decimal(10,2)": ["decimal(11,2)", "decimal(12,4)", "decimal(38,28)"],
}
NARROWER = {
    "short": ["byte"],
    "integer": ["short", "float", "decimal(9,0)", "decimal(10,1)", "string", "boolean"],
    "long": ["integer", "double", "decimal(19,0)", "timestamp"],
    "float": ["decimal(38,2)", "long"],
    "double": ["float"],
    "date": ["timestamp", "string"],
    "decimal(10,2)": ["decimal(9,2)", "decimal(11,4)", "decimal(12,1)", "double", "long"],
    "timestamp": ["timestamp_ntz"],
    "string": ["binary"],
}


def widening_table(kind):
    return Table(
        struct(field("x", kind)),
        protocol=Protocol(3, 7, ("timestampNtz", "typeWidening"), ("timestampNtz", "typeWidening")),
        partitioned=(),
        configuration={"delta.enableTypeWidening": "true"},
    )


@pytest.mark.parametrize(("before", "after"), [(old, new) for old, kinds in WIDER.items() for new in kinds])
def test_supported_type_changes(before, after):
    table = widening_table(before)

    table.alter(change("x", type=after))

    assert table.field("x")["type"] == after
    assert table.alter(change("x", type=after)).is_empty


@pytest.mark.parametrize(
    ("before", "after"), [(old, new) for old, kinds in NARROWER.items() for new in kinds]
)
def test_narrowing_a_type_is_refused(before, after):
    with pytest.raises(InvalidTableChange, match="cannot be changed to"):
        widening_table(before).alter(change("x", type=after))


def test_type_widening_needs_its_property():
    with pytest.raises(InvalidTableChange, match=r"delta\.enableTypeWidening=true"):
        Table().alter(change("home.zip", type="long"))
    with pytest.raises(InvalidTableChange, match="nested types cannot be changed as a whole"):
        Table(configuration={"delta.enableTypeWidening": "true"}).alter(
            change("tags", type={"type": "array", "elementType": "long", "containsNull": True})
        )


def test_comment_position_and_nullability_change_together():
    table = Table()

    made = table.alter(change("ID", nullable=True, comment="the key", after="name"))

    assert table.names == ["name", "id", "home", "tags", "country"]
    assert table.field("id") == field("id", comment="the key")
    assert made.operation == "CHANGE COLUMN"
    assert json.loads(made.parameters["column"]) == {
        "name": "id",
        "type": "long",
        "nullable": True,
        "metadata": {"comment": "the key"},
    }
    assert made.parameters["position"] == "AFTER name"
    assert made.requirements == ()


def test_not_null_requires_a_value_in_every_row():
    table = Table(struct(field("id"), field("home", struct(field("zip", "integer")))), partitioned=())

    made = table.alter(change("id", nullable=False))

    assert table.field("id")["nullable"] is False
    assert [each.condition for each in made.requirements] == ["`id` IS NOT NULL"]
    with pytest.raises(InvalidTableChange, match="'home'"):
        table.alter(change("home.zip", nullable=False))


def test_an_empty_comment_is_none():
    table = Table(struct(field("id", comment="old")), partitioned=())

    table.alter(change("id", comment=""))

    assert table.field("id")["metadata"] == {}


# --- properties and protocol ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "properties", "after"),
    [
        (
            Protocol(1, 2),
            {"enableDeletionVectors": "true"},
            Protocol(3, 7, ("deletionVectors",), ("appendOnly", "invariants", "deletionVectors")),
        ),
        (
            Protocol(2, 5),
            {"enableDeletionVectors": "true"},
            Protocol(
                3,
                7,
                ("columnMapping", "deletionVectors"),
                (
                    "appendOnly",
                    "invariants",
                    "checkConstraints",
                    "changeDataFeed",
                    "generatedColumns",
                    "columnMapping",
                    "deletionVectors",
                ),
            ),
        ),
        (Protocol(1, 2), {"appendOnly": "true"}, Protocol(1, 2)),
        (Protocol(1, 1), {"appendOnly": "true"}, Protocol(1, 7, None, ("appendOnly",))),
        (
            Protocol(1, 2),
            {"enableChangeDataFeed": "true"},
            Protocol(1, 7, None, ("appendOnly", "invariants", "changeDataFeed")),
        ),
        (Protocol(1, 4), {"columnMapping__mode": "name"}, Protocol(2, 5)),
        (Protocol(1, 3), {"enableChangeDataFeed": "false"}, Protocol(1, 3)),
        (
            NEW,
            {"checkpointPolicy": "v2"},
            Protocol(
                3,
                7,
                ("deletionVectors", "v2Checkpoint"),
                ("appendOnly", "invariants", "deletionVectors", "v2Checkpoint"),
            ),
        ),
        (
            Protocol(1, 7, None, ("appendOnly",)),
            {"enableInCommitTimestamps": "true"},
            Protocol(1, 7, None, ("appendOnly", "inCommitTimestamp")),
        ),
    ],
)
def test_a_property_adds_its_feature_and_a_legacy_protocol_lists_its_implied_features(
    before, properties, after
):
    table = Table(protocol=before, partitioned=())

    table.alter(put(**properties))

    assert table.protocol == after


@pytest.mark.parametrize("reader", [1, 2])
@pytest.mark.parametrize("writer", range(1, 7))
def test_no_feature_is_lost_when_an_old_protocol_gets_a_list(reader, writer):
    table = Table(protocol=Protocol(reader, writer))
    before = supported(table.protocol)

    table.alter(put(enableDeletionVectors="true"))

    assert supported(table.protocol) == before | {"deletionVectors"}
    assert (table.protocol.min_reader_version, table.protocol.min_writer_version) == (3, 7)
    assert set(table.protocol.reader_features) == {"deletionVectors"} | (before & {"columnMapping"})


@pytest.mark.parametrize(
    ("before", "reader", "writer", "after"),
    [
        (Protocol(1, 2), 1, 4, Protocol(1, 4)),
        (Protocol(1, 2), 2, 5, Protocol(2, 5)),
        (Protocol(1, 4), 1, 2, Protocol(1, 4)),
        (Protocol(1, 2), 3, 7, Protocol(1, 2)),
        (Protocol(1, 7, None, ("checkConstraints",)), 1, 2, Protocol(1, 3)),
    ],
)
def test_upgrading_versions_adds_their_implied_features(before, reader, writer, after):
    table = Table(protocol=before)

    made = table.alter(
        {"change": "upgrade-protocol", "min-reader-version": reader, "min-writer-version": writer}
    )

    assert table.protocol == after
    assert made.operation == "UPGRADE PROTOCOL"


def test_reader_features_need_writer_features():
    with pytest.raises(InvalidTableChange, match="writer version 7"):
        Table().alter({"change": "upgrade-protocol", "min-reader-version": 3, "min-writer-version": 5})


def test_a_feature_is_added_with_its_dependencies():
    table = Table(protocol=Protocol(1, 2))

    made = table.alter({"change": "add-feature", "feature": "DomainMetadata"})

    assert table.protocol == Protocol(1, 7, None, ("appendOnly", "invariants", "domainMetadata"))
    assert made.metadata is None
    assert made.operation == "SET TBLPROPERTIES"
    assert json.loads(made.parameters["properties"]) == {"delta.feature.domainMetadata": "supported"}


def test_properties_are_set_as_delta_spells_them():
    table = Table()

    made = table.alter(
        {"change": "set-properties", "properties": {"Delta.AppendOnly": " TRUE ", "team": "red"}},
        {"change": "set-comment", "comment": "people we know"},
    )

    assert table.metadata.configuration == {"delta.appendOnly": "true", "team": "red"}
    assert table.metadata.description == "people we know"
    assert made.operation == "SET TBLPROPERTIES"
    assert json.loads(made.parameters["properties"]) == {
        "Delta.AppendOnly": " TRUE ",
        "team": "red",
        "comment": "people we know",
    }


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("delta.apendOnly", "true", InvalidTableChange, "did you mean delta.appendOnly"),
        ("delta.nothingOfTheKind", "1", InvalidTableChange, "does not know"),
        ("delta.appendOnly", "yes", BadRequest, "true or false"),
        ("delta.checkpointInterval", "0", BadRequest, "at least 1"),
        ("delta.logRetentionDuration", "1 month", BadRequest, "interval 30 days"),
        ("delta.targetFileSize", "large", BadRequest, "a size such as 128mb"),
        ("delta.columnMapping.mode", "id", InvalidTableChange, "when the table is created"),
        ("delta.columnMapping.maxColumnId", "9", InvalidTableChange, "maintained by writers"),
        ("delta.enableIcebergCompatV2", "true", InvalidTableChange, "does not implement"),
        ("delta.constraints.positive", "id > 0", InvalidTableChange, "constraint"),
        ("delta.minReaderVersion", "3", InvalidTableChange, "upgrade the protocol"),
        ("delta.feature.spam", "supported", InvalidTableChange, "does not know the table feature"),
        ("delta.feature.v2Checkpoint", "true", BadRequest, "supported"),
        ("delta.dataSkippingStatsColumns", "id,nothing", UnknownColumn, "nothing"),
        ("delta.dataSkippingStatsColumns", "id,home.zip,ID", InvalidTableChange, "twice"),
        ("comment", "x", InvalidTableChange, "comment of the table"),
        ("a b", "x", BadRequest, "not a valid name"),
    ],
)
def test_unknown_and_harmful_properties_are_refused(name, value, error, message):
    with pytest.raises(error, match=message):
        Table().alter({"change": "set-properties", "properties": {name: value}})


def test_unknown_properties_are_set_on_request():
    table = Table()

    table.alter({"change": "set-properties", "properties": {"delta.new": "1"}, "allow-unknown": True})

    assert table.metadata.configuration == {"delta.new": "1"}


def test_unsetting_properties():
    table = Table(configuration={"delta.appendOnly": "true", "team": "red"})

    made = table.alter({"change": "unset-properties", "names": ["delta.appendonly", "team"]})

    assert table.metadata.configuration == {}
    assert made.operation == "UNSET TBLPROPERTIES"
    assert made.parameters == {"properties": '["delta.appendOnly","team"]', "ifExists": False}
    with pytest.raises(InvalidTableChange, match="not set"):
        table.alter({"change": "unset-properties", "names": ["team"]})
    assert table.alter({"change": "unset-properties", "names": ["team"], "if-exists": True}).is_empty


# --- constraints, clustering ----------------------------------------------------------------------------------


def test_adding_a_constraint_sets_property_feature_and_requirement():
    table = Table(protocol=Protocol(1, 2))

    made = table.alter({"change": "add-constraint", "name": "Near", "expression": "home.zip < 1000"})

    assert table.metadata.configuration == {"delta.constraints.near": "home.zip < 1000"}
    assert table.protocol == Protocol(1, 3)
    assert (made.operation, made.parameters) == (
        "ADD CONSTRAINT",
        {"name": "Near", "expr": "home.zip < 1000"},
    )
    assert [each.condition for each in made.requirements] == ["home.zip < 1000"]
    with pytest.raises(InvalidTableChange, match="already"):
        table.alter({"change": "add-constraint", "name": "NEAR", "expression": "true"})

    dropped = table.alter({"change": "drop-constraint", "name": "NEAR"})

    assert table.metadata.configuration == {}
    assert dropped.parameters == {"name": "NEAR", "expr": "home.zip < 1000", "existed": "true"}
    with pytest.raises(InvalidTableChange, match="does not exist"):
        table.alter({"change": "drop-constraint", "name": "near"})
    assert table.alter({"change": "drop-constraint", "name": "near", "if-exists": True}).is_empty


@pytest.mark.parametrize(
    ("name", "expression", "error"),
    [
        ("c", "id +", BadRequest),
        ("c", "id", BadRequest),
        ("c", "nothing > 1", UnknownColumn),
        ("c", "rand() < 0.5", InvalidTableChange),
        ("a b", "id > 1", InvalidTableChange),
    ],
)
def test_invalid_constraints_are_refused(name, expression, error):
    with pytest.raises(error):
        Table().alter({"change": "add-constraint", "name": name, "expression": expression})


def test_constraints_and_renames_of_their_columns_cannot_share_a_request():
    with pytest.raises(InvalidTableChange, match="two requests"):
        Table().alter(
            MAP,
            {"change": "rename-column", "column": "name", "to": "n"},
            {"change": "add-constraint", "name": "c", "expression": "n <> ''"},
        )


def test_clustering_columns_are_domain_metadata_of_physical_names():
    table = Table(partitioned=(), protocol=Protocol(1, 2))
    table.alter(MAP, {"change": "rename-column", "column": "home", "to": "place"})

    made = table.alter({"change": "cluster-by", "columns": ["ID", "place.zip"]})

    (domain,) = made.domains
    assert json.loads(domain.configuration) == {
        "clusteringColumns": [["id"], ["home", "zip"]],
        "domainName": "delta.clustering",
    }
    assert {"clustering", "domainMetadata"} <= set(table.protocol.writer_features)
    assert made.parameters == {"oldClusteringColumns": "", "newClusteringColumns": "ID,place.zip"}
    with pytest.raises(InvalidTableChange, match="clustering column"):
        table.alter({"change": "drop-columns", "columns": ["place"]})

    none = table.alter({"change": "cluster-by", "columns": []})

    assert json.loads(none.domains[0].configuration)["clusteringColumns"] == []
    assert none.parameters == {"oldClusteringColumns": "id,place.zip", "newClusteringColumns": ""}
    assert table.alter({"change": "cluster-by", "columns": []}).is_empty


@pytest.mark.parametrize(
    ("columns", "partitioned", "message"),
    [
        (["id"], ("country",), "partitioned"),
        (["tags"], (), "minimum and maximum"),
        (["home"], (), "minimum and maximum"),
        (["id", "ID"], (), "twice"),
        (["id", "name", "country", "home.zip", "home.city"], (), "4 columns"),
    ],
)
def test_invalid_clustering_columns_are_refused(columns, partitioned, message):
    with pytest.raises(InvalidTableChange, match=message):
        Table(partitioned=partitioned).alter({"change": "cluster-by", "columns": columns})


def test_files_are_clustered_by_columns_with_statistics():
    with pytest.raises(InvalidTableChange, match="no statistics"):
        Table(partitioned=(), configuration={"delta.dataSkippingNumIndexedCols": "1"}).alter(
            {"change": "cluster-by", "columns": ["name"]}
        )


# --- several at once ------------------------------------------------------------------------------------------


def test_mixed_changes_share_a_version_that_lists_them():
    table = Table()

    made = table.alter(MAP, add("x"), {"change": "rename-column", "column": "x", "to": "y"})

    assert table.names[-1] == "y"
    assert made.operation == "ALTER TABLE"
    assert [each["operation"] for each in json.loads(made.parameters["changes"])] == [
        "SET TBLPROPERTIES",
        "ADD COLUMNS",
        "RENAME COLUMN",
    ]


def test_no_op_changes_are_empty():
    table = Table(configuration={"delta.appendOnly": "false"})

    assert table.alter(put(appendOnly="false")).is_empty
    assert table.alter(change("id", nullable=False), change("name", nullable=True)).is_empty


# --- defaults -------------------------------------------------------------------------------------------------


def test_a_default_is_set_changed_and_dropped():
    table = Table()
    made = table.alter(change("name", default="'nobody'"))
    shown = {"name": "name", "type": "string", "nullable": True, "metadata": {"CURRENT_DEFAULT": "'nobody'"}}

    assert (made.operation, json.loads(made.parameters["column"])) == ("CHANGE COLUMN", shown)
    assert "allowColumnDefaults" in table.protocol.writer_features
    assert table.alter(change("name", default="'nobody'")).is_empty
    table.alter(change("name", default="concat('a', 'b')"))
    assert table.field("name")["metadata"] == {"CURRENT_DEFAULT": "concat('a', 'b')"}
    table.alter(change("name", default=""))
    assert table.field("name")["metadata"] == {}
    assert "allowColumnDefaults" in table.protocol.writer_features


@pytest.mark.parametrize(
    ("column", "default", "kind"),
    [
        ("home.city", "'x'", InvalidTableChange),
        ("tags.element", "1", InvalidTableChange),
        ("nothing", "1", UnknownColumn),
        ("name", "country", InvalidSchema),
        ("name", "1, 2", InvalidSchema),
        ("name", "(SELECT 1)", InvalidSchema),
        ("name", "'x' AS other", InvalidSchema),
        ("name", "concat('x', max('y'))", InvalidSchema),
        ("name", "explode(array('x'))", InvalidSchema),
    ],
)
def test_invalid_defaults_are_refused(column, default, kind):
    with pytest.raises(kind):
        Table().alter(change(column, default=default))


def test_a_default_that_cannot_be_cast_to_the_column_is_refused():
    """Otherwise every later append that omits the column would fail."""
    with pytest.raises(InvalidSchema, match="cannot be cast to its type long"):
        Table().alter(change("id", default="'abc'"))


@pytest.mark.parametrize("rule", ["delta.generationExpression", "delta.identity.start"])
def test_computed_columns_cannot_have_defaults(rule):
    table = Table(struct(field("id"), field("made", **{rule: "id"})), partitioned=())
    with pytest.raises(InvalidSchema, match="cannot have a default"):
        table.alter(change("made", default="1"))


# --- identity columns -----------------------------------------------------------------------------------------


def numbered(start=1, step=1, mark=None):
    metadata = {"delta.identity.start": start, "delta.identity.step": step}
    metadata |= {"delta.identity.allowExplicitInsert": True}
    metadata |= {} if mark is None else {"delta.identity.highWaterMark": mark}
    return Table(struct(field("id", **metadata), field("name", "string")), partitioned=())


def sync(reached=None, column="id"):
    return {"change": "sync-identity", "column": column, "reached": reached}


@pytest.mark.parametrize(
    ("column", "reached", "mark"),
    [
        ((1, 1, None), 7, 7),
        ((1, 1, 5), 7, 7),
        ((1, 1, 9), 7, 9),
        ((10, 3, None), 14, 16),
        ((10, 3, None), 16, 16),
        ((10, 3, None), 9, None),
        ((10, 3, 4), 9, 10),
        ((10, 3, 4), 3, 4),
        ((-1, -2, None), -4, -5),
        ((-1, -2, -9), -4, -9),
        ((-1, -2, None), 4, None),
        ((1, 1, 5), None, 5),
    ],
)
def test_sync_rounds_to_the_sequence_of_the_column(column, reached, mark):
    table = numbered(*column)
    made = table.alter(sync(reached))

    assert table.field("id")["metadata"].get("delta.identity.highWaterMark") == mark
    assert made.is_empty is (mark == column[2])
    assert made.operation == "CHANGE COLUMN"


def test_sync_requires_that_no_row_is_beyond_the_mark():
    beyond = {1: "`id` IS NULL OR `id` <= 7", -1: "`id` IS NULL OR `id` >= -7"}
    for step, condition in beyond.items():
        (required,) = numbered(step, step).alter(sync(7 * step)).requirements
        assert required.condition == condition
    assert numbered(mark=9).alter(sync(7)).requirements == ()


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (sync(1, "name"), InvalidTableChange, "is not an identity column"),
        (sync(1, "nothing"), UnknownColumn, "nothing"),
        (sync(2**63 - 1), InvalidTableChange, "run out of numbers"),
    ],
)
def test_invalid_syncs_are_refused(change, kind, message):
    with pytest.raises(kind, match=message):
        numbered(2, 2).alter(change)
