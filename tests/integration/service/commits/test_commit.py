"""``…/commits``: versions, refusals, and the resulting log."""

import base64
import json
import uuid
from urllib.parse import quote

import deltalake
import pyarrow as pa
import pytest
from pyroaring import BitMap64

from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_storage.files import read_deletion_vectors


def live_ids(table):
    return sorted(deltalake.DeltaTable(str(table.folder)).to_pyarrow_table()["id"].to_pylist())


def plain_ids(table):
    """The rows of a table with deletion vectors, read with deltalake's query engine."""
    batches = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(table.folder)))
    rows = pa.table(batches.execute("select id from t").read_all())
    return sorted(rows["id"].to_pylist())


def bins(table):
    return sorted(path.name for path in table.folder.rglob("*.bin"))


# --- append -------------------------------------------------------------------------------------------


def test_an_append_is_a_version_that_others_read(table):
    add = table.write_file("part 1 ü+=%.parquet", [1, 2, 3])

    answer = table.append(add, engine_info="test/1", user_metadata="first load")

    assert answer.status_code == 200
    body = answer.json()
    assert uuid.UUID(body.pop("transaction-id"))
    assert body == {
        "result": "committed",
        "version": 1,
        "read-version": 0,
        "winners-passed": [],
        "operation-metrics": {"numFiles": 1, "numOutputRows": 3, "numOutputBytes": add["size"]},
    }
    info = table.action(1, "commitInfo")
    assert info["operation"] == "WRITE"
    assert info["operationParameters"] == {"mode": "Append", "partitionBy": "[]"}
    assert info["operationMetrics"] == {
        "numFiles": "1",
        "numOutputRows": "3",
        "numOutputBytes": str(add["size"]),
    }
    assert info["isBlindAppend"] is True
    assert info["isolationLevel"] == "Serializable"
    assert info["readVersion"] == 0
    assert info["userMetadata"] == "first load"
    assert info["engineInfo"].startswith("test/1 Delvec/")
    assert next(iter(table.actions(1)[0])) == "commitInfo"
    assert table.action(1, "add") == {**add, "dataChange": True}
    assert plain_ids(table) == [1, 2, 3]


def test_a_partitioned_append(client, create, tmp_path):
    table = create(client, tmp_path / "people", **{"partition-columns": ["name"]})

    right = table.write_file("name=x/a.parquet", [1], partition_values={"name": "x"})
    empty = table.write_file("name=y/a.parquet", [2], partition_values={"name": None})

    assert table.append(right, empty).status_code == 200
    for wrong in ({}, {"nam": "x"}, {"name": "x", "id": "1"}):
        answer = table.append({**table.write_file("name=x/b.parquet", [1]), "partitionValues": wrong})
        assert answer.status_code == 400
        assert "partition" in answer.text


def test_a_partition_value_must_be_one_of_its_column(client, create, tmp_path, error):
    table = create(client, tmp_path / "people", **{"partition-columns": ["id"]})
    add = table.write_file("id=x/a.parquet", [1], partition_values={"id": "many"})

    answer = table.append(add)

    assert error(answer)["type"] == "InvalidCommit"
    assert "'many'" in error(answer)["message"]


# --- delete by deletion vector ------------------------------------------------------------------------


