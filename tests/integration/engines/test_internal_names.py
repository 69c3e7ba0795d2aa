"""Tables and sources whose column names resemble the engines' internal names."""

import pyarrow as pa
import pytest

from delvec_engines.internal_names import INTERNAL, InternalNames

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")

WORDS = [
    *(
        "file",
        "row",
        "clause",
        "broken",
        "given_0",
        "old_0",
        "new_0",
        "raw_0_0",
        "source_row",
        "source",
        "facts",
        "facts_file",
    ),
    *(
        "occurrence",
        "absent_1",
        "float_0",
        "file_hash",
        "file_index",
        "row_index",
        "live",
        "lookup",
        "filename",
        "key",
        "value_a",
    ),
    *("unmatched", "incoming", "none", "scan", "1", "view_1"),
]
NAMES = [
    name if number % 2 else name.upper() if number % 4 else name.title()
    for number, name in enumerate(f"__delvec_{word}" for word in WORDS)
]
OTHERS = [
    "filename",
    "file_row_number",
    "file_index",
    "f",
    "l",
    "t",
    "s",
    "u",
    "o",
    "c0",
    "p0",
    "names",
    "word",
    "bits",
    "rows",
]
COLUMNS = [*NAMES, *OTHERS]


@pytest.fixture
def table(lake, engine, tmp_path):
    fields = ", ".join(
        f"`{name}` {'double' if name.lower().endswith('float_0') else 'long'}" for name in COLUMNS
    )
    properties = {"delta.enableChangeDataFeed": "true", "delta.constraints.c": f"`{NAMES[0]}` < 1000"}
    made = lake.create_table(
        str(tmp_path / "t"), f"id long, part string, {fields}", ["part"], properties=properties
    )
    table = lake.table(made.location, engine=engine)
    table.append(handed(engine, rows([1, 2, 3, 4])))
    return table


def rows(ids, plus=0):
    more = {
        name: pa.array([float(number + each * 100 + plus) for each in ids])
        if name.lower().endswith("float_0")
        else pa.array([number + each * 100 + plus for each in ids])
        for number, name in enumerate(COLUMNS)
    }
    return pa.table({"id": ids, "part": ["a" if each % 2 else "b" for each in ids], **more})


def handed(engine, data):
    return data if engine == "duckdb" else engine.createDataFrame(data)


def found(table):
    return table.to_arrow().sort_by("id").to_pylist()


def expected(ids):
    return rows(ids).to_pylist()


def test_rows_are_read_and_filtered(table):
    assert found(table) == expected([1, 2, 3, 4])
    for name in COLUMNS:
        value = next(row[name] for row in expected([3]))
        assert table.to_arrow(predicate=f"`{name}` = {value}")["id"].to_pylist() == [3], name
    assert table.to_arrow(columns=[NAMES[0], NAMES[15]]).num_rows == 4


def test_rows_are_deleted(table):
    for row, name in zip(expected([1]) * 3, (NAMES[1], NAMES[16], NAMES[17]), strict=True):
        table.delete(f"`{name}` = {row[name]}")
    table.delete(f"`{NAMES[17]}` > 350 AND id = 4")
    assert found(table) == expected([2, 3])


def test_rows_are_updated(table):
    changed = {f"`{name}`": f"`{name}` + 1" for name in COLUMNS}
    assert table.update(changed, f"`{NAMES[16]}` > 150 AND id <= 3")["numUpdatedRows"] == 2
    updated = [
        {key: each + 1 if key in COLUMNS else each for key, each in row.items()} for row in expected([2, 3])
    ]
    assert found(table) == [*expected([1]), *updated, *expected([4])]
    feed = table.changes(2)
    assert sorted(feed["_change_type"].to_pylist()) == ["update_postimage"] * 2 + ["update_preimage"] * 2
    kept = feed.select([*table.schema().names]).to_pylist()
    assert sorted((row["id"], row[NAMES[16]]) for row in kept) == sorted(
        (row["id"], row[NAMES[16]]) for row in [*expected([2, 3]), *updated]
    )


def test_rows_are_merged(table, engine):
    source = rows([2, 4, 5], plus=7)
    table.merge(
        handed(engine, source),
        f"source.id = target.id AND source.`{NAMES[12]}` > 0",
        source_alias="source",
        target_alias="target",
    ).when_matched_update_all(
        f"target.`{NAMES[16]}` < 400"
    ).when_not_matched_insert_all().when_not_matched_by_source_delete(f"`{NAMES[0]}` < 200").execute()
    merged = {row["id"]: row for row in source.to_pylist()}
    assert found(table) == [merged[2], *expected([3]), *expected([4]), merged[5]]


def test_rows_are_overwritten(table, engine):
    table.overwrite(handed(engine, rows([6, 7])), replace_where=f"`{NAMES[16]}` >= 0")
    assert found(table) == expected([6, 7])
    table.overwrite(handed(engine, rows([8])))
    assert found(table) == expected([8])


def test_a_constraint_reads_the_users_column(table, engine):
    with pytest.raises(Exception, match=r"CHECK constraint c"):
        table.append(handed(engine, rows([10])))
    assert table.version() == 1


def test_queries_cannot_name_what_is_internal(lake, table, engine, tmp_path):
    people = f"of_{tmp_path.name}"
    lake.create_table(table.location + "-named", "id long", name=people).append(pa.table({"id": [1, 2]}))
    spark = {} if engine == "duckdb" else {"engine": engine}

    def ids(text):
        found = lake.sql(text, **spark)
        return sorted(
            next(iter(row.values())) for row in (found if engine == "duckdb" else found.toArrow()).to_pylist()
        )

    for name in (
        "__delvec_1",
        "__DELVEC_1",
        "__delvec_view_1",
        "__delvec_lookup",
        "__delvec_scan",
        INTERNAL("scan"),
    ):
        text = f"WITH `{name}` AS (SELECT 42 AS id) SELECT {people}.id FROM {people}"
        assert ids(text) == [1, 2]
        assert ids(f"WITH `{name}` AS (SELECT 42 AS id) SELECT * FROM `{name}`") == [42]
        assert ids(f"SELECT `{name}`.id FROM {people} AS `{name}`") == [1, 2]
        with pytest.raises(
            Exception, match=r"(?i)not found|no table|there is no|unknown|does not exist|not registered"
        ):
            lake.sql(f"SELECT * FROM `{name}`", **spark)


def test_names_are_of_a_process():
    assert INTERNAL("row").startswith("__delvec_")
    assert INTERNAL("row") != InternalNames("0" * 16)("row")
    assert len(INTERNAL.token) == 16
