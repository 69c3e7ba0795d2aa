"""Reads a damaged table with Delvec and decides whether the result is right.

Right is one of these:

- a typed error (``DelvecError``) that is not an internal one. If only ``_last_checkpoint`` is damaged, an
  error is wrong: that file is a hint;
- a table that the oracle reads the same way: the same files with the same partition values and deleted rows,
  and the same number of rows. If it equals the undamaged table, also the same values;
- if data files themselves are damaged: any rows of the right files. Parquet pages have no checksum, so a
  flipped bit may change a value;
- with a predicate: the matching rows of the whole table; fewer if statistics were changed,
  because data skipping relies on them.

Everything else is a failure, as are a crash, a hang, too much memory and a file opened outside the roots.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache

import duckdb
import pyarrow as pa
from tests.fuzz import oracle
from tests.fuzz.draft import kind_of

from delvec_errors import DelvecError, InternalError

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBERS = {
    pa.date32(): pa.int32(),
    pa.timestamp("us"): pa.int64(),
    pa.timestamp("us", "UTC"): pa.int64(),
}
_COMPARABLE = (pa.types.is_integer, pa.types.is_string, pa.types.is_date, pa.types.is_boolean)


@dataclass(frozen=True)
class Verdict:
    """The result of a case.

    Attributes:
        outcome: ``same rows``, ``rows``, ``other values`` or ``error``; ``WRONG …`` is a failure.
        detail: the error's code, or what is wrong.
    """

    outcome: str
    detail: str = ""

    @property
    def failed(self):
        return self.outcome.startswith("WRONG")


@dataclass(frozen=True)
class Suspicion:
    """A verdict that holds only if the statistics are undamaged.

    The oracle decides that, and the files it opens must not count as opened by Delvec.
    """

    verdict: Verdict


@dataclass(frozen=True)
class Baseline:
    """The undamaged table.

    Attributes:
        defect: an error raised by reading it that was not a DelvecError.
    """

    states: list
    rows: Counter | None
    defect: str = ""


def baseline(lake, folder):
    """Read a table before its damage; ``rows`` is None if Delvec refuses it."""
    states = oracle.readings(folder)
    try:
        return Baseline(states, content(lake.table(folder).to_arrow()))
    except DelvecError:
        return Baseline(states, None)
    except Exception as error:  # noqa: BLE001 - its cases say so, each of them
        return Baseline(states, None, repr(error))


def content(rows):
    """Return rows as a multiset, with dates and times as numbers: damaged ones may exceed Python's range."""
    columns = [column.cast(_NUMBERS.get(column.type, column.type)) for column in rows.columns]
    try:
        return Counter(map(repr, zip(*(column.to_pylist() for column in columns), strict=True)))
    except (OverflowError, ValueError):  # nested in other types
        return Counter({"unprintable": rows.num_rows})


