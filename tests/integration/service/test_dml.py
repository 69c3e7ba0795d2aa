"""DELETE and UPDATE over HTTP, run by the service itself."""

import builtins
import json
import threading

import pyarrow as pa
import pytest
from tests.support.tables import ids

import delvec
from delvec_contract.commands import DeleteRequest, UpdateRequest
from delvec_engines.duckdb import DuckDBEngine
from delvec_service import dml
from delvec_service.operations import plans as scan_plans
from delvec_service.store.answers import AnswerStore

ROWS = pa.table({"id": range(10), "age": pa.array(range(0, 100, 10), pa.int32()), "name": ["n"] * 10})


@pytest.fixture
def lake(tmp_path):
    with delvec.connect(database_url=f"sqlite:///{tmp_path / 'other.db'}") as connection:
        yield connection


@pytest.fixture
def people(lake, client, tmp_path):
    """A table of two files that the service knows as ``people``, seen by another process of the client's."""
    table = lake.create_table(tmp_path / "people", ROWS.schema)
    table.append(ROWS.slice(0, 5))
    table.append(ROWS.slice(5))
    client.post(
        "/v1/tables", json={"location": str(tmp_path / "people"), "name": "people"}
    ).raise_for_status()
    return table


def ages(table):
    return dict(sorted(zip(*table.to_arrow(["id", "age"]).to_pydict().values(), strict=True)))


def refusal(answer):
    return answer.status_code, answer.json()["error"]["type"]


def named(key):
    return {"Idempotency-Key": key}


def test_rows_are_deleted_and_the_answer_is_that_of_a_commit(client, people):
    answer = client.post("/v1/tables/people/delete", json={"predicate": "age < 25", "user-metadata": "tidy"})

    assert answer.status_code == 200
    body = answer.json()
    assert (body["result"], body["version"], body["read-version"]) == ("committed", 3, 2)
    assert body["operation-metrics"]["numDeletedRows"] == 3
    assert body["operation-metrics"]["numDeletionVectorsAdded"] == 1
    assert ids(people) == list(range(3, 10))
    (last,) = people.history(1)
    assert (last["operation"], last["userMetadata"]) == ("DELETE", "tidy")
    outcome = client.get("/v1/tables/people/commits", params={"transaction-id": body["transaction-id"]})
    assert outcome.json()["commit"]["version"] == 3


def test_columns_are_set_to_sql_and_to_values(client, people):
    values = {"age": "age + id", "name": "upper('ada')"}
    answer = client.post("/v1/tables/people/update", json={"set": values, "predicate": "id = 3"})
    assert answer.json()["operation-metrics"]["numUpdatedRows"] == 1
    answer = client.post(
        "/v1/tables/people/update", json={"set": {"age": 7, "name": None}, "predicate": "id = 4"}
    )
    assert answer.status_code == 200

    rows = people.to_arrow(predicate="id IN (3, 4)").sort_by("id").to_pylist()
    assert rows == [{"id": 3, "age": 33, "name": "ADA"}, {"id": 4, "age": 7, "name": None}]


def test_nothing_that_matches_makes_no_version(client, people):
    for path, more in (("delete", {}), ("update", {"set": {"age": 1}})):
        answer = client.post(f"/v1/tables/people/{path}", json={"predicate": "id = 700", **more})

        assert (answer.status_code, answer.json()["result"], answer.json()["version"]) == (
            200,
            "nothing-to-do",
            None,
        )
        assert answer.json()["read-version"] == 2
    assert people.version() == 2


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("delete", {"predicate": "nope < 1"}, (400, "UnknownColumn")),
        ("delete", {"predicate": "age <"}, (400, "InvalidPredicate")),
        (
            "delete",
            {"predicate": "id IN (SELECT id FROM read_csv('/etc/passwd'))"},
            (400, "InvalidPredicate"),
        ),
        ("delete", {}, (400, "BadRequest")),
        ("delete", {"predicate": "true", "predicat": "x"}, (400, "BadRequest")),
        ("update", {"predicate": "true", "set": {}}, (400, "BadRequest")),
        ("update", {"predicate": "true", "set": {"age": [1]}}, (400, "BadRequest")),
        ("update", {"predicate": "true", "set": {"age": "'x'"}}, (400, "SchemaMismatch")),
        ("update", {"predicate": "true", "set": {"name": "getenv('HOME')"}}, (400, "InvalidPredicate")),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(path, body, expected, client, people):
    assert refusal(client.post(f"/v1/tables/people/{path}", json=body)) == expected
    assert people.version() == 2


