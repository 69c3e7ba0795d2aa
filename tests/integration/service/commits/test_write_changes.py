"""Commits with table changes in the same version: columns, whole schemas, identity columns."""

import json
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

AGE = {"change": "add-columns", "columns": [{"column": "age", "type": "integer"}]}


def schema_of(actions):
    (metadata,) = [action["metaData"] for action in actions if "metaData" in action]
    return json.loads(metadata["schemaString"])["fields"]


def names(actions):
    return [field["name"] for field in schema_of(actions)]


def begin(table, *changes):
    body = {"operation": "WRITE", "table-changes": list(changes)}
    answer = table.client.post(f"{table.url}/transactions", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def mapped(create, client, folder):
    table = create(client, folder)
    change = {"change": "set-properties", "properties": {"delta.columnMapping.mode": "name"}}
    assert client.post(f"{table.url}/alter", json={"changes": [change]}).status_code == 200
    return table


def test_rows_and_the_column_that_they_have_are_one_version(table):
    file = table.write_file("a.parquet", [1, 2])
    answer = table.append(file, table_changes=[AGE])
    assert answer.status_code == 200, answer.text
    actions = table.actions(answer.json()["version"])
    assert names(actions) == ["id", "name", "age"]
    assert [action["add"]["path"] for action in actions if "add" in action] == ["a.parquet"]
    info = actions[0]["commitInfo"]
    assert info["operation"] == "WRITE"


def test_a_write_that_adds_a_column_loses_against_another_change_of_metadata(table, error):
    read = table.version()
    file = table.write_file("a.parquet", [1, 2])
    assert table.append(table.write_file("b.parquet", [3]), table_changes=[AGE]).status_code == 200
    lost = table.append(file, table_changes=[AGE], read_version=read)
    assert lost.status_code == 409
    assert error(lost)["type"] == "MetadataChangedException"


def test_a_write_that_adds_a_column_passes_writes_that_do_not(table):
    read = table.version()
    assert table.append(table.write_file("b.parquet", [3])).status_code == 200
    answer = table.append(table.write_file("a.parquet", [1]), table_changes=[AGE], read_version=read)
    assert answer.json()["result"] == "rebased", answer.text


def test_the_same_request_sent_twice_is_one_version(table):
    request = {"adds": [table.write_file("a.parquet", [1])], "table_changes": [AGE], "transaction_id": "once"}
    request["read_version"] = table.version()
    first = table.commit(operation="WRITE", **request)
    second = table.commit(operation="WRITE", **request)
    assert first.json()["version"] == second.json()["version"] == table.version()


def test_a_column_that_is_there_is_refused_and_nothing_is_committed(table, error):
    before = table.version()
    change = {"change": "add-columns", "columns": [{"column": "NAME", "type": "string"}]}
    answer = table.append(table.write_file("a.parquet", [1]), table_changes=[change])
    assert (answer.status_code, error(answer)["type"]) == (400, "InvalidTableChange")
    assert table.version() == before


@pytest.mark.parametrize("change", ["rename-column", "set-properties", "add-constraint"])
def test_other_changes_of_a_table_are_requests_of_their_own(table, change):
    answer = table.append(table.write_file("a.parquet", [1]), table_changes=[{"change": change}])
    assert answer.status_code in (400, 422)


def test_files_are_written_under_the_names_that_the_commit_gives(create, client, tmp_path):
    table = mapped(create, client, tmp_path / "mapped")
    nested = {"type": "struct", "fields": [{"name": "b", "type": "long", "nullable": True, "metadata": {}}]}
    change = {"change": "add-columns", "columns": [{"column": "a", "type": nested}]}
    begun = begin(table, change)
    told = begun["schema"]["fields"]
    file = table.write_file("a.parquet", [1])
    answer = table.append(file, table_changes=[change], transaction_id=begun["transaction-id"])
    assert answer.status_code == 200, answer.text
    assert schema_of(table.actions(answer.json()["version"])) == told
    assert told[-1]["metadata"]["delta.columnMapping.physicalName"].startswith("col-")


def replace_schema(*columns, partition_by=()):
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns]
    schema = {"type": "struct", "fields": fields}
    return {"change": "replace-schema", "schema": schema, "partition-columns": list(partition_by)}


