"""Group commit, pure: which transactions may share one version, and what that version says.

A version holds row-wise DELETEs only, or blind appends only: readers that stream appends and skip changes would lose
appends that share a version with deletes. Nothing else is ever grouped.
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
from delvec_kernel.transaction.transaction_changes import Changes

__all__ = [
    "GROUP_COMMIT_PROPERTY",
    "REQUEST_HASH_TAG",
    "Group",
    "Kind",
    "MemberInfo",
    "combined",
    "is_enabled",
    "kind_of",
    "members_of",
    "members_tag",
    "rows_taken",
    "weight",
    "without",
]

GROUP_COMMIT_PROPERTY: Final = "delvec.groupCommit"
"""Table property; ``false`` gives every transaction a version of its own."""

REQUEST_HASH_TAG: Final = "delvec.requestHash"
"""Of commitInfo: which request had the key that is the transaction id. A group's members say it for themselves."""

Kind: TypeAlias = Literal["deletes", "appends"]

_TAG: Final = "delvec.members"
_MOST_PREDICATE: Final = 2000
"""Characters of a group's predicate in the log; the members' own, of any length, are in the tag."""


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """What a group's commitInfo says of one transaction in it.

    Attributes:
        key: its transaction id.
        metrics: those of its own answer.
        request_hash: of its request, where that had a key.
    """

    key: str
    read_version: int
    predicate: str | None = None
    metrics: Mapping[str, int] = field(default_factory=dict)
    request_hash: str | None = None


def is_enabled(configuration: Mapping[str, str]) -> bool:
    """Return whether a table's properties allow groups."""
    return configuration.get(GROUP_COMMIT_PROPERTY, "true").strip().lower() != "false"


def kind_of(changes: Changes) -> Kind | None:
    """Return which group a transaction may be in, None where it must have a version of its own."""
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
    """Transactions that share a version, as they come.

    Args:
        first: the one that there is in any case.
        configuration: the table's properties.
    """

    def __init__(self, first: Changes, configuration: Mapping[str, str]) -> None:
        self._kind = kind_of(first) if is_enabled(configuration) else None
        self._first = first
        self._keys = {first.transaction_id}
        self._added = _added(first)

    def admit(self, changes: Changes) -> bool:
        """Take in a transaction if it may share a version with all that are in already; return whether it may.

        The same transaction twice may not: the second has to find the answer of the first. Nor may a file be added
        twice: the second has to be told that it is live.
        """
        first = self._first
        added = _added(changes)
        fits = (
            self._kind is not None
            and self._kind == kind_of(changes)
            and first.operation == changes.operation
            and first.user_metadata == changes.user_metadata
            and changes.transaction_id not in self._keys
            and self._added.isdisjoint(added)
        )
        if fits:
            self._keys.add(changes.transaction_id)
            self._added |= added
        return fits


def weight(changes: Changes) -> int:
    """Return about how many bytes a transaction's request has."""
    # As arrays; a run is shorter, and a container of many rows is never longer than 8 KiB.
    rows = sum(
        100 + 2 * min(len(gone), 4096 * (1 + (gone.max() >> 16)))
        for gone in changes.row_deletes.values()
        if gone
    )
    adds = sum(200 + len(add.path) + len(add.stats or "") for add in changes.adds)
    return 200 + rows + adds + sum(map(len, changes.removes))


