"""MERGE on every engine, compared with a row-by-row model; ambiguous or invalid MERGEs change nothing."""

import json
import random

import pyarrow as pa
import pytest

import delvec

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")

SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string(), "n": pa.int32()})
SOURCE = pa.schema({"id": pa.int64(), "name": pa.string(), "n": pa.int32()})


def rows(*numbers, schema=SCHEMA, **changes):
    return pa.Table.from_pylist([{"id": i, "name": f"t{i}", "n": i} | changes for i in numbers], schema)


def source(*pairs):
    return pa.Table.from_pylist([{"id": i, "name": name, "n": 100 + (i or 0)} for i, name in pairs], SOURCE)


@pytest.fixture
def make(lake, engine, tmp_path):
    def make(*parts, vectors=True, schema=SCHEMA, partition_by=None, name="table", **properties):
        given = {"delta.enableDeletionVectors": str(vectors).lower()} | properties
        table = lake.create_table(tmp_path / name, schema, partition_by, given, engine=engine)
        for part in parts:
            lake.table(str(tmp_path / name)).append(part)
        return table

    return make


def content(table, columns=("id", "name", "n")):
    return sorted((tuple(each[name] for name in columns) for each in table.to_arrow().to_pylist()), key=repr)


@pytest.mark.parametrize("vectors", [True, False])
def test_all_kinds_of_clauses(make, vectors):
    table = make(rows(*range(10)), rows(*range(10, 20)), vectors=vectors)
    changes = source(
        (1, "a"), (2, "delete"), (3, "skip"), (4, "b"), (100, "new"), (101, "not me"), (None, "null")
    )
    metrics = (
        table.merge(changes, "t.id = s.id", source_alias="s", target_alias="t")
        .when_matched_delete("s.name = 'delete'")
        .when_matched_update({"name": "concat(t.name, s.name)", "n": "s.n + t.n"}, "s.name <> 'skip'")
        .when_not_matched_insert({"id": "id", "name": "upper(name)"}, "s.name <> 'not me'")
        .when_not_matched_by_source_update({"n": "-n"}, "id = 7")
        .when_not_matched_by_source_delete("n > 15")
        .execute(user_metadata="note")
    )
    expected = {i: (i, f"t{i}", i) for i in range(20) if i not in (2, 16, 17, 18, 19)}
    expected |= {1: (1, "t1a", 102), 4: (4, "t4b", 108), 7: (7, "t7", -7), 100: (100, "NEW", None)}
    assert content(table) == sorted([*expected.values(), (None, "NULL", None)], key=repr)
    counted = {
        "numSourceRows": 7,
        "numTargetRowsInserted": 2,
        "numTargetRowsUpdated": 3,
        "numTargetRowsDeleted": 5,
        "numTargetRowsCopied": 0 if vectors else 12,
        "numTargetFilesRemoved": 0 if vectors else 2,
        "numTargetDeletionVectorsAdded": 2 if vectors else 0,
    }
    assert {name: metrics[name] for name in counted} == counted
    assert metrics["numOutputRows"] == 5 + counted["numTargetRowsCopied"]
    entry = table.history(1)[0]
    assert (entry["operation"], entry["userMetadata"]) == ("MERGE", "note")
    told = {name: json.loads(text) for name, text in entry["operationParameters"].items()}
    assert told == {
        "predicate": ["(t.id = s.id)"],
        "matchedPredicates": [
            {"predicate": "s.name = 'delete'", "actionType": "delete"},
            {"predicate": "s.name <> 'skip'", "actionType": "update"},
        ],
        "notMatchedPredicates": [{"predicate": "s.name <> 'not me'", "actionType": "insert"}],
        "notMatchedBySourcePredicates": [
            {"predicate": "id = 7", "actionType": "update"},
            {"predicate": "n > 15", "actionType": "delete"},
        ],
    }
    assert entry["operationMetrics"]["numTargetRowsUpdated"] == "3"


def test_stars_take_columns_by_name(make):
    table = make(rows(1, 2))
    changes = pa.table({"N": [7, 8], "extra": ["x", "y"], "ID": [2, 3], "name": ["two", "three"]})
    table.merge(
        changes, "target.id = source.id"
    ).when_matched_update_all().when_not_matched_insert_all().execute()
    assert content(table) == [(1, "t1", 1), (2, "two", 7), (3, "three", 8)]
    assert table.schema().names == ["id", "name", "n"]