def test_too_much_to_read_is_refused_with_the_way_out(running, people, tmp_path):
    with running(dml_max_bytes=10) as client:
        client.post("/v1/tables", json={"location": str(tmp_path / "people")}).raise_for_status()
        answer = client.post("/v1/tables/people/delete", json={"predicate": "age = 20"})

        assert refusal(answer) == (422, "ReadLimitExceeded")
        error = answer.json()["error"]
        assert "delvec.connect(url)" in error["message"]
        assert (error["details"]["files"], error["details"]["limit"]) == (1, 10)
        # Files that are removed whole are not read.
        assert client.post("/v1/tables/people/delete", json={"predicate": "true"}).status_code == 200
    assert ids(people) == []


def test_too_large_is_no_final_answer(running, people, tmp_path):
    store = f"sqlite:///{tmp_path / 'store.db'}"
    codes = []
    for limit in (10, 1 << 20):
        with running(dml_max_bytes=limit, database_url=store) as client:
            client.post("/v1/tables", json={"location": str(tmp_path / "people")})
            codes.append(
                client.post("/v1/tables/people/delete", json={"predicate": "age = 20"}, headers=named("k"))
            )

    assert [answer.status_code for answer in codes] == [422, 200]


def test_file_that_leads_out_of_the_roots_is_not_read(running, people, lake, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    data = next((tmp_path / "people").glob("*.parquet"))
    data.rename(outside / "secret.parquet")
    data.symlink_to(outside / "secret.parquet")
    with running(roots=(str(tmp_path / "people"),)) as client:
        client.post("/v1/tables", json={"location": str(tmp_path / "people")}).raise_for_status()
        answer = client.post("/v1/tables/people/update", json={"predicate": "true", "set": {"age": 1}})

    assert refusal(answer) == (403, "LocationNotAllowed")
    assert people.version() == 2


def test_without_duckdb_it_says_how_to_get_it(running, people, tmp_path, monkeypatch):
    plain = builtins.__import__

    def without(name, *arguments, **options):
        if name.startswith("delvec_engines.duckdb"):
            raise ModuleNotFoundError("No module named 'duckdb'", name="duckdb")
        return plain(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with running() as client:
        client.post("/v1/tables", json={"location": str(tmp_path / "people")}).raise_for_status()
        answer = client.post("/v1/tables/people/delete", json={"predicate": "true"})

    assert refusal(answer) == (501, "EngineUnavailable")
    assert "pip install '.[local]'" in answer.json()["error"]["message"]


def test_commands_beyond_the_number_wait_their_turn_elsewhere(running, people, tmp_path, monkeypatch):
    begun, end = threading.Event(), threading.Event()
    plain = DuckDBEngine.find_rows

    def slow(self, *arguments, **options):
        begun.set()
        assert end.wait(60)
        return plain(self, *arguments, **options)

    monkeypatch.setattr(DuckDBEngine, "find_rows", slow)
    with running(dml_at_once=1) as client:
        client.post("/v1/tables", json={"location": str(tmp_path / "people")}).raise_for_status()
        answers = []
        first = threading.Thread(
            target=lambda: answers.append(
                client.post("/v1/tables/people/delete", json={"predicate": "age = 20"})
            )
        )
        first.start()
        assert begun.wait(60)
        refused = client.post("/v1/tables/people/delete", json={"predicate": "age = 30"})
        end.set()
        first.join()

    assert refusal(refused) == (503, "ServiceUnavailable")
    assert refused.headers["Retry-After"]
    assert answers[0].status_code == 200


def test_a_service_without_commands_says_so(running, people, tmp_path):
    with running(dml_at_once=0) as client:
        client.post("/v1/tables", json={"location": str(tmp_path / "people")}).raise_for_status()
        refused = client.post("/v1/tables/people/delete", json={"predicate": "age = 30"})

    assert refusal(refused) == (503, "ServiceUnavailable")
    assert "DELVEC_DML_AT_ONCE is 0" in refused.text
    assert "maximum" not in refused.text


def test_request_that_is_sent_again_gets_the_first_answer(client, people):
    body = {"set": {"age": "age + 1"}, "predicate": "id = 3"}
    first = client.post("/v1/tables/people/update", json=body, headers=named("k"))
    again = client.post("/v1/tables/people/update", json=body, headers=named("k"))

    assert again.json() == first.json()
    assert again.headers["Idempotent-Replay"] == "true"
    assert ages(people)[3] == 31
    other = client.post("/v1/tables/people/update", json=body | {"predicate": "id = 4"}, headers=named("k"))
    assert refusal(other) == (422, "IdempotencyKeyReused")


def test_update_is_not_made_twice_where_the_service_died_before_it_kept_the_answer(
    client, people, monkeypatch
):
    body = {"set": {"age": "age + 1"}, "predicate": "id = 3"}
    plain = AnswerStore.keep

    def dies(self, key, *arguments):
        if key != "k":
            plain(self, key, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(AnswerStore, "keep", dies)
        first = client.post("/v1/tables/people/update", json=body, headers=named("k"))
    assert first.status_code == 200
    with client.service.database.write() as session:
        session.connection().exec_driver_sql("UPDATE answers SET claimed_at = '2020-01-01' WHERE key = 'k'")
    again = client.post("/v1/tables/people/update", json=body, headers=named("k"))

    assert again.status_code == 200
    assert again.json()["version"] == first.json()["version"]
    assert again.json()["transaction-id"] == first.json()["transaction-id"]
    assert ages(people)[3] == 31
    assert people.version() == 3


def test_request_that_is_sent_again_while_it_still_runs_takes_effect_once(client, people, monkeypatch):
    request = UpdateRequest(set={"age": "age + 1"}, predicate="id = 3")
    commands = client.app.state.row_commands
    barrier = threading.Barrier(2, timeout=60)
    plain = DuckDBEngine.change_rows
    first_passes = threading.local()

    def together(self, *arguments, **options):
        changed = plain(self, *arguments, **options)
        if not getattr(first_passes, "gone", False):
            first_passes.gone = True
            barrier.wait()  # both have read the same version
        return changed

    monkeypatch.setattr(DuckDBEngine, "change_rows", together)
    table = client.service.tables.open("people")
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(commands.update(table, request, key="k")))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [answer.version for answer in answers] == [3, 3]
    assert ages(people)[3] == 31


def test_a_key_that_was_released_is_not_another_requests(client, people):
    commands, table = client.app.state.row_commands, client.service.tables.open("people")

    deleted = commands.delete(table, DeleteRequest(predicate="id = 3"), key="k")
    other = commands.delete(table, DeleteRequest(predicate="id = 4"), key="k")

    assert (deleted.version, other.version) == (3, 4)
    assert commands.delete(table, DeleteRequest(predicate="id = 3"), key="k").version == 3
    assert ids(people) == [0, 1, 2, 5, 6, 7, 8, 9]


def test_copy_that_reads_what_the_other_committed_takes_no_effect(client, people, monkeypatch):
    commands, table = client.app.state.row_commands, client.service.tables.open("people")
    request = UpdateRequest(set={"age": "age + 1"}, predicate="id = 3")
    plain, answers = dml._CommandService.plan, []

    def overtaken(self, *arguments):
        if not answers:
            answers.append(None)  # the other copy plans, too
            answers[0] = commands.update(table, request, key="k")
        return plain(self, *arguments)

    monkeypatch.setattr(dml._CommandService, "plan", overtaken)
    again = commands.update(table, request, key="k")

    assert (again.version, again.transaction_id) == (3, answers[0].transaction_id)
    assert ages(people)[3] == 31
    assert people.version() == 3


def test_command_whose_beginning_the_database_does_not_store_does_nothing(client, people, monkeypatch):
    monkeypatch.setattr(AnswerStore, "keep", lambda *_: None)
    body = {"set": {"age": "age + 1"}, "predicate": "id = 3"}

    refused = client.post("/v1/tables/people/update", json=body, headers=named("k"))

    assert refusal(refused) == (503, "ServiceUnavailable")
    assert people.version() == 2


def test_files_that_are_read_for_their_changes_count(running, tmp_path):
    """Without deletion vectors, files whose rows all match are read, too, once any file is."""
    store = f"sqlite:///{tmp_path / 'limits.db'}"
    with delvec.connect(database_url=store) as lake:
        table = lake.create_table(
            tmp_path / "fed",
            ROWS.schema,
            properties={"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "false"},
        )
        table.append(ROWS.slice(0, 5))
        table.append(ROWS.slice(5))
        sizes = [file.stat().st_size for file in (tmp_path / "fed").glob("*.parquet")]
    with running(dml_max_bytes=max(sizes) + 1, database_url=store) as client:
        client.post("/v1/tables", json={"location": str(tmp_path / "fed"), "name": "fed"}).raise_for_status()
        answer = client.post("/v1/tables/fed/delete", json={"predicate": "id < 5 OR id = 7"})

    assert refusal(answer) == (422, "ReadLimitExceeded")


def test_lost_race_is_run_again_and_one_without_end_names_the_winner(client, people, monkeypatch):
    plain = DuckDBEngine.change_rows
    winners = iter(["age = 31", None])

    def overtaken(self, *arguments, **options):
        changed = plain(self, *arguments, **options)
        if value := next(winners, "age = age + 1"):
            column, _, value = value.partition(" = ")
            monkeypatch.setattr(DuckDBEngine, "change_rows", plain)
            people.update({column: value}, "id = 3")
            monkeypatch.setattr(DuckDBEngine, "change_rows", overtaken)
        return changed

    monkeypatch.setattr(DuckDBEngine, "change_rows", overtaken)
    body = {"set": {"age": "age + 100"}, "predicate": "id = 3"}
    assert client.post("/v1/tables/people/update", json=body).status_code == 200
    assert ages(people)[3] == 131

    monkeypatch.setattr("delvec_commands.dml.retry.pause", lambda *_: 0.0)
    answer = client.post("/v1/tables/people/update", json=body)
    assert refusal(answer) == (409, "ConcurrentDeleteDeleteException")
    conflict = answer.json()["error"]["details"]["conflict"]
    assert conflict["winning-operation"] == "UPDATE"
    assert json.dumps(conflict)


def test_files_are_written_together_and_deleted_rows_dropped(client, people):
    people.delete("id = 3")
    answer = client.post("/v1/tables/people/optimize", json={"purge": True}, headers=named("purge"))

    assert answer.status_code == 200
    assert answer.json()["operation-metrics"]["numRemovedFiles"] == 1
    again = client.post("/v1/tables/people/optimize", json={"purge": True}, headers=named("purge"))
    assert again.json()["version"] == answer.json()["version"]
    done = client.post("/v1/tables/people/optimize", json={}).json()
    assert (done["operation-metrics"]["numRemovedFiles"], done["operation-metrics"]["numAddedFiles"]) == (
        2,
        1,
    )
    assert client.post("/v1/tables/people/optimize", json={}).json()["result"] == "nothing-to-do"
    ordered = client.post("/v1/tables/people/optimize", json={"zorder-by": ["id"]}).json()
    assert ordered["result"] == "committed"
    both = {"zorder-by": ["id"], "purge": True}
    assert client.post("/v1/tables/people/optimize", json=both).status_code == 400
    assert ids(people) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    for body in (
        {"predicate": "age > 3"},
        {"target-size": 0},
        {"purge": "yes"},
        {"rewrite": "sometimes"},
        {"rewrite": "never", "purge": True},
        {"min-deleted-ratio": 0.1},
        {"purge": True, "max-deleted-ratio": 0.1},
        {"purge": True, "min-deleted-ratio": 1.1},
        {"purge": True, "min-deleted-ratio": "0.1"},
        {"max-bytes": 0},
    ):
        assert client.post("/v1/tables/people/optimize", json=body).status_code == 400


def test_purge_and_optimize_leave_files_with_few_deleted_rows_and_keep_to_a_budget(client, people):
    def planned(**options):
        answer = client.post("/v1/tables/people/optimize", json={"dry-run": True, **options})
        assert answer.status_code == 200, answer.text
        return answer.json()["num-files"]

    people.append(people.to_arrow())
    people.delete("id = 3")
    assert planned(purge=True) == 2
    assert planned(**{"purge": True, "min-deleted-ratio": 0.15}) == 1
    assert planned(**{"purge": True, "min-deleted-ratio": 0.9}) == 0
    assert planned(**{"purge": True, "max-bytes": 1}) == 0
    assert planned(**{"max-bytes": 1}) == 0
    assert (
        planned(**{"target-size": 1}) == 2
    )  # files that are not small are rewritten for their deleted rows only
    assert planned(**{"target-size": 1, "max-deleted-ratio": 0.15}) == 1
    body = {"purge": True, "min-deleted-ratio": 0.9}
    assert client.post("/v1/tables/people/optimize", json=body).json()["result"] == "nothing-to-do"


def test_row_groups_are_copied_where_that_is_asked_for(client, people):
    people.append(people.to_arrow())
    before = people.to_arrow()
    for rewrite, said in (("never", "are copied"), ("auto", "rewritten: the row groups are small")):
        body = {"rewrite": rewrite, "dry-run": True}
        (group,) = client.post("/v1/tables/people/optimize", json=body).json()["groups"]
        assert said in group["reason"]
    done = client.post("/v1/tables/people/optimize", json={"rewrite": "never"}).json()
    assert done["operation-metrics"]["numAddedFiles"] == 1
    assert people.to_arrow().sort_by("id").equals(before.sort_by("id"))


def test_a_dry_run_says_what_would_be_written_again_and_why(client, people):
    people.delete("id = 3")
    version = people.version()
    planned = client.post("/v1/tables/people/optimize", json={"dry-run": True})
    assert planned.status_code == 200
    found = planned.json()
    assert (found["result"], found["read-version"], found["num-groups"]) == ("dry-run", version, 1)
    assert found["size-in-bytes"] == found["new-size-in-bytes"] + found["gain-bytes"]
    (group,) = found["groups"]
    assert len(group["files"]) == group["num-files"] == found["num-files"]
    assert "small file" in group["reason"]
    assert "more than 5.0% of the rows deleted" in group["reason"]

    purge = client.post("/v1/tables/people/optimize", json={"purge": True, "dry-run": True}).json()
    assert [group["reason"] for group in purge["groups"]] == ["1 file with deletion vectors"]
    ordered = client.post("/v1/tables/people/optimize", json={"zorder-by": ["id"], "dry-run": True}).json()
    assert "to sort by id" in ordered["groups"][0]["reason"]
    short = client.post("/v1/tables/people/optimize", json={"dry-run": True, "limit": 0}).json()
    assert (short["groups"], short["num-files"]) == ([], found["num-files"])
    refused = client.post("/v1/tables/people/optimize", json={"dry-run": True, "predicate": "age > 3"})
    assert refused.status_code == 400
    assert people.version() == version

    assert (
        client.post("/v1/tables/people/optimize", json={}).json()["operation-metrics"]["numRemovedFiles"]
        == (found["num-files"])
    )
    nothing = client.post("/v1/tables/people/optimize", json={"dry-run": True}).json()
    assert (nothing["num-files"], nothing["groups"]) == (0, [])


def test_optimize_plans_once_and_refuses_what_is_too_large(running, people, tmp_path, monkeypatch):
    people.append(people.to_arrow())
    plans = []
    plain = scan_plans.plan_scan
    monkeypatch.setattr(
        scan_plans, "plan_scan", lambda *given, **more: plans.append(1) or plain(*given, **more)
    )
    with running(database_url=f"sqlite:///{tmp_path / 'third.db'}") as client:
        client.post("/v1/tables", json={"location": str(tmp_path / "people"), "name": "people"})
        done = client.post("/v1/tables/people/optimize", json={"rewrite": "always"})
    assert (done.status_code, done.json()["result"], len(plans)) == (200, "committed", 1)
    people.append(people.to_arrow())
    with running(database_url=f"sqlite:///{tmp_path / 'third.db'}", dml_max_bytes=1000) as client:
        refused = client.post("/v1/tables/people/optimize", json={"rewrite": "always"})
    assert refusal(refused) == (422, "ReadLimitExceeded")
