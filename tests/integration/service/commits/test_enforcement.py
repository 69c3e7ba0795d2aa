"""Table rules enforced by the service: constraints proven by statistics, row ids, append-only tables."""

import json

import pytest

FEATURES = ["appendOnly", "invariants", "checkConstraints", "deletionVectors"]


@pytest.fixture
def rule(filled):
    """Change the properties and the features of ``filled``, as another writer would, and return it."""

    def rule(*features, **properties):
        metadata = filled.action(0, "metaData")
        metadata["configuration"] |= {f"delta.{name}": value for name, value in properties.items()}
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"],
            "writerFeatures": [*FEATURES, *features],
        }
        actions = [
            {"commitInfo": {"operation": "SET TBLPROPERTIES"}},
            {"protocol": protocol},
            {"metaData": metadata},
        ]
        path = filled.log / f"{filled.version() + 1:020}.json"
        path.write_text("\n".join(json.dumps(action) for action in actions))
        return filled

    return rule


def adds_of(table, version):
    return [action["add"] for action in table.actions(version) if "add" in action]


# --- constraints --------------------------------------------------------------------------------------


def test_statistics_that_prove_a_violation_stop_the_commit(rule, error):
    people = rule(**{"constraints.small": "id < 100"})

    refused = error(people.append(people.write_file("c.parquet", [100, 101])))

    assert refused["type"] == "DeltaInvariantViolationException"
    assert refused["code"] == "CONSTRAINT_VIOLATION"
    assert "small (id < 100)" in refused["message"]
    assert refused["details"]["constraint"] == "small"
    assert people.version() == 2
    # If one row may satisfy it, only an engine can decide.
    assert people.append(people.write_file("d.parquet", [99, 100])).status_code == 200
    assert people.append(people.write_file("e.parquet", [100], stats=True)).status_code == 400


def test_rows_that_were_there_may_be_written_again(rule):
    people = rule(**{"constraints.large": "id >= 100"})
    copied = people.write_file("c.parquet", range(9))

    answer = people.delete({}, removes=["a.parquet"], adds=[copied], predicate="id = 9")

    assert answer.status_code == 200, answer.text


# --- row ids ------------------------------------------------------------------------------------------


def mark(table, version):
    (domain,) = [a["domainMetadata"] for a in table.actions(version) if "domainMetadata" in a]
    assert domain["domain"] == "delta.rowTracking"
    return json.loads(domain["configuration"])["rowIdHighWaterMark"]


def test_new_files_get_ids_and_keep_them(rule):
    people = rule("rowTracking", "domainMetadata")

    people.append(people.write_file("c.parquet", range(3)), people.write_file("d.parquet", range(4)))
    people.delete({"c.parquet": [1]})

    assert [(a["baseRowId"], a["defaultRowCommitVersion"]) for a in adds_of(people, 3)] == [(0, 3), (3, 3)]
    assert mark(people, 3) == 6
    (again,) = adds_of(people, 4)
    assert (again["baseRowId"], again["defaultRowCommitVersion"]) == (0, 3)
    assert people.action(4, "remove")["baseRowId"] == 0
    assert not [action for action in people.actions(4) if "domainMetadata" in action]


def test_files_from_before_get_ids_when_they_are_added_again(rule):
    people = rule("rowTracking", "domainMetadata")

    people.delete({"a.parquet": [1]})

    (again,) = adds_of(people, 3)
    assert (again["baseRowId"], again["defaultRowCommitVersion"]) == (0, 3)
    assert mark(people, 3) == 9


def test_who_comes_second_gets_later_ids(rule):
    people = rule("rowTracking", "domainMetadata")
    read = people.version()

    people.append(people.write_file("c.parquet", range(3)), read_version=read)
    answer = people.append(people.write_file("d.parquet", range(4)), read_version=read)

    assert answer.json()["result"] == "rebased"
    (second,) = adds_of(people, 4)
    assert (second["baseRowId"], second["defaultRowCommitVersion"]) == (3, 4)
    assert mark(people, 4) == 6


def test_commits_say_that_no_row_got_another_id(rule):
    people = rule("rowTracking", "domainMetadata", enableRowTracking="true")

    people.append(people.write_file("c.parquet", range(3)))

    assert people.action(3, "commitInfo")["tags"]["delta.rowTracking.preserved"] == "true"


def test_rows_with_ids_are_not_copied(rule, error):
    people = rule("rowTracking", "domainMetadata", enableRowTracking="true")
    copied = people.write_file("c.parquet", range(9))

    refused = error(people.delete({}, removes=["a.parquet"], adds=[copied]))

    assert refused["type"] == "UnsupportedWriterFeature"
    assert "rowTracking" in refused["message"]
    assert people.version() == 2


def test_new_files_must_say_how_many_rows_get_an_id(rule, error):
    people = rule("rowTracking", "domainMetadata", enableDeletionVectors="false")

    refused = error(people.append(people.write_file("c.parquet", range(3), stats=False)))

    assert "numRecords" in refused["message"]
    assert people.version() == 2


# --- append only --------------------------------------------------------------------------------------


def test_a_table_that_only_grows(rule, error):
    people = rule(appendOnly="true")

    for request in ({"rows": {"a.parquet": [1]}}, {"rows": {}, "removes": ["a.parquet"]}):
        refused = error(people.delete(**request))
        assert (refused["type"], refused["code"]) == ("AppendOnlyTable", "APPEND_ONLY_TABLE")
    overwrite = people.commit(
        operation="WRITE", removes=[{"path": "a.parquet"}], adds=[people.write_file("c.parquet", [1])]
    )
    assert error(overwrite)["type"] == "AppendOnlyTable"
    assert people.version() == 2


def test_a_table_that_only_grows_may_be_compacted(rule):
    people = rule(appendOnly="true")

    answer = people.commit(
        operation="OPTIMIZE",
        removes=[{"path": "a.parquet"}, {"path": "b.parquet"}],
        adds=[people.write_file("c.parquet", range(15))],
        **{"data-change": False},
    )

    assert answer.status_code == 200, answer.text
    assert people.append(people.write_file("d.parquet", [1])).status_code == 200
