"""Group commit: which transactions may share a version, and the version's actions. Pure, without I/O.

A version has either row-level DELETEs only or blind appends only: streaming readers that skip versions with changes would
otherwise lose appends that share one with deletes. No other operations are grouped.

Tested in `tests/unit/kernel/transaction/test_group.py`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import unquote

from pyroaring import BitMap64

from delvec_kernel.actions.action_json import json_text
from delvec_kernel.actions.actions import CommitInfo
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.locations import canonical_log_path
from delvec_kernel.table_properties import GROUP_COMMIT
from delvec_kernel.transaction.transaction_changes import Changes

__all__ = [
    "REQUEST_HASH_TAG",
    "Group",
    "Kind",
    "MemberInfo",
    "combined",
    "is_enabled",
    "kind_of",
    "members_of",
    "members_tag",
    "request_size",
    "rows_removed_by",
    "without",
]

REQUEST_HASH_TAG: Final = "delvec.requestHash"
"""commitInfo tag: the hash of the request with this transaction id. Members of a group have it in their own entries."""

Kind: TypeAlias = Literal["deletes", "appends"]

_TAG: Final = "delvec.members"
_MAX_PREDICATE_LENGTH: Final = 2000
"""Maximum length of a group's predicate in the log; the members' predicates are in the tag, at any length."""


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """One transaction's entry in a group's commitInfo.

    Attributes:
        key: the transaction id.
        metrics: the metrics of the transaction's own answer.
        request_hash: the hash of its request, if that had an idempotency key.
    """

    key: str
    read_version: int
    predicate: str | None = None
    metrics: Mapping[str, int] = field(default_factory=dict)
    request_hash: str | None = None


def is_enabled(configuration: Mapping[str, str]) -> bool:
    """Whether table properties allow group commit."""
    return GROUP_COMMIT.of(configuration)


def kind_of(changes: Changes) -> Kind | None:
    """Return the kind of group that a transaction can join, or None if it needs a separate version."""
    alone = (
        not changes.data_change
        or changes.reads is not None
        or changes.metadata is not None
        or changes.protocol is not None
        or changes.app_transaction is not None
        or bool(changes.domains)
        or bool(changes.rewritten)
        or changes.row_map is not None
        or bool(changes.added_deletes)
        or bool(changes.change_files)
        or bool(changes.repairs)
    )
    if alone:
        return None
    if changes.is_blind_append:
        return "appends" if changes.adds else None
    takes = bool(changes.row_deletes or changes.removes)
    return "deletes" if changes.operation == "DELETE" and takes and not changes.adds else None


class Group:
    """A growing set of transactions that share a version.

    Args:
        first: the first transaction.
        configuration: table properties.
    """

    def __init__(self, first: Changes, configuration: Mapping[str, str]) -> None:
        self._kind = kind_of(first) if is_enabled(configuration) else None
        self._first = first
        self._keys = {first.transaction_id}
        self._added = _added(first)

    def admit(self, changes: Changes) -> bool:
        """Add a transaction if it can share a version with the others; return whether it was added.

        A transaction is not added twice, since its repetition must find the answer of the first. Nor is a file added
        twice, since the second add must fail because the file is live.
        """
        first = self._first
        paths = _added(changes)
        fits = (
            self._kind is not None
            and self._kind == kind_of(changes)
            and first.operation == changes.operation
            and first.user_metadata == changes.user_metadata
            and changes.transaction_id not in self._keys
            and self._added.isdisjoint(paths)
        )
        if fits:
            self._keys.add(changes.transaction_id)
            self._added |= paths
        return fits


def request_size(changes: Changes) -> int:
    """Return the approximate size of a transaction's request in bytes."""
    # As array containers; run containers are smaller, and no container exceeds 8 KiB.
    rows = sum(
        100 + 2 * min(len(deleted_rows), 4096 * (1 + (deleted_rows.max() >> 16)))
        for deleted_rows in changes.row_deletes.values()
        if deleted_rows
    )
    adds = sum(200 + len(add.path) + len(add.stats or "") for add in changes.adds)
    return 200 + rows + adds + sum(map(len, changes.removes))


def without(changes: Changes, earlier: Iterable[Changes], location: str) -> Changes:
    """Return a member without the files and rows that earlier members of the group remove.

    The result may be empty; a member that loses nothing is returned unchanged.

    Args:
        changes: the member.
        earlier: the members before it.
        location: the location of the table, to compare different spellings of a path.
    """
    files: set[str] = set()
    rows: dict[str, BitMap64] = {}
    for other in earlier:
        files.update(canonical_log_path(path, location) for path in other.removes)
        for path, deleted_rows in other.row_deletes.items():
            key = canonical_log_path(path, location)
            rows[key] = rows[key] | deleted_rows if key in rows else deleted_rows
    if not files and not rows:
        return changes
    left: dict[str, BitMap64] = {}
    for path, ours in changes.row_deletes.items():
        key = canonical_log_path(path, location)
        remaining_rows = BitMap64() if key in files else ours - rows[key] if key in rows else ours
        if remaining_rows:
            left[path] = remaining_rows
    removes = [path for path in changes.removes if canonical_log_path(path, location) not in files]
    vectors_hold = not any(canonical_log_path(path, location) in rows for path in changes.written_vectors)
    if len(removes) == len(changes.removes) and left == changes.row_deletes and vectors_hold:
        return changes
    return replace(
        changes,
        removes=removes,
        row_deletes=left,
        # A deletion vector that the engine wrote is invalid once another member deletes rows of the same file.
        written_vectors={
            path: one
            for path, one in changes.written_vectors.items()
            if path in left and canonical_log_path(path, location) not in rows
        },
    )