def test_a_delete_is_a_deletion_vector(filled):
    before = {action["add"]["path"]: action["add"] for action in filled.actions(1) if "add" in action}

    answer = filled.delete({"a.parquet": [0, 3]}, operation_metrics={"executionTimeMs": 12, "scanTimeMs": 3})

    assert answer.json()["result"] == "committed"
    assert answer.json()["operation-metrics"] == {
        "executionTimeMs": 12,
        "scanTimeMs": 3,
        "numAddedFiles": 0,
        "numAddedBytes": 0,
        "numRemovedFiles": 0,
        "numRemovedBytes": 0,
        "numDeletionVectorsAdded": 1,
        "numDeletionVectorsRemoved": 0,
        "numDeletionVectorsUpdated": 0,
        "numAddedChangeFiles": 0,
        "numCopiedRows": 0,
        "numDeletedRows": 2,
    }
    info, remove, add = (next(iter(action.values())) for action in filled.actions(2))
    assert info["operationParameters"] == {"predicate": '["(id = 1)"]'}
    assert info["isBlindAppend"] is False
    assert info["operationMetrics"]["numDeletedRows"] == "2"
    assert remove["path"] == add["path"] == "a.parquet"
    assert "deletionVector" not in remove
    assert remove["extendedFileMetadata"] is True
    assert remove["dataChange"] is add["dataChange"] is True
    assert remove["partitionValues"] == {}
    assert remove["size"] == add["size"] == before["a.parquet"]["size"]
    assert add["modificationTime"] == before["a.parquet"]["modificationTime"]
    assert add["deletionVector"]["storageType"] == "u"
    assert add["deletionVector"]["offset"] == 1
    assert add["deletionVector"]["cardinality"] == 2
    stats = json.loads(add["stats"])
    assert stats["tightBounds"] is False
    assert stats["numRecords"] == 10
    assert plain_ids(filled) == [1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]


def test_the_files_of_one_commit_share_a_deletion_vector_file(filled):
    filled.delete({"a.parquet": [0], "b.parquet": [0, 1]})

    adds = [action["add"] for action in filled.actions(2) if "add" in action]
    assert len(bins(filled)) == 1
    assert len({add["deletionVector"]["pathOrInlineDv"] for add in adds}) == 1
    assert min(add["deletionVector"]["offset"] for add in adds) == 1
    assert plain_ids(filled) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14]


def test_a_second_delete_unions_and_removes_the_old_descriptor(filled):
    filled.delete({"a.parquet": [0, 3]})
    first = next(action["add"] for action in filled.actions(2) if "add" in action)

    answer = filled.delete({"a.parquet": [3, 4, 5]})

    assert answer.json()["operation-metrics"]["numDeletedRows"] == 2
    assert answer.json()["operation-metrics"]["numDeletionVectorsAdded"] == 1
    assert answer.json()["operation-metrics"]["numDeletionVectorsRemoved"] == 1
    assert answer.json()["operation-metrics"]["numDeletionVectorsUpdated"] == 1
    assert filled.action(3, "remove")["deletionVector"] == first["deletionVector"]
    descriptor = Descriptor.from_json(filled.action(3, "add")["deletionVector"])
    assert descriptor.cardinality == 4
    found = read_deletion_vectors(
        f"file://{filled.folder}", [("a.parquet", descriptor)], table="people", version=3
    )
    assert found == {"a.parquet": BitMap64([0, 3, 4, 5])}


def test_a_file_that_loses_its_last_row_is_removed(filled):
    filled.delete({"b.parquet": [0, 1]})
    old = filled.action(2, "add")["deletionVector"]

    answer = filled.delete({"b.parquet": [2, 3, 4]})

    assert answer.json()["operation-metrics"]["numRemovedFiles"] == 1
    assert answer.json()["operation-metrics"]["numDeletedRows"] == 3
    assert answer.json()["operation-metrics"]["numDeletionVectorsAdded"] == 0
    assert answer.json()["operation-metrics"]["numDeletionVectorsRemoved"] == 1
    assert len(filled.actions(3)) == 2
    assert filled.action(3, "remove")["deletionVector"] == old
    assert len(bins(filled)) == 1


def test_rows_that_are_gone_already_are_nothing_to_do(filled):
    filled.delete({"a.parquet": [0, 3]})

    answer = filled.delete({"a.parquet": [0, 3], "b.parquet": []})

    assert answer.status_code == 200
    assert answer.json()["result"] == "nothing-to-do"
    assert answer.json()["version"] is None
    assert answer.json()["operation-metrics"]["numDeletedRows"] == 0
    assert filled.version() == 2
    assert len(bins(filled)) == 1


