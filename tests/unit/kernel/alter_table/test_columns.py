"""Adding, mapping, renaming, dropping and changing columns: schema, metadata and protocol."""

import json

import pytest
from tests.support.altered_table import MAP, Table, add, change, field, put, struct

from delvec_errors import InvalidSchema, InvalidTableChange, UnknownColumn
from delvec_kernel.actions.actions import Protocol

MAPPED = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "0"}


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

    table.alter(add("timestamp_ntz", "integer"))  # a name is no type
    table.alter({"change": "add-feature", "feature": "timestampNtz"}, add("at", "timestamp_ntz"))

    assert table.protocol == Protocol(3, 7, ("timestampNtz",), ("appendOnly", "invariants", "timestampNtz"))


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
