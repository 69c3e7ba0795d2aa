"""A backup of what only the SQL store has, as JSON lines that are independent of the schema.

The first line describes the file, each further one holds a row, and the last one counts them: a truncated file is not
a valid backup. What can be rebuilt from the logs (snapshots, answers, the ledger) is left out, and so is the audit
log.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from sqlalchemy import DateTime, Table, TypeDecorator, delete, func, select
from sqlalchemy.orm import Session

from delvec_errors import BadRequest
from delvec_service import VERSION
from delvec_service.store.database import Database, insert_into
from delvec_service.store.grants import changed
from delvec_service.store.models import REVISION, AccessStateRow, Base

__all__ = ["FORMAT_VERSION", "LEFT_OUT", "RestoredBackup", "backup", "restore"]

FORMAT_VERSION: Final = 1
LEFT_OUT: Final = frozenset(
    {
        "access_state",
        "answers",
        "audit_log",
        "event_counter",
        "event_marks",
        "events",
        "file_leases",
        "ledger_files",
        "maintenance_leases",
        "maintenance_tasks",
        "overwritten_commits",
        "own_commits",
        "schema_compatibility",
        "segment_blobs",
        "segment_summaries",
        "segments",
        "snapshot_members",
        "snapshots",
        "transactions",
        "webhooks",
    }
)
"""Tables that are rebuilt from the logs, or only matter while a process runs; and the audit log, which is not state:
restored entries would describe actions that did not happen here.
"""
_FORMAT: Final = "delvec-backup"
_BATCH: Final = 500
_LINE: Final = 16 * 1024 * 1024

_Json: TypeAlias = Mapping[str, Any]


@dataclass
class RestoredBackup:
    """The result of a restore.

    Attributes:
        rows: number of rows in the backup, by table.
        added: how many of them were new.
        unknown: tables, and ``table.column``, that this version of Delvec does not know.
    """

    rows: dict[str, int] = field(default_factory=dict)
    added: dict[str, int] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)


def backup(database: Database) -> Iterator[str]:
    """Yield the lines of a backup of the current database; different tables may be read at different times.

    Raises:
        ServiceUnavailable: the database does not answer, or its schema is not that of this version.
    """
    database.check()
    yield _line(
        {
            "format": _FORMAT,
            "format-version": FORMAT_VERSION,
            "schema-revision": REVISION,
            "delvec-version": VERSION,
            "created-at": datetime.now(UTC).isoformat(),
        }
    )
    count = 0
    with database.read() as session:
        for table in _kept():
            for row in session.execute(select(table)).mappings().yield_per(_BATCH):
                values = {name: _plain(value) for name, value in row.items()}
                yield _line({"table": table.name, "row": values})
                count += 1
    yield _line({"rows": count})


def restore(database: Database, lines: Iterable[str], *, replace: bool = False) -> RestoredBackup:
    """Restore the rows of a backup, all or none; the database is migrated first.

    Existing rows stay as they are. Columns missing from an older backup get their defaults.

    Args:
        database: the database to restore to.
        lines: the lines of the backup.
        replace: first delete all rows of the tables that a backup contains.

    Raises:
        BadRequest: it is not a backup, a newer version created it, or it is damaged; nothing was changed.
        ServiceUnavailable: the database does not answer; nothing was changed.
    """
    database.migrate()
    restore_result = RestoredBackup()
    tables = {table.name: table for table in _kept()}
    with database.write() as session:
        if replace:
            for table in tables.values():
                session.execute(delete(table))
        before = {name: _count(session, table) for name, table in tables.items()}
        waiting: dict[str, list[dict[str, Any]]] = {}
        for name, row in _rows(lines):
            table_of = tables.get(name)
            if table_of is None:
                _note(restore_result.unknown, name)
                continue
            restore_result.rows[name] = restore_result.rows.get(name, 0) + 1
            _queue(session, table_of, _values(table_of, row, restore_result.unknown), waiting)
        for name, rows in waiting.items():
            _insert(session, tables[name], rows)
        if {"tokens", "grants"} & restore_result.rows.keys() or (
            replace and session.scalar(select(AccessStateRow.generation))
        ):
            changed(session)  # running services notice the restore by it
        restore_result.added = {
            name: added for name, table in tables.items() if (added := _count(session, table) - before[name])
        }
    return restore_result


def _kept() -> Sequence[Table]:
    return [table for table in Base.metadata.sorted_tables if table.name not in LEFT_OUT]


def _rows(lines: Iterable[str]) -> Iterator[tuple[str, _Json]]:
    """Validate the first and the last line, and yield the lines between them."""
    count, has_end, number = 0, False, 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        entry = _parsed(line, number)
        if has_end:
            raise BadRequest(f"The backup is damaged: line {number} follows its last line.")
        if number == 1:
            _check_header(entry)
        elif isinstance(entry.get("table"), str) and isinstance(entry.get("row"), dict):
            count += 1
            yield entry["table"], entry["row"]
        elif entry.get("rows") == count:
            has_end = True
        else:
            raise BadRequest(f"The backup is damaged: line {number} is neither a row nor its end.")
    if not has_end:
        raise BadRequest(f"The backup is truncated after line {number}. Use a complete one.")


def _parsed(line: str, number: int) -> _Json:
    if len(line) > _LINE:
        raise BadRequest(f"The backup is damaged: line {number} has more than {_LINE} characters.")
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        entry = None
    if not isinstance(entry, dict):
        raise BadRequest(
            f"Line {number} of the backup is not a JSON object: the file is not a backup, or is damaged."
        )
    return entry


def _check_header(entry: _Json) -> None:
    if entry.get("format") != _FORMAT:
        raise BadRequest("The file is not a Delvec backup: its first line is wrong.")
    if entry.get("format-version") != FORMAT_VERSION:
        raise BadRequest(
            f"The backup has format version {entry.get('format-version')!r}, but this Delvec reads version "
            f"{FORMAT_VERSION}; restore it with the version of Delvec that created it."
        )
    revision = entry.get("schema-revision")
    if not isinstance(revision, str) or revision > REVISION:
        raise BadRequest(
            f"The backup has schema revision {revision!r}, but this Delvec supports revisions up to {REVISION}; "
            "upgrade Delvec."
        )


def _values(table: Table, row: _Json, unknown: list[str]) -> dict[str, Any]:
    values = {}
    for name, value in row.items():
        column = table.columns.get(name)
        if column is None:
            _note(unknown, f"{table.name}.{name}")
        elif isinstance(value, str) and _is_time(column.type):
            try:
                values[name] = datetime.fromisoformat(value)
            except ValueError:
                raise BadRequest(
                    f"The backup has {value[:64]!r} for {table.name}.{name}, which is not a valid time."
                ) from None
        elif isinstance(value, dict | list):
            raise BadRequest(f"The backup is damaged: it has an invalid value for {table.name}.{name}.")
        else:
            values[name] = value
    missing = [column.name for column in table.primary_key if column.name not in values]
    if missing:
        raise BadRequest(f"The backup is damaged: it has a row of {table.name} without {', '.join(missing)}.")
    return values


def _queue(
    session: Session, table: Table, values: dict[str, Any], waiting: dict[str, list[dict[str, Any]]]
) -> None:
    """Insert rows in batches; the rows of one batch have the same columns."""
    rows = waiting.setdefault(table.name, [])
    if rows and (len(rows) >= _BATCH or rows[0].keys() != values.keys()):
        _insert(session, table, rows)
        rows.clear()
    rows.append(values)


def _insert(session: Session, table: Table, rows: list[dict[str, Any]]) -> None:
    session.execute(insert_into(session, table).on_conflict_do_nothing(), rows)


def _count(session: Session, table: Table) -> int:
    return session.execute(select(func.count()).select_from(table)).scalar_one()


def _is_time(kind: Any) -> bool:
    return isinstance(kind.impl if isinstance(kind, TypeDecorator) else kind, DateTime)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _note(names: list[str], name: str) -> None:
    if name[:200] not in names and len(names) < _BATCH:
        names.append(name[:200])


def _line(entry: _Json) -> str:
    return json.dumps(entry, ensure_ascii=True) + "\n"
