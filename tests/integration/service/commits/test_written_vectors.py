"""Deletion vectors written by an engine, at positions assigned by the service."""

import os
import time

import pytest
from pyroaring import BitMap64

from delvec_kernel.deletion_vectors.deletion_vector import FILE_VERSION, Descriptor, encode, frame
from delvec_storage.files import read_deletion_vectors


class Engine:
    """What an engine does that writes its own deletion vectors."""

    def __init__(self, table):
        self.table = table

    def write(self, rows, *, damage=None):
        """Write one deletion vector and return the descriptor that says where."""
        payload = encode(BitMap64(rows))
        answer = self.table.client.post(f"{self.table.url}/deletion-vectors", json={"sizes": [len(payload)]})
        assert answer.status_code in (200, 201), answer.text
        (place,) = answer.json()["deletion-vectors"]
        data = bytearray(FILE_VERSION + frame(payload))
        if damage is not None:
            data = damage(data)
        if data is not None:
            (self.table.folder / place["file"]).write_bytes(data)
        return {**place, "cardinality": len(set(rows))}

    def delete(self, path, descriptor, **request):
        return self.table.commit(
            operation="DELETE",
            predicate="id = 1",
            row_deletes=[{"path": path, "deletion-vector": descriptor}],
            **request,
        )


@pytest.fixture
def engine(filled):
    return Engine(filled)


def live_vector(table, version):
    (add,) = [action["add"] for action in table.actions(version) if "add" in action]
    return add["deletionVector"]


def rows_of(table, version):
    descriptor = Descriptor.from_json(live_vector(table, version))
    location = f"file://{table.folder}"
    return set(read_deletion_vectors(location, [("a", descriptor)], table="people", version=version)["a"])


def ledger_state(table, descriptor):
    table_id = table.client.get(table.url).json()["id"]
    path = Descriptor.from_json(descriptor).relative_path()
    return {file.path: file.state for file in table.client.service.ledger.files(table_id)}.get(path)


def test_a_written_vector_is_committed_as_it_is(filled, engine):
    descriptor = engine.write([1, 2])

    answer = engine.delete("a.parquet", descriptor)

    assert answer.status_code == 200, answer.text
    assert answer.json()["operation-metrics"]["numDeletedRows"] == 2
    assert live_vector(filled, 2).items() <= descriptor.items()
    assert len(list(filled.folder.rglob("*.bin"))) == 1
    assert ledger_state(filled, descriptor) == "committed"


def test_a_written_vector_holds_the_rows_of_the_one_before(filled, engine, error):
    filled.delete({"a.parquet": [0, 3]})

    refused = engine.delete("a.parquet", engine.write([1, 3]))
    taken = engine.delete("a.parquet", engine.write([0, 1, 3]))

    assert refused.status_code == 400
    assert error(refused)["type"] == "InvalidDeletionVector"
    assert "lacks 1 of the 2 rows" in error(refused)["message"]
    assert taken.json()["version"] == 3
    assert taken.json()["operation-metrics"]["numDeletedRows"] == 1
    assert rows_of(filled, 3) == {0, 1, 3}


def test_a_written_vector_of_a_file_that_a_winner_changed_is_merged(filled, engine):
    filled.delete({"a.parquet": [5]}, read_version=1)
    descriptor = engine.write([1, 2])

    answer = engine.delete("a.parquet", descriptor, read_version=1)

    assert answer.json()["result"] == "rebased"
    assert answer.json()["operation-metrics"]["numDeletedRows"] == 2
    assert live_vector(filled, 3) != descriptor
    assert rows_of(filled, 3) == {1, 2, 5}
    assert ledger_state(filled, descriptor) == "open"