def test_only_files_that_lose_rows_are_touched(filled):
    filled.delete({"a.parquet": [0]})

    filled.delete({"a.parquet": [0], "b.parquet": [1]})

    assert filled.action(3, "add")["path"] == "b.parquet"


def test_whole_files_are_removed_with_their_rows_counted(filled):
    filled.delete({"a.parquet": [0, 1]})

    answer = filled.delete({"b.parquet": [4]}, removes=["a.parquet"], predicate=None)

    assert answer.json()["operation-metrics"]["numDeletedRows"] == 8 + 1
    assert answer.json()["operation-metrics"]["numRemovedFiles"] == 1
    assert answer.json()["operation-metrics"]["numDeletionVectorsRemoved"] == 1
    assert filled.action(3, "commitInfo")["operationParameters"] == {"predicate": "[]"}
    assert plain_ids(filled) == [10, 11, 12, 13]


@pytest.mark.parametrize("removes", [["b.parquet"], []])
def test_a_delete_does_not_add_rows(filled, error, removes):
    """There are at most as many copied rows as the file had rows."""
    copies = filled.write_file("c.parquet", range(10, 16))

    answer = filled.delete({}, removes=removes, adds=[copies])

    refused(filled, answer, error, "adds 6 rows and removes")


def test_a_repeated_delete_by_rewriting_does_not_bring_rows_back(filled, error):
    """The file is no longer live, so its copies are not added in addition to those of the earlier delete."""
    first = filled.write_file("c.parquet", [11, 12])
    filled.delete({}, removes=["b.parquet"], adds=[first], read_version=1)
    second = filled.write_file("d.parquet", [11, 12])

    answer = filled.delete({}, removes=["b.parquet"], adds=[second], read_version=2)

    assert error(answer)["type"] == "FileNotInSnapshot"
    assert filled.version() == 2


def test_missing_statistics_are_read_from_the_file(client, create, tmp_path):
    table = create(client, tmp_path / "people", properties={"delta.enableDeletionVectors": "false"})
    table.append(table.write_file("a.parquet", range(10), stats=False))
    upgrade(table)

    answer = table.delete({"a.parquet": [9]})

    assert answer.status_code == 200, answer.text
    assert json.loads(table.action(3, "add")["stats"])["numRecords"] == 10
    answer = table.delete({"a.parquet": [10]})
    assert answer.status_code == 400
    assert "has 10 rows" in answer.text


def upgrade(table):
    """Enable deletion vectors as another writer would."""
    metadata = table.action(0, "metaData")
    metadata["configuration"] = {"delta.enableDeletionVectors": "true"}
    features = ["deletionVectors"]
    actions = [
        {"commitInfo": {"operation": "SET TBLPROPERTIES"}},
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": features,
                "writerFeatures": [*features, "appendOnly", "invariants"],
            }
        },
        {"metaData": metadata},
    ]
    path = table.log / f"{table.version() + 1:020}.json"
    path.write_text("\n".join(json.dumps(action) for action in actions))


def test_everything_else_in_an_add_is_kept(filled):
    add = {
        "path": "c.parquet",
        "partitionValues": {},
        "size": filled.write_file("c.parquet", range(3))["size"],
        "modificationTime": 5,
        "dataChange": False,
        "stats": '{"numRecords":3}',
        "tags": {"ZCUBE_ID": "x"},
        "clusteringProvider": "liquid",
    }
    (filled.log / f"{2:020}.json").write_text(json.dumps({"add": add}))

    assert filled.delete({"c.parquet": [1]}).status_code == 200

    again = filled.action(3, "add")
    assert {name: again[name] for name in ("tags", "clusteringProvider", "modificationTime", "size")} == {
        name: add[name] for name in ("tags", "clusteringProvider", "modificationTime", "size")
    }
    assert filled.action(3, "remove")["tags"] == add["tags"]


