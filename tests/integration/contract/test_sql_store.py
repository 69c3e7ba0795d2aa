"""Registry, ledger and migrations behave the same on SQLite and PostgreSQL."""

import ast
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import select, text, update
from tests.support.schema_template import drop_schema

from delvec_errors import (
    AmbiguousTable,
    BadRequest,
    ServiceUnavailable,
    TableAlreadyExists,
    TableNotFound,
)
from delvec_kernel.locations import table_id
from delvec_service.store.database import Database, _run_alembic, migrations_directory
from delvec_service.store.ledger import Ending, Ledger, LedgerFile
from delvec_service.store.models import FIRST_REVISION, REVISION, Base, LedgerFileRow, TransactionRow
from delvec_service.store.own_commits import OwnCommit
from delvec_service.store.registry import Registry

pytestmark = pytest.mark.usefixtures("alembic")


def test_migrations_match_the_models(url):
    database = Database(url)
    with pytest.raises(ServiceUnavailable, match="schema revision None"):
        database.check()

    database.migrate()
    database.migrate()
    database.check()

    with database._engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    database.close()


@contextmanager
def newer_schema(database, *, oldest):
    """Pretend that revision 9999 has migrated the database and supports revisions from ``oldest`` on."""
    with database._engine.begin() as connection:
        was = connection.execute(text("SELECT oldest FROM schema_compatibility")).scalar()
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        connection.execute(text("UPDATE schema_compatibility SET oldest = :oldest"), {"oldest": oldest})
    yield
    with database._engine.begin() as connection:  # the server outlives the test
        connection.execute(text("UPDATE alembic_version SET version_num = :was"), {"was": REVISION})
        connection.execute(text("UPDATE schema_compatibility SET oldest = :was"), {"was": was})


def test_a_newer_databases_version_is_refused_with_a_clear_error(url):
    database = Database(url)
    database.migrate()
    with newer_schema(database, oldest="9998"):
        for refused in (database.migrate, database.check):
            with pytest.raises(ServiceUnavailable, match=r"revision 9999.*upgrade Delvec"):
                refused()
    database.close()


def test_a_development_versions_schema_is_refused_and_stays(url):
    database = Database(url)
    database.migrate()
    with database._engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0012'"))

    for refused in (database.migrate, database.check):
        with pytest.raises(
            ServiceUnavailable,
            match=rf"revision 0012.*upgrades from {FIRST_REVISION}.*Move the database away.*database backup",
        ) as caught:
            refused()
        assert f"({database._engine.url.render_as_string()})" in str(caught.value)
    assert database.revision() == "0012"
    drop_schema(database)  # the server outlives the test
    database.close()


def test_a_database_at_the_first_revision_stays_as_it_is(url):
    database = Database(url)
    with database._engine.begin() as connection:
        _run_alembic(connection, FIRST_REVISION)
    with newer_schema(database, oldest="0009"):  # as development versions wrote it
        with database._engine.begin() as connection:
            connection.execute(
                text("UPDATE alembic_version SET version_num = :first"), {"first": FIRST_REVISION}
            )
            connection.execute(
                text(
                    "INSERT INTO tables (id, name, location, created_at) VALUES (:id, 'people', 'file:///a', '2026-01-01')"
                ),
                {"id": table_id("file:///a")},
            )

        database.migrate()
        database.check()

        assert Registry(database).get("people").location == "file:///a"
    database.close()


def test_replicas_of_the_previous_version_run_and_start_on_a_compatible_schema(url):
    database = Database(url)
    database.migrate()
    with newer_schema(database, oldest=REVISION):
        database.check()
        database.migrate()
        with database._engine.connect() as connection:
            assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "9999"
    database.close()


_ADDING = {"create_table", "create_index", "add_column"}


def test_migrations_only_add_or_name_the_oldest_compatible_version():
    scripts = sorted(migrations_directory().glob("versions/*.py"))
    for script in scripts:
        tree = ast.parse(script.read_text())
        names = {node.targets[0].id for node in tree.body if isinstance(node, ast.Assign)}
        revision = next(ast.literal_eval(n.value) for n in tree.body if isinstance(n, ast.Assign))
        if "oldest_compatible" in names or revision == FIRST_REVISION:
            continue
        upgrade = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "upgrade")
        for call in (n for n in ast.walk(upgrade) if isinstance(n, ast.Call)):
            name = getattr(call.func, "attr", None)
            if getattr(getattr(call.func, "value", None), "id", None) != "op":
                continue
            assert name in _ADDING, f"{script.name}: op.{name} needs oldest_compatible (docs/upgrading.md)"
            if name == "add_column":
                given = {keyword.arg: keyword.value for keyword in call.args[1].keywords}
                nullable = "nullable" not in given or given["nullable"].value is True
                assert nullable or "server_default" in given, f"{script.name}: older replicas leave it out"
    assert scripts