@pytest.mark.parametrize("operator", ["=", "<=>"])
def test_null_keys(make, operator):
    table = make(rows(1), rows(None, name="nobody"))
    changes = source((None, "new"), (1, "one"))
    metrics = (
        table.merge(changes, f"target.id {operator} source.id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
    ).execute()
    assert metrics["numTargetRowsInserted"] == (operator == "=")
    names = sorted(name for _, name, _ in content(table))
    assert names == (["new", "nobody", "one"] if operator == "=" else ["new", "one"])


@pytest.mark.parametrize("on", ["target.key.part = source.key.part", "target.key = source.key"])
def test_keys_in_structs(make, on):
    def keyed(*numbers, name):
        return pa.table(
            {"key": [{"part": number, "kind": "k"} for number in numbers], "name": [name] * len(numbers)}
        )

    table = make(keyed(1, 2, name="old"), schema=keyed(1, name="old").schema)
    merge = table.merge(keyed(2, 3, name="new"), on).when_matched_update_all()
    merge.when_not_matched_insert_all().execute()
    assert content(table, ("key", "name")) == [
        ({"part": 1, "kind": "k"}, "old"),
        ({"part": 2, "kind": "k"}, "new"),
        ({"part": 3, "kind": "k"}, "new"),
    ]


def test_a_condition_that_is_null_is_not_true(make):
    table = make(rows(1, 2))
    changes = source((1, None), (2, "b"), (3, None))
    table.merge(changes, "target.id = source.id").when_matched_delete(
        "source.name = 'b'"
    ).when_not_matched_insert_all("name = 'x'").execute()
    assert content(table) == [(1, "t1", 1)]


def test_several_source_rows_for_one_row(make):
    table = make(rows(1, 2))
    twice = source((1, "a"), (1, "b"))
    before = table.version()
    with pytest.raises(delvec.MultipleMatches):
        table.merge(twice, "target.id = source.id").when_matched_update_all().execute()
    with pytest.raises(delvec.MultipleMatches):
        table.merge(twice, "target.id = source.id").when_matched_delete("target.n = 1").execute()
    # Even if only one of them would change the row, or only other rows would change.
    with pytest.raises(delvec.MultipleMatches):
        table.merge(twice, "target.id = source.id").when_matched_update_all("source.name = 'b'").execute()
    with pytest.raises(delvec.MultipleMatches):
        table.merge(twice, "target.id = source.id").when_not_matched_by_source_delete().execute()
    assert table.version() == before
    # Several matches are fine if the row can only be deleted.
    done = table.merge(twice, "target.id = source.id").when_matched_delete().execute()
    assert (done["numTargetRowsDeleted"], content(table)) == (1, [(2, "t2", 2)])
    # Both are new.
    table.merge(twice, "target.id = source.id").when_not_matched_insert_all().execute()
    assert content(table) == [(1, "a", 101), (1, "b", 101), (2, "t2", 2)]


def test_values_of_rows_that_no_clause_is_about_need_not_fit(make):
    table = make(rows(1, 2))
    numbers = pa.table({"id": [1, 2], "n": [7, 2**40], "op": ["u", "x"]})
    merge = table.merge(numbers, "target.id = source.id").when_matched_update(
        {"n": "source.n"}, "source.op = 'u'"
    )
    assert merge.execute()["numTargetRowsUpdated"] == 1
    assert [row[0] for row in content(table)] == [1, 2]
    with pytest.raises(delvec.SchemaMismatch):
        table.merge(numbers, "target.id = source.id").when_matched_update({"n": "source.n"}).execute()


def test_nothing_to_do_commits_nothing(make):
    table = make(rows(1, 2))
    before = table.version()
    merge = table.merge(source((5, "x")), "target.id = source.id").when_matched_update_all()
    metrics = merge.execute()
    assert (metrics.version, metrics["numSourceRows"], table.version()) == (None, 1, before)
    empty = table.merge(SOURCE.empty_table(), "target.id = source.id")
    assert empty.when_matched_update_all().when_not_matched_insert_all().execute().version is None
    # With an empty source, every row is not matched by source.
    assert empty.when_not_matched_by_source_delete("id = 1").execute()["numTargetRowsDeleted"] == 1


def test_merge_into_an_empty_table(make):
    table = make()
    both = table.merge(source((5, "x"), (6, "y")), "target.id = source.id")
    assert (
        both.when_matched_update_all().when_not_matched_insert_all().execute()["numTargetRowsInserted"] == 2
    )
    assert content(table) == [(5, "x", 105), (6, "y", 106)]


@pytest.mark.gate
def test_partitioned_table(make):
    table = make(rows(1, 2, 3, 4), partition_by=["n"])
    changes = source((1, "a"), (4, "d"), (9, "new"))
    table.merge(
        changes, "target.id = source.id AND target.n < 3"
    ).when_matched_update_all().when_not_matched_insert({"id": "id", "name": "name", "n": 3}).execute()
    assert content(table) == [
        (1, "a", 101),
        (2, "t2", 2),
        (3, "t3", 3),
        (4, "d", 3),
        (4, "t4", 4),
        (9, "new", 3),
    ]


@pytest.mark.parametrize("kind", ["list", "pandas", "polars", "stream", "table"])
def test_sources(make, kind):
    table = make(rows(1, 2))
    data = source((2, "two"), (3, "three"))
    given = {
        "list": data.to_pylist,
        "pandas": data.to_pandas,
        "polars": lambda: pytest.importorskip("polars").from_arrow(data),
        "stream": data.to_reader,
        "table": lambda: make(data, name="other"),
    }[kind]()
    table.merge(
        given, "target.id = source.id"
    ).when_matched_update_all().when_not_matched_insert_all().execute()
    assert content(table) == [(1, "t1", 1), (2, "two", 102), (3, "three", 103)]


def test_a_merge_of_a_table_into_itself(make):
    table = make(rows(1, 2))
    table.merge(table, "target.id = source.id + 1").when_matched_update(
        {"name": "source.name"}
    ).when_not_matched_insert({"id": "id + 10"}).execute()
    assert content(table) == [(1, "t1", 1), (12, None, None), (2, "t1", 2)]


@pytest.mark.parametrize("vectors", [True, False])
def test_dry_run(make, vectors):
    table = make(rows(*range(10)), rows(*range(10, 20)), vectors=vectors)
    merge = (
        table.merge(source((1, "a"), (2, "b"), (30, "new"), (31, "new")), "target.id = source.id")
        .when_matched_update_all("source.id = 1")
        .when_matched_delete()
        .when_not_matched_insert_all("name = 'new'")
    )
    before = table.version(), table.files()
    foreseen = merge.execute(dry_run=True)
    assert (table.version(), table.files()) == before
    assert [(file.rows, file.live_rows, file.means) for file in foreseen.files] == [
        (2, 10, "vector" if vectors else "rewrite")
    ]
    done = merge.execute()
    for name in (
        "numTargetRowsInserted",
        "numTargetRowsUpdated",
        "numTargetRowsDeleted",
        "numTargetFilesRemoved",
    ):
        assert foreseen[name] == done[name], name


@pytest.mark.gate
def test_schema_evolution(make):
    table = make(rows(1, 2))
    changes = pa.table(
        {"id": [2, 3], "name": ["two", "three"], "extra": ["x", "y"], "address": [{"zip": 1}, None]}
    )
    with pytest.raises(delvec.UnknownColumn, match="'n'"):
        table.merge(changes, "target.id = source.id").when_matched_update_all().execute()
    merge = table.merge(changes, "target.id = source.id", merge_schema=True)
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert content(table, ("id", "name", "n", "extra", "address")) == [
        (1, "t1", 1, None, None),
        (2, "two", 2, "x", {"zip": 1}),
        (3, "three", None, "y", None),
    ]
    # Only columns assigned by a clause are added.
    more = pa.table({"id": [1], "wanted": [5], "unwanted": [6]})
    merge = table.merge(more, "target.id = source.id", merge_schema=True)
    merge.when_matched_update({"wanted": "source.wanted"}).execute()
    assert table.schema().names == ["id", "name", "n", "extra", "address", "wanted"]
    assert content(table, ("id", "wanted")) == [(1, 5), (2, None), (3, None)]


def test_fields_that_only_the_table_has_stay_where_the_source_has_no_struct(make):
    kept = pa.struct([("city", pa.string()), ("zip", pa.int32())])
    homes = [{"city": "Oslo", "zip": 1}, None, {"city": "Rome", "zip": 3}]
    table = make(pa.table({"id": [1, 2, 3], "home": pa.array(homes, kept)}), schema=_with_homes(kept))
    new = pa.struct([("city", pa.string()), ("country", pa.string())])
    homes = [None, None, {"city": "Bari", "country": "IT"}, None]
    changes = pa.table({"id": [1, 2, 3, 4], "home": pa.array(homes, new)})
    merge = table.merge(changes, "target.id = source.id", merge_schema=True)
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert content(table, ("id", "home")) == [
        (1, {"city": None, "zip": 1, "country": None}),
        (2, None),
        (3, {"city": "Bari", "zip": 3, "country": "IT"}),
        (4, None),
    ]


def _with_homes(kind):
    return pa.schema({"id": pa.int64(), "home": kind})


def refused(merge, error, match):
    with pytest.raises(error, match=match):
        merge.execute()


def test_what_cannot_be_is_refused(make):
    table = make(rows(1, 2))
    before = table.version()

    def merge(on="target.id = source.id", **options):
        return table.merge(source((1, "a")), on, **options)

    refused(merge(), delvec.BadRequest, "at least one clause")
    refused(
        merge().when_matched_delete().when_matched_update_all("n > 1"), delvec.BadRequest, "only the last"
    )
    refused(merge(target_alias="Source").when_matched_delete(), delvec.BadRequest, "same alias")
    refused(merge("id = 1").when_matched_delete(), delvec.AmbiguousColumn, "'target.id' or 'source.id'")
    refused(merge("target.id = source.idd").when_matched_delete(), delvec.UnknownColumn, "'id'")
    refused(merge("target.id + source.id").when_matched_delete(), delvec.InvalidPredicate, "Boolean")
    refused(
        merge("target.id = source.id AND rand() < 1").when_matched_delete(), delvec.InvalidPredicate, "rand"
    )
    refused(merge().when_matched_delete("nope = 1"), delvec.UnknownColumn, "WHEN MATCHED DELETE.*nope")
    refused(merge().when_matched_delete("uuid() = name"), delvec.DelvecError, "uuid|name")
    refused(merge().when_matched_update({"nope": "1"}), delvec.UnknownColumn, "nope")
    refused(
        merge().when_matched_update({"name": "name"}), delvec.AmbiguousColumn, "WHEN MATCHED UPDATE.*name"
    )
    refused(merge().when_not_matched_insert({"id": "target.id"}), delvec.UnknownColumn, "'target' has no row")
    refused(merge().when_not_matched_insert({"id": "id", "ID": "id"}), delvec.BadRequest, "twice")
    refused(
        merge().when_not_matched_by_source_update({"n": "source.n"}),
        delvec.UnknownColumn,
        "'source' has no row",
    )
    assert (table.version(), content(table)) == (before, [(1, "t1", 1), (2, "t2", 2)])


def test_what_fails_for_a_row_changes_nothing(make, lake):
    table = make(rows(1, 2))
    lake.table(table.location).alter.add_constraint("small", "n < 1000")
    before = table.version()
    merge = table.merge(source((1, "a"), (5, "b")), "target.id = source.id")
    refused(merge.when_matched_update({"n": "source.n * 100"}), delvec.ConstraintViolation, "small")
    refused(merge.when_not_matched_insert({"n": "2000"}), delvec.ConstraintViolation, "small")
    refused(merge.when_not_matched_insert({"n": "1 / (id - 5)"}), delvec.DelvecError, "zero")
    refused(merge.when_matched_update({"n": "source.name"}), delvec.DelvecError, "(?i)cast|convert|number")
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "ID"])
    refused(table.merge(twice, "target.id = 1").when_matched_delete(), delvec.DelvecError, "(?i)id")
    assert (table.version(), len(content(table))) == (before, 2)


