"""Parses and serializes files of actions: commits and JSON manifests of V2 checkpoints (PROTOCOL.md, "Delta Log Entries")."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar, get_args

import pyarrow as pa
import pyarrow.json as pj

from delvec_errors import BadRequest, CorruptLog, UnusableFile
from delvec_kernel.actions.action_json import (
    MAX_ACTION_BYTES,
    LogFile,
    MalformedActionError,
    check_text,
    documents,
    json_text,
    read_object,
    shown,
    without_infinities,
)
from delvec_kernel.actions.actions import Action, CommitInfo, Metadata, Protocol
from delvec_parquet.parquet_file import open_parquet

__all__ = ["known_protocol", "parse_commit", "parse_only", "serialize_commit"]

_Kind = TypeVar("_Kind", bound=Action)
_BLOCK: Final = 4 << 20
_KINDS: Final[Mapping[str, type[Action]]] = {kind.key: kind for kind in get_args(Action)}


def parse_commit(data: bytes, where: LogFile) -> list[Action]:
    """Return the actions of a commit, or of a JSON manifest of a V2 checkpoint, in file order.

    Args:
        data: one JSON object per line; objects that span lines are accepted, too.
        where: where it is, for errors.

    Raises:
        CorruptLog: the file is empty or truncated, or an action is malformed; names the line.
    """
    actions: list[Action] = []
    empty = True
    for line, document in documents(data, where):
        if not isinstance(document, dict):
            raise where.corrupt(f"has {shown(document)} in place of an action", line=line)
        empty = empty and not document
        named = [key for key, value in document.items() if value is not None and key in _KINDS]
        if len(named) > 1:
            raise where.corrupt(
                f"has several actions in one JSON object: {', '.join(sorted(named))}", line=line
            )
        for key in named:
            try:
                found = read_object(document, key) or {}
                actions.append(
                    _KINDS[key].from_json(without_infinities(found) if key == CommitInfo.key else found)
                )
            except MalformedActionError as error:
                raise where.corrupt(f"has a '{key}' action that {error}", line=line) from error
    if empty:
        raise where.corrupt("contains no action")
    return actions


def parse_only(data: bytes, where: LogFile, kind: type[_Kind]) -> list[_Kind]:
    """Return only one kind of a commit's actions, at a fraction of the time and memory of :func:`parse_commit`.

    Args:
        data: as for :func:`parse_commit`.
        where: where it is, for errors.
        kind: the class of the actions.

    Raises:
        CorruptLog: the file is empty or truncated, a line is not JSON, or an action of that kind is malformed.
    """
    key = kind.key.encode()
    others: list[bytes] = []
    telling: list[bytes] = []
    for line in data.split(b"\n"):
        # A key may be escaped in JSON, and only \u can escape a letter.
        (telling if key in line or b"\\u" in line else others).append(line)
    if _are_objects(others, kind.key):
        try:
            found = parse_commit(b"\n".join(telling), where) if telling else []
            return [action for action in found if isinstance(action, kind)]
        except CorruptLog:
            pass  # parse_commit below reports the line number in the file
    return [action for action in parse_commit(data, where) if isinstance(action, kind)]


def _are_objects(lines: Iterable[bytes], without: str) -> bool:
    """Whether lines are JSON objects without a key, by Arrow's parser without keeping values; False if unsure."""
    source = b"\n".join(lines)
    if b'"' not in source:
        return False  # without a key there is no action
    try:
        pj.read_json(
            pa.BufferReader(source),
            read_options=pj.ReadOptions(use_threads=False, block_size=_BLOCK),
            parse_options=pj.ParseOptions(
                pa.schema([(without, pa.null())]), unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowException:
        return False
    return True


def serialize_commit(actions: Iterable[Action]) -> bytes:
    """Serialize actions as a commit: one JSON object per line, in this order.

    Raises:
        BadRequest: a string has a lone surrogate, which would make the log unreadable, or an action exceeds 64 MiB.
    """
    lines = []
    for action in actions:
        try:
            line = f"{json_text({action.key: action.to_json()})}\n".encode()
            if len(line) > MAX_ACTION_BYTES:
                raise BadRequest(
                    f"The log's '{action.key}' action would have {len(line):,} bytes, more than the limit of "
                    f"{MAX_ACTION_BYTES:,}; nothing was written. Shorten its texts."
                )
            lines.append(line)
            if isinstance(action, Metadata):
                check_text(action.schema_string, _schema(action))
        except UnicodeEncodeError as error:
            raise BadRequest(
                f"A string of the log's '{action.key}' action contains an unpaired surrogate, which is not "
                "valid Unicode; nothing was written. Remove it, and try again."
            ) from error
    return b"".join(lines)


def _schema(metadata: Metadata) -> Any:
    """Return the schema parsed from its JSON text; None if invalid."""
    try:
        return json.loads(metadata.schema_string)
    except (ValueError, RecursionError):
        return None


_KEY: Final = b'"protocol"'
_UNREADABLE: Final = (ValueError, TypeError, KeyError, RecursionError, MalformedActionError)


def known_protocol(data: bytes, name: str) -> Protocol | None:
    """Return the last protocol in a commit or a checkpoint; None if there is none or it cannot be parsed.

    Args:
        data: the file.
        name: ends in ``.parquet`` for a Parquet checkpoint, part or manifest.
    """
    found = _in_parquet(data) if name.endswith(".parquet") else _in_lines(data)
    for value in reversed(found):
        try:
            return Protocol.from_json(value)
        except _UNREADABLE:
            continue
    return None


def _in_lines(data: bytes) -> list[dict[str, object]]:
    protocols = []
    for line in data.split(b"\n"):
        if _KEY in line:
            try:
                value = json.loads(line)["protocol"]
            except _UNREADABLE:
                continue
            protocols += [value] if isinstance(value, dict) else []
    return protocols


def _in_parquet(data: bytes) -> list[dict[str, object]]:
    try:
        column = open_parquet(data, "checkpoint").read(columns=["protocol"])["protocol"]
        rows = column.to_pylist()
    # Arrow raises many kinds of errors for corrupt Parquet; nothing here accesses storage.
    except (pa.ArrowException, OSError, MemoryError, OverflowError, UnusableFile, *_UNREADABLE):
        return []
    return [row for row in rows if isinstance(row, dict) and row.get("minReaderVersion") is not None]