def test_one_process_at_a_time_runs_exclusive_work(postgres_url):
    one, two = Database(postgres_url), Database(postgres_url)
    try:
        with one.alone("checkpoint of a") as first, two.alone("checkpoint of a") as second:
            assert (first, second) == (True, False)
            with two.alone("checkpoint of b") as other:
                assert other
        with two.alone("checkpoint of a") as again:
            assert again
        with pytest.raises(KeyError), one.alone("checkpoint of a"):
            raise KeyError
        with two.alone("checkpoint of a") as again:
            assert again
    finally:
        one.close()
        two.close()


def test_an_unreachable_database_does_not_block_exclusive_work(tmp_path):
    database = Database(f"postgresql://delvec@/postgres?host={tmp_path}")
    with database.alone("checkpoint of a") as nobody_to_ask:
        assert nobody_to_ask
    database.close()


def test_the_models_name_the_newest_revision():
    config = Config()
    config.set_main_option("script_location", str(migrations_directory()))
    config.set_main_option("path_separator", "os")

    assert ScriptDirectory.from_config(config).get_heads() == [REVISION]


def test_several_processes_may_migrate_at_once(url):
    if url == "sqlite://":
        pytest.skip("a database in memory has one process")
    script = f"from delvec_service.store.database import Database\nDatabase({url!r}).migrate()"

    processes = [subprocess.Popen([sys.executable, "-W", "error", "-c", script]) for _ in range(4)]

    assert [process.wait(120) for process in processes] == [0, 0, 0, 0]


def test_one_of_many_registers_a_location(database):
    registry = Registry(database)
    start = threading.Barrier(8)

    def register(_):
        start.wait()
        return registry.add("file:///data/people", None, "people")

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(register, range(8)))

    assert sum(created for _, created in answers) == 1
    assert len({record for record, _ in answers}) == 1
    assert answers[0][0].name == "people"
    assert answers[0][0].id == table_id("file:///data/people")


def test_the_tables_around_a_location_are_those_at_above_and_below_it_in_any_letter_case(database):
    registry = Registry(database)
    near = ("lake/a", "lake/a/b", "lake/A/b/C", "lake/a/b/c/d", "lake/a/b/c%5F/d", "LAKE/a/b/c")
    far = ("lake/x", "lake/a/bc", "lake/a/b_c", "lake/a/b/cd", "lake/a/b/c_", "other/lake/a/b/c/d")
    for place in (*near, *far):
        registry.add(f"s3://{place}", None, "t")
    Registry(database, "s3://warehouse").add("s3://lake/a/b/c", None, "t")

    found = registry.around("s3://lake/a/b/c", ["s3://lake/a/b", "s3://lake/a", "s3://lake"])
    below = registry.around("s3://lake/a/b/c%5F", [])

    assert {record.location.removeprefix("s3://") for record in found} == set(near) - {"lake/a/b/c%5F/d"}
    assert [record.location for record in below] == ["s3://lake/a/b/c%5F/d"]


def test_a_folder_name_resolves_while_it_is_unambiguous(database):
    registry = Registry(database)
    first, _ = registry.add("file:///a/people", None, "people")
    assert registry.get("people") == first

    second, created = registry.add("file:///b/people", None, "people")

    assert created
    assert second.name == "people"
    with pytest.raises(AmbiguousTable, match="file:///a/people, file:///b/people"):
        registry.get("people")
    assert registry.get(second.id) == registry.at("file:///b/people") == second
    renamed = registry.rename(second, "persons")
    assert (renamed.id, renamed.name) == (second.id, "persons")
    assert registry.get("people") == first
    assert registry.get("persons") == renamed


def test_a_given_name_belongs_to_one_table(database):
    registry = Registry(database)
    registry.add("file:///a", "people", "a")

    with pytest.raises(
        TableAlreadyExists, match=r"'people' is already the name of the table at file:///a, .* file:///b"
    ):
        registry.add("file:///b", "people", "b")
    assert registry.at("file:///b") is None
    with pytest.raises(TableAlreadyExists, match="already registered as 'people'"):
        registry.add("file:///a", "persons", "a")
    assert registry.add("file:///a", "people", "a")[1] is False
    assert registry.add("file:///a", None, "a")[0].name == "people"
    # A folder of that name does not change it.
    registry.add("file:///c/people", None, "people")
    assert registry.get("people").location == "file:///a"


