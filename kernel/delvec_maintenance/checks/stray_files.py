"""Logical files (a path with its deletion vector) that commits left live by mistake.

In the protocol, a remove applies to one path with one deletion vector. A writer that omits the deletion vector removes
nothing, and one that adds a path again without a remove has it twice.
"""

from dataclasses import dataclass, field, replace

from delvec_kernel.actions.actions import AddFile, CommitInfo, RemoveFile

__all__ = ["MissedRemove", "Origin", "StrayFiles", "SupersededFile", "vector_id", "vector_text"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Identifies a commit.

    Attributes:
        operation: from commitInfo.
        read_version: from commitInfo.
    """

    version: int
    operation: str | None = None
    read_version: int | None = None

    @classmethod
    def of(cls, version: int, info: CommitInfo | None) -> "Origin":
        """Return the origin described by a commit's commitInfo."""
        if info is None:
            return cls(version)
        return cls(version, info.operation, info.read_version)


@dataclass(frozen=True, slots=True)
class SupersededFile:
    """A logical file that is still live although its path was added again with another deletion vector.

    Attributes:
        add: the logical file.
        origin: the commit that set its deletion vector, or None if the log no longer has it.
        by: the add that superseded it.
        at: the commit of ``by``.
        remove: the remove of the path in that commit, with another deletion vector.
    """

    add: AddFile
    origin: Origin | None
    by: AddFile
    at: Origin
    remove: RemoveFile | None


@dataclass(frozen=True, slots=True)
class MissedRemove:
    """A file that is live although a commit meant to remove it.

    Attributes:
        add: the file as it was live then.
        origin: the commit that set its deletion vector, or None if the log no longer has it.
        remove: the remove, whose deletion vector did not match.
        at: the commit of ``remove``.
        writes_rows: whether that commit added other files, which may contain rows of this one.
        changed_in: the first later version that changed the file, treating it as live.
    """

    add: AddFile
    origin: Origin | None
    remove: RemoveFile
    at: Origin
    writes_rows: bool
    changed_in: int | None = None


@dataclass
class StrayFiles:
    """Files live by mistake after the commits so far; keys are canonical paths.

    Attributes:
        superseded: by unique id of the deletion vector, None for none.
        missed: files that a commit meant to remove.
    """

    superseded: dict[str, dict[str | None, SupersededFile]] = field(default_factory=dict)
    missed: dict[str, MissedRemove] = field(default_factory=dict)
    _origins: dict[str, Origin] = field(default_factory=dict)

    def __contains__(self, key: str) -> bool:
        """Whether a file with this path is live by mistake."""
        return key in self.superseded or key in self.missed

    def is_superseded(self, key: str, action: RemoveFile) -> bool:
        """Whether a remove applies to a file that a later add of the path superseded."""
        return vector_id(action) in self.superseded.get(key, ())

    def follow(
        self,
        key: str,
        add: AddFile | None,
        remove: RemoveFile | None,
        old: AddFile | None,
        at: Origin,
        *,
        writes_rows: bool,
    ) -> None:
        """Apply a version's actions on one path.

        Args:
            key: the path.
            add: the version's add of the path, if any.
            remove: the version's remove of the path, if any.
            old: the file that was live before, for readers that track one file per path.
            at: the commit.
            writes_rows: whether it adds files with other paths.
        """
        if remove is not None:
            self._removed(key, add, remove, old, at, writes_rows=writes_rows)
        if add is not None:
            self._added(key, add, remove, old, at)
        left = add if add is not None else old
        if left is None or (add is None and remove is not None and vector_id(remove) == vector_id(old)):
            self.missed.pop(key, None)
            self._origins.pop(key, None)

    def _removed(
        self,
        key: str,
        add: AddFile | None,
        remove: RemoveFile,
        old: AddFile | None,
        at: Origin,
        *,
        writes_rows: bool,
    ) -> None:
        strays = self.superseded.get(key)
        if strays is not None and vector_id(remove) in strays:
            del strays[vector_id(remove)]
            if not strays:
                del self.superseded[key]
        elif (
            old is not None and add is None and vector_id(remove) != vector_id(old) and key not in self.missed
        ):
            self.missed[key] = MissedRemove(old, self._origins.get(key), remove, at, writes_rows)

    def _added(
        self, key: str, add: AddFile, remove: RemoveFile | None, old: AddFile | None, at: Origin
    ) -> None:
        is_same = old is not None and vector_id(old) == vector_id(add)
        is_removed = old is not None and remove is not None and vector_id(remove) == vector_id(old)
        if old is not None and not is_same and not is_removed:
            stray = SupersededFile(old, self._origins.get(key), add, at, remove)
            self.superseded.setdefault(key, {})[vector_id(old)] = stray
        strays = self.superseded.get(key)
        if strays is not None and strays.pop(vector_id(add), None) is not None and not strays:
            del self.superseded[key]
        missed = self.missed.get(key)
        if missed is not None and missed.changed_in is None and not is_same:
            self.missed[key] = replace(missed, changed_in=at.version)
        if add.deletion_vector is None:
            self._origins.pop(key, None)
        elif not is_same:
            self._origins[key] = at


def vector_id(action: AddFile | RemoveFile | None) -> str | None:
    """Return the unique id of an action's deletion vector, or None."""
    if action is None or action.deletion_vector is None:
        return None
    return action.deletion_vector.unique_id


def vector_text(action: AddFile | RemoveFile | None) -> str:
    """Return an action's deletion vector, for messages."""
    unique_id = vector_id(action)
    return "no deletion vector" if unique_id is None else f"the deletion vector {unique_id[:80]}"