def without(changes: Changes, earlier: Iterable[Changes], location: str) -> Changes:
    """Return a member of a group less what members before it take: files, and rows of files.

    What is left may be nothing; one that loses nothing is returned as it is.

    Args:
        changes: the member.
        earlier: those before it.
        location: of the table, by which spellings of one path are known.
    """
    files: set[str] = set()
    rows: dict[str, BitMap64] = {}
    for other in earlier:
        files.update(canonical_log_path(path, location) for path in other.removes)
        for path, gone in other.row_deletes.items():
            key = canonical_log_path(path, location)
            rows[key] = rows[key] | gone if key in rows else gone
    if not files and not rows:
        return changes
    left: dict[str, BitMap64] = {}
    for path, ours in changes.row_deletes.items():
        key = canonical_log_path(path, location)
        kept = BitMap64() if key in files else ours - rows[key] if key in rows else ours
        if kept:
            left[path] = kept
    removes = [path for path in changes.removes if canonical_log_path(path, location) not in files]
    vectors_hold = not any(canonical_log_path(path, location) in rows for path in changes.written_vectors)
    if len(removes) == len(changes.removes) and left == changes.row_deletes and vectors_hold:
        return changes
    return replace(
        changes,
        removes=removes,
        row_deletes=left,
        # A vector that was written for a file is wrong once another member has taken rows of it.
        written_vectors={
            path: one
            for path, one in changes.written_vectors.items()
            if path in left and canonical_log_path(path, location) not in rows
        },
    )


def rows_taken(path: str, earlier: Iterable[Changes], location: str) -> BitMap64:
    """Return the rows of a file that members take one by one; those that were gone before may be among them."""
    key = canonical_log_path(path, location)
    taken = BitMap64()
    for other in earlier:
        for spelled, gone in other.row_deletes.items():
            if canonical_log_path(spelled, location) == key:
                taken |= gone
    return taken


def combined(members: Sequence[Changes], transaction_id: str, location: str) -> Changes:
    """Return one transaction that does what all members do; a member alone is that transaction itself.

    Args:
        members: of one group, in the order in which they take effect.
        transaction_id: of the whole.
        location: of the table, by which spellings of one path are known.

    Returns:
        Net: a row or a file is taken once. It has read the oldest version that a member has read. What only engines
        know (times) is in the members' own metrics, and not in these.
    """
    if len(members) == 1:
        return members[0]
    removes: dict[str, str] = {}
    rows: dict[str, tuple[str, BitMap64]] = {}
    vectors: dict[str, Descriptor] = {}
    for member in members:
        for path in member.removes:
            removes.setdefault(canonical_log_path(path, location), path)
        for path, gone in member.row_deletes.items():
            key = canonical_log_path(path, location)
            if key in rows:
                spelled, others = rows[key]
                rows[key] = spelled, others | gone
                vectors.pop(spelled, None)  # it lacks the rows of this member
            else:
                rows[key] = path, gone
                if path in member.written_vectors:
                    vectors[path] = member.written_vectors[path]
    left = {path: gone for key, (path, gone) in rows.items() if key not in removes}
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
    """Return the commitInfo tags that list a group's members, in the order in which they took effect."""
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
    # Readers of commitInfo take tags for a map of texts.
    return {_TAG: json_text(entries)}


def members_of(info: CommitInfo) -> tuple[MemberInfo, ...]:
    """Return a group's members, from its commitInfo; nothing where it is not a group, or says nothing sensible."""
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
    hashed = entry.get("requestHash")
    return MemberInfo(
        entry["key"],
        version,
        predicate if isinstance(predicate, str) else None,
        {name: value for name, value in counts.items() if isinstance(value, int)},
        hashed if isinstance(hashed, str) else None,
    )


def _added(changes: Changes) -> set[str]:
    return {unquote(add.path) for add in changes.adds}


def _any_of(predicates: Sequence[str | None]) -> str | None:
    """Return a condition that the rows of each member satisfy; None where one has none, or where it gets long."""
    distinct = [one for one in dict.fromkeys(predicates) if one is not None]
    if None in predicates:
        return None
    text = distinct[0] if len(distinct) == 1 else " OR ".join(f"({one})" for one in distinct)
    return text if len(text) <= _MOST_PREDICATE else None


def _common(members: Sequence[Changes]) -> dict[str, str]:
    """Return the parameters that all members have alike."""
    first, *others = (member.parameters for member in members)
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}