def test_prefixes_are_random_where_the_table_wants_them(client, create, tmp_path):
    table = create(client, tmp_path / "people", properties={"delta.randomizeFilePrefixes": "true"})
    table.append(table.write_file("a.parquet", range(10)))

    table.delete({"a.parquet": [1]})

    (path,) = table.folder.rglob("*.bin")
    assert len(path.parent.name) == 2
    assert plain_ids(table) == [0, 2, 3, 4, 5, 6, 7, 8, 9]


# --- copy on write ------------------------------------------------------------------------------------


def test_a_table_without_deletion_vectors_takes_rewrites_only(client, create, tmp_path, error):
    table = create(client, tmp_path / "people", properties={"delta.enableDeletionVectors": "false"})
    table.append(table.write_file("a.parquet", range(10)))

    answer = table.delete({"a.parquet": [1]})

    assert answer.status_code == 400
    assert error(answer)["type"] == "InvalidCommit"
    assert "Rewrite the files" in error(answer)["message"]
    add = table.write_file("b.parquet", [0, *range(2, 10)])
    answer = table.commit(
        operation="DELETE",
        predicate="id = 1",
        adds=[add],
        removes=[{"path": "a.parquet"}],
        operation_metrics={"numDeletedRows": 1, "numCopiedRows": 9},
    )
    assert answer.json()["operation-metrics"] == {
        "numAddedFiles": 1,
        "numAddedBytes": add["size"],
        "numRemovedFiles": 1,
        "numRemovedBytes": table.action(2, "remove")["size"],
        "numDeletionVectorsAdded": 0,
        "numDeletionVectorsRemoved": 0,
        "numDeletionVectorsUpdated": 0,
        "numAddedChangeFiles": 0,
        "numCopiedRows": 9,
        "numDeletedRows": 1,
    }
    assert live_ids(table) == [0, 2, 3, 4, 5, 6, 7, 8, 9]
    assert deltalake.DeltaTable(str(table.folder)).protocol().min_writer_version == 2


# --- refused requests ---------------------------------------------------------------------------------


def refused(table, answer, error, says, kind="InvalidCommit", status=400):
    files = {str(path) for path in table.folder.rglob("*.bin")}
    assert answer.status_code == status, answer.text
    assert error(answer)["type"] == kind
    assert says in error(answer)["message"]
    assert files == set()
    assert table.version() == 1


@pytest.mark.parametrize(
    ("rows", "says", "kind"),
    [
        ({"unknown.parquet": [1]}, "is not a live file of version 1", "FileNotInSnapshot"),
        ({"a.parquet": [10]}, "has 10 rows, so there is no row index 10", "RowIndexOutOfRange"),
        ({"a.parquet": [1, 2**40]}, "no row index 1099511627776", "RowIndexOutOfRange"),
        ({"/etc/passwd": [1]}, "'/etc/passwd'", "FileNotInTable"),
        ({"../other/a.parquet": [1]}, "'../other/a.parquet'", "FileNotInTable"),
        ({"": [1]}, "''", "InvalidCommit"),
        ({"a.parquet": [1], "./a.parquet": [2]}, "a.parquet", "DuplicateFile"),
    ],
)
def test_rows_that_are_not_there_are_refused(filled, error, rows, says, kind):
    refused(filled, filled.delete(rows), error, says, kind)


@pytest.mark.parametrize("rows", [b"", b"junk", b"\x01" + bytes(20), b"\xff" * 64])
def test_bitmaps_that_do_not_parse_are_refused(filled, error, rows):
    entry = {"path": "a.parquet", "rows": base64.b64encode(rows).decode()}
    answer = filled.commit(operation="DELETE", row_deletes=[entry])

    refused(filled, answer, error, "are not a 64-bit Roaring bitmap", "InvalidBitmap")


@pytest.mark.parametrize("junk", ["%%%", "{}%", "{}\n", "%{}", "-_{}", "{}=", "{}AAA", "é{}"])
def test_rows_that_are_not_base64_are_refused(filled, error, bitmap, junk):
    entry = {"path": "a.parquet", "rows": junk.format(bitmap(1, 3))}

    answer = filled.commit(operation="DELETE", row_deletes=[entry])

    assert answer.status_code == 400, answer.text
    assert "ase64" in error(answer)["message"]
    assert filled.version() == 1