def test_a_folders_name_is_not_given_to_another_table(database):
    registry = Registry(database)
    registry.add("file:///a/people", None, "people")

    with pytest.raises(
        TableAlreadyExists, match=r"default name \(from its folder\) of the table at file:///a/people"
    ):
        registry.add("file:///b", "people", "b")
    assert registry.add("file:///a/people", "people", "people")[0].is_named


def test_names_are_scoped_to_a_warehouse(database):
    one, two = Registry(database, "file:///one"), Registry(database, "file:///two")
    one.add("file:///one/sales", "sales", "sales")
    one.add("file:///shared", None, "shared")

    with pytest.raises(TableNotFound):
        two.get("sales")
    two.add("file:///two/sales", "sales", "sales")
    two.add("file:///shared", "common", "shared")

    assert one.get("sales").location == "file:///one/sales"
    assert two.get("sales").location == "file:///two/sales"
    assert one.get("shared").id == two.get("common").id
    two.remove(table_id("file:///shared"))
    assert one.get("shared").location == "file:///shared"
    assert Registry(database).page() == []


def test_tables_are_paged_by_name_and_unregistered(database):
    registry = Registry(database)
    for name in ("c", "a", "b"):
        registry.add(f"file:///{name}", None, name)

    assert [record.name for record in registry.page(limit=2)] == ["a", "b"]
    assert [record.name for record in registry.page(after=("b", table_id("file:///b")))] == ["c"]
    registry.remove(table_id("file:///b"))
    assert [record.name for record in registry.page()] == ["a", "c"]
    with pytest.raises(TableNotFound, match="Table 'b'"):
        registry.get("b")
    with pytest.raises(TableNotFound):
        registry.get("a\0")


def test_times_are_returned_in_utc(database):
    record, _ = Registry(database).add("file:///a", None, "a")

    assert Registry(database).get("a") == record
    assert record.created_at.utcoffset().total_seconds() == 0


def test_the_ledger_knows_files_before_and_after(database):
    ledger = Ledger(database)
    ledger.open("t", "x", "DELETE")
    ledger.open("t", "x", "WRITE")  # known already: the first entry stays
    ledger.announce("t", "x", "DELETE", ["a.bin", "b.bin"])

    assert ledger.files("t") == [
        LedgerFile("a.bin", "x", "deletion-vector", "open"),
        LedgerFile("b.bin", "x", "deletion-vector", "open"),
    ]
    ledger.close("t", "x", "DELETE", "committed", version=7, written=["b.bin"])

    assert [file.state for file in ledger.files("t", "x")] == ["open", "committed"]
    known = ledger.transaction("t", "x")
    assert (known.operation, known.state, known.version) == ("DELETE", "committed", 7)
    assert ledger.transaction("other table", "x") is None


def test_committed_files_stay_committed(database):
    ledger = Ledger(database)
    ledger.close("t", "x", "WRITE", "committed", version=3)

    ledger.close("t", "x", "WRITE", "failed")

    assert ledger.transaction("t", "x").version == 3


def test_what_ended_long_ago_is_deleted_but_not_what_may_still_be_asked_for(database):
    ledger, day = Ledger(database), timedelta(days=1)
    ledger.close("t", "first", "DELETE", "nothing-to-do")

    def transact(transaction, table="t", *, outcome=None, version=None, own=None):
        ledger.announce(table, transaction, "DELETE", [f"{transaction}.bin"])
        if outcome is not None:
            ending = Ending(transaction, "DELETE", outcome, version, [f"{transaction}.bin"])
            ledger.close_all(table, [ending], own)

    def left(table="t"):
        ids = [name for name in names if ledger.transaction(table, name) is not None]
        return ids, [file.transaction_id for file in ledger.files(table)]

    def age(by):
        with database.write() as session:
            for row in (TransactionRow, LedgerFileRow):
                for key, at in session.execute(select(row.__table__.primary_key.columns[1], row.created_at)):
                    session.execute(
                        update(row)
                        .where(row.__table__.primary_key.columns[1] == key)
                        .values(created_at=at - by)
                    )

    names = ["a", "b", "c", "d", "e"]
    transact("a", outcome="committed", version=3)
    transact("b", outcome="conflict")
    transact("c")
    transact("d", outcome="unknown")
    transact("e", outcome="committed", version=4, own=OwnCommit(4, "e", 100, "m"))
    ledger.announce("t", "a", "DELETE", ["lost-attempt.bin"])
    age(day / 2)
    ledger.sweep()
    assert left() == (names, ["a", "b", "c", "d", "e", "a"])

    age(day)
    transact("f", outcome="committed", version=5)
    names.append("f")
    Ledger(database, seconds=3 * 86400).sweep()
    assert left()[0] == names
    ledger.sweep()
    assert left() == (["c", "d", "e", "f"], ["c", "d", "f"])  # version 4 is watched

    age(30 * day)
    ledger = Ledger(database)
    transact("new")
    names.append("new")
    transact("done", outcome="nothing-to-do")  # the first ending that a process records deletes old rows, too
    assert left() == (["e", "new"], ["done", "new"])


