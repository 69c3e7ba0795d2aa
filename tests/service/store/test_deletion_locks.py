"""Who waits for whom: files that VACUUM deletes, and files that a RESTORE brings back."""

import threading

import pytest

from delvec_service.store.deletion_locks import deletion_lock, restore_lock

TABLE = "file:///tables/people"


def enters(lock, location=TABLE):
    """Return whether another thread gets a lock now."""
    entered, left = threading.Event(), threading.Event()

    def enter():
        with lock(location):
            entered.set()
        left.set()

    threading.Thread(target=enter, daemon=True).start()
    return entered.wait(0.3), left


@pytest.mark.parametrize(
    ("held", "wanted", "together"),
    [
        (restore_lock, restore_lock, True),
        (restore_lock, deletion_lock, False),
        (deletion_lock, restore_lock, False),
        (deletion_lock, deletion_lock, False),
    ],
)
def test_only_restores_work_on_a_table_together(held, wanted, together):
    with held(TABLE):
        entered, left = enters(wanted)
        assert entered is together
    assert left.wait(10)


def test_other_tables_are_not_held_up():
    with deletion_lock(TABLE):
        assert enters(deletion_lock, "file:///tables/orders")[0]


def test_an_error_gives_the_lock_back():
    with pytest.raises(ZeroDivisionError), deletion_lock(TABLE):
        _ = 1 / 0
    assert enters(restore_lock)[0]
