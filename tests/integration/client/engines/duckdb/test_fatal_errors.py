"""A damaged file, which in some versions of DuckDB ends its database, costs one command, which names the file."""

import duckdb
import pyarrow as pa
import pytest
from tests.support.damaged_files import end_duckdb

import delvec
from delvec_engines.duckdb import DuckDBEngine, statement_runner
from delvec_errors import CorruptTable, EngineUnavailable

ROWS = pa.table({"id": range(10), "name": ["n"] * 10})


@pytest.fixture
def lake():
    with delvec.connect() as connection:
        yield connection


def table(lake, folder, *, damaged=None, engine=None):
    """Return a table of three files, and the path of the damaged one."""
    lake.create_table(folder, ROWS.schema).append(ROWS.slice(0, 3))
    made = lake.table(str(folder), engine=engine)
    made.append(ROWS.slice(3, 3))
    made.append(ROWS.slice(6))
    if damaged is None:
        return made, None
    path = sorted(made.plan()[0].files["path"].to_pylist())[damaged]
    end_duckdb(folder / path)
    return made, path


COMMANDS = {
    "read": lambda table: table.to_arrow(),
    "delete": lambda table: table.delete("id % 2 = 0"),
    "update": lambda table: table.update({"id": "id + 1"}, "id % 2 = 0"),
    "merge": lambda table: (
        table.merge(ROWS, "t.id = s.id", source_alias="s", target_alias="t")
        .when_matched_update_all()
        .execute()
    ),
    "optimize": lambda table: table.optimize(rewrite="always"),
    "aggregate": lambda table: table.count("name = 'n'"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("damaged", [0, 2])
def test_the_error_names_the_file_and_the_engine_lives_on(lake, tmp_path, command, damaged):
    bad, path = table(lake, tmp_path / "bad", damaged=damaged)
    good, _ = table(lake, tmp_path / "good")
    version = bad.version()

    with pytest.raises(CorruptTable) as raised:
        COMMANDS[command](bad)

    assert raised.value.details["file"] == path
    assert path in raised.value.message
    assert "predicate" not in raised.value.message
    assert bad.version() == version
    assert good.delete("id < 3")["numDeletedRows"] == 3
    assert good.to_arrow().num_rows == 7


@pytest.mark.parametrize("columns", ["count(name)", "name"])
def test_a_query_names_the_file(lake, tmp_path, columns):
    _, path = table(lake, tmp_path / "bad", damaged=1)
    with pytest.raises(CorruptTable) as raised:
        lake.sql(f"SELECT {columns} FROM delta.`{tmp_path / 'bad'}` WHERE id > 0")
    assert raised.value.details["file"] == path


@pytest.mark.parametrize(
    "raised", [OSError("Data Corruption Error: the metadata"), duckdb.Error("the metadata")]
)
def test_an_error_without_a_name_is_of_the_file_that_cannot_be_read(lake, tmp_path, monkeypatch, raised):
    bad, path = table(lake, tmp_path / "bad", damaged=1)
    scan, _ = bad.plan()
    monkeypatch.setattr(statement_runner, "streamed", lambda *_: (_ for _ in ()).throw(raised))
    with pytest.raises(CorruptTable) as error:
        list(DuckDBEngine().read_batches(scan, None, None))
    assert error.value.details["file"] == path


class EndedConnection:
    """What DuckDB says of a connection whose database a fatal error has ended; which files cause one, versions differ."""

    def cursor(self):
        raise duckdb.FatalException(
            "FATAL Error: database has been invalidated because of a previous fatal error"
        )


def test_a_connection_of_the_caller_is_not_replaced(lake, tmp_path):
    people, _ = table(lake, tmp_path / "people", engine=DuckDBEngine(EndedConnection()))
    with pytest.raises(EngineUnavailable, match="Open another one"):
        people.to_arrow()