def test_tables_directly_in_a_namespace_and_namespaces_are_asked_for(database):
    registry = Registry(database)
    names = ["a", "b", "s.a", "s.b", "s.t.a", "s_t.a", "sx.a", "default.a", "é.ü.x-y"]
    for name in names:
        registry.add(f"file:///{name}", name, "folder")
    registry.add("file:///folder", None, "unnamed")
    Registry(database, "file:///another").add("file:///z", "z.z", "z")

    def direct(namespace, after=("", "")):
        return [each.name for each in registry.page(after, 2, namespace, directly=True)]

    assert direct(None) == ["a", "b"]
    assert direct(None, ("b", "z")) == ["unnamed"]
    assert direct("s") == ["s.a", "s.b"]
    assert direct("s", ("s.a", "z")) == ["s.b"]
    assert direct("s.t") == ["s.t.a"]
    assert direct("é") == []
    assert direct("é.ü") == ["é.ü.x-y"]
    assert sorted(registry.namespaces()) == ["", "default", "s", "s.t", "s_t", "sx", "é.ü"]
    assert sorted(registry.namespaces("s")) == ["s", "s.t"]
    assert registry.namespaces("none") == []


def test_a_table_that_is_unregistered_takes_its_ledger_along(database):
    registry, ledger = Registry(database), Ledger(database)
    records = [registry.add(f"file:///{name}", name, name)[0] for name in ("one", "two")]
    for record in records:
        ledger.announce(record.id, "x", "DELETE", ["a.bin"])

    registry.remove(records[0].id)

    assert [ledger.transaction(record.id, "x") is None for record in records] == [True, False]
    assert [len(ledger.files(record.id)) for record in records] == [0, 1]


def test_many_writers_wait_for_each_other(database):
    ledger = Ledger(database)

    def transact(number):
        for step in range(5):
            ledger.announce("t", f"{number}-{step}", "DELETE", [f"{number}-{step}.bin"])
            ledger.close("t", f"{number}-{step}", "DELETE", "committed", version=step)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(transact, range(16)))

    assert len(ledger.files("t")) == 80


def test_lost_database_tables_are_recreated(database):
    registry = Registry(database)
    registry.add("file:///a", None, "a")
    drop_schema(database)

    with pytest.raises(ServiceUnavailable, match="has been created again"):
        registry.get("a")

    assert registry.page() == []
    assert registry.add("file:///a", None, "a")[0].id == table_id("file:///a")


def test_a_database_file_deleted_under_load_is_recreated(tmp_path):
    path = tmp_path / "store.db"
    database = Database(f"sqlite:///{path}")
    database.migrate()
    registry = Registry(database)
    registry.add("file:///a", None, "a")

    for leftover in tmp_path.glob("store.db*"):
        leftover.unlink()

    for _ in range(3):
        try:
            registry.add("file:///b", None, "b")
        except ServiceUnavailable:
            continue
    assert [record.name for record in registry.page()] == ["b"]
    assert path.exists()
    database.close()


@pytest.mark.parametrize("bad", ["mysql://host/db", "not a url", "", "oracle://scott:tiger@host"])
def test_other_databases_are_refused_without_showing_the_url(bad):
    with pytest.raises(BadRequest, match="must be for SQLite") as caught:
        Database(bad)
    assert "tiger" not in str(caught.value)


@pytest.mark.parametrize("use", ["check", "read", "write", "connection", "transaction"])
def test_an_unreachable_database_is_not_an_internal_error(use):
    database = Database("postgresql://delvec:hunter2@127.0.0.1:9/none")

    with pytest.raises(ServiceUnavailable, match="does not answer") as caught:
        _use(database, use)
    assert "hunter2" not in str(caught.value)
    database.close()


def _use(database, use):
    if use == "check":
        database.check()
        return
    with getattr(database, use)() as opened:
        if use == "read":
            opened.connection()  # sessions connect on first use
