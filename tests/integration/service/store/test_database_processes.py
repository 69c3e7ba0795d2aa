"""Several processes use one SQLite file, as programs with a service of their own do by default."""

import subprocess
import sys

from sqlalchemy import text

from delvec_service.store.database import Database

_OTHER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(connection.execute("SELECT count(*) FROM names").fetchone()[0])
connection.close()
"""


def test_another_process_keeps_the_journal_of_one_that_has_opened_a_second_connection(tmp_path):
    path = tmp_path / "service.db"
    database = Database(f"sqlite:///{path}")
    with database.write() as session:
        session.execute(text("CREATE TABLE names (name TEXT)"))
        session.execute(text("INSERT INTO names VALUES ('orders')"))
    # Two at once, so that one of them is a new connection.
    with database.read() as first, database.read() as second:
        for session in (first, second):
            assert session.execute(text("SELECT count(*) FROM names")).scalar() == 1

        # SQLite removes the journal when the last connection is closed. The other process must see that this one has two.
        other = subprocess.run(
            [sys.executable, "-c", _OTHER, str(path)], check=True, capture_output=True, text=True
        )
        assert other.stdout.strip() == "1"
        assert (tmp_path / "service.db-wal").exists()
    database.close()