class Judge:
    """Judges one case."""

    def __init__(self, case, before, folder):
        self._case, self._before, self._folder = case, before, folder

    def read(self, lake):
        """Read the table; return a verdict, or the rows with their scan."""
        try:
            table = lake.table(self._folder)
            scan, _ = table.plan()
            vectors = scan.deletion_vectors
            return table, scan, vectors, table.engine.read(scan, None, None)
        except InternalError as error:
            return Verdict("WRONG internal error", error.message[:600])
        except DelvecError as error:
            if error.code in ("INTERNAL_ERROR", "DELVEC_ERROR"):
                return Verdict("WRONG internal error", error.message[:600])
            if "\n" in error.message:
                return Verdict("WRONG message of many lines", error.message[:600])
            return self._refused(error)

    def _refused(self, error):
        only_hint = all(kind.startswith("hint:") for kind in self._case.kinds)
        if only_hint and self._before.rows is not None:
            return Verdict("WRONG fails for a hint", error.message[:600])
        return Verdict("error", error.code)

    def judge(self, scan, vectors, rows):
        """Return the verdict on rows."""
        states = oracle.readings(self._folder)
        if not states:
            if self._before.rows is not None and content(rows) == self._before.rows:
                return Verdict("same rows")
            return Verdict("WRONG rows of a damaged table", f"{rows.num_rows} rows of {len(scan)} files")
        problems = [self._difference(state, scan, vectors, rows) for state in states]
        if None not in problems:
            return Verdict("WRONG table", "; or ".join(problems)[:1500])
        if self._data_is_damaged():
            return Verdict("other values")
        return self._compared(states[problems.index(None)], rows)

    def _compared(self, state, rows):
        """Compare with the rows before the damage, if the table is still the same."""
        before = self._before
        same = before.states and all(state.looks_like(one) for one in before.states)
        if not same or before.rows is None:
            return Verdict("rows")
        if content(rows) != before.rows:
            return Verdict("WRONG rows", "the same files and deletion vectors gave other rows than before")
        return Verdict("same rows")

    def _data_is_damaged(self):
        files, before = self._case.draft.files, self._case.table.files
        return any(
            kind_of(path) in ("data", "vector") and files.get(path) != content
            for path, content in before.items()
        )

    def _difference(self, state, scan, vectors, rows):
        """Return how a State differs from Delvec's result, or None."""
        names = [field.get("name") for field in state.schema.get("fields", [])]
        if names != list(scan.schema.names):
            return f"columns {list(scan.schema.names)}, not {names}"[:300]
        problem = self._difference_of_files(state, scan, vectors)
        if problem is not None or self._data_is_damaged():
            return problem
        total = oracle.number_of_rows(self._folder, state)
        if total is None:
            return "a data file is not readable"
        return None if total == rows.num_rows else f"{rows.num_rows} rows, not {total}"

    def _difference_of_files(self, state, scan, vectors):
        found = {}
        columns = (scan.files[name].to_pylist() for name in ("path", "partition_values"))
        for path, values in zip(*columns, strict=True):
            found[oracle.key_of(self._folder, path)] = (frozenset(values or []), vectors.get(path))
        if found.keys() != state.files.keys():
            return f"files {sorted(found.keys() ^ state.files.keys())} in one but not the other"[:300]
        for path, item in state.files.items():
            values, deleted = found[path]
            if _texts(item.values) != values:
                return f"partition values {sorted(map(str, values))}, not {sorted(map(str, item.values))}"[
                    :300
                ]
            try:
                wanted = None if item.vector is None else oracle.deleted_rows(self._folder, item.vector)
            except oracle.Damaged as error:
                return f"the deletion vector of {path} cannot be read: {error!r}"
            if (wanted or None) != (deleted or None):
                return f"deleted rows of {path}"
        return None

    # --- other reads -------------------------------------------------------------------------------------

    def judge_others(self, table, scan, vectors, rows):
        """Return the verdict on another read of the table; None if the answer is right or an error."""
        rng = self._case.rng
        version = rng.randrange(scan.version + 1)
        ask = rng.choice(
            (
                table.history,
                table.detail,
                table.health,
                table.count,
                lambda: table.to_arrow(version=version),
                lambda: table.to_arrow(timestamp="2023-11-14T22:13:20Z"),
                lambda: content(pa.table(table.to_batches())) - content(rows),
            )
        )
        del vectors
        try:
            ask()
        except InternalError as error:
            return Verdict("WRONG internal error", error.message[:600])
        except DelvecError:
            return None
        return None

    def judge_skipping(self, table, scan, vectors, rows):
        """Return the verdict on a read with a predicate; None if it is right or no predicate applies."""
        del scan, vectors
        rng = self._case.rng
        columns = [
            field.name
            for field in rows.schema
            if _PLAIN_NAME.fullmatch(field.name) and any(fits(field.type) for fits in _COMPARABLE)
        ]
        if not columns or not rows.num_rows:
            return None
        name = rng.choice(columns)
        try:
            value = rows[name][rng.randrange(rows.num_rows)].as_py()
        except (OverflowError, ValueError):
            return None  # a damaged date outside Python's range
        text = _predicate(rng, name, value)
        with _database().cursor() as cursor:
            cursor.register("t", rows.select(columns))
            expected = content(cursor.sql(f"SELECT * FROM t WHERE {text}").to_arrow_table())
        try:
            found = content(table.to_arrow(columns, text))
        except InternalError as error:
            return Verdict("WRONG internal error", error.message[:600])
        except DelvecError:
            return None
        wrong = Verdict("WRONG skipping", f"{text}: {found.total()} rows, not {expected.total()}")
        if found - expected:
            return wrong
        return None if found == expected else Suspicion(wrong)

    def settled(self, suspicion):
        """Return the verdict on a suspicion, or None if it is dispelled. The oracle opens files for this."""
        return suspicion.verdict if self._statistics_hold() else None

    def _statistics_hold(self):
        states = oracle.readings(self._folder)
        same = any(state.same_statistics(one) for state in states for one in self._before.states)
        return same and len(states) == 1 and not self._data_is_damaged()


@cache
def _database():
    """Return a DuckDB connection separate from Delvec's."""
    return duckdb.connect(config={"threads": "1"})


def _texts(values):
    return frozenset((name, _text(value)) for name, value in values)


def _text(value):
    if isinstance(value, oracle.Written):
        return value.text
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _predicate(rng, name, value):
    if value is None or rng.random() < 0.15:
        return rng.choice((f"{name} IS NULL", f"{name} IS NOT NULL"))
    if isinstance(value, bool):
        return f"{name} = {str(value).lower()}"
    if isinstance(value, int):
        literal = str(value)
    elif isinstance(value, str):
        literal = "'" + value.replace("'", "''") + "'"
    else:
        literal = f"DATE '{value.isoformat()}'"
    return f"{name} {rng.choice(('=', '>', '<', '>=', '<=', '<>'))} {literal}"