@pytest.mark.parametrize(
    "request_",
    [
        {"row_deletes": ["a.parquet", "a.parquet"]},
        {"removes": ["a.parquet", "a.parquet"]},
        {"row_deletes": ["a.parquet"], "removes": ["a.parquet"]},
        {"row_deletes": ["a.parquet"], "removes": ["file:{location}/a.parquet"]},
    ],
)
def test_a_file_is_named_once(filled, error, bitmap, request_):
    rows = [{"path": path, "rows": bitmap(1)} for path in request_.get("row_deletes", ())]
    removes = [{"path": path.format(location=filled.folder)} for path in request_.get("removes", ())]

    answer = filled.commit(operation="DELETE", row_deletes=rows, removes=removes)

    refused(filled, answer, error, "twice", "DuplicateFile")


@pytest.mark.parametrize(
    ("change", "says", "kind"),
    [
        ({"size": 1}, "but 1 in the request", "FileSizeMismatch"),
        ({"path": "missing.parquet"}, "does not exist in storage", "FileNotInStorage"),
        ({"path": "b.parquet"}, "is already a live file of the table", "DuplicateFile"),
        ({"path": "{location}/c.parquet"}, "relative to the table's location", "FileNotInTable"),
        ({"path": "file://{location}/c.parquet"}, "relative to the table's location", "FileNotInTable"),
        ({"path": "../people/c.parquet"}, "relative to the table's location", "FileNotInTable"),
        ({"path": "%2E%2E/people/c.parquet"}, "relative to the table's location", "FileNotInTable"),
        ({"path": ""}, "relative to the table's location", "FileNotInTable"),
        ({"path": "_delta_log/c.parquet"}, "cannot be the path of a data file", "InvalidCommit"),
        ({"path": "x/_c.parquet"}, "cannot be the path of a data file", "InvalidCommit"),
        ({"stats": None}, "no numRecords", "InvalidCommit"),
        ({"stats": "{}"}, "no numRecords", "InvalidCommit"),
        ({"stats": "{"}, "not JSON", "InvalidCommit"),
        ({"stats": "[]"}, "not a JSON object", "InvalidCommit"),
        ({"stats": '{"numRecords": "3"}'}, "an invalid numRecords", "InvalidCommit"),
        ({"stats": '{"numRecords": -1}'}, "an invalid numRecords", "InvalidCommit"),
        ({"partitionValues": {"id": "1"}}, "partition", "InvalidCommit"),
    ],
)
def test_new_files_that_are_not_what_they_say_are_refused(filled, error, change, says, kind):
    add = filled.write_file("c.parquet", [1, 2, 3])
    change = {
        name: value.format(location=filled.folder) if name == "path" else value
        for name, value in change.items()
    }

    refused(filled, filled.append({**add, **change}), error, says, kind)


def test_two_new_files_are_two_files(filled, error):
    add = filled.write_file("c d.parquet", [1])

    refused(filled, filled.append(add, {**add, "path": "c%20d.parquet"}), error, "twice", "DuplicateFile")


def test_a_version_from_the_future_is_refused(filled, error):
    answer = filled.delete({"a.parquet": [1]}, read_version=7)

    refused(filled, answer, error, "whose newest version is 1", "VersionFromFuture")


def test_a_negative_metric_is_refused(filled, error):
    answer = filled.delete({"a.parquet": [1]}, operation_metrics={"scanTimeMs": -1})

    refused(filled, answer, error, "cannot be negative")


def test_a_commit_of_nothing_is_nothing_to_do(filled):
    assert filled.commit(operation="WRITE").json()["result"] == "nothing-to-do"
    assert filled.version() == 1


# --- tables that must not be written ------------------------------------------------------------------