def test_what_a_written_vector_must_hold_is_what_was_gone_when_it_was_read(filled, engine, error):
    filled.delete({"a.parquet": [0]})
    filled.delete({"a.parquet": [5]})

    refused = engine.delete("a.parquet", engine.write([1]), read_version=2)
    taken = engine.delete("a.parquet", engine.write([0, 1]), read_version=2)

    assert error(refused)["type"] == "InvalidDeletionVector"
    assert taken.json()["result"] == "rebased"
    assert rows_of(filled, 4) == {0, 1, 5}


def test_a_written_vector_of_all_rows_takes_the_file_along(filled, engine):
    answer = engine.delete("b.parquet", engine.write(range(5)))

    assert answer.json()["operation-metrics"]["numRemovedFiles"] == 1
    assert [next(iter(action)) for action in filled.actions(2)] == ["commitInfo", "remove"]


def cut(data):
    return data[:-3]


def other_checksum(data):
    data[-1] ^= 1
    return data


def other_size(data):
    data[4] ^= 1
    return data


def other_magic(data):
    payload = b"xxxx" + bytes(data[9:-4])
    return bytearray(FILE_VERSION + frame(payload))


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (lambda _: None, "FileNotInStorage"),
        (cut, "FileSizeMismatch"),
        (other_size, "FileSizeMismatch"),
        (other_checksum, "InvalidDeletionVector"),
        (other_magic, "InvalidDeletionVector"),
    ],
    ids=["missing", "cut", "size", "checksum", "magic"],
)
def test_a_vector_that_is_not_what_it_should_be_is_refused(filled, engine, error, damage, kind):
    answer = engine.delete("a.parquet", engine.write([1, 2], damage=damage))

    assert answer.status_code == 400, answer.text
    assert error(answer)["type"] == kind
    assert "'a.parquet'" in error(answer)["message"]
    assert filled.version() == 1


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"cardinality": 3}, "InvalidDeletionVector"),
        ({"offset": None}, "InvalidDeletionVector"),
        ({"offset": 0}, "InvalidDeletionVector"),
        ({"offset": 2}, "FileSizeMismatch"),
        ({"storageType": "p", "pathOrInlineDv": "file:///etc/passwd"}, "InvalidDeletionVector"),
        ({"storageType": "i", "pathOrInlineDv": "0rJua"}, "InvalidDeletionVector"),
        ({"pathOrInlineDv": "../../x" + "0" * 20}, "InvalidDeletionVector"),
        ({"pathOrInlineDv": "short"}, "InvalidDeletionVector"),
    ],
)
def test_a_descriptor_that_lies_is_refused(filled, engine, error, change, kind):
    answer = engine.delete("a.parquet", {**engine.write([1, 2]), **change})

    assert answer.status_code == 400, answer.text
    assert error(answer)["type"] == kind
    assert filled.version() == 1


def test_a_vector_that_was_written_long_ago_is_refused(filled, engine, error):
    descriptor = engine.write([1])
    long_ago = time.time() - 3700
    os.utime(filled.folder / Descriptor.from_json(descriptor).relative_path(), (long_ago, long_ago))

    answer = engine.delete("a.parquet", descriptor)

    assert error(answer)["type"] == "FileTooOld"
    assert filled.version() == 1


def test_a_commit_with_a_written_vector_that_is_sent_again_gets_the_first_answer(filled, engine):
    """Even if the deletion vector was replaced since, and its file deleted."""
    descriptor = engine.write([1])
    first = engine.delete("a.parquet", descriptor, transaction_id="x", read_version=1)
    filled.delete({"a.parquet": [2]})
    (filled.folder / Descriptor.from_json(descriptor).relative_path()).unlink()

    again = engine.delete("a.parquet", descriptor, transaction_id="x", read_version=1)

    assert again.json() == first.json()
    assert filled.version() == 3


def test_rows_beyond_the_file_are_refused(filled, engine, error):
    answer = engine.delete("a.parquet", engine.write([1, 10]))

    assert error(answer)["type"] == "RowIndexOutOfRange"
    assert filled.version() == 1
