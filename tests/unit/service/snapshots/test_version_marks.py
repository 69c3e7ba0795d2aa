"""Version marks: whether two of them may belong to the same file."""

from delvec_service.snapshots.version_marks import is_same


def test_a_mark_is_told_from_one_of_another_size_time_or_content():
    assert is_same("1f-18c", "1f-18c")
    assert not is_same("1f-18c", "20-18c")
    assert not is_same("1f-18c", "1f-18d")
    assert not is_same("1f-18c-aa", "1f-18c-bb")


def test_what_only_one_of_two_knows_tells_nothing():
    assert is_same("1f-18c-aa", "1f-18c")
    assert is_same("1f-18c", "1f-18c-aa")
    assert not is_same("1f-18c-aa", "1f-18d")
