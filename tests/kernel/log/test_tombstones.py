"""Which files of deletion vectors have no tombstone of their own: for those who know nothing of deletion vectors."""

import uuid

import pytest

from delvec_kernel.actions.action_json import LogFile
from delvec_kernel.actions.actions import RemoveFile
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, encode_uuid, file_name
from delvec_kernel.log.tombstones import Changes, vectors_without_own
from delvec_kernel.snapshot.replay import Commit

LOCATION = "file:///data/people"
ONE, TWO = uuid.UUID(int=1), uuid.UUID(int=2)


def vector(identifier, *, prefix="", offset=1):
    return Descriptor("u", encode_uuid(prefix, identifier), offset, 40, 1)


def at(url):
    return Descriptor("p", url, 1, 40, 1)


def lacking(*removed):
    removes = [RemoveFile(f"{number}.parquet", 1, deletion_vector=one) for number, one in enumerate(removed)]
    return lacking_after(removes)


def lacking_after(removes):
    commit = Commit(LogFile("people", 0, "0.json"), removes)
    return vectors_without_own([Changes.of([commit], LOCATION).tombstones(0)], LOCATION)


def test_a_file_of_many_vectors_is_named_once():
    assert lacking(vector(ONE), vector(ONE, offset=60), None) == [file_name(ONE)]


def test_a_prefix_is_a_folder():
    assert lacking(vector(ONE, prefix="a%b")) == [f"a%25b/{file_name(ONE)}"]


@pytest.mark.parametrize(
    ("url", "path"),
    [
        (f"{LOCATION}/deep/x.bin", "deep/x.bin"),
        ("file:/data/people/y.bin", "y.bin"),
        ("file:///data/others/x.bin", None),
        ("unknown://host/x.bin", None),
    ],
)
def test_of_absolute_paths_those_in_the_table_count(url, path):
    assert lacking(at(url)) == ([] if path is None else [path])


def test_what_is_in_the_log_itself_has_no_file():
    assert lacking(Descriptor("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", None, 40, 6)) == []


def test_those_that_have_one_are_left_out():
    removes = [
        RemoveFile("a.parquet", 1, deletion_vector=vector(ONE)),
        RemoveFile("b.parquet", 1, deletion_vector=vector(TWO)),
        RemoveFile(file_name(TWO), 1, data_change=False),
    ]
    assert lacking_after(removes) == [file_name(ONE)]