@pytest.fixture
def overtaken(lake, monkeypatch):
    """Let another writer do something between scan and commit of a table's next MERGE."""

    def overtaken(table, meanwhile):
        other, change_rows = lake.table(table.location), table.engine.change_rows

        def change(scan, change, target):
            found = change_rows(scan, change, target)
            monkeypatch.setattr(table.engine, "change_rows", change_rows)
            meanwhile(other)
            return found

        monkeypatch.setattr(table.engine, "change_rows", change)

    return overtaken


def test_a_merge_runs_again_where_others_inserted_its_keys(make, overtaken):
    table = make(rows(1, 2))
    overtaken(table, lambda other: other.append(rows(7, 500)))
    merge = table.merge(source((7, "seven"), (8, "eight")), "target.id = source.id")
    metrics = merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert metrics.retries == 1
    assert (metrics["numTargetRowsUpdated"], metrics["numTargetRowsInserted"]) == (1, 1)
    assert (7, "seven", 107) in content(table)


def test_a_merge_runs_again_where_others_deleted_rows_that_matched(make, overtaken):
    table = make(rows(1, 2, 3))
    overtaken(table, lambda other: other.delete("id = 2"))
    merge = table.merge(
        source((2, "two"), (8, "eight")), "target.id = source.id"
    ).when_not_matched_insert_all()
    metrics = merge.execute()
    assert (metrics.retries, metrics["numTargetRowsInserted"]) == (1, 2)
    # Unmatched rows do not conflict.
    overtaken(table, lambda other: other.delete("id = 3"))
    merge = table.merge(
        source((2, "two"), (9, "nine")), "target.id = source.id"
    ).when_not_matched_insert_all()
    assert merge.execute().retries == 0


