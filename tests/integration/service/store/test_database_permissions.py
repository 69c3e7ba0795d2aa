"""A new SQLite file is its owner's alone, whatever the umask."""

import os
import stat

import pytest

from delvec_service.store.database import Database


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_nobody_else_reads_the_database(tmp_path, open_umask):
    path = tmp_path / "new" / "service.db"
    database = Database(f"sqlite:///{path}")
    database.migrate()
    files = {file.name: mode(file) for file in path.parent.iterdir()}
    database.close()

    assert files["service.db"] == 0o600
    assert set(files.values()) == {0o600}
    assert mode(path.parent) == 0o700


def test_a_file_that_was_deleted_is_created_as_private(tmp_path, open_umask):
    path = tmp_path / "service.db"
    database = Database(f"sqlite:///{path}")
    database.migrate()
    for file in tmp_path.iterdir():
        file.unlink()
    database.migrate()
    database.close()

    assert mode(path) == 0o600


def test_the_permissions_of_an_existing_file_stay(tmp_path):
    path = tmp_path / "service.db"
    path.touch(0o640)
    path.chmod(0o640)
    database = Database(f"sqlite:///{path}")
    database.migrate()
    database.close()

    assert mode(path) == 0o640


def test_a_link_to_a_missing_file_creates_a_private_one(tmp_path, open_umask):
    (tmp_path / "link.db").symlink_to(tmp_path / "service.db")
    database = Database(f"sqlite:///{tmp_path / 'link.db'}")
    database.migrate()
    database.close()

    assert mode(tmp_path / "service.db") == 0o600
