"""Logical files that are live by mistake, as tracked over a log."""

from pyroaring import BitMap64

from delvec_kernel.actions.actions import AddFile, RemoveFile
from delvec_kernel.deletion_vectors.deletion_vector import inline
from delvec_maintenance.checks.stray_files import Origin, StrayFiles


def add(*rows):
    return AddFile("f", {}, 1, 1, deletion_vector=inline(BitMap64(rows)) if rows else None)


def remove(*rows):
    return RemoveFile("f", deletion_vector=inline(BitMap64(rows)) if rows else None)


def followed(*steps):
    """Apply (add, remove) pairs of one path, version by version."""
    strays, live = StrayFiles(), None
    for version, (added, removed) in enumerate(steps):
        strays.follow("f", added, removed, live, Origin(version, f"op {version}"), writes_rows=False)
        if added is not None:
            live = added
        elif removed is not None and live is not None and removed.deletion_vector == live.deletion_vector:
            live = None
    return strays


def test_proper_removes_leave_no_strays():
    strays = followed((add(), None), (add(1), remove()), (None, remove(1)))

    assert "f" not in strays


def test_an_add_without_a_remove_leaves_the_earlier_file_live():
    strays = followed((add(), None), (add(1), remove()), (add(1, 2), None))

    (stray,) = strays.superseded["f"].values()
    assert (stray.add, stray.by) == (add(1), add(1, 2))
    assert (stray.origin.version, stray.at.version, stray.at.operation) == (1, 2, "op 2")
    assert strays.is_superseded("f", remove(1))
    assert not strays.is_superseded("f", remove(1, 2))


def test_a_later_remove_of_the_earlier_file_fixes_it():
    assert "f" not in followed((add(), None), (add(1), None), (None, remove()))


def test_adding_the_earlier_file_again_leaves_the_other_live():
    strays = followed((add(), None), (add(1), None), (add(), None))

    assert [stray.add for stray in strays.superseded["f"].values()] == [add(1)]


def test_a_remove_with_another_deletion_vector_is_missed_until_the_file_is_removed():
    steps = [(add(), None), (add(1), remove()), (None, remove())]

    missed = followed(*steps).missed["f"]
    assert (missed.add, missed.origin.version, missed.at.version, missed.changed_in) == (add(1), 1, 2, None)
    assert followed(*steps, (add(1, 2), remove(1))).missed["f"].changed_in == 3
    assert "f" not in followed(*steps, (None, remove(1)))
