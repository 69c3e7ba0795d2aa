"""What holds for every commit, whether Delvec writes it or a client of the catalog has staged it.

Tested in `tests/integration/service/commits/test_commit_checks.py` and
`tests/unit/kernel/transaction/test_staged_commit.py`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from pyroaring import BitMap64

from delvec_errors import (
    AppendOnlyTable,
    DelvecError,
    DuplicateFile,
    FileNotInSnapshot,
    FileNotInTable,
    InvalidCommit,
    LocationNotAllowed,
    RowIndexOutOfRange,
)
from delvec_kernel import locations
from delvec_kernel.actions.action_json import check_text
from delvec_kernel.actions.actions import AddFile, Cdc
from delvec_kernel.change_feed.feed_schema import CHANGE_DATA
from delvec_kernel.features.managed_tables import check_stays_managed, is_catalog_managed
from delvec_kernel.schema import partition_values
from delvec_kernel.snapshot.snapshot import Snapshot

__all__ = [
    "check_append_only",
    "check_definition",
    "check_new_files",
    "check_new_paths",
    "check_rows",
    "check_statistics",
    "distinct",
    "file_key",
    "not_live",
    "put",
    "refused",
]

_Value = TypeVar("_Value")
_LONGEST_PATH: Final = 3000
"""Object stores accept 1024 bytes, each of them encoded."""
_LONGEST_NAME: Final = 255


def file_key(path: str, table: str, location: str) -> str:
    """Return the canonical path of a file, whatever its spelling.

    Raises:
        FileNotInTable: it is outside the table.
        InvalidCommit: it is no path of a file.
    """
    try:
        return locations.canonical_log_path(path, location)
    except LocationNotAllowed as error:
        raise FileNotInTable(
            f"'{path[:300]}' is outside table '{table}'; use paths inside the table.",
            table=table,
            file=path[:300],
        ) from error
    except DelvecError as error:
        raise InvalidCommit(
            f"'{path[:300]}' is not a path of a file in this table.", file=path[:300]
        ) from error


def distinct(paths: Iterable[str], table: str, location: str, what: str) -> list[str]:
    """Return the canonical paths of files, which a commit may name once each.

    Raises:
        DuplicateFile: a file is named twice.
        FileNotInTable: or InvalidCommit, see :func:`file_key`.
    """
    keys: dict[str, None] = {}
    for path in paths:
        key = file_key(path, table, location)
        if key in keys:
            raise _named_twice(path, what)
        keys[key] = None
    return list(keys)


def put(files: dict[str, _Value], path: str, value: _Value) -> None:
    """Add what a commit says about a file, which it may name once.

    Raises:
        DuplicateFile: the file is there already.
    """
    if path in files:
        raise _named_twice(path, "is named")
    files[path] = value


def _named_twice(path: str, what: str) -> DuplicateFile:
    return DuplicateFile(f"File '{path}' {what} twice in one commit; name each file once.", file=path)


def check_new_paths(adds: Sequence[AddFile], change_files: Sequence[Cdc], location: str) -> None:
    """Reject paths of new files that are not plain and relative, or that readers or VACUUM ignore.

    Raises:
        FileNotInTable: or InvalidCommit, with the path.
    """
    for path in [*(add.path for add in adds), *(file.path for file in change_files)]:
        _check_new_path(path, location)
    for file in change_files:
        if not unquote(file.path).startswith(CHANGE_DATA):
            raise InvalidCommit(
                f"The change file '{file.path}' is not below {CHANGE_DATA}, where table cleanup expects it.",
                file=file.path,
            )


def _check_new_path(path: str, location: str) -> None:
    parts = unquote(path).split("/")
    plain = path and ":" not in path.partition("/")[0] and not any(part in ("", ".", "..") for part in parts)
    if not plain or "\0" in path or "%00" in path:
        raise FileNotInTable(
            f"Name a new file by its URL-encoded path relative to the table's location, not by '{path[:300]}'.",
            file=path[:300],
        )
    longest = max(len(part.encode()) for part in parts)
    if len(path) > _LONGEST_PATH or (locations.local_path(location) and longest > _LONGEST_NAME):
        raise InvalidCommit(f"'{path[:300]}' is too long for a file name in storage.", file=path[:300])
    if "_delta_log" in map(str.casefold, parts) or parts[-1].startswith(("_", ".")):
        raise InvalidCommit(
            f"'{path}' cannot be the path of a data file: the log and hidden files have a special meaning.",
            file=path,
        )


def check_definition(before: Snapshot, after: Snapshot, table: str, catalog_id: str | None = None) -> None:
    """Reject a new protocol or new metadata that would take a managed table out of the catalog.

    Args:
        before: the version before.
        after: a snapshot with the definition of the version to create.
        table: the table's name, for errors.
        catalog_id: the table's id in another catalog; None for one of Delvec's.

    Raises:
        InvalidTableChange: it would.
    """
    if is_catalog_managed(before.protocol):
        check_stays_managed(after.protocol, after.metadata, table, before.location, catalog_id)


def check_append_only(snapshot: Snapshot, table: str) -> None:
    """Reject a commit that removes rows from an append-only table.

    Raises:
        AppendOnlyTable: the table is one.
    """
    if snapshot.append_only:
        raise AppendOnlyTable(
            f"Table '{table}' has delta.appendOnly=true, so rows cannot be removed from it. Unset the property first.",
            table=table,
            version=snapshot.version,
        )


def check_new_files(
    adds: Sequence[AddFile], change_files: Sequence[Cdc], after: Snapshot, table: str, *, own: bool
) -> None:
    """Reject files that contradict the table's definition, as it is after the commit.

    Args:
        adds: data files.
        change_files: the files of the change data feed.
        after: a snapshot with that definition.
        table: the table's name, for errors.
        own: whether Delvec's stricter rules apply: values are spelled as Delvec spells them, and statistics of a table
            with deletion vectors have the number of rows.

    Raises:
        InvalidCommit: there is no feed, or partition values or statistics are invalid.
    """
    if change_files and not after.cdf_enabled:
        raise InvalidCommit(
            f"Table '{table}' does not have delta.enableChangeDataFeed=true, so a commit cannot have change files. "
            "Leave them out, or set the property first.",
            table=table,
            version=after.version,
        )
    columns = [after.schema.field(name) for name in after.partition_columns]
    files: list[AddFile | Cdc] = [*adds, *change_files]
    for file in files:
        what = partition_values.contradiction(file.partition_values, columns, strict=own)
        if what is not None:
            raise refused(table, file.path, what)
    for add in adds:
        check_statistics(table, add.path, add.stats or None, needs_rows=own and after.dv_enabled)


def check_statistics(table: str, path: str, text: str | None, *, needs_rows: bool) -> int | None:
    """Return the number of rows that a file's new statistics have.

    Raises:
        InvalidCommit: they are no JSON object, or the number is missing or invalid.
    """
    stats: Any = {}
    if text is not None:
        try:
            stats = json.loads(text)
            check_text(text, stats)
        except UnicodeEncodeError as error:
            what = (
                "has statistics with a lone surrogate, which is not valid Unicode; send complete characters"
            )
            raise refused(table, path, what) from error
        except (ValueError, RecursionError) as error:
            raise refused(table, path, "has statistics that are not JSON") from error
    if not isinstance(stats, dict):
        raise refused(table, path, "has statistics that are not a JSON object")
    count = stats.get("numRecords")
    if count is None:
        # PROTOCOL.md, "Writer Requirement for Deletion Vectors".
        if needs_rows:
            what = "has no numRecords in its statistics; a table with deletion vectors requires it"
            raise refused(table, path, what)
        return None
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise refused(table, path, "has statistics with an invalid numRecords")
    return count


def check_rows(rows: BitMap64, total: int, where: str, facts: Mapping[str, Any]) -> None:
    """Reject row indexes that a file does not have.

    Raises:
        RowIndexOutOfRange: there are some.
    """
    if rows and rows.max() >= total:
        raise RowIndexOutOfRange(
            f"{where} has {total} rows, so there is no row index {rows.max()}; "
            "send physical row indexes that start at 0 in each file.",
            **facts,
        )


def not_live(table: str, location: str, path: str, version: int) -> FileNotInSnapshot | FileNotInTable:
    """Return the error for a file that is to lose rows, and is not live."""
    facts = {"table": table, "file": path, "version": version}
    if "://" in locations.canonical_log_path(path, location):
        return FileNotInTable(
            f"File '{path}' does not belong to table '{table}' (version {version}). Use the file names that "
            "the plan returned.",
            **facts,
        )
    return FileNotInSnapshot(
        f"File '{path}' is not a live file of version {version} of table '{table}'. Plan the command again.",
        **facts,
    )


def refused(table: str, path: str, what: str, kind: type[InvalidCommit] = InvalidCommit) -> InvalidCommit:
    """Return the error for a file of a commit."""
    return kind(f"File '{path}' {what} (table '{table}').", table=table, file=path)
