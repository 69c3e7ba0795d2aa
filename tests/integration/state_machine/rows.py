"""The oracle: a table's rows, and each transaction's effect on them by definition."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

__all__ = [
    "Appends",
    "Effect",
    "Merges",
    "Moment",
    "Nothing",
    "RemovesFiles",
    "RemovesRows",
    "Replaces",
    "Restores",
    "Row",
    "State",
    "Stored",
    "Updates",
]


@dataclass(frozen=True, order=True)
class Row:
    """One row; ``value`` may be null, and ``id`` is unique within a table."""

    id: int
    value: int | None
    part: str

    @property
    def sortable(self):
        return self.id, self.part, self.value is None, self.value or 0


@dataclass(frozen=True)
class Stored:
    """A row in the table.

    Attributes:
        birth: the version that inserted it: a row deleted and inserted again is a different one.
        origin: the version that gave it its values; RESTORE can bring back an earlier one.
        written: the version that wrote it last.
        blind: whether ``written`` was a blind append.
    """

    row: Row
    birth: int
    origin: int
    written: int
    blind: bool = False

    @classmethod
    def new(cls, row, version, *, blind=False):
        return cls(row, version, version, version, blind)

    def updated(self, value, version):
        return replace(self, row=replace(self.row, value=value), origin=version, written=version, blind=False)


State = Mapping[int, Stored]
"""By id."""

Condition = Callable[[Row], bool]


@dataclass(frozen=True)
class Moment:
    """The point at which a transaction takes effect.

    Attributes:
        version: the version that it commits.
        read_version: the version that it was planned at.
        skips_blind: whether it precedes, in the serial order, the blind appends that it did not see.
        restored: whether a RESTORE happened in between.
        states: the state of each earlier version.
        ids_in: ids of the live rows in these files in the version before, by path.
    """

    version: int
    read_version: int
    skips_blind: bool
    restored: bool
    states: list
    ids_in: Callable[[str], set]

    def sees(self, stored):
        """Whether the transaction sees a row, by its place in the serial order."""
        return not (self.skips_blind and stored.blind and stored.written > self.read_version)


class Effect:
    """A transaction's effect on the rows before it."""

    def on(self, state, now):
        raise NotImplementedError


@dataclass(frozen=True)
class Nothing(Effect):
    """Rows are rearranged, or not touched."""

    def on(self, state, _now):
        return state


@dataclass(frozen=True)
class Appends(Effect):
    rows: tuple
    blind: bool = True

    def on(self, state, now):
        assert not [row for row in self.rows if row.id in state], "the test inserts an id twice"
        return {
            **state,
            **{row.id: Stored.new(row, now.version, blind=self.blind) for row in self.rows},
        }


@dataclass(frozen=True)
class Replaces(Effect):
    """Replaces the rows that meet a condition: DELETE if by none, replaceWhere, overwrite."""

    condition: Condition
    rows: tuple = ()

    def on(self, state, now):
        kept = {
            key: stored
            for key, stored in state.items()
            if not (now.sees(stored) and self.condition(stored.row))
        }
        return {**kept, **{row.id: Stored.new(row, now.version) for row in self.rows}}


@dataclass(frozen=True)
class RemovesRows(Effect):
    """Removes specific rows: ``rows`` has the id, birth and origin of each.

    A RESTORE in between may leave an earlier state of such a row in another file, which does not count.
    """

    rows: frozenset

    def on(self, state, now):
        return {key: stored for key, stored in state.items() if not self.has(stored, now)}

    def has(self, stored, now):
        if now.restored:
            return (stored.row.id, stored.birth, stored.origin) in self.rows
        return any((stored.row.id, stored.birth) == known[:2] for known in self.rows)


@dataclass(frozen=True)
class RemovesFiles(RemovesRows):
    """Removes specific files, with all rows in them."""

    paths: tuple = ()

    def on(self, state, now):
        there = set().union(*map(now.ids_in, self.paths))
        return {key: stored for key, stored in super().on(state, now).items() if key not in there}


@dataclass(frozen=True)
class Updates(Effect):
    condition: Condition
    value: int | None

    def on(self, state, now):
        return {
            key: stored.updated(self.value, now.version)
            if now.sees(stored) and self.condition(stored.row)
            else stored
            for key, stored in state.items()
        }


@dataclass(frozen=True)
class Merges(Effect):
    """MERGE on id: matching rows get the source's value, and source rows without a match are inserted."""

    source: tuple
    matched: Condition
    inserts: bool

    def on(self, state, now):
        result = dict(state)
        for row in self.source:
            stored = state.get(row.id)
            if stored is not None and now.sees(stored):
                if self.matched(stored.row):
                    result[row.id] = stored.updated(row.value, now.version)
            elif self.inserts:
                assert stored is None, "the test merges an id that was appended blindly"
                result[row.id] = Stored.new(row, now.version)
        return result


@dataclass(frozen=True)
class Restores(Effect):
    version: int

    def on(self, state, now):
        result = {}
        for key, old in now.states[self.version].items():
            there = state.get(key)
            stays = there is not None and (there.birth, there.origin) == (old.birth, old.origin)
            result[key] = there if stays else replace(old, written=now.version, blind=False)
        return result