def test_a_merge_of_a_table_with_itself_reads_one_version(make, lake, overtaken, monkeypatch):
    table = make(rows(1, 2))
    merge = table.merge(table, "target.id = source.id").when_matched_update({"n": "source.n + 10"})
    overtaken(table, lambda other: other.update({"n": "100"}, "id = 1"))
    assert merge.execute().retries == 1
    assert content(table) == [(1, "t1", 110), (2, "t2", 12)]
    taken = table.engine.merge_source

    def merge_source(data):
        found = taken(data)
        monkeypatch.setattr(table.engine, "merge_source", taken)
        lake.table(table.location).update({"n": "200"}, "id = 2")
        return found

    monkeypatch.setattr(table.engine, "merge_source", merge_source)
    merge.execute()
    assert content(table) == [(1, "t1", 120), (2, "t2", 210)]


def test_a_merge_by_source_runs_again_where_others_inserted_anything(make, overtaken):
    table = make(rows(1, 2))
    overtaken(table, lambda other: other.append(rows(900)))
    merge = table.merge(source((1, "one")), "target.id = source.id").when_not_matched_by_source_delete()
    metrics = merge.execute()
    assert (metrics.retries, metrics["numTargetRowsDeleted"]) == (1, 2)
    assert content(table) == [(1, "t1", 1)]