def rows_removed_by(path: str, earlier: Iterable[Changes], location: str) -> BitMap64:
    """Return the rows of a file that members delete individually, possibly including rows deleted before."""
    key = canonical_log_path(path, location)
    taken = BitMap64()
    for other in earlier:
        for spelled, deleted_rows in other.row_deletes.items():
            if canonical_log_path(spelled, location) == key:
                taken |= deleted_rows
    return taken


def combined(members: Sequence[Changes], transaction_id: str, location: str) -> Changes:
    """Merge the members of a group into one transaction; a single member is returned unchanged.

    Args:
        members: the members of one group, in the order in which they take effect.
        transaction_id: the id of the merged transaction.
        location: the location of the table, to compare different spellings of a path.

    Returns:
        The net changes: each row or file is removed once. The read version is the oldest of the members'. Metrics that only
        engines know, such as times, are kept in the members' entries only.
    """
    if len(members) == 1:
        return members[0]
    removes: dict[str, str] = {}
    rows: dict[str, tuple[str, BitMap64]] = {}
    vectors: dict[str, Descriptor] = {}
    for member in members:
        for path in member.removes:
            removes.setdefault(canonical_log_path(path, location), path)
        for path, deleted_rows in member.row_deletes.items():
            key = canonical_log_path(path, location)
            if key in rows:
                spelled, others = rows[key]
                rows[key] = spelled, others | deleted_rows
                vectors.pop(spelled, None)  # it lacks this member's rows
            else:
                rows[key] = path, deleted_rows
                if path in member.written_vectors:
                    vectors[path] = member.written_vectors[path]
    left = {path: deleted_rows for key, (path, deleted_rows) in rows.items() if key not in removes}
    first = members[0]
    return Changes(
        operation=first.operation,
        read_version=min(member.read_version for member in members),
        transaction_id=transaction_id,
        engine_info=", ".join(dict.fromkeys(member.engine_info for member in members)),
        adds=[add for member in members for add in member.adds],
        removes=list(removes.values()),
        row_deletes=left,
        written_vectors={path: one for path, one in vectors.items() if path in left},
        predicate=_any_of([member.predicate for member in members]),
        parameters=_common(members),
        user_metadata=first.user_metadata,
    )


def members_tag(members: Iterable[MemberInfo]) -> dict[str, str]:
    """Return the commitInfo tag that lists a group's members, in the order in which they took effect."""
    entries = [
        {
            "key": one.key,
            "readVersion": one.read_version,
            "predicate": one.predicate,
            "metrics": dict(one.metrics),
            **({} if one.request_hash is None else {"requestHash": one.request_hash}),
        }
        for one in members
    ]
    # Readers expect tags to map strings to strings.
    return {_TAG: json_text(entries)}


def members_of(info: CommitInfo) -> tuple[MemberInfo, ...]:
    """Return a group's members from its commitInfo; empty if it is not a group or the tag is malformed."""
    text = (info.tags or {}).get(_TAG)
    if not isinstance(text, str):
        return ()
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(entries, list):
        return ()
    found = (_member(entry) for entry in entries)
    return tuple(member for member in found if member is not None)


def _member(entry: Any) -> MemberInfo | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("key"), str):
        return None
    version, predicate, metrics = entry.get("readVersion"), entry.get("predicate"), entry.get("metrics")
    if not isinstance(version, int) or isinstance(version, bool):
        return None
    counts = metrics if isinstance(metrics, dict) else {}
    request_hash = entry.get("requestHash")
    return MemberInfo(
        entry["key"],
        version,
        predicate if isinstance(predicate, str) else None,
        {name: value for name, value in counts.items() if isinstance(value, int)},
        request_hash if isinstance(request_hash, str) else None,
    )


def _added(changes: Changes) -> set[str]:
    return {unquote(add.path) for add in changes.adds}


def _any_of(predicates: Sequence[str | None]) -> str | None:
    """Return the disjunction of the members' predicates; None if one has none, or if it gets too long."""
    distinct = [one for one in dict.fromkeys(predicates) if one is not None]
    if None in predicates:
        return None
    text = distinct[0] if len(distinct) == 1 else " OR ".join(f"({one})" for one in distinct)
    return text if len(text) <= _MAX_PREDICATE_LENGTH else None


def _common(members: Sequence[Changes]) -> dict[str, str]:
    """Return the parameters that are equal for all members."""
    first, *others = (member.parameters for member in members)
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}