def write(table, name, rows, **values):
    path = table.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path)
    stats = json.dumps({"numRecords": rows.num_rows})
    size = path.stat().st_size
    return {
        "path": name,
        "size": size,
        "modificationTime": time.time_ns() // 1_000_000,
        "partitionValues": values,
        "stats": stats,
    }


def test_other_columns_and_partitions_come_with_a_full_overwrite(filled):
    new = write(filled, "k=1/n.parquet", pa.table({"x": [1.5]}), k="1")
    answer = filled.commit(
        operation="WRITE",
        adds=[new],
        removes=[{"path": path} for path in live(filled)],
        predicate="true",
        operation_parameters={"mode": "Overwrite"},
        table_changes=[replace_schema(("k", "string"), ("x", "double"), partition_by=["K"])],
    )
    assert answer.status_code == 200, answer.text
    actions = filled.actions(answer.json()["version"])
    assert names(actions) == ["k", "x"]
    (metadata,) = [action["metaData"] for action in actions if "metaData" in action]
    assert metadata["partitionColumns"] == ["k"]
    assert actions[0]["commitInfo"]["operationParameters"]["partitionBy"] == '["k"]'


def live(table):
    found = table.client.post(f"{table.url}/plan", json={}).json()
    return [file["path"] for file in found["files"]]


def test_other_columns_need_every_file_to_go(filled, error):
    new = write(filled, "n.parquet", pa.table({"x": [1.5]}))
    answer = filled.append(new, table_changes=[replace_schema(("x", "double"))])
    assert (answer.status_code, error(answer)["type"]) == (400, "InvalidCommit")


def test_a_file_that_came_meanwhile_is_in_the_way_of_other_columns(filled, error):
    read, removes = filled.version(), [{"path": path} for path in live(filled)]
    assert filled.append(filled.write_file("late.parquet", [77])).status_code == 200
    answer = filled.commit(
        operation="WRITE",
        adds=[write(filled, "n.parquet", pa.table({"x": [1.5]}))],
        removes=removes,
        predicate="true",
        table_changes=[replace_schema(("x", "double"))],
        read_version=read,
    )
    assert (answer.status_code, error(answer)["type"]) == (409, "ConcurrentAppendException")


def test_a_constraint_keeps_its_columns(create, client, tmp_path, error):
    table = create(client, tmp_path / "constrained")
    change = {"change": "add-constraint", "name": "positive", "expression": "id > 0"}
    assert client.post(f"{table.url}/alter", json={"changes": [change]}).status_code == 200
    new = write(table, "n.parquet", pa.table({"x": [1.5]}))
    answer = table.commit(operation="WRITE", adds=[new], table_changes=[replace_schema(("x", "double"))])
    assert (answer.status_code, error(answer)["type"]) == (400, "InvalidTableChange")
    assert "positive" in error(answer)["message"]


def test_new_columns_of_a_mapped_table_have_ids_and_names_that_no_column_had(create, client, tmp_path):
    table = mapped(create, client, tmp_path / "mapped")
    before = schema_of(table.actions(table.version()))
    change = replace_schema(("id", "string"), ("x y", "double"))
    begun = begin(table, change)
    answer = table.commit(operation="WRITE", table_changes=[change], transaction_id=begun["transaction-id"])
    assert answer.status_code == 200, answer.text
    found = schema_of(table.actions(answer.json()["version"]))
    assert found == begun["schema"]["fields"]
    old = {field["metadata"]["delta.columnMapping.id"] for field in before}
    assert not old & {field["metadata"]["delta.columnMapping.id"] for field in found}
    assert found[0]["metadata"]["delta.columnMapping.physicalName"] != "id"