def test_an_append_only_table_keeps_its_rows(client, create, tmp_path, error):
    table = create(client, tmp_path / "people", properties={"delta.appendOnly": "true"})
    assert table.append(table.write_file("a.parquet", range(10))).status_code == 200

    for answer in (table.delete({"a.parquet": [1]}), table.delete({}, removes=["a.parquet"])):
        refused(table, answer, error, "delta.appendOnly", "AppendOnlyTable", 422)


@pytest.mark.parametrize(
    ("protocol", "configuration", "names"),
    [
        (
            {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["crystalBall"]},
            {},
            "crystalBall",
        ),
        (
            {
                "minReaderVersion": 1,
                "minWriterVersion": 7,
                "writerFeatures": ["icebergCompatV2", "columnMapping"],
            },
            {"delta.enableIcebergCompatV2": "true"},
            "icebergCompatV2",
        ),
    ],
)
def test_a_writer_feature_that_delvec_lacks_is_named(filled, error, protocol, configuration, names):
    metadata = {**filled.action(0, "metaData"), "configuration": configuration}
    entry = [{"protocol": protocol}, {"metaData": metadata}]
    (filled.log / f"{2:020}.json").write_text("\n".join(map(json.dumps, entry)))

    for answer in (
        filled.append(filled.write_file("c.parquet", [1])),
        filled.delete({}, removes=["a.parquet"]),
        filled.client.post(f"{filled.url}/transactions", json={"operation": "WRITE"}),
    ):
        assert answer.status_code == 422
        assert error(answer)["type"] == "UnsupportedWriterFeature"
        assert names in error(answer)["message"]
    assert filled.version() == 2


def test_in_commit_timestamps_rise_whatever_the_clock_says(client, create, tmp_path):
    table = create(client, tmp_path / "people", properties={"delta.enableInCommitTimestamps": "true"})
    future = table.action(0, "commitInfo")["inCommitTimestamp"] + 10**9
    (table.log / f"{1:020}.json").write_text(
        json.dumps({"commitInfo": {"inCommitTimestamp": future, "operation": "WRITE"}})
    )

    table.append(table.write_file("a.parquet", [1]))

    info = table.action(2, "commitInfo")
    assert next(iter(info)) == "inCommitTimestamp"
    assert info["inCommitTimestamp"] == future + 1


# --- damaged tables -----------------------------------------------------------------------------------


def damage(name, path):
    data = bytearray(path.read_bytes())
    if name == "missing":
        path.unlink()
        return
    if name == "truncated":
        data = data[:-6]
    if name == "checksum":
        data[-1] ^= 1
    if name == "size":
        data[4] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("missing", "DeletionVectorNotFound"),
        ("truncated", "DeletionVectorTruncated"),
        ("checksum", "DeletionVectorChecksumMismatch"),
        ("size", "DeletionVectorSizeMismatch"),
    ],
)
def test_a_damaged_deletion_vector_is_named_and_nothing_is_committed(filled, running, error, name, kind):
    filled.delete({"a.parquet": [1]})
    (path,) = filled.folder.rglob("*.bin")
    damage(name, path)
    writer = filled.client

    with running() as filled.client:  # the service that wrote it has its content in memory
        filled.client.post("/v1/tables", json={"location": str(filled.folder)})
        answer = filled.delete({"a.parquet": [2], "b.parquet": [1]})
    filled.client = writer

    assert answer.status_code == 422
    found = error(answer)
    assert found["type"] == kind
    assert found["details"]["table"] == "people"
    assert found["details"]["version"] == 2
    assert found["details"]["file"] == "a.parquet"
    assert path.name in found["message"]
    assert filled.version() == 2
    assert len(bins(filled)) <= 1
    assert filled.delete({"b.parquet": [1]}).status_code == 200