def test_files_that_cannot_match_are_not_read_nor_waited_for(make, lake, monkeypatch):
    table = make(rows(1, 2), rows(50, 51))
    seen, change_rows = [], table.engine.change_rows
    other = lake.table(table.location)

    def watched(scan, change, target):
        seen.append(len(scan))
        other.append(rows(90, 91))  # beyond the keys of the source
        return change_rows(scan, change, target)

    monkeypatch.setattr(table.engine, "change_rows", watched)
    merge = table.merge(source((1, "a"), (3, "c")), "target.id = source.id")
    assert merge.when_matched_update_all().when_not_matched_insert_all().execute().retries == 0
    assert seen == [1]


CONDITIONS = [
    (None, lambda _t, _s: True),
    ("t.n > 3", lambda t, _s: t["n"] is not None and t["n"] > 3),
    ("s.n % 2 = 0", lambda _t, s: s["n"] is not None and s["n"] % 2 == 0),
    ("t.n < s.n", lambda t, s: None not in (t["n"], s["n"]) and t["n"] < s["n"]),
    ("s.name IS NULL", lambda _t, s: s["name"] is None),
]


@pytest.mark.parametrize("seed", range(4))
def test_merges_do_what_a_plain_model_does(make, seed):
    chance = random.Random(seed)

    def some(count, key):
        return [
            {"id": i, "name": chance.choice(["a", "b", None]), "n": chance.choice([None, *range(9)])}
            for i in chance.sample(range(40), count)
            for i in [i if chance.random() > key else None]
        ]

    model = some(25, 0.1)
    table = make(
        pa.Table.from_pylist(model[:12], SCHEMA),
        pa.Table.from_pylist(model[12:], SCHEMA),
        vectors=bool(seed % 2),
        partition_by=["name"] if seed > 1 else None,
    )
    for _ in range(3):
        given = some(15, 0.1)
        merge = table.merge(
            pa.Table.from_pylist(given, SOURCE), "t.id = s.id", source_alias="s", target_alias="t"
        )
        matched = [*chance.sample(CONDITIONS[1:], 2), *chance.sample(CONDITIONS, 1)]
        actions = [chance.choice(["update", "delete", "all"]) for _ in matched]
        for (text, _), action in zip(matched, actions, strict=True):
            if action == "delete":
                merge = merge.when_matched_delete(text)
            elif action == "update":
                merge = merge.when_matched_update({"n": "coalesce(s.n, 0) + coalesce(t.n, 1)"}, text)
            else:
                merge = merge.when_matched_update_all(text)
        inserts, sweeps = chance.random() < 0.7, chance.random() < 0.4
        if inserts:
            merge = merge.when_not_matched_insert_all("s.n IS NOT NULL")
        if sweeps:
            merge = merge.when_not_matched_by_source_update({"name": "'x'"}, "t.n = 5")
            merge = merge.when_not_matched_by_source_delete("t.n > 6")
        merge.execute()
        model = merged(model, given, [test for _, test in matched], actions, inserts=inserts, sweeps=sweeps)
        assert content(table) == sorted((tuple(each.values()) for each in model), key=repr)


