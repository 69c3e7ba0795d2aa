"""Statements run past most of SQLAlchemy: those that every commit needs, for which it took a third of a commit's time.

What a statement says and how values are passed is still SQLAlchemy's, worked out once for each kind of database.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from sqlalchemy import Engine, Executable
from sqlalchemy.exc import DBAPIError

__all__ = ["Direct", "Prepared", "direct"]

_SQLITE: Final = "sqlite"
_Binder: TypeAlias = Callable[[Mapping[str, Any]], Any]


class Prepared:
    """A statement, compiled when it is first run.

    Args:
        statement: one for every database, or one for each by the name of its dialect.
        columns: of an INSERT that names none: those that it is given.
    """

    def __init__(
        self, statement: Executable | Mapping[str, Executable], columns: Sequence[str] | None = None
    ) -> None:
        self._statement = statement
        self._columns = columns
        self._compiled: dict[str, tuple[str, _Binder]] = {}

    def on(self, dialect: Any) -> tuple[str, _Binder]:
        """Return the text for a dialect, and what makes its parameters of values by name."""
        found = self._compiled.get(dialect.name)
        if found is None:
            found = self._compiled[dialect.name] = self._compile(dialect)
        return found

    def _compile(self, dialect: Any) -> tuple[str, _Binder]:
        statement: Any = self._statement
        if isinstance(statement, Mapping):
            statement = statement[dialect.name]
        compiled = statement.compile(dialect=dialect, column_keys=self._columns)
        convert = compiled._bind_processors  # noqa: SLF001 - as SQLAlchemy's own execution does
        fixed = compiled.construct_params(_check=False)

        def value(values: Mapping[str, Any], name: str) -> Any:
            given = values.get(name, fixed.get(name))
            return convert[name](given) if name in convert else given

        if compiled.positional:
            names = tuple(compiled.positiontup)
            return compiled.string, lambda values: tuple(value(values, name) for name in names)
        names = tuple(compiled.bind_names.values())
        return compiled.string, lambda values: {name: value(values, name) for name in names}


class Direct:
    """An open connection, on which prepared statements are run.

    Args:
        cursor: the driver's.
        dialect: SQLAlchemy's.
    """

    def __init__(self, cursor: Any, dialect: Any) -> None:
        self._cursor = cursor
        self._dialect = dialect

    def run(self, statement: Prepared, *rows: Mapping[str, Any]) -> None:
        """Run a statement once for each of the rows."""
        text, bind = statement.on(self._dialect)
        if len(rows) == 1:
            self._cursor.execute(text, bind(rows[0]))
        elif rows:
            self._cursor.executemany(text, [bind(row) for row in rows])

    def first(self, statement: Prepared, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """Return the first row, as the driver gives it: texts and whole numbers are what they are, times are not."""
        text, bind = statement.on(self._dialect)
        self._cursor.execute(text, bind(values))
        found: tuple[Any, ...] | None = self._cursor.fetchone()
        return found


@contextmanager
def direct(engine: Engine, *, writes: bool) -> Iterator[Direct]:
    """Open a connection; what is changed on it is committed at the end of the block.

    Args:
        engine: of the database.
        writes: whether anything is changed; without it SQLite opens no transaction.

    Raises:
        DBAPIError: of the class that SQLAlchemy itself would raise.
    """
    dialect: Any = engine.dialect
    try:
        connection = engine.raw_connection()
    except dialect.loaded_dbapi.Error as error:
        raise _as_sqlalchemy_does(error, dialect, invalidated=False) from error
    try:
        cursor = connection.cursor()
        if writes and dialect.name == _SQLITE:
            # Taking the write lock at once waits for it; taking it in mid-transaction would fail instead.
            cursor.execute("BEGIN IMMEDIATE")
        yield Direct(cursor, dialect)
        cursor.close()
        connection.commit()
    except dialect.loaded_dbapi.Error as error:
        broken = bool(dialect.is_disconnect(error, connection.driver_connection, None))
        if broken:
            connection.invalidate(error)
        raise _as_sqlalchemy_does(error, dialect, invalidated=broken) from error
    finally:
        connection.close()  # which rolls back what was not committed


def _as_sqlalchemy_does(error: Exception, dialect: Any, *, invalidated: bool) -> BaseException:
    """Return a driver's error in the class that SQLAlchemy would raise, which a raw connection does not see to."""
    base = dialect.loaded_dbapi.Error
    return DBAPIError.instance(None, None, error, base, connection_invalidated=invalidated, dialect=dialect)