def test_a_data_file_without_statistics_that_is_gone_is_named(client, create, tmp_path, error):
    table = create(client, tmp_path / "people", properties={"delta.enableDeletionVectors": "false"})
    table.append(table.write_file("a.parquet", range(10), stats=False))
    upgrade(table)
    (table.folder / "a.parquet").unlink()

    answer = table.delete({"a.parquet": [1]})

    assert error(answer)["type"] == "MissingDataFile"
    assert "a.parquet" in error(answer)["message"]


# --- transactions, descriptors, reading back ----------------------------------------------------------


def test_a_transaction_is_known_before_files_are_written(filled):
    begun = filled.client.post(f"{filled.url}/transactions", json={"operation": "WRITE"})

    assert begun.status_code == 201
    assert begun.json()["version"] == 1
    assert begun.json()["deletion-vectors-enabled"] is True
    transaction = begun.json()["transaction-id"]
    ledger = filled.client.service.ledger
    assert ledger.transaction(begun.json()["table-id"], transaction).state == "open"
    answer = filled.append(filled.write_file("c.parquet", [1]), transaction_id=transaction)
    assert answer.json()["transaction-id"] == transaction
    known = ledger.transaction(begun.json()["table-id"], transaction)
    assert (known.state, known.version) == ("committed", 2)
    assert filled.action(2, "commitInfo")["txnId"] == transaction


def test_descriptors_are_allocated_in_shared_files(filled):
    answer = filled.client.post(
        f"{filled.url}/deletion-vectors", json={"sizes": [40, 1_500_000, 700_000, 40]}
    )

    assert answer.status_code == 201
    places = answer.json()["deletion-vectors"]
    assert [place["sizeInBytes"] for place in places] == [40, 1_500_000, 700_000, 40]
    assert [place["offset"] for place in places] == [1, 49, 1, 700_009]
    assert [place["file"] == places[0]["file"] for place in places] == [True, True, False, False]
    table_id = filled.client.get(filled.url).json()["id"]
    ledgered = filled.client.service.ledger.files(table_id, answer.json()["transaction-id"])
    assert {file.path for file in ledgered} == {place["file"] for place in places}
    assert bins(filled) == []


@pytest.mark.parametrize("sizes", [[], [0], [2**31], ["x"]])
def test_sizes_that_cannot_be_are_refused(filled, sizes):
    assert filled.client.post(f"{filled.url}/deletion-vectors", json={"sizes": sizes}).status_code == 400


def test_a_table_without_deletion_vectors_gets_no_descriptors(client, create, tmp_path, error):
    table = create(client, tmp_path / "people", properties={"delta.enableDeletionVectors": "false"})

    answer = client.post(f"{table.url}/deletion-vectors", json={"sizes": [40]})

    assert error(answer)["type"] == "InvalidCommit"


def test_a_commit_can_be_read_back(filled, error):
    answer = filled.client.get(f"{filled.url}/commits/1")

    assert answer.json() == {"version": 1, "actions": filled.actions(1)}
    missing = filled.client.get(f"{filled.url}/commits/2")
    assert missing.status_code == 404
    assert error(missing)["type"] == "VersionNotFound"


def test_paths_are_matched_in_any_spelling(filled):
    filled.append(filled.write_file("c d.parquet", range(3)))

    assert filled.delete({f"file:{quote(str(filled.folder))}/c%20d.parquet": [1]}).status_code == 200
    assert filled.action(3, "add")["path"] == "c%20d.parquet"


def test_many_files_are_looked_up_at_once(table, error):
    adds = [table.write_file(f"part {number}.parquet", range(3)) for number in range(40)]
    table.append(*adds)

    again = table.append(*adds)
    answer = table.commit(operation="DELETE", removes=[{"path": add["path"]} for add in adds[:39]])
    gone = table.commit(operation="DELETE", removes=[{"path": add["path"]} for add in adds])

    assert "is already a live file of the table" in error(again)["message"]
    assert answer.json()["operation-metrics"]["numRemovedFiles"] == 39
    assert answer.json()["operation-metrics"]["numDeletedRows"] == 39 * 3
    assert "is not a live file of version 2" in error(gone)["message"]
