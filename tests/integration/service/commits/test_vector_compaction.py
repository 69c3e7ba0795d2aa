"""``…/deletion-vectors/compact``: fewer deletion vector files, the same rows, and no conflicts."""

import random

import pytest

NAMES = [f"{number}.parquet" for number in range(12)]


@pytest.fixture
def scattered(filled):
    """Twelve files of ten rows, each with a deletion vector in a file of its own."""
    for name in NAMES:
        filled.append(filled.write_file(name, range(10)))
    for name in NAMES:
        filled.delete({name: [1, 2]})
    return filled


def compact(table, **body):
    return table.client.post(f"{table.url}/deletion-vectors/compact", json=body)


def adds(table):
    return {file["path"]: file for file in plan(table)["files"]}


def plan(table):
    return table.client.post(f"{table.url}/plan", json={"stats": True}).json()


def vector_files(table):
    return {
        file["deletionVector"]["pathOrInlineDv"]
        for file in adds(table).values()
        if file.get("deletionVector")
    }


def cardinalities(table):
    return {
        path: (file.get("deletionVector") or {"cardinality": 0})["cardinality"]
        for path, file in adds(table).items()
    }


def errors_found(table):
    return table.client.get(f"{table.url}/check").json()["num-errors"]


def test_vectors_move_into_one_file_and_nothing_else_changes(scattered):
    before, version = adds(scattered), scattered.version()
    assert len(vector_files(scattered)) == 12
    planned = compact(scattered, **{"dry-run": True}).json()
    assert (planned["result"], planned["num-vector-files"], planned["new-vector-files"]) == ("dry-run", 12, 1)
    assert scattered.version() == version

    done = compact(scattered, **{"user-metadata": "tidy"}).json()

    assert (done["result"], done["version"], done["num-deletion-vectors"]) == ("committed", version + 1, 12)
    assert len(vector_files(scattered)) == 1
    after = adds(scattered)
    assert {path: without_vector(file) for path, file in after.items()} == {
        path: without_vector(file) for path, file in before.items()
    }
    assert set(cardinalities(scattered).values()) == {0, 2}
    assert errors_found(scattered) == 0
    entry = scattered.client.get(f"{scattered.url}/history", params={"limit": 1}).json()["history"][0]
    assert (entry["operation"], entry["userMetadata"]) == ("OPTIMIZE", "tidy")
    assert compact(scattered).json()["result"] == "nothing-to-do"
    assert scattered.version() == version + 1


def without_vector(file):
    return {name: value for name, value in file.items() if name not in ("deletionVector", "deletedRows")}


def test_files_that_are_mostly_unused_are_left(scattered):
    assert compact(scattered).status_code == 200
    offsets = {
        path: (file.get("deletionVector") or {}).get("offset", 0) for path, file in adds(scattered).items()
    }
    last = max(
        NAMES, key=offsets.__getitem__
    )  # the unused share of a file is computed from its last live deletion vector
    for name in set(NAMES) - {last}:
        scattered.client.post(
            f"{scattered.url}/commits",
            json={
                "read-version": scattered.version(),
                "operation": "OPTIMIZE",
                "data-change": False,
                "removes": [{"path": name}],
                "adds": [scattered.write_file(f"new-{name}", range(8))],
            },
        ).raise_for_status()
    (before,) = vector_files(scattered)
    assert compact(scattered).json()["num-deletion-vectors"] == 1
    assert vector_files(scattered) != {before}
    assert compact(scattered).json()["result"] == "nothing-to-do"


def test_row_changes_pass_in_either_order(scattered):
    read = scattered.version()
    assert compact(scattered).status_code == 200

    late = scattered.delete({NAMES[0]: [2, 3]}, read_version=read)
    assert late.status_code == 200, late.text
    assert cardinalities(scattered)[NAMES[0]] == 3
    assert errors_found(scattered) == 0


def test_a_vector_that_others_replaced_meanwhile_is_written_as_it_is_then(scattered, monkeypatch):
    service = scattered.client.service
    commit = service.commits.commit
    once = iter([lambda: scattered.delete({NAMES[0]: [5], NAMES[1]: range(10)})])

    def after_another(table, changes):
        if changes.repacked:
            for delete in once:
                assert delete().status_code == 200
        return commit(table, changes)

    monkeypatch.setattr(service.vector_compaction._commits, "commit", after_another)
    assert compact(scattered).json()["result"] == "committed"
    left = cardinalities(scattered)
    assert left[NAMES[0]] == 3
    assert NAMES[1] not in left
    assert errors_found(scattered) == 0


@pytest.mark.parametrize("seed", range(5))
def test_random_deletes_and_compactions_lose_no_row(scattered, seed):
    draw = random.Random(seed)
    gone = {name: {1, 2} for name in NAMES}
    versions = [scattered.version()]
    for _ in range(25):
        if draw.random() < 0.3:
            assert compact(scattered).status_code == 200
        else:
            rows = {name: draw.sample(range(10), draw.randint(1, 2)) for name in draw.sample(NAMES, 3)}
            rows = {name: found for name, found in rows.items() if len(gone[name] | set(found)) < 10}
            if rows:
                answer = scattered.delete(rows, read_version=draw.choice(versions[-4:]))
                assert answer.status_code == 200, answer.text
                for name, found in rows.items():
                    gone[name] |= set(found)
        versions.append(scattered.version())
    assert {path: count for path, count in cardinalities(scattered).items() if count} == {
        name: len(rows) for name, rows in gone.items()
    }
    assert errors_found(scattered) == 0


def test_a_vector_that_cannot_be_read_is_named_and_nothing_is_committed(scattered, error):
    version = scattered.version()
    broken = next(path for path in scattered.folder.rglob("deletion_vector_*.bin"))
    broken.write_bytes(b"\x01broken")
    scattered.client.service.commits.vectors.__init__()

    told = error(compact(scattered))

    assert told["code"].startswith(("CORRUPT", "INVALID", "DELETION_VECTOR", "TRUNCATED"))
    assert scattered.version() == version


def test_a_table_that_writes_no_vectors_is_refused(scattered, error):
    changes = [{"change": "set-properties", "properties": {"delta.enableDeletionVectors": "false"}}]
    scattered.client.post(f"{scattered.url}/alter", json={"changes": changes}).raise_for_status()
    for body in ({}, {"dry-run": True}):
        told = error(compact(scattered, **body))
        assert told["type"] == "InvalidTableChange"
        assert "purge()" in told["message"]


def test_vectors_that_are_turned_off_meanwhile_are_refused_alike(scattered, error, monkeypatch):
    changes = [{"change": "set-properties", "properties": {"delta.enableDeletionVectors": "false"}}]
    service = scattered.client.service
    commit = service.commits.commit
    once = iter([lambda: scattered.client.post(f"{scattered.url}/alter", json={"changes": changes})])

    def after_another(table, wanted):
        if wanted.repacked:
            for alter in once:
                assert alter().status_code == 200
        return commit(table, wanted)

    monkeypatch.setattr(service.vector_compaction._commits, "commit", after_another)
    told = error(compact(scattered))
    assert told["type"] == "InvalidTableChange"
    assert "purge()" in told["message"]


def test_from_python(lake, tmp_path):
    import pyarrow as pa

    table = lake.create_table(tmp_path / "t", "id long")
    for number in range(3):
        table.append(pa.table({"id": range(number * 10, number * 10 + 10)}))
    for number in range(3):
        table.delete(f"id = {number * 10}")
    assert table.optimize.deletion_vectors(dry_run=True)["new-vector-files"] <= 1
    table.optimize.deletion_vectors()
    assert table.count() == 27