def merged(model, given, tests, actions, *, inserts, sweeps):
    by_key = {each["id"]: each for each in given if each["id"] is not None}
    result, met = [], set()
    for row in model:
        other = by_key.get(row["id"])
        if other is None:
            if sweeps and row["n"] == 5:
                result.append(row | {"name": "x"})
            elif not (sweeps and row["n"] is not None and row["n"] > 6):
                result.append(row)
            continue
        met.add(row["id"])
        action = next((a for test, a in zip(tests, actions, strict=True) if test(row, other)), "keep")
        if action == "update":
            result.append(row | {"n": (other["n"] or 0) + (1 if row["n"] is None else row["n"])})
        elif action == "all":
            result.append(dict(other))
        elif action == "keep":
            result.append(row)
    if inserts:
        result += [each for each in given if each["id"] not in met and each["n"] is not None]
    return result


def test_new_rows_get_the_numbers_of_identity_columns(lake, engine, tmp_path):
    columns = "id long GENERATED ALWAYS AS IDENTITY (START WITH 10 INCREMENT BY 5), name string, n long"
    table = lake.create_table(
        tmp_path / "numbered", columns, properties={"delta.enableChangeDataFeed": "true"}, engine=engine
    )
    table.append(pa.table({"name": ["a", "b"], "n": [1, 2]}))
    known = {row["name"]: row["id"] for row in table.to_arrow().to_pylist()}
    changes = pa.table({"name": ["b", "c", "d"], "n": [20, 30, 40]})
    for _ in range(2):
        done = (
            table.merge(changes, "target.name = source.name")
            .when_matched_update({"n": "source.n"})
            .when_not_matched_insert({"name": "name", "n": "n"})
            .execute()
        )
        changes = pa.table({"name": ["e", "a"], "n": [50, 10]})
    found = {row["name"]: row["id"] for row in table.to_arrow().to_pylist()}
    assert {name: found[name] for name in known} == known
    numbers = list(found.values())
    assert len(set(numbers)) == len(found) == 5
    assert all(number % 5 == 0 and number >= 10 for number in numbers)
    assert found["e"] > max(found[name] for name in "abcd")
    told = table.changes(done.version).to_pylist()
    inserted = [(row["name"], row["id"]) for row in told if row["_change_type"] == "insert"]
    assert inserted == [("e", found["e"])]
    with pytest.raises(delvec.DelvecError, match="id"):
        table.merge(changes, "target.name = source.name").when_not_matched_insert({"id": "7"}).execute()
